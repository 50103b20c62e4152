"""``POST /v1/completions``: parse, tokenize, generate, answer. Prompts are used as given, without a template."""

import asyncio
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.choices import Collected
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.http import read_request
from pagewire.frontend.openai.logprobs import LegacyLogprobs, prompt_logprobs
from pagewire.frontend.openai.params import base_sampling, check_logprobs, fit_length
from pagewire.frontend.openai.prompts import GivenPrompt, given_prompts, prompt_ids
from pagewire.frontend.openai.respond import respond
from pagewire.frontend.openai.schema import CompletionRequest
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.openai.work import Prompt, plan_work
from pagewire.frontend.state import FRONTEND
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.protocol.messages import Delta, Logprob, Sampling

DEFAULT_MAX_TOKENS = 16


async def completions(http: web.Request) -> web.StreamResponse:
    """Handle one completions request."""
    frontend = http.app[FRONTEND]
    with frontend.admitted():
        completion = await read_request(http, CompletionRequest)
        served = await frontend.catalog.find(completion.model)
        given = given_prompts(completion.prompt, frontend.config.max_prompts, served)
        base = _sampling(completion, len(given), served, frontend.config)

        prompts = []
        for prompt in given:
            ids = await prompt_ids(prompt, completion.add_special_tokens, served, frontend.metrics)
            max_tokens = fit_length(
                len(ids), completion.max_tokens, DEFAULT_MAX_TOKENS, served, part="prompt", param=prompt.param
            )
            prompts.append(Prompt(ids, max_tokens))
            # Short prompts are tokenized at once; many of them must still let others have a turn.
            await asyncio.sleep(0)

        echoes = None
        if completion.echo:
            echoes = [
                _echo_of(asked, prompt.ids, served.tokenizer) for asked, prompt in zip(given, prompts, strict=True)
            ]
        work = plan_work(http, served, completion, base, prompts)
        return await respond(http, frontend, work, CompletionShape(completion, served.name, len(prompts), echoes))


@dataclass(frozen=True, slots=True)
class Echo:
    """What an answer begins with when its prompt is echoed.

    ``hidden`` is how many characters of special tokens the engine counts before those of ``text``.
    """

    text: str
    first_token: str
    hidden: int


class CompletionShape:
    """How completions look: ``text_completion``, plain and streamed. Choice ``i`` belongs to prompt ``i // n``."""

    def __init__(self, completion: CompletionRequest, model: str, num_prompts: int, echoes: Sequence[Echo] | None):
        """``echoes`` has one entry per prompt, or is None if prompts are not echoed."""
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = completion.model or model
        self._completion = completion
        self._num_choices = num_prompts * completion.n
        self._echoes = echoes
        # A piece of plain text is by far the most frequent chunk: everything around the text is made once.
        self._text_heads = [b'{"index":%d,"text":' % index for index in range(self._num_choices)]
        self._text_tail = b',"logprobs":null,"finish_reason":null}'

    def envelope(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices, the same in streams."""
        return {"id": self._id, "object": "text_completion", "created": self._created, "model": self._model}

    def opening(self) -> Iterable[bytes]:
        """The echoed prompts; with log-probabilities they go out with those of the prompt."""
        if self._echoes and self._completion.logprobs is None:
            for index in range(self._num_choices):
                yield self._text(index, self._echo_text(index))

    def pieces(self, index: int, delta: Delta) -> Sequence[bytes]:
        """A chunk's choice for a delta."""
        text, logprobs = delta.text, None
        if self._completion.logprobs is not None:
            logprobs = self._logprobs(index, delta.prompt_logprobs, delta.logprobs or ())
            if delta.prompt_logprobs is not None:
                text = self._echo_text(index) + text
        if logprobs is None and delta.finish is None:
            return (self._text(index, text),) if text else ()
        choice: dict[str, Any] = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}
        if delta.finish:
            choice.update(finish_reason=delta.finish.reason, stop_reason=delta.finish.matched)
        return (encode(choice),)

    def whole(self, choices: Sequence[Collected]) -> dict[str, Any]:
        """The choices of a plain answer."""
        return {"choices": [self._choice(index, choice) for index, choice in enumerate(choices)]}

    def _choice(self, index: int, choice: Collected) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "index": index,
            "text": self._echo_text(index) + choice.text,
            "logprobs": None,
            "finish_reason": choice.finish.reason if choice.finish else None,
            "stop_reason": choice.finish.matched if choice.finish else None,
        }
        if self._completion.logprobs is not None:
            answer["logprobs"] = self._logprobs(index, choice.prompt_logprobs, choice.logprobs)
        if self._completion.prompt_logprobs is not None:
            top = self._completion.prompt_logprobs
            answer["prompt_logprobs"] = prompt_logprobs(choice.prompt_logprobs or (), top)
        return answer

    def _logprobs(
        self, index: int, prompt: Sequence[Logprob | None] | None, generated: Sequence[Logprob]
    ) -> dict[str, Any] | None:
        listing = LegacyLogprobs(self._completion.logprobs or 0)
        if self._echoes:
            echo = self._echoes[index // self._completion.n]
            if prompt is not None:
                listing.add_first(echo.first_token)
                listing.extend(prompt[1:], -echo.hidden)
            listing.extend(generated, len(echo.text))
        else:
            listing.extend(generated, 0)
        return listing.as_json()

    def _echo_text(self, index: int) -> str:
        return self._echoes[index // self._completion.n].text if self._echoes else ""

    def _text(self, index: int, text: str) -> bytes:
        return self._text_heads[index] + encode(text) + self._text_tail


def _sampling(completion: CompletionRequest, num_prompts: int, served: ServedModel, config: FrontendConfig) -> Sampling:
    """The sampling that all choices share; log-probabilities of the prompt if it is echoed with them."""
    most = max(config.max_n, config.max_prompts)
    if num_prompts * completion.n > most:
        raise invalid(f"'n' times the number of prompts must be at most {most}, got {num_prompts * completion.n}.", "n")
    check_logprobs(completion.logprobs, "logprobs", served)
    wanted = [completion.prompt_logprobs, completion.logprobs if completion.echo else None]
    of_prompt = max((count for count in wanted if count is not None), default=None)
    return base_sampling(completion, served, config, logprobs=completion.logprobs, prompt_logprobs=of_prompt)


def _echo_of(given: GivenPrompt, ids: Sequence[int], tokenizer: Tokenizer) -> Echo:
    decoded = tokenizer.decode(ids)
    text = decoded if given.text is None else given.text
    hidden = len(decoded) - len(text) if decoded.endswith(text) else 0
    return Echo(text, tokenizer.decode(ids[:1]), hidden)
