"""Real programs: one engine and one frontend for all tests of a module, or fresh ones for a test that breaks them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.programs import Deployment, Frontend

# float32: what a request gets does not depend on its neighbours, to the last bit of the choice.
TINY_ENGINE = ("--dtype", "float32", "--num-kv-blocks", "4096")


@pytest.fixture(scope="module")
def deployment(tiny_model_directory: Path) -> Iterator[Deployment]:
    """An engine that serves the tiny model; tests add frontends and leave the engine as it is."""
    with Deployment.running() as deployment:
        deployment.start_engine(tiny_model_directory, *TINY_ENGINE)
        yield deployment


@pytest.fixture(scope="module")
def frontend(deployment: Deployment) -> Frontend:
    """A frontend with default options, ready."""
    frontend = deployment.start_frontend()
    frontend.wait_until_ready()
    return frontend


@pytest.fixture
def own_deployment() -> Iterator[Deployment]:
    """Nothing runs yet, and the test may do with it as it likes."""
    with Deployment.running() as deployment:
        yield deployment
