"""From bytes to a typed request: strict types, null as absent, three kinds of fields, errors that name the field."""

import gc
import json
import time
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire.frontend.anthropic.schema import RULES as MESSAGES_RULES
from pagewire.frontend.anthropic.schema import MessagesRequest
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.fields import IGNORED, REFUSED, RULES, FieldRules
from pagewire.frontend.openai.parse import _decode, ignored_header, parse
from pagewire.frontend.openai.schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
)
from pagewire.frontend.responses.schema import RULES as RESPONSES_RULES
from pagewire.frontend.responses.schema import ResponsesRequest

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
SCHEMAS = (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)


def parse_chat(strict: bool = False, **fields: Any) -> ChatRequest:
    return parse(json.dumps({**CHAT, **fields}).encode(), ChatRequest, strict=strict).request


def refusal(body: bytes, schema: type[msgspec.Struct] = ChatRequest, strict: bool = False) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(body, schema, strict=strict)
    assert caught.value.status == 400
    json.loads(caught.value.body())
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'"text"',
        b'{"messages": [}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
        b'{"messages":' * 5_000 + b"1" + b"}" * 5_000,
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    error = refusal(body)
    assert error.kind == "invalid_request_error"


@pytest.mark.parametrize(
    ("field", "value", "param", "code"),
    [
        ("temperature", "0.5", "temperature", "invalid_type"),
        ("temperature", True, "temperature", "invalid_type"),
        ("temperature", -0.5, "temperature", "invalid_value"),
        ("temperature", 2.1, "temperature", "invalid_value"),
        ("top_p", 1.5, "top_p", "invalid_value"),
        ("top_p", -0.1, "top_p", "invalid_value"),
        ("top_k", -2, "top_k", "invalid_value"),
        ("min_p", 1.1, "min_p", "invalid_value"),
        ("presence_penalty", 3.0, "presence_penalty", "invalid_value"),
        ("frequency_penalty", -3, "frequency_penalty", "invalid_value"),
        ("repetition_penalty", 0, "repetition_penalty", "invalid_value"),
        ("n", 0, "n", "invalid_value"),
        ("n", True, "n", "invalid_type"),
        ("n", 1.5, "n", "invalid_type"),
        ("n", "2", "n", "invalid_type"),
        ("max_tokens", -1, "max_tokens", "invalid_value"),
        ("max_completion_tokens", 0, "max_completion_tokens", "invalid_value"),
        ("seed", 2**63, "seed", "invalid_value"),
        ("seed", 10**40, "seed", "invalid_value"),
        ("seed", 0.5, "seed", "invalid_type"),
        ("stream", 1, "stream", "invalid_type"),
        ("stream", "true", "stream", "invalid_type"),
        ("stop", 7, "stop", "invalid_type"),
        ("stop", ["a", 7], "stop[1]", "invalid_type"),
        ("stop_token_ids", ["a"], "stop_token_ids[0]", "invalid_type"),
        ("logit_bias", {"5": "a"}, "logit_bias", "invalid_type"),
        ("logit_bias", {"5": 101}, "logit_bias", "invalid_value"),
        ("logit_bias", [5], "logit_bias", "invalid_type"),
        ("logprobs", 1, "logprobs", "invalid_type"),
        ("top_logprobs", -1, "top_logprobs", "invalid_value"),
        ("stream_options", {"include_usage": "yes"}, "stream_options.include_usage", "invalid_type"),
        ("messages", [], "messages", "invalid_value"),
        ("messages", "Hi", "messages", "invalid_type"),
        ("messages", ["Hi"], "messages[0]", "invalid_type"),
        ("chat_template_kwargs", [1], "chat_template_kwargs", "invalid_type"),
        ("cache_salt", "x" * 2000, "cache_salt", "invalid_value"),
        ("timeout", 0, "timeout", "invalid_value"),
    ],
)
def test_wrong_values_are_named_with_what_was_expected(field: str, value: Any, param: str, code: str) -> None:
    error = refusal(json.dumps({**CHAT, field: value}).encode())
    assert (error.param, error.code) == (param, code)
    assert f"'{param}'" in error.message
    assert "expected" in error.message


