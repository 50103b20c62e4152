"""Where the reader of a format puts what it has understood; the outlet makes events of it.

The rules that all formats share are kept here: calls are numbered from 0 and get ids, white space beside a call
belongs to the call, and calls above the allowed number are left out.
"""

from collections.abc import Callable

from pagewire.frontend.tools.events import CallArguments, CallStart, Event, Text


class Outlet:
    """Collects the events of one answer.

    Text that may yet turn out to be a call is held: ``unhold`` takes it back once it has become one, ``release``
    passes it on as what it seemed to be at first.
    """

    def __init__(self, new_id: Callable[[], str], max_calls: int | None = None, *, only_calls: bool = False) -> None:
        """``new_id`` makes the ids of calls that have none; None is any number of calls.

        ``only_calls`` says that there is no text: what seems to be some is a marker that was cut.
        """
        self._new_id = new_id
        self._max_calls = max_calls
        self._only_calls = only_calls
        self._events: list[Event] = []
        self._run: list[str] = []  # pieces of text, or of the arguments of the last call, not yet made an event
        self._held: list[str] = []
        self._space = ""  # white space that belongs to the text only if more text follows
        self._any_text = False
        self._in_call = False
        self.num_calls = 0
        self.num_complete_calls = 0

    def text(self, text: str) -> None:
        """Add text of the answer."""
        if self._only_calls:
            return
        body = text.rstrip()
        if not body:
            self._space += text
            return
        piece = self._space + body
        # White space between a call and the first text is no more wanted than that before a call.
        self._run.append(piece.lstrip() if self.num_calls and not self._any_text else piece)
        self._space = text[len(body) :]
        self._any_text = True

    def start(self, name: str, call_id: str | None = None) -> None:
        """Begin a call; what was held was its beginning."""
        self._flush()
        self._held.clear()
        self._space = ""
        self._in_call = True
        if not self._left_out:
            self._events.append(CallStart(self.num_calls, call_id or self._new_id(), name))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """Add to the arguments of the call that was started."""
        if self._max_calls is None or self.num_calls <= self._max_calls:
            self._run.append(text)

    def end_call(self) -> None:
        """The call is complete; what follows is text again."""
        self._flush()
        self._in_call = False
        self.num_complete_calls += 1

    def hold(self, text: str) -> None:
        """Keep text back."""
        self._held.append(text)

    def unhold(self) -> str:
        """Forget the text held back and return it."""
        held = "".join(self._held)
        self._held.clear()
        return held

    def release(self) -> None:
        """Pass on the text held back: to the arguments within a call, else as text."""
        held = self.unhold()
        if self._in_call:
            self.arguments(held)
        elif held:
            self.text(held)

    def take(self) -> list[Event]:
        """The events since the last time."""
        self._flush()
        events, self._events = self._events, []
        return events

    def end(self) -> list[Event]:
        """The last events, at the end of the answer."""
        self.release()
        if self._space and not self.num_calls:
            self._run.append(self._space)
        self._space = ""
        return self.take()

    @property
    def is_inside_call(self) -> bool:
        """Whether the last call that is not left out has begun and is not complete."""
        return self._in_call and (self._max_calls is None or self.num_calls <= self._max_calls)

    @property
    def _left_out(self) -> bool:
        """Whether the next call is one too many."""
        return self._max_calls is not None and self.num_calls >= self._max_calls

    def _flush(self) -> None:
        text = "".join(self._run)
        self._run.clear()
        if text:
            self._events.append(CallArguments(self.num_calls - 1, text) if self._in_call else Text(text))
