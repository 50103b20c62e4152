"""What each token id stands for: its true bytes, its readable text, and how a sequence of tokens becomes text.

The tokenizer's decoder is recognized by its steps. Two kinds cover nearly every language model, and their tokens have
bytes of their own: byte-level BPE, and pieces with a space symbol and byte tokens (SentencePiece). Of any other
decoder all that is known is that it decodes.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tokenizers import Tokenizer

from pagewire.protocol.panics import no_panics

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True, slots=True)
class Scheme:
    """How tokens become text.

    ``bytes``: the bytes of all tokens in a row are UTF-8. ``pieces``: tokens are whole characters except the byte
    tokens, whose runs are UTF-8; ``strip`` is how many ``strip_char`` the very start of a text loses; ``replace`` holds
    the single-character replacements, ``replace_in_runs`` whether they come after byte tokens turned into characters.
    ``opaque``: only the tokenizer itself can tell.
    """

    kind: Literal["bytes", "pieces", "opaque"]
    replace: tuple[tuple[str, str], ...] = ()
    replace_in_runs: bool = False
    strip: int = 0
    strip_char: str = " "

    def replaced(self, text: str) -> str:
        """The text after all replacements."""
        for symbol, content in self.replace:
            text = text.replace(symbol, content)
        return text


class Vocabulary:
    """Tables over all token ids, built once per model and shared by every request.

    ``texts[id]`` is the token's text if it is whole characters wherever it stands, else None. ``special`` are the ids
    that ``skip_special_tokens`` hides. Ids that the tokenizer does not know (a model's vocabulary is often padded) are
    in ``absent`` and decode to nothing.
    """

    def __init__(self, tokenizer_json: str, vocab_size: int = 0) -> None:
        """Read a serialized tokenizer; the tables reach at least to ``vocab_size``."""
        self.tokenizer = Tokenizer.from_str(tokenizer_json)
        self.scheme = _scheme(json.loads(tokenizer_json).get("decoder"))
        tokens = {token_id: token for token, token_id in self.tokenizer.get_vocab(with_added_tokens=False).items()}
        added = self.tokenizer.get_added_tokens_decoder()
        tokens |= {token_id: token.content for token_id, token in added.items()}
        special = {token.content for token in added.values() if token.special}

        self.size = max(vocab_size, max(tokens, default=-1) + 1)
        self.special = frozenset(token_id for token_id, token in tokens.items() if token in special)
        self.absent = frozenset(range(self.size)) - tokens.keys()
        self._bytes = [b""] * self.size
        self.texts: list[str | None] = [""] * self.size
        for token_id, token in tokens.items():
            self._bytes[token_id], self.texts[token_id] = self._read(token_id, token)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token adds to a text; of a special token, those of its name."""
        return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        """The token for people: bytes that are no characters on their own appear as U+FFFD."""
        text = self.texts[token_id]
        return self._bytes[token_id].decode(errors="replace") if text is None else text

    @no_panics()
    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The tokenizer's own decoding of a whole sequence."""
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text

    def _read(self, token_id: int, token: str) -> tuple[bytes, str | None]:
        if self.scheme.kind == "bytes":
            data = _byte_level(token)
        elif self.scheme.kind == "pieces":
            if _BYTE_TOKEN.fullmatch(token):
                return bytes([int(token[3:5], 16)]), None
            data = self.scheme.replaced(token).encode()
        else:
            data = self.decode([token_id], skip_special_tokens=False).encode()
        try:
            return data, data.decode()
        except UnicodeDecodeError:
            return data, None


def _byte_alphabet() -> dict[str, int]:
    """The printable characters that stand for bytes in byte-level BPE (the convention of GPT-2).

    Bytes that are printable in Latin-1 stand for themselves; the others got the characters from U+0100 on, in order.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    """A byte-level token's bytes; a token with any character outside the alphabet (an added one) is literal."""
    try:
        return bytes([_BYTE_ALPHABET[char] for char in token])
    except KeyError:
        return token.encode()


def _scheme(decoder: dict[str, Any] | None) -> Scheme:
    """Recognize a decoder as tokenizers serializes it."""
    steps = _flattened(decoder)
    kinds = [step["type"] for step in steps]
    if [kind for kind in kinds if kind != "Fuse"] == ["ByteLevel"] and kinds[0] == "ByteLevel":
        return Scheme("bytes")
    symbols = [step["pattern"].get("String", "") for step in steps if step["type"] == "Replace"]
    strips = [step for step in steps if step["type"] == "Strip"]
    understood = (
        {"Replace", "ByteFallback", "Fuse", "Strip"}.issuperset(kinds)
        and kinds.count("ByteFallback") == 1
        and all(len(symbol) == 1 for symbol in symbols)  # longer ones could span tokens
        and len(strips) <= 1
        and all("Fuse" in kinds[: kinds.index("Strip")] and step["stop"] == 0 for step in strips)  # else: every token
    )
    if not understood:
        return Scheme("opaque")
    contents = [step["content"] for step in steps if step["type"] == "Replace"]
    return Scheme(
        "pieces",
        replace=tuple(zip(symbols, contents, strict=True)),
        replace_in_runs="Replace" in kinds[kinds.index("ByteFallback") :],
        strip=strips[0]["start"] if strips else 0,
        strip_char=strips[0]["content"] if strips else " ",
    )


def _flattened(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for part in decoder["decoders"] for step in _flattened(part)]
