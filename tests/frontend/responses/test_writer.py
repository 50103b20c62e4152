"""The writer: events and object say the same, however the answer is cut into pieces."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pagewire.frontend.openai.usage import UsageCounter
from pagewire.frontend.responses.writer import ResponseWriter
from pagewire.frontend.tools.events import CallArguments, CallStart, Event, Reasoning, Text
from pagewire.protocol.messages import Finish, Usage
from tests.frontend.responses.test_create import without_ids
from tests.frontend.running import strict_json

PIECES = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4)
PARTS = st.lists(st.tuples(st.sampled_from(["text", "reasoning", "call"]), PIECES), max_size=5)


def events_of(parts: list[tuple[str, list[str]]]) -> list[Event]:
    events: list[Event] = []
    calls = 0
    for kind, pieces in parts:
        if kind == "call":
            events += [CallStart(calls, f"call_{calls}", "f"), *(CallArguments(calls, piece) for piece in pieces)]
            calls += 1
        else:
            events += [Text(piece) if kind == "text" else Reasoning(piece) for piece in pieces]
    return events


def write(batches: list[list[Event]], reason: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events that are sent for an answer in batches, and the response."""
    parser, work = (
        SimpleNamespace(reasoning_tokens=0, is_inside_call=False),
        SimpleNamespace(usage=UsageCounter([1], 1)),
    )
    writer = ResponseWriter({"id": "resp_1"}, SimpleNamespace(work=work, parser=parser), lambda document: None)  # type: ignore[arg-type]
    raw = writer.begin() + b"".join(writer.add(batch, ()) for batch in batches)
    raw += writer.end(Finish(reason, Usage(1, 1)))
    sent = [strict_json(block.split("\ndata: ")[1]) for block in raw.decode().removesuffix("\n\n").split("\n\n")]
    return sent, writer.document()


@given(PARTS, st.sampled_from(["stop", "length"]))
def test_events_and_object_say_the_same(parts: list[tuple[str, list[str]]], reason: str) -> None:
    events = events_of(parts)
    sent, response = write([[event] for event in events], reason)
    _, at_once = write([events], reason)
    assert without_ids(response) == without_ids(at_once)
    assert sent[-1]["response"] == response
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    done = [event for event in sent if event["type"] == "response.output_item.done"]
    assert [event["item"] for event in done] == response["output"]
    assert [event["output_index"] for event in done] == list(range(len(done)))
    for index, item in enumerate(response["output"]):
        deltas = "".join(e["delta"] for e in sent if e["type"].endswith(".delta") and e["output_index"] == index)
        assert deltas == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
        assert item["status"] == ("incomplete" if (reason, index + 1) == ("length", len(done)) else "completed")
