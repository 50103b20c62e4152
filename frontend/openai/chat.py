"""``POST /v1/chat/completions``: parse, render, tokenize, generate, answer."""

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.admission import admitted
from pagewire.frontend.openai.chat_parsed import ParsedChatShape
from pagewire.frontend.openai.chat_prompt import chat_prompt
from pagewire.frontend.openai.chat_shape import ChatFrame, ChatShape
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.http import read_request
from pagewire.frontend.openai.params import base_sampling, check_logprobs, fit_length
from pagewire.frontend.openai.parsing import parsing_of
from pagewire.frontend.openai.respond import Shape, respond
from pagewire.frontend.openai.schema import ChatRequest
from pagewire.frontend.openai.structured import constrained
from pagewire.frontend.openai.token_names import NamedByIdShape
from pagewire.frontend.openai.work import Prompt, plan_work
from pagewire.frontend.state import FRONTEND
from pagewire.protocol.messages import Sampling


@admitted
async def chat_completions(http: web.Request) -> web.StreamResponse:
    """Handle one chat request."""
    frontend = http.app[FRONTEND]
    chat = await read_request(http, ChatRequest)
    served = await frontend.catalog.find(chat.model)
    base = await constrained(_sampling(chat, served, frontend.config), chat, frontend.grammars)
    asked = _max_tokens(chat)

    prompt = await chat_prompt(http, chat, served, asked)
    max_tokens = fit_length(
        len(prompt.ids), asked, served.defaults.max_tokens, served, part="messages", param="messages"
    )

    role = prompt.conversation.answer_role(frontend.config.response_role)
    frame = ChatFrame(chat, served.name, role, prompt.conversation.echoed(role) if chat.echo else "", prompt.ids)
    parsing = parsing_of(served, prompt.use, prompt.conversation, prompt.text)
    jobs = [Prompt(prompt.ids, max_tokens)]
    if parsing is None:
        work = plan_work(http, served, chat, base, jobs)
        return await respond(http, frontend, work, _named(ChatShape(frame), chat))
    shape = ParsedChatShape(frame, parsing)
    sampling = await parsing.bind(base, frontend.grammars)
    work = plan_work(http, served, chat, sampling, jobs, shape.reasoning_tokens, new_ending=parsing.new_ending)
    return await respond(http, frontend, work, _named(shape, chat))


def _sampling(chat: ChatRequest, served: ServedModel, config: FrontendConfig) -> Sampling:
    """The sampling that all choices share; log-probabilities by chat's two fields."""
    if chat.top_logprobs and not chat.logprobs:
        raise invalid("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs")
    check_logprobs(chat.top_logprobs, "top_logprobs", served)
    logprobs = chat.top_logprobs if chat.logprobs else None
    return base_sampling(chat, served, config, logprobs=logprobs, prompt_logprobs=chat.prompt_logprobs)


def _named(shape: Shape, chat: ChatRequest) -> Shape:
    return NamedByIdShape(shape) if chat.return_tokens_as_token_ids else shape


def _max_tokens(chat: ChatRequest) -> int | None:
    """The newer name wins; None is as long as the context allows."""
    if chat.max_completion_tokens is not None:
        return chat.max_completion_tokens
    if chat.max_tokens == 0:
        raise invalid("Invalid value for 'max_tokens': expected an integer >= 1, got 0.", "max_tokens")
    return chat.max_tokens
