"""What is wrong with a grammar, and where."""


class GrammarError(Exception):
    """A grammar that cannot be used. ``path`` leads to the place at fault, from where the grammar stands."""

    def __init__(self, message: str, path: str = ""):
        """``path`` is empty or begins with ``.`` or ``[``."""
        super().__init__(message)
        self.message = message
        self.path = path
