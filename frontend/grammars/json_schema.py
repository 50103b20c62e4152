"""JSON Schemas, reduced to the keywords that the engine enforces.

A keyword is kept if it is enforced, dropped if the standard gives it no power over what is valid, and refused
otherwise: a schema that is accepted is enforced as a whole. What is kept is checked closely enough that errors name
the place in the client's own schema.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from llguidance import LLMatcher

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.formats import ENFORCED, MISSING, PATTERNS
from pagewire.frontend.grammars.patterns import ecma_pattern
from pagewire.frontend.grammars.repeats import check_repeats
from pagewire.protocol.grammar import MAX_GRAMMAR_CHARS, first_line
from pagewire.protocol.panics import no_panics

# The library follows schemas and references by recursion; it was seen to run out of stack at 1,500 levels.
MAX_DEPTH = 64
MAX_LEVELS = 500
# Work that grows with the square of these: a second at twice as many.
MAX_PROPERTIES = 1000
MAX_PATTERN_PROPERTIES = 32
# Each takes two characters at least: more of them, and a schema is known to be too long before it is written down.
_MAX_PARTS = MAX_GRAMMAR_CHARS // 2
# A number's multiples are found by an automaton with as many states.
MAX_MULTIPLE_OF = 10_000
# Letters after a backslash in JSON's strings. No \\uXXXX: the library takes "\\u0061" for another name than "a", with
# which any property could hold anything.
ALLOWED_ESCAPES = 'nrbtf\\"'
_STYLE = {
    # White space that may stand between two tokens of JSON. Left free, weak models fill whole answers with it.
    "whitespace_pattern": r"[ \n\r\t]{1,20}",
    "json_allowed_escapes": ALLOWED_ESCAPES,
}

# Characters that JSON can only write as \uXXXX.
_UNWRITABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")
_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_SINGLES = ("additionalProperties", "items")
_UNENFORCED = frozenset(
    {
        "not",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
        "$recursiveRef",
        "extends",
        "disallow",
        "divisibleBy",
    }
)


def enforceable_schema(schema: Any) -> Any:
    """The schema as the engine's grammars take it; raises GrammarError."""
    walk = _Walk()
    reduced = walk.schema(schema, "", ("#",))
    walk.check_references()
    if len(json.dumps(reduced)) > MAX_GRAMMAR_CHARS:
        raise _too_long()
    return {**reduced, "x-guidance": _STYLE} if isinstance(reduced, dict) else reduced


Pointer = tuple[str, ...]


