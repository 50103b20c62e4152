"""How large regular expressions become when their repetitions are written out.

The library matches without backtracking, so no expression takes exponential time. But each step costs up to the size
of the expression, and ``((a{100}){100}){100}`` is a million long.
"""

import re

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.protocol.grammar import MAX_GRAMMAR_CHARS

# A step takes about 2 us for each repetition: ten milliseconds at most.
MAX_EXPANSION = 5000
# No product is larger: those of a whole grammar would be numbers of many thousand digits.
_BEYOND = 10**9
_REPEAT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}|~\s*(\d+)(?:\s*\.\.\s*(\d+))?")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*+\]", re.DOTALL)


def check_repeats(pattern: str, path: str = "") -> int:
    """Return how often the most repeated part of a regular expression occurs; raises GrammarError above the limit."""
    if len(pattern) > MAX_GRAMMAR_CHARS:
        raise GrammarError(f"it has {len(pattern)} characters, more than {MAX_GRAMMAR_CHARS}", path)
    size = expansion(pattern)
    if size > MAX_EXPANSION:
        raise GrammarError(f"its repetitions, multiplied, are {size}, more than {MAX_EXPANSION}", path)
    return size


def expansion(pattern: str) -> int:
    """The largest product of nested repetition counts; 1 if nothing is repeated by number.

    It is never more than 10**9.
    """
    groups = [1]  # the largest product found so far within each open group
    last = 1  # that of the piece just read, which a count would multiply
    place = 0
    may_close = True  # where one class does not end, no later one does: looking again would take quadratic time
    while place < len(pattern):
        char = pattern[place]
        if repeat := _REPEAT.match(pattern, place) if char in "{~" else None:
            last = min(last * _count(repeat), _BEYOND)
            groups[-1] = max(groups[-1], last)
            place = repeat.end()
            continue
        if char == "(":
            groups.append(1)
        elif char == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] = max(groups[-1], last)
        elif char not in "*+?":
            last = 1
        if char == "\\":
            place += 2
        elif char == "[" and may_close:
            found = _CLASS.match(pattern, place)
            may_close = found is not None
            place = found.end() if found else place + 1
        else:
            place += 1
    return max(groups)


def _count(repeat: re.Match[str]) -> int:
    digits = max((group for group in repeat.groups() if group and group != ","), key=len, default="1")
    numbers = [int(group[:9]) for group in repeat.groups() if group and group != ","]
    return _BEYOND if len(digits) > 9 else max([1, *numbers])
