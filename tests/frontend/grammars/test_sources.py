"""Regular expressions, choices, grammars and tags: what becomes a source, and what is refused where."""

import json
import threading
import time
from typing import Any

import pytest
from llguidance import LLMatcher

from pagewire.frontend.grammars.checker import Asked, BusyError, GrammarChecker
from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.repeats import expansion
from pagewire.frontend.grammars.sources import Kind, grammar_source
from pagewire.protocol.grammar import MAX_GRAMMAR_CHARS
from tests.json_schema_cases import TOKENIZER, allows_text

TAGS = {
    "structures": [
        {
            "begin": "<f=add>",
            "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
            "end": "</f>",
        }
    ],
    "triggers": ["<f="],
}


def language(kind: Kind, value: Any) -> LLMatcher:
    return LLMatcher(TOKENIZER, grammar_source(kind, value), log_level=0)


@pytest.mark.parametrize(
    ("kind", "value", "inside", "outside"),
    [
        ("json_object", None, ['{"a": [1]}', "{}"], ["[]", "{", "1"]),
        ("json_schema", True, ["1", "[]"], ["x"]),
        ("regex", r"^\d{3}-[a-z]+$", ["123-ab"], ["123-", "x123-ab"]),
        ("regex", 'a/b\n"c', ['a/b\n"c'], ["a/b"]),
        ("choice", ["yes", 'q"\\', "é\n"], ["yes", 'q"\\', "é\n"], ["no", "yesyes"]),
        ("grammar", 'start: "a" b+\nb: /[0-9]/', ["a1", "a12"], ["a"]),
        ("grammar", "%llguidance {}\nstart: A // <not a token>\nA: /a{3}/", ["aaa"], ["aa"]),
        ("grammar", 'root ::= "yes" | "no" ws\nws ::= [ ]{0,3}', ["yes", "no  "], ["maybe"]),
        ("grammar", 'start: "a ::= b"', ["a ::= b"], ["a"]),
        ("structural_tag", TAGS, ["hi", 'hi <f=add>{"a":1}</f> bye', "<f"], ["<f=sub>", '<f=add>{"b":1}</f>', "<f="]),
        ("structural_tag", json.dumps(TAGS), ["hi"], ["<f=sub>"]),
    ],
)
def test_a_source_means_what_was_asked_for(kind: Kind, value: Any, inside: list[str], outside: list[str]) -> None:
    matcher = language(kind, value)
    assert [text for text in inside if not allows_text(matcher, text)] == []
    assert [text for text in outside if allows_text(matcher, text)] == []


