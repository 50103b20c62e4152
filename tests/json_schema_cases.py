"""Judges documents by grammars: whether any way to write a document is allowed by the grammar of a schema."""

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.sources import grammar_source

# Orders of an object's properties that are tried: grammars fix the order.
MAX_ORDERS = 120


class _Bytes:
    """The smallest vocabulary that can write anything: one token per byte, and an end."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (256,)

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


TOKENIZER = LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=257, eos_token=256)


def matcher_of(schema: Any) -> LLMatcher | None:
    """A matcher for the grammar that a schema becomes; None if the schema is refused."""
    try:
        source = grammar_source("json_schema", schema)
    except GrammarError:
        return None
    matcher = LLMatcher(TOKENIZER, source, log_level=0)
    return None if matcher.is_error() else matcher


def allows(matcher: LLMatcher, document: Any) -> bool:
    """Whether the grammar allows the document in any of the usual ways to write it."""
    return any(allows_text(matcher, text) for text in writings(document))


def allows_text(matcher: LLMatcher, text: str) -> bool:
    """Whether the grammar allows this text, as a whole."""
    matcher.reset()
    try:
        token_ids = list(text.encode())
    except UnicodeEncodeError:
        return False
    taken: int = matcher.try_consume_tokens(token_ids)
    return taken == len(token_ids) and bool(matcher.is_accepting())


def writings(document: Any) -> set[str]:
    """A document as text: properties in many orders, spaced and not, escaped and not."""
    styles: list[dict[str, Any]] = [{"separators": (",", ":")}, {}, {"ensure_ascii": False}]
    return {json.dumps(ordered, **style) for ordered in _orders(document) for style in styles}


def _orders(document: Any) -> list[Any]:
    return list(itertools.islice(_all_orders(document), MAX_ORDERS))


def _all_orders(document: Any) -> Iterator[Any]:
    if isinstance(document, dict):
        for names in itertools.permutations(document):
            for values in itertools.product(*(_orders(document[name]) for name in names)):
                yield dict(zip(names, values, strict=True))
    elif isinstance(document, list):
        for entries in itertools.product(*(_orders(entry) for entry in document)):
            yield list(entries)
    else:
        yield document


def written_at_random(matcher: LLMatcher, seed: int, max_bytes: int = 80) -> str | None:
    """A text of the grammar's, byte by byte at random; None if it does not end within ``max_bytes``."""
    draw = random.Random(seed)
    matcher.reset()
    text = bytearray()
    while len(text) < max_bytes:
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        if _Bytes.eos_token_id in allowed and (len(allowed) == 1 or draw.random() < 0.3):
            return text.decode()
        # Mostly structure: free strings would never end.
        likely = [token for token in allowed if token in set(b'{}[]",:abc0139')]
        token = draw.choice(likely or [token for token in allowed if token != _Bytes.eos_token_id])
        assert matcher.consume_token(token)
        text.append(token)
    return None
