"""From what a client asks for to a grammar in llguidance's notation, the one that engines read."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from llguidance import LLMatcher

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.json_schema import enforceable_schema
from pagewire.frontend.grammars.lark import lark_source
from pagewire.frontend.grammars.repeats import check_repeats
from pagewire.protocol.grammar import MAX_GRAMMAR_CHARS, first_line, parser_limits
from pagewire.protocol.panics import no_panics

Kind = Literal["json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"]

MAX_CHOICES = 10_000
MAX_TAGS = 64


@no_panics()
def grammar_source(kind: Kind, value: Any) -> str:
    """Build and check a grammar; raises GrammarError. Takes milliseconds as a rule: not for an event loop."""
    try:
        source = _BUILDERS[kind](value)
        # JSON that came over the wire may hold half of a surrogate pair, which no text can.
        source.encode()
    except UnicodeEncodeError:
        raise GrammarError("it contains a character that is none (an unpaired surrogate)") from None
    if len(source) > MAX_GRAMMAR_CHARS:
        raise GrammarError(f"it has {len(source)} characters, more than {MAX_GRAMMAR_CHARS}")
    is_error, messages = LLMatcher.validate_grammar_with_warnings(source, None, limits=parser_limits())
    if is_error:
        raise GrammarError(first_line(messages[0]))
    return source


def _json_schema(schema: Any) -> str:
    return json.dumps({"grammars": [{"json_schema": enforceable_schema(schema)}]})


def _json_object(_: Any) -> str:
    return _json_schema({"type": "object"})


def _regex(pattern: Any) -> str:
    if not isinstance(pattern, str) or not pattern:
        raise GrammarError("expected a regular expression")
    check_repeats(pattern)
    source: str = LLMatcher.grammar_from_regex(pattern)
    return source


def _choice(choices: Any) -> str:
    if not isinstance(choices, list) or not choices:
        raise GrammarError("expected a list of at least one string")
    if len(choices) > MAX_CHOICES:
        raise GrammarError(f"it has {len(choices)} entries, more than {MAX_CHOICES}")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice:
            raise GrammarError("expected a string of at least one character", f"[{index}]")
    # A terminal: as a rule, every choice would be an item of the parser at every token.
    return f"start: CHOICE\nCHOICE: {' | '.join(json.dumps(choice, ensure_ascii=False) for choice in choices)}"


def _grammar(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise GrammarError("expected a grammar in Lark or GBNF notation")
    if len(text) > MAX_GRAMMAR_CHARS:
        raise GrammarError(f"it has {len(text)} characters, more than {MAX_GRAMMAR_CHARS}")
    return lark_source(text)


def _structural_tag(value: Any) -> str:
    """Free text, in which each trigger begins one of the tags, whose inside follows its schema."""
    structures, triggers = _read_tags(value)
    rules = [
        f"start: ({' | '.join(f'tag_{index}' for index in range(len(structures)))})* rest",
        "rest: TEXT",
        r"TEXT: /(.|\n)*/",
    ]
    for index, tag in enumerate(structures):
        path = f".structures[{index}]"
        begin, end = (_text_of(tag, name, path) for name in ("begin", "end"))
        trigger = next((trigger for trigger in triggers if begin.startswith(trigger)), None)
        if trigger is None:
            raise GrammarError("expected to begin with one of the triggers", f"{path}.begin")
        schema = _inside_schema(tag, path)
        # The tag's first rule ends as soon as it can, so text cannot run over a trigger.
        rules.append(f"head_{index}[lazy]: TEXT {_quote(trigger)}")
        body = [f"head_{index}", _quote(begin[len(trigger) :]), f"%json {json.dumps(schema)}", _quote(end)]
        rules.append(f"tag_{index}: {' '.join(part for part in body if part)}")
    return "\n".join(rules)


def _read_tags(value: Any) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise GrammarError("expected an object, or a string that is one in JSON") from None
    if not isinstance(value, dict):
        raise GrammarError("expected an object with 'structures' and 'triggers'")
    structures, triggers = value.get("structures"), value.get("triggers")
    if not isinstance(structures, list) or not all(isinstance(tag, dict) for tag in structures) or not structures:
        raise GrammarError("expected a list of at least one object", ".structures")
    if len(structures) > MAX_TAGS:
        raise GrammarError(f"it has {len(structures)} entries, more than {MAX_TAGS}", ".structures")
    if not isinstance(triggers, list) or not all(isinstance(trigger, str) and trigger for trigger in triggers):
        raise GrammarError("expected a list of strings", ".triggers")
    return structures, triggers


def _text_of(tag: Mapping[str, Any], name: str, path: str) -> str:
    text = tag.get(name)
    if not isinstance(text, str):
        raise GrammarError("expected a string", f"{path}.{name}")
    return text


def _inside_schema(tag: Mapping[str, Any], path: str) -> Any:
    try:
        schema = enforceable_schema(tag.get("schema"))
    except GrammarError as error:
        raise GrammarError(error.message, f"{path}.schema{error.path}") from None
    return {} if schema is True else schema


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


_BUILDERS: Mapping[Kind, Callable[[Any], str]] = {
    "json_schema": _json_schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}
