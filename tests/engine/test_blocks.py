import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pagewire.engine.blocks import BlockPool

A, B, C = b"a", b"b", b"c"


def registered(pool: BlockPool, *hashes: bytes) -> list[int]:
    """A chain of blocks with known content, still referenced."""
    blocks = pool.take(len(hashes))
    for block, block_hash in zip(blocks, hashes, strict=True):
        pool.register(block, block_hash)
    return blocks


def test_taken_blocks_are_distinct_and_count_as_used() -> None:
    pool = BlockPool(4)
    assert sorted(pool.take(3)) == [0, 1, 2]
    assert (pool.num_free, pool.usage) == (1, 0.75)


def test_taking_more_than_is_free_raises() -> None:
    with pytest.raises(KeyError):
        BlockPool(2).take(3)


def test_a_free_block_is_revived_by_its_content() -> None:
    pool = BlockPool(2)
    blocks = registered(pool, A, B)
    pool.release(blocks)
    assert pool.match([A, B, C]) == blocks
    pool.acquire(blocks)
    assert pool.num_free == 0


def test_a_match_ends_at_the_first_unknown_hash() -> None:
    pool = BlockPool(3)
    registered(pool, A, C)
    assert len(pool.match([A, B, C])) == 1


def test_a_shared_block_is_free_when_the_last_owner_releases_it() -> None:
    pool = BlockPool(1)
    blocks = registered(pool, A)
    pool.acquire(blocks)
    pool.release(blocks)
    assert pool.num_free == 0
    pool.release(blocks)
    assert pool.num_free == 1


def test_taking_a_block_forgets_what_it_held() -> None:
    pool = BlockPool(1)
    pool.release(registered(pool, A))
    pool.take(1)
    assert pool.match([A]) == []
    pool.check_invariants([[0]])


def test_a_chain_loses_its_tail_before_its_head() -> None:
    pool = BlockPool(3)
    pool.release(registered(pool, A, B, C))
    pool.take(1)
    assert len(pool.match([A, B, C])) == 2


def test_the_content_used_longest_ago_goes_first() -> None:
    pool = BlockPool(2)
    first, second = registered(pool, A), registered(pool, B)
    pool.release(first)
    pool.release(second)
    pool.acquire(pool.match([A]))
    pool.release(first)
    assert pool.take(1) == second


def test_blocks_without_content_are_taken_before_any_content_is_lost() -> None:
    pool = BlockPool(3)
    known, unknown = registered(pool, A), pool.take(1)
    pool.release(known)
    pool.release(unknown)
    pool.take(2)
    assert pool.match([A]) == known


def test_a_second_copy_of_known_content_is_not_remembered() -> None:
    pool = BlockPool(2)
    (first,), (second,) = registered(pool, A), registered(pool, A)
    assert (pool.hash_of(first), pool.hash_of(second)) == (A, None)
    assert pool.match([A]) == [first]


def test_free_blocks_are_counted_among_matches() -> None:
    pool = BlockPool(2)
    (used,), (free,) = registered(pool, A), registered(pool, B)
    pool.release([free])
    assert pool.num_free_among([used, free]) == 1


def test_a_leaked_reference_is_noticed() -> None:
    pool = BlockPool(2)
    pool.take(1)
    with pytest.raises(AssertionError, match="block 0"):
        pool.check_invariants([])


class PoolMachine(RuleBasedStateMachine):
    """Owners take, share, fill and release blocks; content must stay what was registered, for as long as promised."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(6)
        self.tables: list[list[int]] = []
        self.content: dict[bytes, int] = {}
        self.num_hashes = 0

    @precondition(lambda self: self.pool.num_free)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        blocks = self.pool.take(data.draw(st.integers(1, self.pool.num_free)))
        assert not any(block in table for block in blocks for table in self.tables)
        self.content = {known: block for known, block in self.content.items() if block not in blocks}
        self.tables.append(blocks)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(data.draw(st.sampled_from(self.tables))))
        if self.pool.hash_of(block) is None:
            self.num_hashes += 1
            self.content[self.num_hashes.to_bytes(4, "big")] = block
            self.pool.register(block, self.num_hashes.to_bytes(4, "big"))

    @precondition(lambda self: self.content)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(sorted(self.content)))
        blocks = self.pool.match([known])
        self.pool.acquire(blocks)
        self.tables.append(blocks)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.pool.release(self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1))))

    @invariant()
    def content_is_found_where_it_was_registered(self) -> None:
        self.pool.check_invariants(self.tables)
        for known, block in self.content.items():
            assert self.pool.match([known]) == [block]


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=30, derandomize=True, deadline=None)
