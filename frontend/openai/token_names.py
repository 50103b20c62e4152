"""``return_tokens_as_token_ids``: log-probabilities that call tokens by their ids."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from pagewire.frontend.openai.choices import Collected
from pagewire.frontend.openai.respond import Shape
from pagewire.protocol.messages import Delta, Logprob


def id_name(token: int) -> str:
    """What a token is called."""
    return f"token_id:{token}"


class NamedByIdShape:
    """Another shape, given log-probabilities whose tokens are called by their ids."""

    def __init__(self, shape: Shape):
        """``shape`` makes the answers."""
        self._shape = shape

    def envelope(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices."""
        return self._shape.envelope(stream=stream)

    def heading(self) -> dict[str, Any]:
        """The fields of the first chunk."""
        return self._shape.heading()

    def opening(self) -> Iterable[bytes]:
        """What a stream sends before anything is generated."""
        return self._shape.opening()

    def pieces(self, index: int, delta: Delta) -> Sequence[bytes]:
        """What a stream sends of a choice for a delta."""
        if delta.logprobs is None and delta.prompt_logprobs is None:
            return self._shape.pieces(index, delta)
        renamed = structs.replace(
            delta,
            logprobs=None if delta.logprobs is None else tuple(map(_named, delta.logprobs)),
            prompt_logprobs=_all_named(delta.prompt_logprobs),
        )
        return self._shape.pieces(index, renamed)

    def whole(self, choices: Sequence[Collected]) -> dict[str, Any]:
        """The fields of a plain answer."""
        return self._shape.whole(
            [
                replace(
                    choice,
                    logprobs=list(map(_named, choice.logprobs)),
                    prompt_logprobs=_all_named(choice.prompt_logprobs),
                )
                for choice in choices
            ]
        )


def _all_named(entries: tuple[Logprob | None, ...] | None) -> tuple[Logprob | None, ...] | None:
    return None if entries is None else tuple(entry and _named(entry) for entry in entries)


def _named(entry: Logprob) -> Logprob:
    top = tuple(structs.replace(other, text=id_name(other.id)) for other in entry.top)
    return structs.replace(entry, text=id_name(entry.id), top=top)
