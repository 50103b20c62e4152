"""The store of responses: bounded, and private to whoever stored something."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pagewire.frontend.auth import Keys
from pagewire.frontend.responses.store import ResponseStore
from tests.frontend.responses.test_create import create, created
from tests.frontend.running import Server, StartServer


def document(number: int, size: int = 0) -> dict[str, Any]:
    return {"id": f"resp_{number}", "output": [{"id": "msg_1", "text": "x" * size}]}


def test_the_oldest_go_when_there_are_too_many() -> None:
    store = ResponseStore(2, 10_000)
    for number in range(3):
        store.put(None, document(number), [])
    assert [store.find(None, f"resp_{number}") is not None for number in range(3)] == [False, True, True]


def test_being_used_keeps_a_response() -> None:
    store = ResponseStore(2, 10_000)
    store.put(None, document(0), [])
    store.put(None, document(1), [])
    store.find(None, "resp_0")
    store.put(None, document(2), [])
    assert store.find(None, "resp_0")
    assert not store.find(None, "resp_1")


def test_a_response_belongs_to_the_key_that_asked_for_it() -> None:
    store = ResponseStore(2, 10_000)
    store.put(b"mine", document(0), [])
    assert store.find(b"yours", "resp_0") is None
    assert not store.delete(b"yours", "resp_0")
    assert store.delete(b"mine", "resp_0")


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=30), st.integers(0, 5), st.integers(0, 800))
def test_its_bounds_always_hold(puts: list[tuple[int, bool]], max_responses: int, max_bytes: int) -> None:
    store = ResponseStore(max_responses, max_bytes)
    for number, (size, delete) in enumerate(puts):
        store.put(None, document(number, size), [{"id": "msg_0"}])
        if delete:
            store.delete(None, f"resp_{number}")
        kept = [store.find(None, f"resp_{earlier}") for earlier in range(number + 1)]
        assert store.num_bytes == sum(entry.size for entry in kept if entry) <= max_bytes
        assert len(store) == sum(entry is not None for entry in kept) <= max_responses


async def test_a_stored_response_is_retrieved_as_it_was_answered(server: Server) -> None:
    answer = await created(server, metadata={"a": "b"})
    assert await server.get(f"/v1/responses/{answer['id']}") == (200, answer)


async def test_deleting_a_response_leaves_those_that_continue_it(server: Server) -> None:
    first = await created(server)
    second = await created(server, previous_response_id=first["id"])
    async with server.http.delete(f"{server.url}/v1/responses/{first['id']}") as response:
        assert await response.json() == {"id": first["id"], "object": "response", "deleted": True}
    status, _ = await server.get(f"/v1/responses/{first['id']}")
    assert status == 404
    await created(server, previous_response_id=second["id"])


async def test_input_items_are_those_of_the_whole_conversation(server: Server) -> None:
    first = await created(server, "One")
    second = await created(server, [{"role": "user", "content": "Two"}], previous_response_id=first["id"])
    path = f"/v1/responses/{second['id']}/input_items"
    _, listed = await server.get(f"{path}?order=asc")
    assert [item["content"][0]["text"] for item in listed["data"]] == ["One", "Hello there!", "Two"]
    assert (listed["first_id"], listed["has_more"]) == (listed["data"][0]["id"], False)
    _, newest = await server.get(f"{path}?limit=1")
    assert newest["data"] == listed["data"][-1:]
    assert newest["has_more"]
    _, rest = await server.get(f"{path}?after={newest['last_id']}")
    assert rest["data"] == listed["data"][1::-1]


async def test_what_cannot_be_done_with_a_stored_response_is_an_error(server: Server) -> None:
    answer = await created(server)
    path = f"/v1/responses/{answer['id']}"
    assert (await server.post(f"{path}/cancel", {}))[0] == 400
    for query, param in (
        ("?stream=true", "stream"),
        ("/input_items?limit=0", "limit"),
        ("/input_items?order=up", "order"),
        ("/input_items?after=x", "after"),
    ):
        status, error = await server.get(path + query)
        assert (status, error["error"]["param"]) == (400, param)
    for unknown in ("/v1/responses/resp_x", "/v1/responses/resp_x/input_items"):
        assert (await server.get(unknown))[0] == 404


async def test_keys_do_not_see_each_others_responses(start_server: StartServer) -> None:
    server = await start_server(api_key=("mine", "yours"))
    body = {"model": "toy", "input": "Hi"}
    _, answer = await server.post("/v1/responses", body, Authorization="Bearer mine")
    path = f"/v1/responses/{answer['id']}"
    assert (await server.get(path, Authorization="Bearer mine"))[0] == 200
    assert (await server.get(path, Authorization="Bearer yours"))[0] == 404


async def test_a_key_that_comes_to_have_the_name_of_another_does_not_own_what_that_stored(
    start_server: StartServer, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("old\nnew\n")
    server = await start_server(api_key_file=str(file))
    _, answer = await server.post("/v1/responses", {"model": "toy", "input": "Hi"}, Authorization="Bearer old")
    path = f"/v1/responses/{answer['id']}"
    file.write_text("new\nold\n")
    server.frontend.keys = Keys.read(server.frontend.config)
    assert (await server.get(path, Authorization="Bearer new"))[0] == 404
    assert (await server.get(path, Authorization="Bearer old"))[0] == 200


async def test_a_store_without_room_keeps_nothing(start_server: StartServer) -> None:
    server = await start_server(max_stored_responses=0)
    answer = await created(server)
    assert (await server.get(f"/v1/responses/{answer['id']}"))[0] == 404
    assert (await create(server, previous_response_id=answer["id"]))[0] == 400
