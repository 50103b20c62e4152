"""Patterns of schemas mean what ECMA-262 says, or are refused."""

import pytest

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.patterns import ecma_pattern
from tests.json_schema_cases import allows, matcher_of


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (r"^\S$", ["a", "\x85"], [" ", "\ufeff", "\u2003"]),
        (r"^\s$", [" ", "\ufeff"], ["a", "\x85"]),
        (r"^[^\s]$", ["a", "\x85"], ["\ufeff"]),
        ("^.$", ["a", "\x85", "🐲"], ["\n", "\r", "\u2028"]),
        (r"^[.\s]$", [".", "\ufeff"], ["a"]),
        (r"^\d\w$", ["1a"], ["١a", "1é"]),
        ("^[a-z&&[^b]]$", ["&]", "a]", "[]", "b]", "^]"], ["a", "b", "d&"]),
        ("^[a~~b]$", ["a", "~", "b"], ["c"]),
        (r"^\u{1F432}|\ud83d\udc32x$", ["🐲", "🐲abc", "abc🐲x"], ["🐉"]),
        (r"^[\u00e0-\u00e9]\x41$", ["éA"], ["ëA"]),
        ("^a|b$", ["ax", "xb", "a", "b"], ["xax", "bx"]),
        ("a", ["xax"], ["x"]),
        (r"^(?<year>\d{2})(?:-|\/)$", ["12/", "12-"], ["1-"]),
        (r"^\$\.\*$", ["$.*"], ["$a"]),
    ],
)
def test_a_pattern_takes_what_the_standard_says(pattern: str, inside: list[str], outside: list[str]) -> None:
    matcher = matcher_of({"type": "string", "pattern": pattern})
    assert matcher is not None
    assert [text for text in inside if not allows(matcher, text)] == []
    assert [text for text in outside if allows(matcher, text)] == []


@pytest.mark.parametrize("pattern", ["[]a]", "[^]", "(?i)a", "(?P<a>b)", r"\Aa", r"a\z", r"\cA", r"\h", "[a--b]", "\\"])
def test_what_only_one_dialect_knows_is_refused(pattern: str) -> None:
    with pytest.raises(GrammarError):
        ecma_pattern(pattern)


def test_names_follow_patterns_of_the_standard_too() -> None:
    matcher = matcher_of({"type": "object", "patternProperties": {r"^\S$": {"type": "integer"}}})
    assert matcher is not None
    assert allows(matcher, {"a": 1, "\ufeff": "x"})
    assert not allows(matcher, {"a": "x"})
