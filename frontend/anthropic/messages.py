"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

import uuid
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from pagewire.frontend.anthropic.conversation import ConversationReader
from pagewire.frontend.anthropic.schema import RULES, CountTokensRequest, MessagesRequest, PromptFields
from pagewire.frontend.anthropic.tools import anthropic_tools
from pagewire.frontend.anthropic.writer import MessageWriter
from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.admission import admitted
from pagewire.frontend.openai.conversation import Conversation, render
from pagewire.frontend.openai.deliver import deliver
from pagewire.frontend.openai.errors import unsupported, worded
from pagewire.frontend.openai.http import REQUEST_ID, beside, note_ignored, note_unread, read_request
from pagewire.frontend.openai.params import base_sampling
from pagewire.frontend.openai.prompts import count_prompt
from pagewire.frontend.openai.schema import SamplingFields
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.openai.structured import constrained, format_words
from pagewire.frontend.openai.tools import ToolUse
from pagewire.frontend.openai.turn import TurnDelivery, plan_turn, turn_prompt
from pagewire.frontend.state import FRONTEND

_FORMAT = "output_config.format"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request makes the prompt of."""

    conversation: Conversation
    use: ToolUse | None


@admitted
async def create_message(http: web.Request) -> web.StreamResponse:
    """Handle one request for a message."""
    frontend = http.app[FRONTEND]
    request = await read_request(http, MessagesRequest, RULES)
    served = await frontend.catalog.find(request.model)
    fields = _sampling_fields(request)
    with worded({"'stop": "'stop_sequences"}):
        sampling = base_sampling(fields, served, frontend.config, logprobs=None, prompt_logprobs=None)
    with worded(format_words(_FORMAT)):
        sampling = await constrained(sampling, fields, frontend.grammars)
    asked = await beside(http, lambda: _read_prompt(http, request, served, frontend.config))
    prompt = await turn_prompt(
        asked.conversation,
        served,
        frontend.metrics,
        max_tokens=None,
        default=request.max_tokens,
        param="messages",
    )
    turn = await plan_turn(http, served, fields, sampling, asked.conversation, asked.use, prompt, format_field=_FORMAT)
    writer = MessageWriter(
        f"msg_{uuid.uuid4().hex}",
        request.model or served.name,
        turn,
        http[REQUEST_ID],
        room_is_limit=prompt.max_tokens < request.max_tokens,
    )
    return await deliver(http, frontend, turn.work, TurnDelivery(turn, writer, frontend.config))


@admitted
async def count_tokens(http: web.Request) -> web.Response:
    """How many tokens the prompt of a message would have."""
    frontend = http.app[FRONTEND]
    request = await read_request(http, CountTokensRequest, RULES)
    served = await frontend.catalog.find(request.model)
    asked = await beside(http, lambda: _read_prompt(http, request, served, frontend.config))
    text = await render(asked.conversation, served, frontend.metrics)
    ids = await count_prompt(text, False, served, "messages")
    return web.Response(body=encode({"input_tokens": len(ids)}), content_type="application/json")


def _sampling_fields(request: MessagesRequest) -> SamplingFields:
    return SamplingFields(
        model=request.model,
        stream=request.stream,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        stop=request.stop_sequences,
        response_format=_response_format(request.output_config.format),
    )


def _response_format(given: dict[str, Any] | None) -> dict[str, Any] | None:
    """A schema as chats describe it, where it needs a name."""
    if given is None or given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": given.get("schema")}}


def _read_prompt(http: web.Request, request: PromptFields, served: ServedModel, config: FrontendConfig) -> _Asked:
    """Messages, tools and variables for the template; a last message of the assistant is continued."""
    reader = ConversationReader()
    messages = reader.read(request.system, request.messages)
    use = anthropic_tools(request.tools, request.tool_choice)
    kwargs = {**config.default_chat_template_kwargs, **_thinking(request, served)}
    if request.output_config.effort is not None:
        kwargs.setdefault("reasoning_effort", request.output_config.effort)
        note_unread(http, served.template, {"reasoning_effort": "output_config.effort"}, RULES)
    note_ignored(http, reader.without_effect, RULES)
    continues = messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]
    return _Asked(Conversation(messages, not continues, continues, kwargs, None, use.shown if use else None), use)


def _thinking(request: PromptFields, served: ServedModel) -> dict[str, Any]:
    """The template's variable for thinking; raises ApiError for thoughts that could not be told from the answer."""
    thinking = request.thinking
    if thinking is None:
        return {}
    if thinking.type == "disabled":
        return {"enable_thinking": False}
    if served.reasoning is None:
        raise unsupported("thinking: this server does not tell thoughts from answers (--reasoning-parser).", "thinking")
    if thinking.display == "omitted":
        raise unsupported("thinking.display: thoughts cannot be omitted.", "thinking.display")
    return {"enable_thinking": True}
