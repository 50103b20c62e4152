import pytest

from pagewire.bench.sse import EventParser

STREAM = b': comment\n\ndata: {"a": 1}\n\nevent: x\r\ndata: two\r\ndata:  lines\r\n\r\nid: 4\n\ndata: [DONE]\n\n'
EVENTS = [b'{"a": 1}', b"two\n lines", b"[DONE]"]


def test_data_of_events_is_returned_without_comments_and_other_fields() -> None:
    assert EventParser().feed(STREAM) == EVENTS


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_events_do_not_depend_on_how_the_bytes_were_cut(size: int) -> None:
    parser = EventParser()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


def test_several_events_of_one_read_are_returned_together() -> None:
    assert EventParser().feed(b"data: 1\n\ndata: 2\n\ndata: 3") == [b"1", b"2"]


def test_an_unclosed_last_event_is_flushed() -> None:
    parser = EventParser()
    assert parser.feed(b"data: 1\n\ndata: 2") == [b"1"]
    assert parser.flush() == [b"2"]
    assert parser.flush() == []
