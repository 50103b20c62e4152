"""The tokens that a request allows, bans, prefers or stops at: from its fields to token ids and strings."""

from collections.abc import Mapping, Sequence

from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.schema import SamplingFields
from pagewire.frontend.tokenizer import Tokenizer

# Longer ones would make the engine hold back text, and compare, for no use.
MAX_STOP_CHARS = 1024
# Each is compared with the output at every step.
MAX_BAD_WORDS = 256
# Of one, and of all: each is tokenized in several forms, while other requests wait.
MAX_BAD_WORD_CHARS = 128
MAX_BAD_WORDS_CHARS = 8192


def check_token_ids(ids: Sequence[int], param: str, vocab_size: int) -> None:
    """Raise ApiError naming the first id that the model does not know."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    for position, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            where = f"{param}[{position}]"
            raise invalid(
                f"Invalid value for '{where}': expected a token id from 0 to {vocab_size - 1}, got {show(token)}.",
                where,
            )


def allowed_ids(fields: SamplingFields, vocab_size: int) -> tuple[int, ...]:
    """``allowed_token_ids``, checked; nothing if everything is allowed. Raises ApiError for an empty list."""
    if fields.allowed_token_ids is None:
        return ()
    if not fields.allowed_token_ids:
        raise invalid("Invalid value for 'allowed_token_ids': expected at least one token id.", "allowed_token_ids")
    check_token_ids(fields.allowed_token_ids, "allowed_token_ids", vocab_size)
    return tuple(dict.fromkeys(fields.allowed_token_ids))


def bad_word_ids(words: Sequence[str], allowed: Sequence[int], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The token sequences of ``bad_words``: each word as it begins a text and, if that differs, after a space.

    Raises ApiError for a word that is none, and if nothing that is allowed would be left.
    """
    if len(words) > MAX_BAD_WORDS:
        raise invalid(
            f"Invalid value for 'bad_words': expected at most {MAX_BAD_WORDS} words, got {len(words)}.", "bad_words"
        )
    if sum(map(len, words)) > MAX_BAD_WORDS_CHARS:
        message = f"Invalid value for 'bad_words': expected at most {MAX_BAD_WORDS_CHARS} characters in all."
        raise invalid(message, "bad_words")
    sequences: dict[tuple[int, ...], None] = {}
    for index, word in enumerate(words):
        where = f"bad_words[{index}]"
        if len(word) > MAX_BAD_WORD_CHARS:
            raise invalid(f"Invalid value for '{where}': expected at most {MAX_BAD_WORD_CHARS} characters.", where)
        forms = _forms(word, tokenizer)
        if not forms:
            raise invalid(f"Invalid value for '{where}': expected a word of at least one token.", where)
        sequences.update(dict.fromkeys(forms))
    if allowed and not set(allowed) - {form[0] for form in sequences if len(form) == 1}:
        raise invalid("'bad_words' bans every token that 'allowed_token_ids' allows.", "bad_words")
    return tuple(sequences)


def special_stops(stop: Sequence[str], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of the stop strings that are special tokens: those are hidden from the text that is searched."""
    ids = (tokenizer.token_id(string) for string in stop)
    return tuple(token for token in ids if token is not None and token in tokenizer.special_ids)


def logit_bias_ids(bias: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    """``logit_bias`` by token id; raises ApiError for a key that is none."""
    checked = {}
    for key, value in bias.items():
        token = int(key) if key.isascii() and key.isdecimal() and len(key) < 10 else -1
        if not 0 <= token < vocab_size:
            expected = f"token ids from 0 to {vocab_size - 1} as keys"
            raise invalid(f"Invalid value for 'logit_bias': expected {expected}, got {show(key)}.", "logit_bias")
        checked[token] = value
    return checked


def stop_strings(stop: str | list[str], limit: int) -> tuple[str, ...]:
    """``stop`` as strings; raises ApiError for too many, empty and very long ones."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(strings) > limit:
        raise invalid(f"Invalid value for 'stop': expected at most {limit} strings, got {len(strings)}.", "stop")
    for position, string in enumerate(strings):
        param = "stop" if isinstance(stop, str) else f"stop[{position}]"
        if not 1 <= len(string) <= MAX_STOP_CHARS:
            raise invalid(
                f"Invalid value for '{param}': expected 1 to {MAX_STOP_CHARS} characters, got {len(string)}.", param
            )
    return strings


def checked_stop_ids(ids: Sequence[int], limit: int, vocab_size: int) -> tuple[int, ...]:
    """``stop_token_ids``; raises ApiError for too many, and for ids that the model does not know."""
    if len(ids) > limit:
        raise invalid(
            f"Invalid value for 'stop_token_ids': expected at most {limit} ids, got {len(ids)}.", "stop_token_ids"
        )
    check_token_ids(ids, "stop_token_ids", vocab_size)
    return tuple(ids)


def _forms(word: str, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    alone = tuple(tokenizer.encode(word.lstrip(), False))
    spaced = tuple(tokenizer.encode(f" {word.lstrip()}", False))
    if not alone:
        # A word of spaces.
        return [ids] if (ids := tuple(tokenizer.encode(word, False))) else []
    # Of another length, the spaced form is the same word after a token of its own for the space.
    differs = len(spaced) == len(alone) and spaced[0] != alone[0]
    return [alone, spaced] if differs else [alone]