def test_a_message_says_the_limit_and_the_value() -> None:
    error = refusal(json.dumps({**CHAT, "temperature": 3}).encode())
    assert error.message == "Invalid value for 'temperature': expected a number <= 2.0, got 3."


def test_what_a_client_wrote_is_not_taken_for_the_place_of_the_fault() -> None:
    value = " - at `$.model`" * 50_000
    # It took quadratic time once.
    begun = time.process_time()
    error = refusal(json.dumps({"input": "x", "encoding_format": value}).encode(), EmbeddingRequest)
    assert time.process_time() - begun < 5
    assert error.param == "encoding_format"
    assert error.message.endswith("Invalid enum value a string of 750000 characters.")


def test_a_missing_field_is_named() -> None:
    error = refusal(b"{}")
    assert (error.param, error.code) == ("messages", "missing_required_parameter")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_null_is_as_good_as_absent_in_every_field(schema: type[msgspec.Struct]) -> None:
    required = {"messages": [{}], "prompt": "x", "tokens": [1]}
    names = {field.name for field in msgspec.structs.fields(schema)}
    body = {name: required.get(name) for name in names}
    without = {name: value for name, value in body.items() if value is not None}
    nulls = {**body, **dict.fromkeys((*REFUSED, *IGNORED, "unheard_of"))}
    parsed = parse(json.dumps(nulls).encode(), schema, strict=True)
    assert parsed == parse(json.dumps(without).encode(), schema, strict=True)
    assert parsed.ignored == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy"}),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
        ("suffix", "end"),
        ("best_of", 3),
        ("best_of", True),
        ("use_beam_search", True),
        ("guided_json", {"type": "object"}),
        ("chat_template", "{{ messages }}"),
    ],
)
def test_features_that_are_missing_are_refused_by_name(field: str, value: Any) -> None:
    error = refusal(json.dumps({**CHAT, field: value}).encode())
    assert (error.param, error.code) == (field, "unsupported_parameter")
    assert field in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"functions": [], "function_call": "none"},
        {"modalities": ["text"]},
        {"suffix": ""},
        {"best_of": 1},
        {"best_of": 2, "n": 2},
        {"use_beam_search": False},
    ],
)
def test_values_that_ask_for_nothing_pass_even_strictly(fields: dict[str, Any]) -> None:
    parse_chat(strict=True, **fields)


def test_fields_without_effect_are_reported() -> None:
    body = json.dumps({**CHAT, "user": "me", "store": True, "unheard_of": {}}).encode()
    assert parse(body, ChatRequest, strict=False).ignored == ("user", "store", "unheard_of")


PARTS = [
    (ChatRequest, RULES, "stream_options.zzz"),
    (ChatRequest, RULES, "stream_options.include_obfuscation"),
    (ChatRequest, RULES, "response_format.zzz"),
    (ChatRequest, RULES, "response_format.json_schema.zzz"),
    (ChatRequest, RULES, "tools.zzz"),
    (ChatRequest, RULES, "tools.function.zzz"),
    (ChatRequest, RULES, "tool_choice.function.zzz"),
    (CompletionRequest, RULES, "response_format.zzz"),
    (TokenizeRequest, RULES, "tools.zzz"),
    (ResponsesRequest, RESPONSES_RULES, "text.zzz"),
    (ResponsesRequest, RESPONSES_RULES, "text.format.zzz"),
    (ResponsesRequest, RESPONSES_RULES, "reasoning.zzz"),
    (ResponsesRequest, RESPONSES_RULES, "stream_options.include_usage"),
    (ResponsesRequest, RESPONSES_RULES, "tools.zzz"),
    (MessagesRequest, MESSAGES_RULES, "thinking.zzz"),
    (MessagesRequest, MESSAGES_RULES, "thinking.budget_tokens"),
    (MessagesRequest, MESSAGES_RULES, "output_config.zzz"),
    (MessagesRequest, MESSAGES_RULES, "output_config.format.zzz"),
    (MessagesRequest, MESSAGES_RULES, "system.zzz"),
    (MessagesRequest, MESSAGES_RULES, "tools.zzz"),
]


