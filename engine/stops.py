"""Stop strings in a stream of text: cut at the first one, hold back only what may still become one."""

from collections import deque
from collections.abc import Sequence


class StopStrings:
    """An automaton (Aho and Corasick 1975) over all stop strings of a request.

    Its state after some text is the longest end of the text that begins some stop string; that end, and nothing else,
    is held back. Working on single characters, it gives the same answer however the text arrives in pieces: the stop
    string that is complete first wins, the longest of those complete at the same character.
    """

    def __init__(self, stop: Sequence[str], include_stop: bool) -> None:
        """Build the automaton. Empty strings never match; ``include_stop`` leaves the matched text in."""
        self.matched: str | None = None
        self._include = include_stop
        self._children: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._fallback = [0]  # state of the longest proper end that also begins a stop string
        self._complete: list[str | None] = [None]  # the longest stop string that ends here
        for text in stop:
            self._add(text)
        self._link()
        self._state = 0
        self._held = ""

    def push(self, text: str) -> str:
        """Take more text, return what may be sent. After a match nothing is sent any more."""
        if self.matched is not None:
            return ""
        if not self._state and self._children[0].keys().isdisjoint(text):
            return text
        state = self._state
        for index, char in enumerate(text):
            state = self._next(state, char)
            if (matched := self._complete[state]) is not None:
                return self._stop_at(matched, self._held + text[: index + 1])
        self._state = state
        return self._hold(self._held + text)

    def flush(self) -> str:
        """The text held back, at the end of the stream."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _stop_at(self, matched: str, text: str) -> str:
        self.matched, self._held = matched, ""
        return text if self._include else text[: len(text) - len(matched)]

    def _hold(self, text: str) -> str:
        split = len(text) - self._depth[self._state]
        self._held = text[split:]
        return text[:split]

    def _next(self, state: int, char: str) -> int:
        while (found := self._children[state].get(char)) is None:
            if not state:
                return 0
            state = self._fallback[state]
        return found

    def _add(self, text: str) -> None:
        state = 0
        for char in text:
            if char not in self._children[state]:
                self._children[state][char] = len(self._children)
                self._children.append({})
                self._depth.append(self._depth[state] + 1)
                self._fallback.append(0)
                self._complete.append(None)
            state = self._children[state][char]
        if state:
            self._complete[state] = text

    def _link(self) -> None:
        """Set fallbacks breadth first: a state's fallback is shallower, hence ready when it is needed."""
        waiting = deque(self._children[0].values())
        while waiting:
            state = waiting.popleft()
            for char, child in self._children[state].items():
                waiting.append(child)
                self._fallback[child] = self._next(self._fallback[state], char)
            if self._complete[state] is None:
                self._complete[state] = self._complete[self._fallback[state]]
