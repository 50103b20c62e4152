"""The ``pattern`` keyword: from regular expressions as ECMA-262 means them to those of the library.

Nearly everything means the same in both. What is read differently is rewritten here, and what only one of them knows
is refused: a pattern that were taken in another sense would let other strings through.
"""

import re

from pagewire.frontend.grammars.errors import GrammarError

# White space and line ends as the standard lists them, for the inside of a class.
_SPACE = r"\t\n\x0b\x0c\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_LINE_END = r"\n\r\x{2028}\x{2029}"
_REWRITTEN = {r"\s": f"[{_SPACE}]", r"\S": f"[^{_SPACE}]", ".": f"[^{_LINE_END}]"}
_PIECE = re.compile(
    r"\\u\{(?P<point>[0-9a-fA-F]{1,6})\}"
    r"|\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Za-z]|[pP]\{[^{}\\]*\}|.)"
    r"|\(\?(?:<?[=!]|:|<[A-Za-z_$][\w$]*>)?"
    r"|.",
    re.DOTALL,
)
_KNOWN_ESCAPES = frozenset("dDwWsStnrvfbBuxpP0^$\\.*+?()[]{}|/-")


def ecma_pattern(pattern: str, path: str = "") -> str:
    """The pattern in the library's notation; raises GrammarError for what has no meaning in ECMA-262."""
    pieces: list[str] = []
    start_of_class: int | None = None
    for found in _PIECE.finditer(pattern):
        piece = found.group()
        if piece.startswith("\\"):
            pieces.append(_escape(found, path))
        elif start_of_class is not None:
            if piece == "]":
                if len(pieces) == start_of_class:
                    raise GrammarError("an empty class matches nothing", path)
                start_of_class = None
                pieces.append(piece)
            elif pattern.startswith("--", found.start()):
                raise GrammarError("two hyphens in a row within a class are not supported", path)
            else:
                # Only ECMA-262 takes these for themselves within a class.
                pieces.append(f"\\{piece}" if piece in "[&~" else piece)
        elif piece == "[":
            negated = pattern[found.end() : found.end() + 1] == "^"
            pieces.append(piece)
            start_of_class = len(pieces) + negated
        elif piece == "(?":
            raise GrammarError("a group that begins with '(?' in this way is not supported", path)
        else:
            pieces.append(_REWRITTEN.get(piece, piece))
    return "".join(pieces)


def _escape(found: re.Match[str], path: str) -> str:
    piece = found.group()
    if found["point"]:
        return rf"\x{{{found['point']}}}"
    if found["high"]:
        pair = bytes.fromhex(found["high"] + found["low"]).decode("utf-16-be")
        return rf"\x{{{ord(pair):x}}}"
    if piece[1:2] not in _KNOWN_ESCAPES:
        raise GrammarError(f"the escape '{piece[:8]}' is not supported", path)
    if piece == r"\0":
        return r"\x00"
    return _REWRITTEN.get(piece, piece)