@pytest.mark.parametrize(("schema", "rules", "path"), PARTS)
def test_parts_without_effect_are_like_fields_without_effect(
    schema: type[msgspec.Struct], rules: FieldRules, path: str
) -> None:
    *outer, key = path.split(".")
    value: Any = {key: True} if key != "budget_tokens" else {key: 1}
    for name in reversed(outer):
        value = {name: [value] if name in ("tools", "system") else value}
    if "thinking" in value:
        value["thinking"]["type"] = "enabled"
    required = {"input": "x", "prompt": "x", "max_tokens": 1, **CHAT}
    body = {name: entry for name, entry in required.items() if name in schema.__struct_fields__} | value
    encoded = json.dumps(body).encode()
    assert parse(encoded, schema, strict=False, rules=rules).ignored == (path,)
    with pytest.raises(ApiError, match="--strict-params") as caught:
        parse(encoded, schema, strict=True, rules=rules)
    assert caught.value.param == path


@pytest.mark.parametrize(
    ("schema", "rules"),
    [(ChatRequest, RULES), (ResponsesRequest, RESPONSES_RULES), (MessagesRequest, MESSAGES_RULES)],
)
def test_of_every_field_that_is_an_object_it_is_known_which_parts_count(
    schema: type[msgspec.Struct], rules: FieldRules
) -> None:
    for field in msgspec.structs.fields(schema):
        for kind in (field.type, *get_args(field.type)):
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                assert rules.parts[field.name] <= set(kind.__struct_fields__)


@pytest.mark.parametrize("field", ["user", "unheard_of"])
def test_fields_without_effect_are_refused_when_strict(field: str) -> None:
    error = refusal(json.dumps({**CHAT, field: "me"}).encode(), strict=True)
    assert (error.param, error.code) == (field, "unknown_parameter")


def test_only_what_completions_have_and_chat_refuses_is_both_in_a_schema_and_refused() -> None:
    known = {field.name for schema in SCHEMAS for field in msgspec.structs.fields(schema)}
    assert known & {*REFUSED, *IGNORED} == {"best_of", "suffix"}
    assert not REFUSED.keys() & IGNORED.keys()


def test_no_garbage_is_collected_while_a_long_body_is_decoded() -> None:
    collected: list[str] = []
    body = b'{"lists": [' + b"[1]," * 100_000 + b"1]}"

    def count(phase: str, info: dict[str, int]) -> None:
        collected.append(phase)

    gc.callbacks.append(count)
    try:
        _decode(body)
    finally:
        gc.callbacks.remove(count)
    # One may come with the next object that is made.
    assert len(collected) <= 2
    assert gc.isenabled()


def test_the_header_of_ignored_names_is_plain_and_short() -> None:
    header = ignored_header(["user", "évil\r\nX-Header: 1", "a,b", *(f"field{number}" for number in range(100))])
    assert header.startswith("user, ?vil??X-Header:?1, a?b, field0")
    assert header.endswith("...")
    assert len(header) < 2000


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)
FIELD_NAMES = sorted({field.name for schema in SCHEMAS for field in msgspec.structs.fields(schema)} | REFUSED.keys())


def attempt(body: bytes) -> None:
    for schema in SCHEMAS:
        for strict in (False, True):
            with suppress(ApiError):
                parse(body, schema, strict=strict)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELD_NAMES) | st.text(max_size=8), JSON_VALUES, max_size=8))
def test_any_object_is_parsed_or_refused(fields: dict[str, Any]) -> None:
    attempt(json.dumps(fields).encode())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=64) | st.text(max_size=64).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    attempt(body)
