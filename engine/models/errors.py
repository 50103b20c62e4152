"""The one error that loading a model raises."""


class ModelError(ValueError):
    """The model cannot be found or served; the message is one line that says what is wrong and what was expected."""
