"""What the template tool knows of a model, read from its files: no server, no weights."""

from pagewire.protocol.messages import Model


class ModelUnavailableError(Exception):
    """The model's files cannot be read; the text says why."""


def read_model(model: str) -> Model:
    """Return the description of a model: an alias, a hub id, a directory or a GGUF file.

    Raises ModelUnavailableError.
    """
    try:
        from pagewire.engine.models.describe import describe_model
        from pagewire.engine.models.errors import ModelError
        from pagewire.engine.models.files import resolve_model
        from pagewire.engine.models.loader import load_config, resolve_dtype
    except ImportError as error:
        raise ModelUnavailableError(
            f"reading a model's files needs pip install 'pagewire[engine]' ({error.name} is missing)"
        ) from error
    try:
        files = resolve_model(model)
        config = load_config(files)
        return describe_model(files, config, resolve_dtype(config, "auto"), created=0)
    except ModelError as error:
        raise ModelUnavailableError(str(error)) from error
