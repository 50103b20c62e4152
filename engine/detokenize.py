"""From token ids to text, one token at a time and exactly.

A stream is a decoder (bytes of tokens into whole characters) followed by stop strings. Concatenated, its pieces are
the tokenizer's decoding of all ids, up to a stop string.
"""

import codecs
from collections.abc import Sequence
from typing import Protocol

from pagewire.engine.stops import StopStrings
from pagewire.engine.vocabulary import Scheme, Vocabulary
from pagewire.protocol.messages import Sampling

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# An unfinished character waits for at most three more tokens; a text that ends in U+FFFD for longer means it.
_MOST_UNFINISHED_TOKENS = 6


class TextDecoder(Protocol):
    """Whole characters out of tokens."""

    def push(self, token_id: int) -> str:
        """The characters that this token completes."""
        ...

    def flush(self) -> str:
        """What an unfinished character at the end turns into."""
        ...


class ByteDecoder:
    """Byte-level BPE: all bytes in a row are UTF-8, invalid ones become U+FFFD (one per maximal invalid part)."""

    def __init__(self, vocabulary: Vocabulary, hidden: frozenset[int]) -> None:
        """``hidden`` ids decode to nothing, as if they were not there."""
        self._vocabulary = vocabulary
        self._texts = vocabulary.texts
        self._hidden = hidden
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = False

    def push(self, token_id: int) -> str:
        """The characters that this token completes."""
        if token_id in self._hidden:
            return ""
        if not self._unfinished and (text := self._texts[token_id]) is not None:
            return text
        text = self._utf8.decode(self._vocabulary.token_bytes(token_id))
        self._unfinished = bool(self._utf8.getstate()[0])
        return text

    def flush(self) -> str:
        """U+FFFD for an unfinished character."""
        self._unfinished = False
        return self._utf8.decode(b"", final=True)


class PieceDecoder:
    """SentencePiece: text tokens, and runs of byte tokens that are UTF-8 of their own.

    The tokenizers library turns every byte of a run that is not valid UTF-8 as a whole into U+FFFD. Here characters
    leave as soon as they are complete (a newline may be a byte token, and a stop string), so of an invalid run those
    before the first bad byte survive; from there on each byte is one U+FFFD.
    """

    def __init__(self, vocabulary: Vocabulary, hidden: frozenset[int], strip: int) -> None:
        """``strip`` is how many characters the start of the text may lose."""
        self._vocabulary = vocabulary
        self._texts = vocabulary.texts
        self._scheme: Scheme = vocabulary.scheme
        self._hidden = hidden | vocabulary.absent
        self._strip = strip
        self._utf8 = codecs.getincrementaldecoder("utf-8")("strict")
        self._in_run = False
        self._broken = False

    def push(self, token_id: int) -> str:
        """The characters that this token completes."""
        if token_id in self._hidden:
            return ""
        text = self._texts[token_id]
        if text is None:
            text = self._push_byte(self._vocabulary.token_bytes(token_id))
        elif self._in_run:
            text = self._end_run() + text
        return self._stripped(text) if self._strip else text

    def flush(self) -> str:
        """U+FFFD for every byte of an unfinished character."""
        text = self._end_run()
        return self._stripped(text) if self._strip else text

    def _push_byte(self, byte: bytes) -> str:
        self._in_run = True
        if self._broken:
            return REPLACEMENT
        unfinished = len(self._utf8.getstate()[0])
        try:
            text = self._utf8.decode(byte)
        except UnicodeDecodeError:
            self._broken = True
            self._utf8.reset()
            return REPLACEMENT * (unfinished + 1)
        return self._scheme.replaced(text) if self._scheme.replace_in_runs else text

    def _end_run(self) -> str:
        unfinished = len(self._utf8.getstate()[0])
        self._utf8.reset()
        self._in_run = self._broken = False
        return REPLACEMENT * unfinished

    def _stripped(self, text: str) -> str:
        """Drop leading ``strip_char`` while the text has not begun."""
        while self._strip and text.startswith(self._scheme.strip_char):
            text = text[1:]
            self._strip -= 1
        if text:
            self._strip = 0
        return text


