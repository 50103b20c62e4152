"""Bytes to messages and back. Decoders accept their union of messages and nothing else; nothing is ever unpickled."""

import msgspec

from pagewire.protocol.messages import ToEngine, ToFrontend

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_to_frontend = msgspec.msgpack.Decoder(ToFrontend)

DecodeError = msgspec.MsgspecError


def encode(message: ToEngine | ToFrontend) -> bytes:
    """Encode one message as MessagePack."""
    return _encoder.encode(message)


def decode_to_engine(data: bytes | memoryview) -> ToEngine:
    """Decode what a frontend sent; raises ``DecodeError`` for anything that is not one of its messages."""
    return _to_engine.decode(data)


def decode_to_frontend(data: bytes | memoryview) -> ToFrontend:
    """Decode what an engine sent; raises ``DecodeError`` for anything that is not one of its messages."""
    return _to_frontend.decode(data)
