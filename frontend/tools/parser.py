"""From the text of an answer to content and tool calls, piece by piece."""

from collections.abc import Iterable

from pagewire.frontend.tools.events import Event
from pagewire.frontend.tools.formats import ToolFormat
from pagewire.frontend.tools.outlet import Outlet


class ToolParser:
    """Splits one answer. Joined, its events are the same however the text is cut into pieces.

    Text is an event as soon as it cannot be the beginning of a call any more; a call's name and arguments are events
    as soon as they are read. What only looked like a call is text.
    """

    def __init__(
        self, tool_format: ToolFormat, names: Iterable[str], max_calls: int | None = None, *, only_calls: bool = False
    ) -> None:
        """``names`` are those of the tools; calls after the first ``max_calls`` are left out.

        ``only_calls`` says that a grammar allows nothing else.
        """
        self._out = Outlet(tool_format.new_id, max_calls, only_calls=only_calls)
        self._reader = tool_format.read(self._out, frozenset(names))
        next(self._reader)

    def feed(self, text: str) -> list[Event]:
        """Take the next piece of the answer."""
        send = self._reader.send
        for char in text:
            send(char)
        return self._out.take()

    def finish(self) -> list[Event]:
        """Say that the answer is over, whether or not it is complete."""
        self._reader.close()
        return self._out.end()

    @property
    def num_calls(self) -> int:
        """How many calls there were so far, those left out included."""
        return self._out.num_calls

    @property
    def is_inside_call(self) -> bool:
        """Whether a call has begun that is not complete."""
        return self._out.is_inside_call

    @property
    def num_complete_calls(self) -> int:
        """How many of them have been read to their end."""
        return self._out.num_complete_calls
