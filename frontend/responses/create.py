"""``POST /v1/responses``: items in, one answer out, kept for the next turn if the client does not mind."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.middlewares import key_digest
from pagewire.frontend.openai.admission import admitted
from pagewire.frontend.openai.conversation import Conversation, Message, kwargs_places
from pagewire.frontend.openai.deliver import deliver
from pagewire.frontend.openai.errors import ApiError, invalid, unsupported, worded
from pagewire.frontend.openai.http import beside, note_ignored, note_unread, read_request
from pagewire.frontend.openai.params import base_sampling, check_logprobs
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.structured import constrained, format_words
from pagewire.frontend.openai.tools import ToolUse
from pagewire.frontend.openai.turn import TurnDelivery, TurnPrompt, plan_turn, turn_prompt
from pagewire.frontend.responses.ids import new_id
from pagewire.frontend.responses.items import Item, messages_of, read_input
from pagewire.frontend.responses.schema import RULES, ResponsesRequest
from pagewire.frontend.responses.stored import RESPONSES
from pagewire.frontend.responses.tools import response_tools
from pagewire.frontend.responses.truncation import Shortenings, longest_fitting
from pagewire.frontend.responses.writer import ResponseWriter
from pagewire.frontend.state import FRONTEND, Frontend
from pagewire.protocol.messages import Sampling

_LOGPROBS = "message.output_text.logprobs"
_ENCRYPTED_REASONING = "reasoning.encrypted_content"
_FORMAT = "text.format"
# What else a client may want to see: all of it belongs to tools and inputs that do not exist here.
_NEVER_PRESENT = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)


@admitted
async def create_response(http: web.Request) -> web.StreamResponse:
    """Handle one request for a response."""
    frontend = http.app[FRONTEND]
    request = await read_request(http, ResponsesRequest, RULES)
    _check_fields(http, request)
    served = await frontend.catalog.find(request.model)
    note_unread(http, served.template, _variable_places(request), RULES)
    fields = _chat_format(request)
    with worded(format_words(_FORMAT)):
        sampling = await constrained(_sampling(request, served, frontend.config), fields, frontend.grammars)
    use = await beside(http, lambda: response_tools(request))
    items = [*_earlier_items(http, request), *await beside(http, lambda: read_input(request.input))]

    conversation, prompt = await _prompt(request, items, use, served, frontend)
    turn = await plan_turn(http, served, fields, sampling, conversation, use, prompt, format_field=_FORMAT)

    def keep(document: dict[str, Any]) -> None:
        if request.store:
            http.app[RESPONSES].put(key_digest(http), document, items)

    writer = ResponseWriter(_head(request, served, sampling), turn, keep, sampling.logprobs)
    return await deliver(http, frontend, turn.work, TurnDelivery(turn, writer, frontend.config))


def _check_fields(http: web.Request, request: ResponsesRequest) -> None:
    """Refuse and note what the schema cannot."""
    if request.n != 1:
        raise invalid(f"Invalid value for 'n': expected 1, got {show(request.n)}.", "n")
    if request.max_tokens is not None:
        raise unsupported("'max_tokens': this route has 'max_output_tokens'.", "max_tokens")
    if request.prompt_logprobs is not None:
        raise unsupported("'prompt_logprobs' are not available here.", "prompt_logprobs")
    for index, name in enumerate(request.include):
        if name not in (_LOGPROBS, _ENCRYPTED_REASONING) and name not in _NEVER_PRESENT:
            where = f"include[{index}]"
            raise unsupported(f"'{where}': this server has nothing called {show(name)}.", where)
    if request.response_format is not None:
        raise unsupported("'response_format': this route has 'text.format'.", "response_format")
    if _ENCRYPTED_REASONING in request.include:
        note_ignored(http, [_ENCRYPTED_REASONING], RULES)


def _sampling(request: ResponsesRequest, served: ServedModel, config: FrontendConfig) -> Sampling:
    check_logprobs(request.top_logprobs, "top_logprobs", served)
    wanted = request.top_logprobs or _LOGPROBS in request.include
    logprobs = request.top_logprobs if wanted else None
    return base_sampling(request, served, config, logprobs=logprobs, prompt_logprobs=None)


def _chat_format(request: ResponsesRequest) -> ResponsesRequest:
    """The request with ``text.format`` as a chat has it, in which a schema is nested deeper."""
    given = request.text.format
    described = given
    if given is not None and given.get("type") == "json_schema":
        described = {"type": "json_schema", "json_schema": {key: given[key] for key in given if key != "type"}}
    return msgspec.structs.replace(request, response_format=described)


def _earlier_items(http: web.Request, request: ResponsesRequest) -> list[Item]:
    """What the request continues; raises ApiError if it is not stored, or not any more."""
    if request.previous_response_id is None:
        return []
    stored = http.app[RESPONSES].find(key_digest(http), request.previous_response_id)
    if stored is None:
        raise invalid(
            f"Previous response with id {show(request.previous_response_id)} not found.",
            "previous_response_id",
            "previous_response_not_found",
        )
    return stored.conversation()


async def _prompt(
    request: ResponsesRequest, items: Sequence[Item], use: ToolUse | None, served: ServedModel, frontend: Frontend
) -> tuple[Conversation, TurnPrompt]:
    """The conversation and its prompt, without its oldest part if need and ``truncation`` be."""
    kwargs = {**frontend.config.default_chat_template_kwargs, **request.chat_template_kwargs}
    if request.reasoning.effort is not None:
        kwargs.setdefault("reasoning_effort", request.reasoning.effort)
    instructions = [] if request.instructions is None else [{"role": "system", "content": request.instructions}]
    messages: list[Message] = [*instructions, *messages_of(items)]

    async def attempt(part: Sequence[Message]) -> tuple[Conversation, TurnPrompt]:
        conversation = Conversation(part, True, False, kwargs, None, use.shown if use else None)
        prompt = await turn_prompt(
            conversation,
            served,
            frontend.metrics,
            max_tokens=request.max_output_tokens,
            default=served.defaults.max_tokens,
            param="input",
        )
        return conversation, prompt

    versions: Sequence[list[Message]] = Shortenings(messages) if request.truncation == "auto" else [messages]
    try:
        return await longest_fitting(versions, attempt)
    except ApiError as error:
        # What the template finds wrong it names by a message, of which the client knows nothing.
        if error.param and error.param.startswith("messages"):
            error.param = "input"
        raise


def _variable_places(request: ResponsesRequest) -> dict[str, str]:
    """The template's variables that the request sets, and the field of each."""
    places = kwargs_places(request.chat_template_kwargs)
    if request.reasoning.effort is not None:
        places.setdefault("reasoning_effort", "reasoning.effort")
    return places


def _head(request: ResponsesRequest, served: ServedModel, sampling: Sampling) -> dict[str, Any]:
    """The response object as far as it says what was asked for, with the values that are in force."""
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "model": request.model or served.name,
        "background": False,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": None,
        "metadata": request.metadata,
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": request.reasoning.effort, "summary": None},
        "store": request.store,
        "temperature": sampling.temperature,
        "text": {"format": request.text.format or {"type": "text"}},
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "top_logprobs": request.top_logprobs,
        "top_p": sampling.top_p,
        "truncation": request.truncation,
    }
