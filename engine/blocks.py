"""The pool of KV cache blocks: which are in use, which are free, and what the full ones contain."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain


class BlockPool:
    """Hands out KV cache blocks and remembers what full ones contain.

    A block is either referenced by requests or on the free list, which is also the order of eviction. Free blocks
    keep their content and can be revived by a prefix hit until they are taken again. Every operation costs a constant
    per block it touches, whatever the size of the pool.
    """

    def __init__(self, num_blocks: int) -> None:
        """Start with ``num_blocks`` free blocks without content."""
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._free = OrderedDict[int, None].fromkeys(range(num_blocks))
        self._index: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that nobody references, with or without content."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that requests reference, 0 to 1."""
        return 1.0 - len(self._free) / self.num_blocks

    def num_free_among(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks`` would leave the free list if they were acquired."""
        return sum(self._references[block] == 0 for block in blocks)

    def match(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks that hold the longest known beginning of a chain of hashes."""
        blocks = []
        for block_hash in hashes:
            block = self._index.get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def acquire(self, blocks: Iterable[int]) -> None:
        """Reference blocks found by ``match``, reviving those that were free."""
        for block in blocks:
            if self._references[block] == 0:
                del self._free[block]
            self._references[block] += 1

    def take(self, count: int) -> list[int]:
        """Reference ``count`` blocks to write to, forgetting what they held; raises KeyError if too few are free."""
        return [self._take() for _ in range(count)]

    def _take(self) -> int:
        block, _ = self._free.popitem(last=False)
        known_hash = self._hashes[block]
        if known_hash is not None:
            del self._index[known_hash]
            self._hashes[block] = None
        self._references[block] = 1
        return block

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back, last first, so that a chain loses its tail before its head.

        Blocks without known content go to the front of the free list: taking them evicts nothing.
        """
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                if self._hashes[block] is None:
                    self._free.move_to_end(block, last=False)

    def register(self, block: int, block_hash: bytes) -> None:
        """Remember what a full block holds, from now on immutable; a second copy of known content stays unknown."""
        if block_hash not in self._index:
            self._index[block_hash] = block
            self._hashes[block] = block_hash

    def hash_of(self, block: int) -> bytes | None:
        """What the block is known to hold."""
        return self._hashes[block]

    def check_invariants(self, tables: Iterable[Sequence[int]]) -> None:
        """Assert that counts, free list and index agree with the block tables of all live requests."""
        references = Counter(chain.from_iterable(tables))
        for block, count in enumerate(self._references):
            assert count == references[block], f"block {block}: count {count}, in {references[block]} tables"
            assert (count == 0) == (block in self._free), f"block {block}: count {count}, free {block in self._free}"
        assert all(self._hashes[block] == known_hash for known_hash, block in self._index.items())
        assert len(self._index) == sum(known_hash is not None for known_hash in self._hashes)
