"""Records of requests as tests need them."""

from typing import Any

from pagewire.bench.client import Record


def make_record(planned: float, token_times: list[float], **fields: Any) -> Record:
    """A good request whose every event carried one token and which ended with the last of them."""
    values: dict[str, Any] = {
        "index": 0,
        "turn": 0,
        "asked_tokens": len(token_times),
        "sent": planned,
        "end": token_times[-1] if token_times else planned,
        "output_tokens": len(token_times),
        "prompt_tokens": 10,
        "has_usage": True,
    }
    return Record(planned=planned, token_times=token_times, **{**values, **fields})
