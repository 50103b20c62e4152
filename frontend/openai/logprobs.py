"""Log-probabilities in the three shapes clients expect: chat, legacy completions, and prompt log-probabilities."""

from collections.abc import Iterable, Sequence
from typing import Any

from pagewire.protocol.messages import LOGPROB_FLOOR, Logprob, TopLogprob

Json = dict[str, Any]


def chat_logprobs(entries: Sequence[Logprob], top: int) -> Json | None:
    """``choices[].logprobs`` of chat for some tokens, or None for no tokens: clients index an empty list."""
    if not entries:
        return None
    content = [
        {**_token(entry), "top_logprobs": [_token(candidate) for candidate in entry.top[:top]]} for entry in entries
    ]
    return {"content": content, "refusal": None}


class LegacyLogprobs:
    """``choices[].logprobs`` of completions: four lists of equal length, filled token by token."""

    def __init__(self, top: int):
        """``top`` alternatives are listed beside each token."""
        self._top = top
        self._tokens: list[str] = []
        self._token_logprobs: list[float | None] = []
        self._top_logprobs: list[dict[str, float] | None] = []
        self._text_offset: list[int] = []

    def add_first(self, text: str) -> None:
        """Add the first token of an echoed prompt: nothing came before it, so it has no probability."""
        self._append(text, None, None, 0)

    def extend(self, entries: Iterable[Logprob | None], text_start: int) -> None:
        """Add tokens whose offsets count from character ``text_start`` of the choice's text."""
        for entry in entries:
            if entry:
                # Special tokens around an echoed prompt stand before its text begins.
                offset = max(0, text_start + entry.offset)
                self._append(entry.text, _floored(entry.logprob), _by_text(entry, self._top), offset)

    def as_json(self) -> Json | None:
        """The four lists, or None for no tokens: clients index an empty list."""
        if not self._tokens:
            return None
        return {
            "tokens": self._tokens,
            "token_logprobs": self._token_logprobs,
            "top_logprobs": self._top_logprobs,
            "text_offset": self._text_offset,
        }

    def _append(self, text: str, logprob: float | None, top: dict[str, float] | None, offset: int) -> None:
        self._tokens.append(text)
        self._token_logprobs.append(logprob)
        self._top_logprobs.append(top)
        self._text_offset.append(offset)


def prompt_logprobs(entries: Sequence[Logprob | None], top: int) -> list[dict[str, Json] | None]:
    """The prompt's log-probabilities: per position None or an object from token id to logprob, rank and text."""
    return [_by_id(entry, top) if entry else None for entry in entries]


def _by_id(entry: Logprob, top: int) -> dict[str, Json]:
    candidates: dict[str, Json] = {
        str(candidate.id): {"logprob": _floored(candidate.logprob), "rank": rank, "decoded_token": candidate.text}
        for rank, candidate in enumerate(entry.top[:top], start=1)
    }
    candidates[str(entry.id)] = {
        "logprob": _floored(entry.logprob),
        "rank": entry.rank,
        "decoded_token": entry.text,
    }
    return candidates


def _by_text(entry: Logprob, top: int) -> dict[str, float]:
    # The chosen token comes last, so that it survives another id with the same text.
    by_text = {candidate.text: _floored(candidate.logprob) for candidate in entry.top[:top]}
    by_text[entry.text] = _floored(entry.logprob)
    return by_text


def _token(entry: Logprob | TopLogprob) -> Json:
    return {"token": entry.text, "logprob": _floored(entry.logprob), "bytes": list(entry.bytes)}


def _floored(logprob: float) -> float:
    return max(logprob, LOGPROB_FLOOR)
