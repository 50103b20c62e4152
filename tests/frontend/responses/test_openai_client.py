"""OpenAI's own Python client, typed, against this server's responses."""

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.fake_engine import FakeEngine, Say, say
from tests.frontend.responses.test_create import CALL, TOOL
from tests.frontend.running import Server


def check(response: Response) -> None:
    """Everything that is there is what the client's types say; the client itself does not check."""
    Response.model_validate(response.model_dump(mode="json", by_alias=True), strict=False)


async def test_create_retrieve_list_and_delete(server: Server) -> None:
    client = server.client()
    response = await client.responses.create(model="toy", input="Hi", instructions="Be brief.")
    check(response)
    assert response.output_text == "Hello there!"
    again = await client.responses.retrieve(response.id)
    assert again == response
    items = [item async for item in client.responses.input_items.list(response.id)]
    assert [item.type for item in items] == ["message"]
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_the_stream_helper_builds_the_final_response(server: Server, engine: FakeEngine) -> None:
    engine.script = say("Hé 😀")
    async with server.client().responses.stream(model="toy", input="Hi") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Hé 😀"


async def test_the_stream_helper_with_a_call(server: Server, engine: FakeEngine) -> None:
    engine.script = say(f"Adding.{CALL}")
    tools: Any = [TOOL]
    async with server.client().responses.stream(model="toy", input="1+2?", tools=tools) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_response()
    check(final)
    call = final.output[1]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"a": 1, "b": 2}


async def test_an_incomplete_stream_says_why(server: Server) -> None:
    stream = await server.client().responses.create(model="toy", input="Hi", stream=True, max_output_tokens=3)
    events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details
    assert last.response.incomplete_details.reason == "max_output_tokens"


async def test_errors_are_the_clients_own(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("x")]
    with pytest.raises(openai.BadRequestError) as caught:
        await server.client().responses.create(model="toy", input="Hi", previous_response_id="resp_x")
    assert caught.value.code == "previous_response_not_found"
