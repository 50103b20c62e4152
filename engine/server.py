"""The engine's ROUTER: which frontends are there, what they ask, and sending to them without ever waiting."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import zmq

from pagewire.protocol.codec import DecodeError, decode_to_engine, encode
from pagewire.protocol.messages import Hello, Ping, ToEngine, ToFrontend
from pagewire.protocol.sockets import engine_socket

logger = logging.getLogger(__name__)

# Frontends ping every second; one that was silent for this long is gone, whatever its connection says.
FRONTEND_TIMEOUT_S = 10.0
# Far more than frontends send during a step; one that never stops sending must not keep the engine from its next.
MAX_MESSAGES_A_TURN = 10_000
# Of what waits for a frontend that does not read it. The largest answer, 20 alternatives at each of 128k prompt tokens,
# takes 70 MB.
MAX_UNREAD_BYTES = 512 * 2**20
# From here on messages are counted; of smaller ones the socket holds 10,000, so 160 MB. Counting costs 10 us.
_LARGE_BYTES = 16 * 1024
# Of a frontend's name; it comes from a peer and stays in memory.
_MAX_NAME_CHARS = 100


@dataclass(slots=True)
class Frontend:
    """A connected frontend: its name for logs, its epoch, and when it was last heard (monotonic seconds)."""

    name: str
    epoch: int
    last_heard: float


class Unread:
    """The large messages that the socket holds for one frontend, in the order in which they leave it."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: deque[tuple[zmq.MessageTracker, int]] = deque()
        self._num_bytes = 0

    def add(self, tracker: zmq.MessageTracker, num_bytes: int) -> None:
        """Count a message that was given to the socket."""
        self._waiting.append((tracker, num_bytes))
        self._num_bytes += num_bytes

    def num_bytes(self) -> int:
        """What waits now."""
        while self._waiting and self._waiting[0][0].done:
            self._num_bytes -= self._waiting.popleft()[1]
        return self._num_bytes


class Server:
    """Owns the socket and the table of frontends that have said Hello."""

    def __init__(self, endpoint: str):
        """Bind ``endpoint``; raises ``zmq.ZMQError`` if that fails."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = engine_socket(self._context, endpoint)
        self.frontends: dict[bytes, Frontend] = {}
        # Those to whom nothing can be sent because they do not read what they were sent.
        self.behind: set[bytes] = set()
        self._unread: dict[bytes, Unread] = {}

    def close(self) -> None:
        """Give what was already sent a moment to leave, then close."""
        self._socket.close(linger=200)
        self._context.term()

    def receive(self, timeout_ms: int) -> Iterator[tuple[bytes, ToEngine]]:
        """Yield the messages that are there, waiting up to ``timeout_ms`` for the first one (0: do not wait)."""
        if timeout_ms and not self._socket.poll(timeout_ms):
            return
        for _ in range(MAX_MESSAGES_A_TURN):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = self._decode(frames)
            if message:
                yield frames[0], message

    def prepare(self, message: ToFrontend) -> zmq.Frame:
        """A message to be sent many times, which costs its time and its memory once."""
        return zmq.Frame(encode(message))

    def send(self, identity: bytes, message: ToFrontend | zmq.Frame) -> bool:
        """Send without waiting; False when that frontend is gone, or so far ``behind`` that it counts as gone."""
        data = message if isinstance(message, zmq.Frame) else encode(message)
        try:
            if isinstance(data, bytes) and len(data) >= _LARGE_BYTES:
                self._put_large(identity, data)
            else:
                self._put(identity, data)
        except zmq.Again:
            self.behind.add(identity)
            return False
        except zmq.ZMQError:
            self.behind.discard(identity)
            return False
        return True

    def broadcast(self, message: ToFrontend) -> None:
        """Send to every frontend that is still there."""
        for identity in self.frontends:
            self.send(identity, message)

    def greet(self, identity: bytes, hello: Hello) -> None:
        """Enter a frontend into the table, or renew its entry."""
        self.behind.discard(identity)
        self.frontends[identity] = Frontend(hello.frontend[:_MAX_NAME_CHARS], hello.epoch, time.monotonic())

    def forget(self, identity: bytes) -> None:
        """Drop a frontend from the table. What still waits for it counts if it comes back."""
        self.frontends.pop(identity, None)
        self._unread = {identity: unread for identity, unread in self._unread.items() if unread.num_bytes()}

    def silent(self) -> list[bytes]:
        """The frontends that have not been heard for ``FRONTEND_TIMEOUT_S``."""
        limit = time.monotonic() - FRONTEND_TIMEOUT_S
        return [identity for identity, frontend in self.frontends.items() if frontend.last_heard < limit]

    def _put_large(self, identity: bytes, data: bytes) -> None:
        unread = self._unread.setdefault(identity, Unread())
        if unread.num_bytes() > MAX_UNREAD_BYTES:
            raise zmq.Again
        frame = zmq.Frame(data, track=True, copy=False)
        self._put(identity, frame)
        unread.add(frame.tracker, len(data))

    def _put(self, identity: bytes, data: bytes | zmq.Frame) -> None:
        # A frame is shared by all who get it, bytes are copied.
        copy = isinstance(data, bytes)
        try:
            self._socket.send_multipart((identity, data), zmq.NOBLOCK, copy=copy)
        except zmq.Again:
            # The socket hears of what was read when it is asked about itself, and else only now and then.
            self._socket.getsockopt(zmq.EVENTS)
            self._socket.send_multipart((identity, data), zmq.NOBLOCK, copy=copy)

    def _decode(self, frames: list[bytes]) -> ToEngine | None:
        identity, *payload = frames
        try:
            (data,) = payload
            message = decode_to_engine(data)
        except (ValueError, DecodeError, RecursionError) as error:
            logger.error("dropped a message from %s that is none of the protocol's: %s", identity.hex(), error)
            return None
        frontend = self.frontends.get(identity)
        if frontend:
            frontend.last_heard = time.monotonic()
        elif not isinstance(message, Hello | Ping):
            # It will say Hello when its connection is (re)made, or when a Pong tells it that someone is here; until
            # then nothing it says has an owner.
            return None
        return message
