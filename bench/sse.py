"""Server-sent events from raw bytes, without I/O: feed what the socket gave, get the payloads that are complete."""


class EventParser:
    """Splits a byte stream into the data of its events.

    Lines end with LF or CRLF. Comments and fields other than ``data`` are skipped; several data lines of one event are
    joined by a newline, as the format has it.
    """

    def __init__(self) -> None:
        """Start at the beginning of a stream."""
        self._tail = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of every event they complete."""
        lines = (self._tail + chunk).split(b"\n")
        self._tail = lines.pop()
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removesuffix(b"\r").removeprefix(b" "))
            elif line in (b"", b"\r") and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        return events

    def flush(self) -> list[bytes]:
        """Return the last event when the stream ended without the blank line that closes it."""
        return self.feed(b"\n\n")
