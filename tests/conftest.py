"""Fixtures that tests of several parts share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that ``--model`` takes: a random model with a tokenizer and a chat template."""
    # Imports torch, which tests of the frontend alone never need.
    from tests.tiny_chat_model import NAME, write_tiny_chat_model

    return write_tiny_chat_model(tmp_path_factory.mktemp("models") / NAME)
