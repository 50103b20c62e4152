"""How many KV cache blocks an engine gets: as told, or from the memory that is free."""

from pagewire.engine.config import EngineConfig
from pagewire.engine.models.base import BLOCK_SIZE
from pagewire.engine.models.errors import ModelError


def num_kv_blocks(
    config: EngineConfig,
    bytes_per_block: int,
    free_bytes: int,
    max_model_len: int,
    max_num_seqs: int,
    step_bytes: int = 0,
) -> int:
    """Blocks in the pool: ``--num-kv-blocks``, or what fits ``--kv-cache-memory`` or else ``free_bytes``.

    Of the free memory, ``step_bytes`` are left to the steps. Never more than ``max_num_seqs`` sequences of full length
    can use, unless their number was given. Raises ``ModelError`` if there is no room for a single block.
    """
    if config.num_kv_blocks is not None:
        return config.num_kv_blocks
    budget = max(0, free_bytes - step_bytes) if config.kv_cache_memory is None else config.kv_cache_memory
    useful = max_num_seqs * -(-max_model_len // BLOCK_SIZE)
    blocks = min(budget // bytes_per_block, useful)
    if blocks < 1:
        text = f"no room for the KV cache: {budget} bytes available, a block takes {bytes_per_block}"
        if config.kv_cache_memory is None and step_bytes:
            text += f"; a step may take {step_bytes} bytes, fewer with a lower --max-num-batched-tokens"
        raise ModelError(text)
    return blocks
