"""What the decoder asks of an attention implementation."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from pagewire.engine.batch import Batch


@dataclass(frozen=True, slots=True)
class KvCache:
    """One layer's paged cache; ``Batch.slot_mapping`` indexes its first two dimensions flattened."""

    keys: Tensor  # [blocks, block_size, kv_heads, head_dim]
    values: Tensor  # [blocks, block_size, kv_heads, head_dim]


class StepAttention(Protocol):
    """Attention over one batch: what depends on the batch alone is prepared once and used by every layer."""

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, cache: KvCache, window: int | None) -> Tensor:
        """Write keys and values ([tokens, kv_heads, head_dim]) to the cache and attend with ``queries``.

        Queries and result are [tokens, heads, head_dim]. A token sees itself and what is before it in its own
        sequence; with a ``window``, only the last ``window`` positions (itself included).
        """
        ...


class Attention(Protocol):
    """Makes the attention of a step."""

    def prepare(self, batch: Batch) -> StepAttention:
        """Work out, without waiting for the device, what the layers of this step share."""
        ...
