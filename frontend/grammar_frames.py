"""Grammars in llguidance's notation (Lark, or JSON that lists grammars): putting one into another."""

import json
from collections.abc import Callable


def framed(frame: Callable[[str], str], source: str) -> str:
    """The grammar ``frame`` (Lark) around the grammar ``source``, given how to refer to it."""
    grammars = json.loads(source)["grammars"] if source.lstrip().startswith("{") else [{"lark_grammar": source}]
    # Counting keeps names apart when what is framed is a frame itself.
    name = f"framed_{len(grammars)}"
    return json.dumps({"grammars": [{"lark_grammar": frame(f"@{name}")}, {**grammars[0], "name": name}, *grammars[1:]]})


def as_regex(text: str) -> str:
    """A pattern of just this text, for a notation that ends patterns with a slash."""
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)
