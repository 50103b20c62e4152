"""What a message costs to encode and to decode."""

from collections.abc import Iterator
from functools import partial

from pagewire.bench.micro.timing import Measurement, measure
from pagewire.protocol.codec import decode_to_engine, decode_to_frontend, encode
from pagewire.protocol.messages import Delta, Generate, Load, Output, Sampling


def measure_codec() -> Iterator[Measurement]:
    """Measure the message of a step for some batch sizes, and a request with a long prompt."""
    for size in (1, 32, 256):
        output = Output(tuple(Delta(rid, " token", (1000 + rid,)) for rid in range(size)), Load())
        data = encode(output)
        yield measure(f"encode a step of {size}", "token", partial(encode, output), units=size)
        yield measure(f"decode a step of {size}", "token", partial(decode_to_frontend, data), units=size)
    request = Generate(1, tuple(range(1000, 2000)), Sampling(max_tokens=100))
    data = encode(request)
    yield measure("encode a prompt of 1000", "request", partial(encode, request))
    yield measure("decode a prompt of 1000", "request", partial(decode_to_engine, data))
