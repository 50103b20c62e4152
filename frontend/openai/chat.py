"""``POST /v1/chat/completions``: parse, render, tokenize, generate, answer."""

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.chat_parsed import ParsedChatShape
from pagewire.frontend.openai.chat_shape import ChatShape
from pagewire.frontend.openai.conversation import conversation_of, render
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.http import read_request
from pagewire.frontend.openai.params import base_sampling, check_logprobs, fit_length
from pagewire.frontend.openai.parsing import parsing_of
from pagewire.frontend.openai.prompts import encode_prompt
from pagewire.frontend.openai.respond import respond
from pagewire.frontend.openai.schema import ChatRequest
from pagewire.frontend.openai.tools import tool_use
from pagewire.frontend.openai.work import Prompt, plan_work
from pagewire.frontend.state import FRONTEND
from pagewire.protocol.messages import Sampling


async def chat_completions(http: web.Request) -> web.StreamResponse:
    """Handle one chat request."""
    frontend = http.app[FRONTEND]
    with frontend.admitted():
        chat = await read_request(http, ChatRequest)
        served = await frontend.catalog.find(chat.model)
        base = _sampling(chat, served, frontend.config)
        use = tool_use(chat.tools, chat.tool_choice, parallel=chat.parallel_tool_calls)
        conversation = conversation_of(chat.messages, chat, frontend.config, use.shown if use else None)

        text = await render(conversation, served, frontend.metrics)
        prompt = await encode_prompt(
            text, chat.add_special_tokens, served, frontend.metrics, part="messages", param="messages"
        )
        max_tokens = fit_length(
            len(prompt), _max_tokens(chat), served.defaults.max_tokens, served, part="messages", param="messages"
        )

        role = conversation.answer_role(frontend.config.response_role)
        echo = conversation.echoed(role) if chat.echo else ""
        parsing = parsing_of(served, use, conversation, text)
        if parsing is None:
            work = plan_work(http, served, chat, base, [Prompt(prompt, max_tokens)])
            return await respond(http, frontend, work, ChatShape(chat, served.name, role, echo))
        shape = ParsedChatShape(chat, served.name, role, echo, parsing)
        work = plan_work(http, served, chat, parsing.bind(base), [Prompt(prompt, max_tokens)], shape.reasoning_tokens)
        return await respond(http, frontend, work, shape)


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
