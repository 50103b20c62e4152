"""Fixtures that tests of the engine share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pagewire.engine.models.base import Model
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_model


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch on one thread: two that share busy cores wait for each other more than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(one_thread: None, tiny_model_directory: Path) -> Model:
    return load_model(resolve_model(str(tiny_model_directory)), "float32", torch.device("cpu"))


@pytest.fixture(params=[False, True], ids=["in-step", "runs-ahead"])
def runs_ahead(request: pytest.FixtureRequest) -> bool:
    """Whether the core collects a step while the next one runs, as on a GPU."""
    return bool(request.param)
