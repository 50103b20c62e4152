"""Content hashes of full KV blocks.

The hash of a block covers its tokens and, through its parent, everything before them: two blocks with the same hash
hold the same KV. The chain starts from the salt, so requests with different salts never share a block.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

# Equal hashes are taken as equal content without a look at the tokens, across tenants: no collision may be findable.
HASH_BYTES = 32

# Keeps salts and blocks apart: no choice of tokens hashes to the root of another salt.
_ROOT_DOMAIN = b"pagewire-root"
_BLOCK_DOMAIN = b"pagewire-block"


def root_hash(salt: str) -> bytes:
    """The parent of a sequence's first block."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES, person=_ROOT_DOMAIN).digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The hash of a full block that follows ``parent``; token ids must fit into 32 bits."""
    content = parent + array("I", token_ids).tobytes()
    return blake2b(content, digest_size=HASH_BYTES, person=_BLOCK_DOMAIN).digest()


def extend_chain(chain: list[bytes], salt: str, token_ids: Sequence[int], block_size: int) -> None:
    """Append to ``chain``, the hashes of a sequence's first blocks, those of all further full blocks."""
    parent = chain[-1] if chain else root_hash(salt)
    for end in range((len(chain) + 1) * block_size, len(token_ids) + 1, block_size):
        parent = block_hash(parent, token_ids[end - block_size : end])
        chain.append(parent)
