"""``POST /v1/chat/completions``: parse, render, tokenize, generate, answer."""

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.choices import Collected
from pagewire.frontend.openai.conversation import conversation_of, render
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.http import read_request
from pagewire.frontend.openai.logprobs import chat_logprobs, prompt_logprobs
from pagewire.frontend.openai.params import base_sampling, check_logprobs, fit_length
from pagewire.frontend.openai.prompts import encode_prompt
from pagewire.frontend.openai.respond import respond
from pagewire.frontend.openai.schema import ChatRequest
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.openai.work import Prompt, plan_work
from pagewire.frontend.state import FRONTEND
from pagewire.protocol.messages import Delta, Sampling


async def chat_completions(http: web.Request) -> web.StreamResponse:
    """Handle one chat request."""
    frontend = http.app[FRONTEND]
    with frontend.admitted():
        chat = await read_request(http, ChatRequest)
        served = await frontend.catalog.find(chat.model)
        base = _sampling(chat, served, frontend.config)
        conversation = conversation_of(chat.messages, chat, frontend.config)

        text = await render(conversation, served, frontend.metrics)
        prompt = await encode_prompt(
            text, chat.add_special_tokens, served, frontend.metrics, part="messages", param="messages"
        )
        max_tokens = fit_length(
            len(prompt), _max_tokens(chat), served.defaults.max_tokens, served, part="messages", param="messages"
        )

        role = conversation.answer_role(frontend.config.response_role)
        echo = conversation.echoed(role) if chat.echo else ""
        work = plan_work(http, served, chat, base, [Prompt(prompt, max_tokens)])
        return await respond(http, frontend, work, ChatShape(chat, served.name, role, echo))


class ChatShape:
    """How chat answers look: ``chat.completion`` and ``chat.completion.chunk``."""

    def __init__(self, chat: ChatRequest, model: str, role: str, echo: str):
        """``echo`` is the text that every choice begins with; ``role`` is that of the answer."""
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = chat.model or model
        self._chat = chat
        self._role = role
        self._echo = echo
        # A piece of plain text is by far the most frequent chunk: everything around the text is made once.
        self._text_heads = [b'{"index":%d,"delta":{"content":' % index for index in range(chat.n)]
        self._text_tail = b'},"logprobs":null,"finish_reason":null}'

    def envelope(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices."""
        kind = "chat.completion.chunk" if stream else "chat.completion"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def opening(self) -> Iterable[bytes]:
        """The role of every choice, then the echoed text of every choice."""
        for index in range(self._chat.n):
            delta = {"role": self._role, "content": ""}
            yield encode({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})
        if self._echo:
            for index in range(self._chat.n):
                yield self._text(index, self._echo)

    def piece(self, index: int, delta: Delta) -> bytes | None:
        """A chunk's choice for a delta."""
        logprobs = chat_logprobs(delta.logprobs or (), self._chat.top_logprobs) if self._chat.logprobs else None
        if logprobs is None and delta.finish is None:
            return self._text(index, delta.text) if delta.text else None
        content = {"content": delta.text} if delta.text or logprobs else {}
        choice: dict[str, Any] = {"index": index, "delta": content, "logprobs": logprobs, "finish_reason": None}
        if delta.finish:
            choice.update(finish_reason=delta.finish.reason, stop_reason=delta.finish.matched)
        return encode(choice)

    def whole(self, choices: Sequence[Collected]) -> dict[str, Any]:
        """The choices of a plain answer, and the prompt's log-probabilities if asked for."""
        answer: dict[str, Any] = {"choices": [self._choice(index, choice) for index, choice in enumerate(choices)]}
        if self._chat.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(choices[0].prompt_logprobs or (), self._chat.prompt_logprobs)
        return answer

    def _choice(self, index: int, choice: Collected) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": self._role, "content": self._echo + choice.text, "refusal": None},
            "logprobs": chat_logprobs(choice.logprobs, self._chat.top_logprobs) if self._chat.logprobs else None,
            "finish_reason": choice.finish.reason if choice.finish else None,
            "stop_reason": choice.finish.matched if choice.finish else None,
        }

    def _text(self, index: int, text: str) -> bytes:
        return self._text_heads[index] + encode(text) + self._text_tail


def _sampling(chat: ChatRequest, served: ServedModel, config: FrontendConfig) -> Sampling:
    """The sampling that all choices share; log-probabilities by chat's two fields."""
    if chat.top_logprobs and not chat.logprobs:
        raise invalid("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs")
    check_logprobs(chat.top_logprobs, "top_logprobs", served)
    logprobs = chat.top_logprobs if chat.logprobs else None
    return base_sampling(chat, served, config, logprobs=logprobs, prompt_logprobs=chat.prompt_logprobs)


def _max_tokens(chat: ChatRequest) -> int | None:
    """The newer name wins; None is as long as the context allows."""
    if chat.max_completion_tokens is not None:
        return chat.max_completion_tokens
    if chat.max_tokens == 0:
        raise invalid("Invalid value for 'max_tokens': expected an integer >= 1, got 0.", "max_tokens")
    return chat.max_tokens
