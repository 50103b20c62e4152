import pytest

from pagewire.engine.hashing import HASH_BYTES, block_hash, extend_chain, root_hash


def chain_of(tokens: list[int], salt: str = "", block_size: int = 4) -> list[bytes]:
    chain: list[bytes] = []
    extend_chain(chain, salt, tokens, block_size)
    return chain


def test_only_full_blocks_have_a_hash() -> None:
    assert [len(chain_of(list(range(n)))) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_equal_tokens_hash_equally_until_the_first_difference() -> None:
    chain, other = chain_of([1, 2, 3, 4, 5, 6, 7, 8]), chain_of([1, 2, 3, 4, 5, 6, 7, 9])
    assert chain[0] == other[0]
    assert chain[1] != other[1]


def test_a_block_hashes_differently_after_another_prefix() -> None:
    assert chain_of([0, 0, 0, 0, 5, 6, 7, 8])[1] != chain_of([1, 1, 1, 1, 5, 6, 7, 8])[1]


def test_the_salt_changes_every_hash() -> None:
    tokens = list(range(12))
    assert not set(chain_of(tokens, "one")) & set(chain_of(tokens, "two"))


def test_a_chain_grown_token_by_token_equals_one_made_at_once() -> None:
    tokens = list(range(13))
    chain: list[bytes] = []
    for end in range(len(tokens) + 1):
        extend_chain(chain, "salt", tokens[:end], 4)
    assert chain == chain_of(tokens, "salt")


def test_tokens_can_not_be_regrouped_into_the_same_hash() -> None:
    assert block_hash(b"", [0x01020304]) != block_hash(b"", [0x0102, 0x0304])
    assert block_hash(b"", [256]) != block_hash(b"", [1, 0])


def test_a_salt_can_not_imitate_a_block() -> None:
    assert root_hash("A\0\0\0") != block_hash(b"", [65])


def test_any_string_is_a_salt() -> None:
    assert len({root_hash(salt) for salt in ("", "\0", "é", "\ud800", "x" * 10_000)}) == 5


def test_hashes_are_long_enough_to_be_trusted_without_comparing_tokens() -> None:
    assert len(root_hash("")) == len(block_hash(b"", [1])) == HASH_BYTES >= 16


@pytest.mark.parametrize("token", [-1, 2**32])
def test_a_token_id_outside_32_bits_is_refused(token: int) -> None:
    with pytest.raises(OverflowError):
        block_hash(b"", [token])
