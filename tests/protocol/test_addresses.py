import os

import pytest

from pagewire.protocol.addresses import (
    AddressError,
    check_exposure,
    default_address,
    parse_address,
    prepare_ipc_directories,
    prepare_ipc_directory,
)


def test_the_default_address_lies_in_the_users_runtime_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_address() == f"ipc://{tmp_path}/pagewire/engine"


def test_without_a_runtime_directory_it_lies_under_the_temporary_one(monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert default_address().endswith(f"/pagewire-{os.getuid()}/engine")


def test_the_directory_is_made_for_the_user_alone(tmp_path):
    prepare_ipc_directory(str(tmp_path / "new" / "pagewire" / "engine"))
    assert (tmp_path / "new" / "pagewire").stat().st_mode & 0o777 == 0o700


def test_a_private_directory_is_used_again(tmp_path):
    path = str(tmp_path / "pagewire" / "engine")
    prepare_ipc_directory(path)
    prepare_ipc_directory(path)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_can_enter_is_refused(tmp_path, mode):
    directory = tmp_path / "pagewire"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(AddressError, match="open to others"):
        prepare_ipc_directory(str(directory / "engine"))


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    directory = tmp_path / "pagewire"
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(AddressError, match="another user"):
        prepare_ipc_directory(str(directory / "engine"))


def test_a_symbolic_link_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "pagewire").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AddressError, match="not a directory"):
        prepare_ipc_directory(str(tmp_path / "pagewire" / "engine"))


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "pagewire").write_text("")
    with pytest.raises(AddressError, match="cannot make"):
        prepare_ipc_directory(str(tmp_path / "pagewire" / "engine"))


def test_of_several_addresses_every_sockets_directory_is_checked(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    addresses = ["tcp://127.0.0.1:5570", f"ipc://{tmp_path}/own/engine", f"ipc://{tmp_path}/open/engine"]
    with pytest.raises(AddressError, match="open to others"):
        prepare_ipc_directories(addresses)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_a_path_too_long_for_a_socket_is_refused_with_the_limit():
    parse_address("ipc:///" + "x" * 106)
    with pytest.raises(AddressError, match=r"108 bytes.*107"):
        parse_address("ipc:///" + "é" + "x" * 105)


@pytest.mark.parametrize(
    "value", ["", "engine", "http://x:1", "ipc://", "tcp://host", "tcp://:1", "tcp://host:x", "tcp://host:65536"]
)
def test_malformed_addresses_are_refused(value):
    with pytest.raises(AddressError):
        parse_address(value)


@pytest.mark.parametrize("value", ["tcp://127.0.0.1:5570", "tcp://localhost:1", "tcp://[::1]:1", "ipc:///tmp/x/engine"])
def test_addresses_of_this_machine_need_no_permission(value):
    check_exposure(value, insecure_tcp=False)


@pytest.mark.parametrize("value", ["tcp://*:5570", "tcp://0.0.0.0:1", "tcp://10.0.0.1:1", "tcp://host.example:1"])
def test_addresses_beyond_this_machine_must_be_allowed(value):
    with pytest.raises(AddressError, match="--insecure-tcp"):
        check_exposure(value, insecure_tcp=False)
    check_exposure(value, insecure_tcp=True)
