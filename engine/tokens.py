"""From a sampled token to what the client learns of it: text, logprobs, and whether it was the last one."""

from dataclasses import dataclass
from typing import Literal

from pagewire.engine.detokenize import token_offsets
from pagewire.engine.sampling.logprobs import TokenLogprobs
from pagewire.engine.sequence import Sequence
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.messages import Logprob, TopLogprob


@dataclass(frozen=True, slots=True)
class Read:
    """What one token adds to its sequence; ``matched`` is the stop string or stop token id that ended it."""

    text: str
    logprobs: tuple[Logprob, ...] | None = None
    finish: Literal["stop", "length"] | None = None
    matched: str | int | None = None


class TokenReader:
    """Reads tokens into sequences; holds what is the same for all of them."""

    def __init__(self, vocabulary: Vocabulary, eos_token_ids: frozenset[int]):
        """``eos_token_ids`` end a sequence unless it ignores them."""
        self._vocabulary = vocabulary
        self._eos_token_ids = eos_token_ids

    def read(self, sequence: Sequence, token: int, found: TokenLogprobs | None) -> Read:
        """Add a token, which the scheduler has already appended, to its sequence's text."""
        sampling, output = sequence.sampling, sequence.output
        logprobs = None
        if found:
            logprobs = (self._describe(token, found, output.offset),)
        is_stop_token = token in sampling.stop_token_ids
        # A grammar allows an end token only where the text is complete, and nothing may follow it.
        heeds_eos = not sampling.ignore_eos or sequence.grammar is not None
        if is_stop_token or (token in self._eos_token_ids and heeds_eos):
            # The token that ends the text is no part of it, unless asked for.
            text = output.push(token) if sampling.include_stop else ""
            return Read(text + output.flush(), logprobs, "stop", token if is_stop_token else None)
        text = output.push(token)
        if output.matched is not None:
            return Read(text, logprobs, "stop", output.matched)
        if sequence.request.num_output >= sequence.request.max_tokens:
            return Read(text + output.flush(), logprobs, "length")
        return Read(text, logprobs)

    def read_prompt(self, sequence: Sequence, start: int, found: list[TokenLogprobs]) -> None:
        """Keep the logprobs of prompt positions ``start + 1`` and on, but for those known from before a preemption."""
        known, prompt = sequence.prompt_logprobs, sequence.request.prompt
        if not sequence.prompt_offsets:
            sequence.prompt_offsets = token_offsets(self._vocabulary, prompt, skip_special_tokens=False)
        for position, entry in enumerate(found, start + 1):
            if position == len(known):
                known.append(self._describe(prompt[position], entry, sequence.prompt_offsets[position]))

    def _describe(self, token: int, found: TokenLogprobs, offset: int) -> Logprob:
        vocabulary = self._vocabulary
        return Logprob(
            id=token,
            logprob=found.logprob,
            text=vocabulary.token_text(token),
            bytes=vocabulary.token_bytes(token),
            rank=found.rank,
            offset=offset,
            top=tuple(
                TopLogprob(other, logprob, vocabulary.token_text(other), vocabulary.token_bytes(other))
                for other, logprob in found.top
            ),
        )
