"""An OpenAI-compatible LLM server made of two programs; this package holds the command line and offline use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagewire.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "__version__"]


def __getattr__(name: str) -> Any:
    """Import ``LLM`` on first use: it needs torch, which a frontend-only host does not have."""
    if name == "LLM":
        from pagewire.llm import LLM

        return LLM
    raise AttributeError(f"module 'pagewire' has no attribute {name!r}")
