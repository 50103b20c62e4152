"""Schemas: what is kept is enforced, what cannot be is refused with its place, and the rest means nothing."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.json_schema import MAX_DEPTH, MAX_PROPERTIES, enforceable_schema
from pagewire.protocol.panics import Panic
from tests.json_schema_cases import allows, allows_text, matcher_of, written_at_random


def refusal(schema: Any) -> tuple[str, str]:
    with pytest.raises(GrammarError) as caught:
        enforceable_schema(schema)
    return caught.value.path, caught.value.message


# JSON has no limit to it, a double has.
HUGE = 10**400


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("text", ""),
        ({"properties": {"foo": "bar"}}, ".properties.foo"),
        ({"properties": ["foo"]}, ".properties"),
        ({"type": "text"}, ".type"),
        ({"items": {"anyOf": []}}, ".items.anyOf"),
        ({"prefixItems": [{}, {"minLength": -1}]}, ".prefixItems[1].minLength"),
        ({"$defs": {"a": {"pattern": "[.*"}}}, ".$defs.a.pattern"),
        ({"patternProperties": {"[.*": {}}}, ".patternProperties"),
        ({"pattern": "((a{100}){100}){100}"}, ".pattern"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, ".properties.a.$ref"),
        ({"$ref": "https://example.com/schema"}, ".$ref"),
        ({"not": {"type": "string"}}, ".not"),
        ({"if": {}, "then": {}}, ".if"),
        ({"type": "array", "uniqueItems": True}, ".uniqueItems"),
        ({"properties": {"a": {"contains": {}}}}, ".properties.a.contains"),
        ({"properties": {"a": {"$id": "x"}}}, ".properties.a.$id"),
        ({"format": "idn-email"}, ".format"),
        ({"multipleOf": 0}, ".multipleOf"),
        ({"multipleOf": 999_983}, ".multipleOf"),
        ({"maximum": True}, ".maximum"),
        ({"enum": []}, ".enum"),
        ({"enum": ["nul \x00"]}, ".enum"),
        ({"required": "a"}, ".required"),
        ({"minProperties": 2}, ".minProperties"),
        ({"maximum": HUGE}, ".maximum"),
        ({"maxLength": HUGE}, ".maxLength"),
        ({"items": {"enum": [{"a": -HUGE}]}}, ".items.enum"),
        ({"enum": [1] * 200_000}, ".enum"),
    ],
)
def test_a_refusal_names_the_place(schema: Any, path: str) -> None:
    assert refusal(schema)[0] == path


def test_keywords_without_power_are_dropped() -> None:
    schema = {"title": "T", "description": "d", "x-guidance": {"lenient": True}, "type": "string", "deprecated": True}
    kept = enforceable_schema(schema)
    assert set(kept) == {"type", "x-guidance"}
    assert "lenient" not in kept["x-guidance"]


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "prefixItems"])
def test_deep_nesting_is_refused(keyword: str) -> None:
    schema: Any = {}
    for _ in range(MAX_DEPTH + 1):
        schema = {keyword: [schema]}
    assert "deep" in refusal(schema)[1]


def test_long_chains_of_references_are_refused() -> None:
    chain = {f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(900)}
    assert "levels" in refusal({"$ref": "#/$defs/a0", "$defs": {**chain, "a900": {}}})[1]


def test_too_many_properties_are_refused() -> None:
    assert "more than" in refusal({"properties": {f"p{i}": {} for i in range(MAX_PROPERTIES + 1)}})[1]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (
            {"type": "string", "format": "date"},
            ["2024-02-29", "2000-02-29"],
            ["2023-02-29", "1900-02-29", "2024-13-01"],
        ),
        ({"type": "string", "format": "time"}, ["23:59:59Z", "10:00:00.5+01:30"], ["23:59:60Z", "24:00:00Z"]),
        ({"type": "string", "format": "date-time"}, ["2024-02-29T10:00:00Z"], ["2024-02-29 10:00:00Z"]),
        ({"type": "string", "format": "made-up"}, ["anything"], [1]),
        ({"items": [{"type": "integer"}], "additionalItems": False}, [[1], []], [[1, 2], ["a"]]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, [{"a": 1}, {"b": "x"}], [{"a": "x"}]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, [1], [2]),
        ({"$ref": "#/properties/a", "properties": {"a": {"const": {}}}}, [{}], [1]),
    ],
)
def test_accepted_schemas_allow_the_valid_and_exclude_the_invalid(
    schema: Any, valid: list[Any], invalid: list[Any]
) -> None:
    matcher = matcher_of(schema)
    assert matcher is not None
    assert all(allows(matcher, document) for document in valid)
    assert not any(allows(matcher, document) for document in invalid)


@pytest.mark.parametrize("text", [r'{"\u0061":"x"}', r'{"a":1,"\u0061":"x"}', '{"a":1,"a":"x"}'])
def test_a_property_cannot_be_named_in_a_second_way(text: str) -> None:
    matcher = matcher_of({"type": "object", "properties": {"a": {"type": "integer"}}})
    assert matcher is not None
    assert not allows_text(matcher, text)


NAMES = st.sampled_from(["a", "b", "c"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 30) | st.text("ab1", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
LEAVES = st.sampled_from(
    [
        {},
        {"type": "null"},
        {"type": "integer", "minimum": 0, "exclusiveMaximum": 9},
        {"type": ["string", "boolean"]},
        {"type": "string", "pattern": "^a", "maxLength": 2},
        {"type": "number", "multipleOf": 3},
        {"enum": ["a", 1, None, {"a": 1}]},
        {"const": [1, "a"]},
    ]
)


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=2)},
        optional={
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.fixed_dictionaries({"^c": inner}),
            "maxProperties": st.integers(0, 2),
            "minProperties": st.integers(0, 2),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 3),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
        },
    )
    lists = st.lists(inner, min_size=1, max_size=3)
    combined = st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(lambda word: lists.map(lambda all_: {word: all_}))
    return objects | arrays | combined


SCHEMAS = st.recursive(LEAVES, composed, max_leaves=5)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, documents=st.lists(DOCUMENTS, min_size=4, max_size=8))
def test_no_accepted_schema_allows_what_a_validator_refuses(schema: Any, documents: list[Any]) -> None:
    matcher = matcher_of(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for document in documents if matcher else ():
        if not validator.is_valid(document):
            assert matcher is not None
            assert not allows(matcher, document), json.dumps([schema, document])


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, seed=st.integers(0, 1000))
def test_whatever_a_grammar_lets_be_written_is_valid(schema: Any, seed: int) -> None:
    matcher = matcher_of(schema)
    texts = [written_at_random(matcher, seed + i) for i in range(4)] if matcher else []
    for text in texts:
        if text is not None:
            jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("method", ["grammar_from_json_schema", "validate_grammar"])
def test_a_panic_over_a_pattern_is_an_ordinary_exception(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*arguments: Any) -> Any:
        raise type("RustPanic", (BaseException,), {})("it was not expected")

    monkeypatch.setattr(
        "pagewire.frontend.grammars.json_schema.LLMatcher",
        type("Panicking", (), {"grammar_from_json_schema": str, "validate_grammar": str} | {method: panic}),
    )
    with pytest.raises(Panic, match="it was not expected"):
        enforceable_schema({"type": "string", "pattern": "a+"})
