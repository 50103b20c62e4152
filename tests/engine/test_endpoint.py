"""An endpoint is made ready without harm to whoever, or whatever, is there already."""

import socket
from pathlib import Path

import pytest

from pagewire.engine.endpoint import prepare_endpoint
from pagewire.protocol.addresses import AddressError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "engine"


def test_a_socket_that_nobody_listens_at_makes_way(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    prepare_endpoint(f"ipc://{path}")
    assert not path.exists()


def test_a_living_engine_keeps_its_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        engine.listen()
        with pytest.raises(AddressError, match="an engine is running there"):
            prepare_endpoint(f"ipc://{path}")
    assert path.exists()


def test_a_file_of_the_users_is_left_alone(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(AddressError, match="no socket"):
        prepare_endpoint(f"ipc://{path}")
    assert path.read_text() == "precious"
