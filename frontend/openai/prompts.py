"""From the text of a prompt to token ids that fit the model."""

import time
from dataclasses import dataclass
from typing import Any

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.metrics import Metrics
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.params import too_long
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.token_limits import check_token_ids

# Text to be counted or cut may be longer than the context, but not without bound: this is half a second of one of the
# threads that every request needs. 16 characters a token are more than any language has.
_COUNTED_CHARS = 1_000_000
_CHARS_PER_TOKEN = 16


async def encode_prompt(
    text: str,
    add_special_tokens: bool,
    served: ServedModel,
    metrics: Metrics,
    *,
    part: str,
    param: str,
    any_length: bool = False,
) -> tuple[int, ...]:
    """Tokenize a prompt, off the event loop if it is long.

    ``part`` is what the prompt is called in errors, ``param`` the field it came from. Raises ApiError if there is no
    token at all, or surely more than the context holds, which is told without tokenizing; with ``any_length`` the
    caller will cut it, so of a very long one only the end is read.
    """
    limit = served.limits.max_model_len
    if any_length:
        text = _end_of(text, served)
    elif served.tokenizer.certainly_exceeds(text, limit):
        raise too_long(limit, f"your {part} resulted in more than {limit} tokens", part, param)
    check_text(text, param)
    begun = time.perf_counter()
    ids = tuple(await served.tokenizer.encode_async(text, add_special_tokens))
    metrics.tokenize_seconds.observe(time.perf_counter() - begun)
    if not ids:
        raise invalid(f"Invalid value for '{param}': expected at least one token, got an empty prompt.", param)
    return ids


async def count_prompt(text: str, add_special_tokens: bool, served: ServedModel, param: str) -> list[int]:
    """The ids of a prompt that nobody will generate for; raises ApiError if it is far longer than the context."""
    most = _most_chars(served)
    if len(text) > most:
        message = f"Invalid value for '{param}': expected a prompt of at most {most} characters, got {len(text)}."
        raise invalid(message, param, "string_above_max_length")
    check_text(text, param)
    return await served.tokenizer.encode_async(text, add_special_tokens)


def check_text(text: str, param: str) -> None:
    """Raise ApiError for half a character, which a template may have made: no tokenizer takes it."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        message = f"Invalid value for '{param}': its prompt has a character that is none (an unpaired surrogate)."
        raise invalid(message, param) from None


@dataclass(frozen=True, slots=True)
class GivenPrompt:
    """One prompt of a request that may have several, as text or as token ids; ``param`` is where it stood."""

    param: str
    text: str | None = None
    ids: tuple[int, ...] = ()


def given_prompts(
    value: Any, max_prompts: int, served: ServedModel, *, param: str = "prompt", any_length: bool = False
) -> list[GivenPrompt]:
    """Tell the forms of field ``param`` apart: a string, a list of strings, token ids, or a list of those.

    Raises ApiError naming the part that fits none of them.
    """
    if isinstance(value, str) or (isinstance(value, list) and value and _is_number(value[0])):
        return [_given(value, param, served, any_length)]
    if not isinstance(value, list) or not value:
        raise invalid(
            f"Invalid value for '{param}': expected a string, token ids, or a non-empty list of those.", param
        )
    if len(value) > max_prompts:
        message = f"Invalid value for '{param}': expected at most {max_prompts} prompts, got {len(value)}."
        raise invalid(message, param)
    return [_given(prompt, f"{param}[{index}]", served, any_length) for index, prompt in enumerate(value)]


async def prompt_ids(
    given: GivenPrompt, add_special_tokens: bool, served: ServedModel, metrics: Metrics, *, any_length: bool = False
) -> tuple[int, ...]:
    """The ids of a given prompt: tokenized if it is text, as they are if it is ids."""
    if given.text is None:
        return given.ids
    return await encode_prompt(
        given.text, add_special_tokens, served, metrics, part="prompt", param=given.param, any_length=any_length
    )


def truncate(ids: tuple[int, ...], asked: int | None, max_tokens: int, served: ServedModel) -> tuple[int, ...]:
    """The last tokens of a prompt, as many as ``truncate_prompt_tokens`` says; None leaves it whole.

    -1 means as many as leave room for ``max_tokens``. Raises ApiError for a number that is none of a prompt's length.
    """
    if asked is None:
        return ids
    limit = served.limits.max_model_len
    if asked == 0 or asked > limit:
        raise invalid(
            f"Invalid value for 'truncate_prompt_tokens': expected -1 or 1 to {limit}, got {asked}.",
            "truncate_prompt_tokens",
        )
    return ids[-(max(1, limit - max_tokens) if asked < 0 else asked) :]


def _given(value: Any, param: str, served: ServedModel, any_length: bool) -> GivenPrompt:
    if isinstance(value, str):
        return GivenPrompt(param, text=_end_of(value, served) if any_length else value)
    if not isinstance(value, list) or not value:
        raise invalid(f"Invalid value for '{param}': expected a string or a non-empty list of token ids.", param)
    limit = served.limits.max_model_len
    if not any_length and len(value) > limit:
        raise too_long(limit, f"your prompt has {len(value)} tokens", "prompt", param)
    if any_length:
        # Never more than these are kept.
        value = value[-limit:]
    for index, token in enumerate(value):
        if type(token) is not int:
            where = f"{param}[{index}]"
            raise invalid(
                f"Invalid value for '{where}': expected a token id, got {show(token)}.", where, "invalid_type"
            )
    check_token_ids(value, param, served.model.vocab_size)
    return GivenPrompt(param, ids=tuple(value))


def _end_of(text: str, served: ServedModel) -> str:
    """What can matter of a prompt of which only the last tokens are kept."""
    return text[-_most_chars(served) :]


def _most_chars(served: ServedModel) -> int:
    return max(_COUNTED_CHARS, _CHARS_PER_TOKEN * served.limits.max_model_len)


def _is_number(value: Any) -> bool:
    # A boolean or a fraction here is a wrong token id, not a wrong prompt.
    return isinstance(value, int | float)