@pytest.mark.parametrize(
    ("kind", "value", "path", "what"),
    [
        ("regex", "[.*", "", "unclosed"),
        ("regex", "(?=a)b", "", "look-around"),
        ("regex", 5, "", "regular expression"),
        ("regex", "a{1000000}", "", "repetitions"),
        ("choice", [], "", "at least one"),
        ("choice", ["a", 1], "[1]", "string"),
        ("choice", ["\ud800"], "", "surrogate"),
        ("grammar", "start: missing", "", "unknown name"),
        ("grammar", 'root ::= "', "", "GBNF"),
        ("grammar", 'start: "x" <|im_end|>', "", "special tokens"),
        ("grammar", 'start: %json {"not": {}}', "", "%json"),
        ("grammar", '%llguidance {"allow_invalid_utf8": true}\nstart: "x"', "", "options"),
        ("grammar", "start: a[lazy]", "", "options of rules"),
        ("grammar", "start: @other", "", "other grammars"),
        ("grammar", 'start: "x', "", "not closed"),
        ("grammar", "start: /a\nb/ <|im_end|> /c/", "", "special tokens"),
        ("grammar", "%llguidance { {", "", "options"),
        ("grammar", "start: A\nA: " + "/a{999999999}/ " * 1000, "", "repetitions"),
        ("regex", "a" * (MAX_GRAMMAR_CHARS + 1), "", "characters"),
        ("json_schema", {"pattern": "a" * (MAX_GRAMMAR_CHARS + 1)}, ".pattern", "characters"),
        ("grammar", "\n".join(f"a{i}: a{i + 1}" for i in range(600)), "", "rules"),
        ("grammar", "start: A\nA: " + " & ".join(["/(.*a.*|b)/"] * 200), "", "intersections"),
        ("grammar", "start: A\nA: B{100}\nB: C{100}\nC: /x/", "", "repetitions"),
        ("grammar", "x" * (MAX_GRAMMAR_CHARS + 1), "", "characters"),
        ("structural_tag", {"format": {}}, ".structures", "list"),
        ("structural_tag", {**TAGS, "triggers": ["<g"]}, ".structures[0].begin", "triggers"),
        (
            "structural_tag",
            {"structures": [{"begin": "<a>", "schema": {"type": "x"}, "end": ""}], "triggers": ["<a"]},
            ".structures[0].schema.type",
            "expected one of",
        ),
    ],
)
def test_a_refusal_says_what_and_where(kind: Kind, value: Any, path: str, what: str) -> None:
    with pytest.raises(GrammarError) as caught:
        grammar_source(kind, value)
    assert caught.value.path == path
    assert what in caught.value.message


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("grammar", "start: /x" + "[a]" * 80_000 + "\n"),
        ("grammar", "start: /x" + "[a" * 100_000 + "/"),
        ("grammar", "start: " + "/[" * 100_000),
        ("grammar", 'start: "' + '\\"' * 100_000),
        ("grammar", "\n" * 200_000 + "="),
        ("grammar", "a" + " " * 200_000 + "="),
        ("grammar", "a" + "\n" * 200_000 + "="),
        ("grammar", "%llguidance{" * 20_000),
        ("grammar", "%llguidance" + " " * 200_000),
        ("grammar", "start: /x/\n" + "# {999999999}\n" * 15_000),
        ("regex", "[" * 200_000),
        ("regex", "a" + "{9" * 100_000),
        ("regex", "(a" + "~ " * 100_000),
        ("regex", "a" + "{999999999}" * 20_000),
        ("json_schema", {"pattern": "[" * 200_000}),
        ("json_schema", {"pattern": r"\p{" * 60_000}),
    ],
)
def test_text_that_is_hard_to_read_takes_time_in_proportion_to_its_length(kind: Kind, value: Any) -> None:
    # Half a second at most where this was measured; what took quadratic time took from 20 s to many years.
    begun = time.process_time()
    with pytest.raises(GrammarError):
        grammar_source(kind, value)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("pattern", "times"),
    [
        ("abc", 1),
        ("a{3}", 3),
        ("a{2,7}b{5}", 7),
        ("(a{2}){3}", 6),
        ("((a{2}b){3}c){4}", 24),
        (r"\{9}", 1),
        (r"\({9}", 9),
        ("[(]{9}", 9),
        ("[{9}]", 1),
        ("(a|b{4}){,5}", 20),
        ("(a{2})+{3}", 6),
        ("a{99999999999}", 10**9),
        ('"x"~2..8', 8),
    ],
)
def test_nested_repetitions_multiply(pattern: str, times: int) -> None:
    assert expansion(pattern) == times


async def test_what_was_checked_once_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []

    def counting(kind: Kind, value: Any) -> str:
        checked.append(value)
        return grammar_source(kind, value)

    monkeypatch.setattr("pagewire.frontend.grammars.checker.grammar_source", counting)
    checker = GrammarChecker()
    for _ in range(2):
        assert await checker.source(Asked("regex", "a+", "x")) == grammar_source("regex", "a+")
        with pytest.raises(GrammarError, match="unclosed"):
            await checker.source(Asked("regex", "[a", "x"))
    assert checked == ["a+", "[a"]
    checker.close()


async def test_a_schema_may_hold_numbers_of_any_size() -> None:
    assert str(2**70) in await GrammarChecker().source(Asked("json_schema", {"const": 2**70}, "x"))


async def test_what_is_nested_too_deeply_is_refused() -> None:
    nested: Any = {}
    for _ in range(10_000):
        nested = {"items": nested}
    with pytest.raises(GrammarError, match="nested too deeply"):
        await GrammarChecker().source(Asked("json_schema", nested, "x"))


async def test_a_slow_check_is_given_up_and_those_behind_it_are_not_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def slow(kind: Kind, value: Any) -> str:
        go_on.wait(20)
        return grammar_source(kind, value)

    monkeypatch.setattr("pagewire.frontend.grammars.checker.grammar_source", slow)
    checker = GrammarChecker(max_seconds=0.2)
    for pattern in ("a", "b"):
        with pytest.raises(GrammarError, match="longer than"):
            await checker.source(Asked("regex", pattern, "x"))
    with pytest.raises(BusyError):
        await checker.source(Asked("regex", "c", "x"))
    assert checker.running
    go_on.set()
    for pattern in ("a", "b", "c"):
        assert await checker.source(Asked("regex", pattern, "x")) == grammar_source("regex", pattern)
    checker.close()