class WindowDecoder:
    """Any other tokenizer: decodes the last few tokens with and without the new ones and takes the difference."""

    def __init__(self, vocabulary: Vocabulary, hidden: frozenset[int]) -> None:
        """``hidden`` ids decode to nothing, as if they were not there."""
        self._vocabulary = vocabulary
        # What has no text must not wait as an unfinished character does: all that waits is decoded each time.
        self._hidden = hidden | vocabulary.absent
        self._context: list[int] = []  # the tokens of the last piece returned
        self._new: list[int] = []

    def push(self, token_id: int) -> str:
        """The characters that this token completes."""
        if token_id in self._hidden:
            return ""
        self._new.append(token_id)
        text = self._difference()
        if not text or (text.endswith(REPLACEMENT) and len(self._new) < _MOST_UNFINISHED_TOKENS):
            return ""
        self._context, self._new = self._new, []
        return text

    def flush(self) -> str:
        """What is left, unfinished or not."""
        text = self._difference()
        self._context, self._new = self._new, []
        return text

    def _difference(self) -> str:
        before = self._vocabulary.decode(self._context, skip_special_tokens=False)
        return self._vocabulary.decode(self._context + self._new, skip_special_tokens=False)[len(before) :]


def text_decoder(
    vocabulary: Vocabulary, skip_special_tokens: bool, continues: bool = False, shown: Sequence[int] = ()
) -> TextDecoder:
    """A decoder for one text; one that ``continues`` another text keeps its leading space.

    ``shown`` are special tokens that are not skipped.
    """
    hidden = vocabulary.special.difference(shown) if skip_special_tokens else frozenset[int]()
    if vocabulary.scheme.kind == "bytes":
        return ByteDecoder(vocabulary, hidden)
    if vocabulary.scheme.kind == "pieces":
        return PieceDecoder(vocabulary, hidden, 0 if continues else vocabulary.scheme.strip)
    return WindowDecoder(vocabulary, hidden)


def token_offsets(vocabulary: Vocabulary, token_ids: Sequence[int], skip_special_tokens: bool) -> list[int]:
    """How many characters of the decoded text are complete before each token; never falls."""
    decoder = text_decoder(vocabulary, skip_special_tokens)
    offsets, offset = [], 0
    for token_id in token_ids:
        offsets.append(offset)
        offset += len(decoder.push(token_id))
    return offsets


class OutputText:
    """The text of one generated sequence, as far as it may be sent.

    Stop strings are looked for only in the text that comes after the first ``min_tokens`` tokens: a stop string that
    begins before is not seen, nor cut.

    ``offset`` is the number of characters decoded so far, those held back included: read before ``push`` it is where
    the next token's text begins. ``matched`` is the stop string that ended the text.
    """

    def __init__(self, vocabulary: Vocabulary, sampling: Sampling, continues: bool = False) -> None:
        """Start an empty text; ``continues`` as for ``text_decoder``."""
        self.offset = 0
        self._decoder = text_decoder(vocabulary, sampling.skip_special_tokens, continues, sampling.shown_token_ids)
        self._stops = StopStrings(sampling.stop, sampling.include_stop) if sampling.stop else None
        self._tokens_before_stops = sampling.min_tokens

    @property
    def matched(self) -> str | None:
        """The stop string that was found; None while there is none."""
        return self._stops.matched if self._stops else None

    def push(self, token_id: int) -> str:
        """Take the next token, return the text that may be sent now. After a match that is nothing."""
        text = self._decoder.push(token_id)
        self.offset += len(text)
        if self._stops is None:
            return text
        if self._tokens_before_stops > 0:
            self._tokens_before_stops -= 1
            return text
        return self._stops.push(text)

    def flush(self) -> str:
        """The text still held, at the end of the sequence."""
        text = self._decoder.flush()
        self.offset += len(text)
        if self._stops is None or self._tokens_before_stops > 0:
            return text
        return self._stops.push(text) + self._stops.flush()
