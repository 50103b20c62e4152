"""``POST .../render``: the exact prompt that the model would get for a request, without generating anything."""

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.openai.admission import admitted
from pagewire.frontend.openai.chat_prompt import chat_prompt
from pagewire.frontend.openai.completion_prompts import completion_prompts
from pagewire.frontend.openai.http import read_request
from pagewire.frontend.openai.schema import ChatRequest, CompletionRequest
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.state import FRONTEND


@admitted
async def render_chat(http: web.Request) -> web.Response:
    """The prompt of a chat request."""
    frontend = http.app[FRONTEND]
    chat = await read_request(http, ChatRequest)
    served = await frontend.catalog.find(chat.model)
    asked = chat.max_tokens if chat.max_completion_tokens is None else chat.max_completion_tokens
    prompt = await chat_prompt(http, chat, served, asked)
    # Of a prompt that was cut, the text is that of the ids.
    text = None if chat.truncate_prompt_tokens is not None else prompt.text
    return await _answer(chat.model, served, [(text, prompt.ids)])


@admitted
async def render_completions(http: web.Request) -> web.Response:
    """The prompts of a completions request."""
    frontend = http.app[FRONTEND]
    completion = await read_request(http, CompletionRequest)
    served = await frontend.catalog.find(completion.model)
    prompts = await completion_prompts(completion, served, frontend)
    return await _answer(completion.model, served, [(prompt.text, prompt.ids) for prompt in prompts])


async def _answer(
    model: str | None, served: ServedModel, prompts: Sequence[tuple[str | None, tuple[int, ...]]]
) -> web.Response:
    """A list of prompts; where the text is None it is what the ids say."""
    data: list[dict[str, Any]] = [
        {
            "object": "prompt",
            "index": index,
            "prompt": await served.tokenizer.decode_async(ids) if text is None else text,
            "prompt_token_ids": ids,
            "count": len(ids),
        }
        for index, (text, ids) in enumerate(prompts)
    ]
    answer = {
        "object": "list",
        "model": model or served.name,
        "max_model_len": served.limits.max_model_len,
        "data": data,
    }
    return web.Response(body=encode(answer), content_type="application/json")
