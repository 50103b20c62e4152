"""``response_format`` and ``structured_outputs`` over HTTP: what reaches the engine, and what is a 400."""

import json
from typing import Any

import pytest

from pagewire.frontend.grammars.checker import Asked, BusyError
from tests.fake_engine import FakeEngine, sampling_of
from tests.frontend.running import Server, chat_body

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def named(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **fields}}


async def ask(server: Server, **fields: Any) -> tuple[int, Any]:
    return await server.post("/v1/chat/completions", chat_body("Hi", **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": named(SCHEMA)},
        {"response_format": named(SCHEMA, strict=True, description="d")},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}},
        {"structured_outputs": {"json_object": True}},
        {"structured_outputs": {"regex": "[a-z]+"}},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"structured_outputs": {"grammar": 'start: "a"'}},
        {"response_format": {"type": "text"}, "structured_outputs": {"choice": ["a"]}},
    ],
)
async def test_a_constraint_reaches_the_engine_as_a_grammar(
    server: Server, engine: FakeEngine, fields: dict[str, Any]
) -> None:
    assert (await ask(server, **fields))[0] == 200
    assert sampling_of(engine).grammar


@pytest.mark.parametrize(
    "fields", [{}, {"response_format": {"type": "text"}}, {"response_format": None}, {"structured_outputs": {}}]
)
async def test_text_has_no_grammar(server: Server, engine: FakeEngine, fields: dict[str, Any]) -> None:
    assert (await ask(server, **fields))[0] == 200
    assert sampling_of(engine).grammar is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
        ),
        ({"response_format": named(None)}, "response_format.json_schema.schema"),
        ({"response_format": named(SCHEMA, strict="yes")}, "response_format.json_schema.strict"),
        (
            {"response_format": named({"properties": {"foo": "bar"}})},
            "response_format.json_schema.schema.properties.foo",
        ),
        ({"response_format": named({"items": {"not": {}}})}, "response_format.json_schema.schema.items.not"),
        ({"response_format": named({"pattern": "[.*"})}, "response_format.json_schema.schema.pattern"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.structures"),
        ({"structured_outputs": ["json"]}, "structured_outputs"),
        ({"structured_outputs": {"xml": "x"}}, "structured_outputs.xml"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "(?=a)"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice[1]"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"response_format": named(SCHEMA), "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"response_format": named(SCHEMA), "allowed_token_ids": [72]}, "allowed_token_ids"),
        ({"response_format": named(SCHEMA), "bad_words": ["a"]}, "bad_words"),
    ],
)
async def test_what_cannot_be_enforced_is_refused_by_name(server: Server, fields: dict[str, Any], param: str) -> None:
    status, answer = await ask(server, **fields)
    assert (status, answer["error"]["param"]) == (400, param)
    assert param in answer["error"]["message"]


async def test_completions_take_constraints_too(server: Server, engine: FakeEngine) -> None:
    body = {"model": "toy", "prompt": "Hi", "structured_outputs": {"choice": ["a", "b"]}}
    assert (await server.post("/v1/completions", body))[0] == 200
    assert sampling_of(engine).grammar


async def test_a_grammar_that_nobody_had_the_time_to_check_may_be_sent_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(asked: Asked) -> str:
        raise BusyError

    monkeypatch.setattr(server.frontend.grammars, "source", busy)
    body = chat_body("Hi", structured_outputs={"regex": "a"})
    async with server.http.post(f"{server.url}/v1/chat/completions", json=body) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
