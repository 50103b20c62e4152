"""From text to token ids and back, without transformers and without holding up the event loop."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tokenizers

from pagewire.protocol.panics import no_panics

# About two milliseconds of work at most: shorter texts are encoded, and decoded, at once, longer ones in a thread.
INLINE_CHARACTERS = 4_000
INLINE_IDS = 4_000
_THREADS = 2


class Tokenizer:
    """A fast tokenizer, as serialized in ``tokenizer.json``. Immutable; any thread may use it."""

    def __init__(self, tokenizer_json: str) -> None:
        """Load the tokenizer; ValueError if the text is not one."""
        try:
            with no_panics():
                self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json)
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"not a tokenizer.json: {error}") from error
        # A prompt is never cut or filled up silently, whatever the file was saved with.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._longest = _longest_token(json.loads(tokenizer_json), self._tokenizer)
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokenize")
        self.special_ids = frozenset(
            token_id for token_id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        )

    @property
    def vocab_size(self) -> int:
        """The number of tokens, added ones included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @no_panics()
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Return the token ids of ``text``; ``add_special_tokens`` puts what the tokenizer adds around a prompt."""
        # The batch call is the one that releases the interpreter lock and computes no offsets.
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    async def encode_async(self, text: str, add_special_tokens: bool) -> list[int]:
        """Encode like ``encode``; a long text is encoded in a thread while the event loop goes on."""
        if len(text) <= INLINE_CHARACTERS:
            return self.encode(text, add_special_tokens)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self.encode, text, add_special_tokens)

    @no_panics()
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of ``ids``; unknown ids are left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    async def decode_async(self, ids: Sequence[int]) -> str:
        """Decode like ``decode``; many ids are decoded in a thread while the event loop goes on."""
        if len(ids) <= INLINE_IDS:
            return self.decode(ids)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.decode, ids)

    def token(self, token_id: int) -> str | None:
        """Return the vocabulary entry of an id (in the vocabulary's own alphabet), None if there is none."""
        return self._tokenizer.id_to_token(token_id)

    def token_id(self, token: str) -> int | None:
        """Return the id of a vocabulary entry, such as a special token, None if there is none."""
        return self._tokenizer.token_to_id(token)

    def certainly_exceeds(self, text: str, limit: int) -> bool:
        """Whether ``text`` has more than ``limit`` tokens, told from its length alone.

        True is certain: not even the longest token of the vocabulary, repeated, would fit. False says nothing.
        """
        return self._longest is not None and len(text) > limit * self._longest

    def close(self) -> None:
        """Let the threads go; texts that wait for one are dropped."""
        self._executor.shutdown(wait=False, cancel_futures=True)


# Normalizers that never shorten a text, and by what factor composition can: four code points are the longest
# canonical decomposition there is.
_SHRINK = {"Prepend": 1, "Replace": 1, "NFD": 1, "NFKD": 1, "NFC": 4, "NFKC": 4, "ByteLevel": 1}
_LOSSLESS_PRETOKENIZERS = frozenset({"ByteLevel", "Metaspace", "Digits", "Split", "Punctuation"})


def _longest_token(config: Mapping[str, Any], tokenizer: tokenizers.Tokenizer) -> int | None:
    """Return how many characters of text one token can stand for; None if the tokenizer sets no bound.

    There is none where text may vanish: an unknown token that swallows what it can't spell, added tokens that strip
    spaces, normalizers and pre-tokenizers that drop characters.
    """
    normalizers = list(_components(config.get("normalizer"), "normalizers"))
    pretokenizers = list(_components(config.get("pre_tokenizer"), "pretokenizers"))
    spells_bytes = config["model"].get("byte_fallback") or any(
        part["type"] == "ByteLevel" for part in (*normalizers, *pretokenizers)
    )
    bounded = (
        config["model"].get("type") == "BPE"
        and spells_bytes
        and all(part["type"] in _LOSSLESS_PRETOKENIZERS and part.get("behavior") != "Removed" for part in pretokenizers)
        and all(_keeps_text(part) for part in normalizers)
        and not any(token.get("lstrip") or token.get("rstrip") for token in config.get("added_tokens", []))
    )
    if not bounded:
        return None
    shrink = max((_SHRINK[part["type"]] for part in normalizers), default=1)
    return shrink * max(map(len, tokenizer.get_vocab(with_added_tokens=True)))


def _components(part: Mapping[str, Any] | None, members: str) -> Iterable[Mapping[str, Any]]:
    if part is None:
        return
    if part["type"] == "Sequence":
        for member in part[members]:
            yield from _components(member, members)
    else:
        yield part


def _keeps_text(normalizer: Mapping[str, Any]) -> bool:
    if normalizer["type"] == "Replace":
        pattern = normalizer["pattern"].get("String")
        return pattern is not None and len(normalizer["content"]) >= len(pattern)
    return normalizer["type"] in _SHRINK
