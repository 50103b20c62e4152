"""Half characters: JSON can spell surrogates that belong to no pair, which are no text, and UTF-8 cannot carry them."""

import json
from typing import Any


def without_surrogates(text: str) -> str:
    """Join pairs of surrogates to characters; a lone one becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_json(text: str) -> Any:
    """What JSON says, with nothing but text in its strings; raises ``ValueError``, and ``RecursionError``."""
    value = json.loads(text)
    # The other way to a surrogate would be one in ``text``, which came as UTF-8.
    return _cleaned(value) if "\\u" in text else value


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {without_surrogates(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return value
