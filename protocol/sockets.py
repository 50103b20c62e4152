"""The two ZeroMQ sockets and why their options are what they are.

The engine binds one ROUTER, each frontend connects one DEALER per engine: a duplex, ordered channel routed by the
frontend's identity.
"""

import os

import zmq

# An unsent message to a dead peer must never keep a process from exiting.
_LINGER_MS = 0
# ZMTP heartbeats find half-open TCP connections that no packet would ever report.
_HEARTBEAT_MS = 2_000
_HEARTBEAT_TIMEOUT_MS = 10_000
# Messages that wait for a frontend which does not read them. A step makes one, so these are the fastest steps of ten
# seconds: as long as a frontend may be silent. The bytes of large ones are bounded by the engine's server.
_MAX_UNREAD = 10_000
_RECONNECT_MS = 50
_RECONNECT_MAX_MS = 500


def engine_socket(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Bind the engine's ROUTER to ``endpoint``; raises ``zmq.ZMQError`` if the address is taken or malformed."""
    socket = context.socket(zmq.ROUTER)
    _set_common(socket)
    # A ROUTER drops messages to unknown peers in silence; MANDATORY turns a vanished frontend into EHOSTUNREACH.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # A frontend may be back before its old, half-open connection is given up. Without HANDOVER the new one would be
    # ignored for as long as it lasts, even after the old one is gone.
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    # Beyond it, MANDATORY again, sending fails with EAGAIN: a ROUTER without it would drop in silence.
    socket.setsockopt(zmq.SNDHWM, _MAX_UNREAD)
    socket.bind(endpoint)
    return socket


def frontend_socket(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """Make a frontend's DEALER for one engine; it may connect before the engine is there.

    The identity is new at every start, so that an engine never mistakes a restarted frontend for its predecessor.
    """
    socket = context.socket(zmq.DEALER)
    _set_common(socket)
    # What it asks for is bounded by what it lets in.
    socket.setsockopt(zmq.SNDHWM, 0)
    # Not IMMEDIATE: with it a broken connection takes what had arrived but was not read yet with it, and so the last
    # answers of an engine that drains. Instead the link sends nothing while it is not connected, and an engine drops
    # what it hears from a stranger before Hello.
    socket.setsockopt(zmq.IDENTITY, os.urandom(8).hex().encode())
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
    return socket


def descriptor(socket: zmq.Socket[bytes]) -> int:
    """The file descriptor that becomes readable (edge-triggered) when the socket's state changes."""
    return int(socket.getsockopt(zmq.FD))


def has_message(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message can be received without waiting."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def _set_common(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, _LINGER_MS)
    # A full queue of messages that were received would stop the heartbeats, too.
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
