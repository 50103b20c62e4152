"""From a completions request to the prompts that the model gets."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.infill import infill
from pagewire.frontend.openai.prompts import GivenPrompt, encode_prompt, given_prompts, prompt_ids, truncate
from pagewire.frontend.openai.schema import CompletionRequest
from pagewire.frontend.state import Frontend


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """One prompt as ids; ``text`` is the client's own, None if it gave ids or if they say more or less than it."""

    ids: tuple[int, ...]
    text: str | None
    param: str


async def completion_prompts(
    completion: CompletionRequest, served: ServedModel, frontend: Frontend
) -> list[CompletionPrompt]:
    """Tokenize all prompts of a request, cut them and put their suffix in, as asked; raises ApiError."""
    given = given_prompts(
        completion.prompt,
        frontend.config.max_prompts,
        served,
        any_length=completion.truncate_prompt_tokens is not None,
    )
    if completion.suffix and completion.echo:
        raise invalid("'echo' is not available with 'suffix'.", "echo")
    suffix = await _suffix(completion, served, frontend)
    prompts = []
    for prompt in given:
        prompts.append(await _prompt(prompt, suffix, completion, served, frontend))
        # Short prompts are tokenized at once; many of them must still let others have a turn.
        await asyncio.sleep(0)
    return prompts


async def _suffix(completion: CompletionRequest, served: ServedModel, frontend: Frontend) -> tuple[int, ...]:
    if not completion.suffix:
        return ()
    return await encode_prompt(completion.suffix, False, served, frontend.metrics, part="suffix", param="suffix")


async def _prompt(
    given: GivenPrompt,
    suffix: tuple[int, ...],
    completion: CompletionRequest,
    served: ServedModel,
    frontend: Frontend,
) -> CompletionPrompt:
    asked = completion.truncate_prompt_tokens
    special = completion.add_special_tokens and not completion.suffix
    whole = await prompt_ids(given, special, served, frontend.metrics, any_length=asked is not None)
    ids = truncate(whole, asked, 1 if completion.max_tokens is None else completion.max_tokens, served)
    text = given.text if len(ids) == len(whole) else None
    if completion.suffix:
        around: Sequence[int] = served.tokenizer.encode("", True) if completion.add_special_tokens else ()
        ids = (*around, *infill(ids, suffix, served.tokenizer))
        text = None
    return CompletionPrompt(ids, text, given.param)