class _Walk:
    """One pass over a schema. ``heights`` has the nesting below every place that is a schema."""

    def __init__(self) -> None:
        self._heights: dict[Pointer, int] = {}
        self._references: dict[Pointer, str] = {}  # target, and where it was first referred to
        self._level = self._deepest = 0
        self._pattern_chars = 0
        self._schemas = 0
        self._keywords: dict[str, Callable[[Any, str, Mapping[str, Any]], None]] = {
            "type": _check_type,
            "enum": _check_enum,
            "const": _check_const,
            "required": _check_required,
            "multipleOf": _check_multiple_of,
            **dict.fromkeys(_COUNTS, _check_count),
            **dict.fromkeys(_BOUNDS, _check_bound),
        }

    def schema(self, schema: Any, path: str, pointer: Pointer) -> Any:
        """Reduce one schema, whose place is ``path`` for people and ``pointer`` for references."""
        if not isinstance(schema, dict | bool):
            raise GrammarError("expected a schema (an object or a boolean)", path)
        self._level += 1
        if self._level > MAX_DEPTH:
            raise GrammarError(f"it is nested more than {MAX_DEPTH} deep", path)
        self._schemas += 1
        if self._schemas > _MAX_PARTS:
            raise _too_long()
        outer, self._deepest = self._deepest, self._level
        reduced: dict[str, Any] = {}
        if isinstance(schema, dict):
            for keyword, value in schema.items():
                self._keyword(reduced, keyword, value, schema, path, pointer)
        self._heights[pointer] = self._deepest - self._level + 1
        self._deepest = max(outer, self._deepest)
        self._level -= 1
        return schema if isinstance(schema, bool) else reduced

    def check_references(self) -> None:
        """Every reference leads to a schema, and following them cannot lead too deep."""
        levels = self._heights.get(("#",), 1)
        for target, path in self._references.items():
            if target not in self._heights:
                raise GrammarError("it leads to no schema within this one", path)
            levels += self._heights[target]
        if levels > MAX_LEVELS:
            raise GrammarError(f"its references, followed, can lead through {levels} levels, more than {MAX_LEVELS}")

    def _keyword(
        self, reduced: dict[str, Any], keyword: str, value: Any, schema: dict[str, Any], path: str, pointer: Pointer
    ) -> None:
        at = f"{path}.{keyword}"
        if check := self._keywords.get(keyword):
            check(value, at, schema)
            reduced[keyword] = value
        elif keyword in _LISTS:
            reduced[keyword] = self._list(value, at, (*pointer, keyword))
        elif keyword in _MAPS:
            reduced[keyword] = self._map(value, at, (*pointer, keyword))
        elif keyword == "items" and isinstance(value, list):
            reduced["prefixItems"] = self._list(value, at, (*pointer, keyword))
            if "additionalItems" in schema:
                rest = self.schema(schema["additionalItems"], f"{path}.additionalItems", (*pointer, "additionalItems"))
                reduced["items"] = rest
        elif keyword in _SINGLES:
            reduced[keyword] = self.schema(value, at, (*pointer, keyword))
        elif keyword == "pattern":
            reduced[keyword] = self._pattern(value, at)
        elif keyword == "$ref":
            self._references.setdefault(_target(value, at), at)
            reduced[keyword] = value
        elif keyword == "format":
            _add_format(reduced, value, at, schema)
        else:
            _check_without_power(keyword, value, at, schema, is_root=len(pointer) == 1)

    def _list(self, value: Any, path: str, pointer: Pointer) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise GrammarError("expected a list of schemas", path)
        return [self.schema(entry, f"{path}[{i}]", (*pointer, str(i))) for i, entry in enumerate(value)]

    def _map(self, value: Any, path: str, pointer: Pointer) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise GrammarError("expected an object whose values are schemas", path)
        is_patterns = pointer[-1] == "patternProperties"
        limit = MAX_PATTERN_PROPERTIES if is_patterns else MAX_PROPERTIES
        if len(value) > limit:
            raise GrammarError(f"it has {len(value)} entries, more than {limit}", path)
        reduced = {}
        for name, entry in value.items():
            _check_writable(name, path)
            kept = self._pattern(name, path) if is_patterns else name
            reduced[kept] = self.schema(entry, f"{path}.{name}", (*pointer, name))
        return reduced

    def _pattern(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise GrammarError("expected a string", path)
        # They are all part of the source in the end. Known sooner, it costs nothing to check them.
        self._pattern_chars += len(value)
        if self._pattern_chars > MAX_GRAMMAR_CHARS:
            raise GrammarError(f"the patterns up to here have more than {MAX_GRAMMAR_CHARS} characters", path)
        return _checked_pattern(value, path)


def _target(value: Any, path: str) -> Pointer:
    if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
        raise GrammarError("only references within the schema, such as '#/$defs/name', are supported", path)
    steps = unquote(value).split("/")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def _add_format(reduced: dict[str, Any], value: Any, path: str, schema: Mapping[str, Any]) -> None:
    if not isinstance(value, str):
        raise GrammarError("expected a string", path)
    if value in MISSING:
        raise GrammarError(f"the format '{value}' is not supported", path)
    if value in ENFORCED:
        reduced["format"] = value
    elif value in PATTERNS:
        # A pattern of the client's own has the keyword itself.
        reduced["allOf"] = [*reduced.get("allOf", ()), {"pattern": PATTERNS[value]}]


def _check_without_power(keyword: str, value: Any, path: str, schema: Mapping[str, Any], *, is_root: bool) -> None:
    """A keyword that is not enforced must not decide what is valid."""
    powerless = {
        "uniqueItems": value is False,
        "if": "then" not in schema and "else" not in schema,
        "then": "if" not in schema,
        "else": "if" not in schema,
        "$id": is_root,
        "id": is_root or not isinstance(value, str),
    }
    if keyword in _UNENFORCED or not powerless.get(keyword, True):
        raise GrammarError(f"the keyword '{keyword}' is not supported", path)


def _check_type(value: Any, path: str, schema: Mapping[str, Any]) -> None:
    for name in value if isinstance(value, list) and value else [value]:
        if not isinstance(name, str) or name not in _TYPES:
            raise GrammarError(f"expected one of {', '.join(sorted(_TYPES))}, or a list of them", path)


def _check_enum(value: Any, path: str, schema: Mapping[str, Any]) -> None:
    if not isinstance(value, list) or not value:
        raise GrammarError("expected a list of at least one value", path)
    _check_values(value, path)


def _check_const(value: Any, path: str, schema: Mapping[str, Any]) -> None:
    _check_values([value], path)


def _check_values(values: list[Any], path: str) -> None:
    """Check what an answer may have to say literally."""
    level, depth, count = values, 0, 0
    while level:
        count += len(level)
        if count > _MAX_PARTS:
            raise _too_long(path)
        for node in level:
            _check_writable(node, path)
        level = [child for node in level for child in _children(node)]
        depth += 1
    if depth > MAX_DEPTH:
        raise GrammarError(f"it is nested more than {MAX_DEPTH} deep", path)


def _check_writable(value: Any, path: str) -> None:
    if isinstance(value, str) and _UNWRITABLE.search(value):
        raise GrammarError("control characters beside \\b, \\f, \\n, \\r and \\t are not supported", path)
    if isinstance(value, int | float) and not _is_in_range(value):
        raise _out_of_range(path)


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return [*node.keys(), *node.values()]
    return node if isinstance(node, list) else []


def _check_required(value: Any, path: str, schema: Mapping[str, Any]) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise GrammarError("expected a list of strings", path)
    if len(value) > MAX_PROPERTIES:
        raise GrammarError(f"it has {len(value)} entries, more than {MAX_PROPERTIES}", path)
    for name in value:
        _check_writable(name, path)


def _checked_pattern(value: str, path: str) -> str:
    check_repeats(value, path)
    pattern = ecma_pattern(value, path)
    with no_panics():
        alone = LLMatcher.grammar_from_json_schema({"type": "string", "pattern": pattern})
        problem = LLMatcher.validate_grammar(alone)
    if problem:
        raise GrammarError(first_line(problem), path)
    return pattern


def _check_multiple_of(value: Any, path: str, schema: Mapping[str, Any]) -> None:
    if not _is_number(value, path) or value <= 0:
        raise GrammarError("expected a number above 0", path)
    if value > MAX_MULTIPLE_OF:
        raise GrammarError(f"expected at most {MAX_MULTIPLE_OF}", path)


def _check_bound(value: Any, path: str, schema: Mapping[str, Any]) -> None:
    if not _is_number(value, path):
        raise GrammarError("expected a number", path)


def _check_count(value: Any, path: str, schema: Mapping[str, Any]) -> None:
    if not _is_number(value, path) or value < 0 or value != int(value):
        raise GrammarError("expected a whole number of at least 0", path)
    keyword = path.rpartition(".")[2]
    if keyword == "minProperties" and value > 1 and not _has_distinct_names(value, schema):
        # A name that stands twice in the text counts twice for the grammar, but once in the object.
        raise GrammarError("'minProperties' above 1 is supported only where the properties' names are given", path)


def _has_distinct_names(least: float, schema: Mapping[str, Any]) -> bool:
    required = schema.get("required")
    if isinstance(required, list) and len(set(map(str, required))) >= least:
        return True
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")


def _is_number(value: Any, path: str) -> bool:
    """Whether it is one; raises GrammarError if no double can hold it."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    if not _is_in_range(value):
        raise _out_of_range(path)
    return True


def _is_in_range(value: float) -> bool:
    return abs(value) <= sys.float_info.max


def _out_of_range(path: str) -> GrammarError:
    return GrammarError(f"expected a number that a double can hold, of at most {sys.float_info.max:.2g}", path)


def _too_long(path: str = "") -> GrammarError:
    return GrammarError(f"it is longer than {MAX_GRAMMAR_CHARS} characters", path)
