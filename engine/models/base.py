"""What the runner asks of any model, native or not."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from pagewire.engine.batch import Batch

BLOCK_SIZE = 16


class Model(Protocol):
    """A decoder that owns its weights and its paged KV cache.

    The KV layout is the model's business (it depends on the attention kernel); only the number of blocks, of
    ``BLOCK_SIZE`` tokens each, is decided outside.
    """

    vocab_size: int

    def kv_bytes_per_block(self) -> int:
        """Memory that one block costs over all layers, in bytes."""
        ...

    def allocate_kv(self, num_blocks: int) -> None:
        """Create the KV cache; called once, before the first ``forward``."""
        ...

    def forward(self, batch: Batch) -> Tensor:
        """Run one step: write K and V of the batch's tokens, return logits, float32 [logit_rows, vocab_size]."""
        ...


@runtime_checkable
class LazyModel(Model, Protocol):
    """A model whose KV cache gets its memory page by page, which holds up the steps that first touch one."""

    def prepare_kv(self, num_blocks: int) -> bool:
        """Get some more of the memory of the first ``num_blocks`` blocks; False when nothing is left to get.

        Takes milliseconds.
        """
        ...


@runtime_checkable
class EmbeddingModel(Model, Protocol):
    """A model that also shows the hidden states behind its logits."""

    hidden_size: int

    def forward_hidden(self, batch: Batch, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Run one step as ``forward`` does; beside its logits, return the final normed hidden states of some tokens.

        ``indices`` int64 [n] are tokens of the batch; their states are [n, hidden_size], in the model's dtype.
        """
        ...
