"""The tensors of one step: everything a model needs to know about what it computes, passed as an argument."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """A step's rows laid end to end, without padding.

    Row i covers tokens ``query_starts[i]:query_starts[i + 1]`` and attends to the first ``seq_lens[i]`` positions of
    its sequence (this step's tokens included), found through ``block_tables[i]``.
    """

    token_ids: Tensor  # int64 [tokens]
    positions: Tensor  # int64 [tokens]
    slot_mapping: Tensor  # int64 [tokens]: block * block_size + offset, where each token's K and V are written
    block_tables: Tensor  # int32 [rows, max_blocks], padded with 0
    seq_lens: Tensor  # int32 [rows]
    query_starts: Tensor  # int32 [rows + 1]
    logit_indices: Tensor  # int64 [logit_rows]: the tokens whose logits are wanted
    query_starts_host: tuple[int, ...]
    seq_lens_host: tuple[int, ...]
