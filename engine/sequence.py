"""What the engine keeps for one request beside the scheduler's view of it: text, logprobs, times."""

from dataclasses import dataclass, field

from llguidance import LLMatcher

from pagewire.engine.detokenize import OutputText
from pagewire.engine.request import Request
from pagewire.protocol.messages import Generate, Logprob, Sampling, Usage

Key = tuple[bytes, int]  # frontend identity, rid


@dataclass(slots=True, eq=False)
class Sequence:
    """One request from submission to finish. Times are monotonic seconds."""

    key: Key
    request: Request
    sampling: Sampling
    output: OutputText
    submitted: float
    embeds: bool = False  # wants an embedding of its prompt, and no tokens
    admitted: float | None = None  # the first time it got a slot
    first_token: float | None = None
    grammar: LLMatcher | None = None  # has taken every token that was collected
    # Prompt positions done so far; the first entry is None, because nothing predicts the first token.
    prompt_logprobs: list[Logprob | None] = field(default_factory=lambda: [None])
    prompt_offsets: list[int] = field(default_factory=list)  # characters before each prompt token, once needed
    prompt_logprobs_sent: bool = False

    @property
    def rid(self) -> int:
        """The frontend's name for it."""
        return self.key[1]

    @property
    def wanted_prompt_top(self) -> int | None:
        """How many alternatives are wanted at prompt positions still to be computed; None if none are wanted."""
        return None if len(self.prompt_logprobs) >= self.request.num_prompt else self.sampling.prompt_logprobs

    def take_prompt_logprobs(self) -> tuple[Logprob | None, ...] | None:
        """All prompt logprobs, the first time that this is called after they are complete; None otherwise."""
        if self.sampling.prompt_logprobs is None or self.prompt_logprobs_sent:
            return None
        self.prompt_logprobs_sent = True
        return tuple(self.prompt_logprobs)

    def usage(self) -> Usage:
        """Counts and times up to now."""
        request = self.request
        queued = (self.admitted or self.submitted) - self.submitted
        prefill = self.first_token - self.admitted if self.first_token and self.admitted else 0.0
        return Usage(
            prompt=request.num_prompt,
            completion=request.num_output,
            cached=request.num_cached,
            queued_ms=queued * 1e3,
            prefill_ms=prefill * 1e3,
            preempted=request.num_preempted,
        )


def make_request(key: Key, message: Generate, max_tokens: int, *, reuse_prefix: bool) -> Request:
    """The scheduler's view of a ``Generate``; ``max_tokens`` is what is left of the context for it."""
    return Request(
        key=key,
        prompt=message.prompt,
        max_tokens=max_tokens,
        priority=message.priority,
        salt=message.salt,
        reuse_prefix=reuse_prefix,
    )
