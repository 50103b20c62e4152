"""The one exception of everything that has to do with chat templates."""


class TemplateError(Exception):
    """A template could not be loaded, compiled or applied; the text is meant for the person who caused it.

    When a template refuses a conversation itself (``raise_exception``), the text is the template's own words.
    ``param`` names the part of the request that is at fault.
    """

    def __init__(self, message: str, param: str | None = "messages") -> None:
        """``message`` says what is wrong, ``param`` where."""
        super().__init__(message)
        self.message = message
        self.param = param
