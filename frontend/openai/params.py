"""From a request's fields to the engine's ``Sampling``: limits of server and model, defaults, lengths, seeds."""

import secrets

import msgspec

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.errors import ApiError, invalid
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.schema import SamplingFields
from pagewire.frontend.openai.token_limits import (
    allowed_ids,
    bad_word_ids,
    checked_stop_ids,
    logit_bias_ids,
    special_stops,
    stop_strings,
)
from pagewire.protocol.messages import GREEDY_BELOW, Sampling

_SEED_MASK = 2**63 - 1


def base_sampling(
    fields: SamplingFields,
    served: ServedModel,
    config: FrontendConfig,
    *,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> Sampling:
    """Check everything that can be checked before the prompt is known; length and seed are filled in later.

    ``logprobs`` and ``prompt_logprobs`` are counts of alternatives or None, as the endpoint worked them out.
    """
    if fields.n > config.max_n:
        raise invalid(f"Invalid value for 'n': expected at most {config.max_n}, got {show(fields.n)}.", "n")
    if fields.stream_options is not None and not fields.stream:
        raise invalid("'stream_options' is only allowed when 'stream' is true.", "stream_options")
    if fields.prompt_logprobs is not None and fields.stream:
        raise invalid("'prompt_logprobs' is not available when 'stream' is true.", "prompt_logprobs")
    check_logprobs(fields.prompt_logprobs, "prompt_logprobs", served)
    defaults = served.defaults
    stop = stop_strings(fields.stop, config.max_stop)
    stop_ids = checked_stop_ids(fields.stop_token_ids, config.max_stop, served.model.vocab_size)
    allowed = allowed_ids(fields, served.model.vocab_size)
    temperature = _given(fields.temperature, defaults.temperature)
    return Sampling(
        max_tokens=0,
        min_tokens=fields.min_tokens,
        temperature=temperature if temperature >= GREEDY_BELOW else 0.0,
        top_p=_given(fields.top_p, defaults.top_p),
        top_k=_top_k(fields.top_k, defaults.top_k, served.model.vocab_size),
        min_p=_given(fields.min_p, defaults.min_p),
        presence_penalty=_given(fields.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_given(fields.frequency_penalty, defaults.frequency_penalty),
        repetition_penalty=_given(fields.repetition_penalty, defaults.repetition_penalty),
        logit_bias=logit_bias_ids(fields.logit_bias, served.model.vocab_size),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        stop=stop,
        stop_token_ids=(*stop_ids, *special_stops(stop, served.tokenizer)) if fields.skip_special_tokens else stop_ids,
        include_stop=fields.include_stop_str_in_output,
        ignore_eos=fields.ignore_eos,
        skip_special_tokens=fields.skip_special_tokens,
        allowed_token_ids=allowed,
        bad_words=bad_word_ids(fields.bad_words, allowed, served.tokenizer),
    )


def check_logprobs(count: int | None, param: str, served: ServedModel) -> None:
    """Raise ApiError if the engine does not give that many alternatives; None is none asked for."""
    if count is not None and count > served.limits.max_logprobs:
        limit = served.limits.max_logprobs
        raise invalid(f"Invalid value for '{param}': expected at most {limit}, got {show(count)}.", param)


def fit_length(
    prompt_tokens: int, max_tokens: int | None, default: int | None, served: ServedModel, *, part: str, param: str
) -> int:
    """Decide how many tokens may be generated; ``default`` applies, as far as there is room, if the client is silent.

    Raises ApiError if the prompt, or the prompt with what the client asked for, is longer than the context.
    ``part`` is what the prompt is called in the message, ``param`` the field it came from.
    """
    limit = served.limits.max_model_len
    room = limit - prompt_tokens
    if max_tokens is not None:
        if max_tokens > room:
            asked = (
                f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the {part}, {max_tokens} in the completion)"
            )
            raise too_long(limit, f"you requested {asked}", part, param, completion_counts=room > 0)
        return max_tokens
    if room < 1:
        raise too_long(limit, f"your {part} resulted in {prompt_tokens} tokens", part, param)
    return room if default is None else min(default, room)


def too_long(limit: int, what: str, part: str, param: str, *, completion_counts: bool = False) -> ApiError:
    """The context error, in the words that clients recognise it by.

    ``completion_counts`` is whether the prompt alone would fit: LangChain, and what asks Anthropic's API, must read
    "prompt is too long" where it does not.
    """
    advice = f"The prompt is too long: please reduce the length of the {part}."
    if completion_counts:
        advice = f"Please reduce the length of the {part} or of the completion."
    message = f"This model's maximum context length is {limit} tokens. However, {what}. {advice}"
    return invalid(message, param, "context_length_exceeded")


def for_choices(base: Sampling, max_tokens: int, seed: int | None, n: int) -> list[Sampling]:
    """One ``Sampling`` per choice of a prompt, with consecutive seeds; without a given seed one is drawn."""
    if base.min_tokens > max_tokens:
        expected = f"at most the {max_tokens} tokens that may be generated"
        raise invalid(f"Invalid value for 'min_tokens': expected {expected}, got {base.min_tokens}.", "min_tokens")
    first = secrets.randbits(63) if seed is None else seed
    return [
        msgspec.structs.replace(base, max_tokens=max_tokens, seed=(first + choice) & _SEED_MASK) for choice in range(n)
    ]


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _top_k(value: int | None, default: int, vocab_size: int) -> int:
    """0 means off for the engine; -1, and any number that excludes no token, are other ways to say it."""
    top_k = default if value is None else value
    return 0 if top_k < 0 or top_k >= vocab_size else top_k
