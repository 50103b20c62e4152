"""What a chat request says about its prompt and its answer's role: the rules of templates, roles and echo."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.metrics import Metrics
from pagewire.frontend.openai.errors import invalid, unsupported
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.schema import ChatRequest, TokenizeRequest
from pagewire.frontend.template import TemplateError, content_text, is_short
from pagewire.frontend.templates.messages import TEXT_TYPES
from pagewire.frontend.tools.in_text import has_calls, with_tools_in_text

logger = logging.getLogger(__name__)

Message = Mapping[str, Any]

# Other roles are the template's business, and so is what their messages hold.
_ROLES_WITH_CONTENT = frozenset({"system", "developer", "user", "tool"})


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and how they become a prompt."""

    messages: Sequence[Message]
    add_generation_prompt: bool
    continue_final_message: bool
    template_kwargs: Mapping[str, Any]
    documents: Sequence[Any] | None
    tools: Sequence[Any] | None

    def answer_role(self, response_role: str) -> str:
        """The role of the answer: ``response_role`` after a generation prompt, else that of the last message."""
        return response_role if self.add_generation_prompt else str(self.messages[-1]["role"])

    def echoed(self, role: str) -> str:
        """What an answer in ``role`` begins with when echo is asked for: the last message, if it has that role."""
        last = self.messages[-1]
        return content_text(last.get("content")) if last["role"] == role else ""


def conversation_of(
    messages: Sequence[Message],
    fields: ChatRequest | TokenizeRequest,
    config: FrontendConfig,
    tools: Sequence[Any] | None,
) -> Conversation:
    """Check messages as far as they are not the template's business; raises ApiError naming the part at fault.

    ``tools`` are those that the model is to see.
    """
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")
    add_generation_prompt = fields.add_generation_prompt
    if add_generation_prompt is None:
        # Continuing the last message excludes a new one; who asks only for the former need not say so twice.
        add_generation_prompt = not fields.continue_final_message
    kwargs = {**config.default_chat_template_kwargs, **fields.chat_template_kwargs}
    if fields.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", fields.reasoning_effort)
    return Conversation(messages, add_generation_prompt, fields.continue_final_message, kwargs, fields.documents, tools)


def kwargs_places(kwargs: Mapping[str, Any]) -> dict[str, str]:
    """The template's variables in ``chat_template_kwargs``, and the place of each; null counts as absent."""
    return {name: f"chat_template_kwargs.{name}" for name, value in kwargs.items() if value is not None}


def variable_places(fields: ChatRequest | TokenizeRequest) -> dict[str, str]:
    """The template's variables that a request sets, and the field of each."""
    places = kwargs_places(fields.chat_template_kwargs)
    if fields.reasoning_effort is not None:
        places.setdefault("reasoning_effort", "reasoning_effort")
    if fields.documents:
        places["documents"] = "documents"
    return places


async def render(conversation: Conversation, served: ServedModel, metrics: Metrics) -> str:
    """The prompt's text; raises ApiError if there is no template, or with the template's own words if it refuses."""
    if served.template is None:
        raise invalid(served.no_template, "messages", code=None)
    begun = time.perf_counter()
    try:
        messages, tools = conversation.messages, conversation.tools or ()
        template = served.template
        if not template.takes_tools and (tools or (has_calls(messages) and not template.shows_calls)):
            if is_short(messages, tools):
                messages = with_tools_in_text(messages, tools)
            else:
                messages = await asyncio.to_thread(with_tools_in_text, messages, tools)
        text = await template.render_async(
            messages,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            tools=conversation.tools,
            documents=conversation.documents,
            template_kwargs=conversation.template_kwargs,
        )
    except TemplateError as error:
        logger.info("the chat template refused a request: %s", error)
        raise invalid(error.message, error.param, code=None) from None
    except RecursionError:
        raise invalid("The messages are nested too deeply.", "messages", code=None) from None
    metrics.render_seconds.observe(time.perf_counter() - begun)
    return text


def _check_message(message: Message, where: str) -> None:
    role = message.get("role")
    if role is None:
        raise invalid(f"Missing required parameter: '{where}.role'.", f"{where}.role", "missing_required_parameter")
    if not isinstance(role, str) or not role:
        raise invalid(f"Invalid value for '{where}.role': expected a non-empty string.", f"{where}.role")
    content = message.get("content")
    if content is None and role in _ROLES_WITH_CONTENT:
        where = f"{where}.content"
        raise invalid(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    if content is not None and not isinstance(content, str | list):
        where = f"{where}.content"
        raise invalid(f"Invalid value for '{where}': expected a string or a list of content parts.", where)
    for index, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type", "text") if isinstance(part, Mapping) else "text"
        if kind not in TEXT_TYPES:
            where = f"{where}.content[{index}]"
            raise unsupported(f"'{where}': this model takes text only, got a part of type {show(kind)}.", where)
