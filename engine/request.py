"""One sequence on its way through the scheduler."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum


class State(Enum):
    """Where a request is: it is in exactly one of the scheduler's collections, or in none."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False, slots=True)
class Request:
    """A prompt and what became of it.

    The first group of fields is the caller's, the second the scheduler's alone. The KV of the first ``num_computed``
    tokens is written or being written by planned rows; ``in_flight`` tokens have been planned but not collected, so
    ``num_computed <= num_tokens + in_flight``. Only a running request owns blocks and a slot.
    """

    key: Hashable  # the caller's name for the request
    prompt: Sequence[int]  # token ids, at least one
    max_tokens: int  # at least 1
    priority: int = 0  # lower runs first
    salt: str = ""  # only requests with the same salt share blocks
    reuse_prefix: bool = True  # False when the logits of the whole prompt are wanted: every token must be computed

    tokens: list[int] = field(init=False)  # prompt and output
    state: State = field(init=False, default=State.NEW)
    rank: tuple[int, int] = field(init=False, default=(0, 0))  # (priority, arrival): lower goes first
    epoch: int = field(init=False, default=0)  # rows planned in an earlier epoch are stale
    num_computed: int = field(init=False, default=0)
    in_flight: int = field(init=False, default=0)
    slot: int = field(init=False, default=-1)
    blocks: tuple[int, ...] = field(init=False, default=())  # the block table: replaced, never changed
    num_registered: int = field(init=False, default=0)  # leading blocks that are full and collected
    hashes: list[bytes] = field(init=False, default_factory=list)  # of leading full blocks, as far as needed yet
    num_cached: int = field(init=False, default=0)  # prompt tokens found in the prefix cache at the first admission
    num_preempted: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Start from a copy of the prompt."""
        self.tokens = list(self.prompt)

    @property
    def num_tokens(self) -> int:
        """Tokens known to the host: prompt and collected output."""
        return len(self.tokens)

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt)

    @property
    def num_output(self) -> int:
        """Tokens generated and collected."""
        return len(self.tokens) - len(self.prompt)

    @property
    def output(self) -> list[int]:
        """The token ids generated and collected."""
        return self.tokens[len(self.prompt) :]
