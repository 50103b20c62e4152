"""From a chat request to the prompt that the model gets."""

from dataclasses import dataclass

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.openai.conversation import Conversation, conversation_of, render, variable_places
from pagewire.frontend.openai.http import beside, note_unread
from pagewire.frontend.openai.prompts import encode_prompt, truncate
from pagewire.frontend.openai.schema import ChatRequest
from pagewire.frontend.openai.tools import ToolUse, tool_use
from pagewire.frontend.state import FRONTEND


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered conversation; ``ids`` are the text's, cut if the client asked for it."""

    text: str
    ids: tuple[int, ...]
    conversation: Conversation
    use: ToolUse | None


async def chat_prompt(http: web.Request, chat: ChatRequest, served: ServedModel, max_tokens: int | None) -> ChatPrompt:
    """Check, render and tokenize a conversation; raises ApiError. ``max_tokens`` is what the client wants after it."""
    frontend = http.app[FRONTEND]

    def check() -> tuple[ToolUse | None, Conversation]:
        use = tool_use(chat.tools, chat.tool_choice, parallel=chat.parallel_tool_calls)
        return use, conversation_of(chat.messages, chat, frontend.config, use.shown if use else None)

    use, conversation = await beside(http, check)
    note_unread(http, served.template, variable_places(chat))
    text = await render(conversation, served, frontend.metrics)
    ids = await encode_prompt(
        text,
        chat.add_special_tokens,
        served,
        frontend.metrics,
        part="messages",
        param="messages",
        any_length=chat.truncate_prompt_tokens is not None,
    )
    return ChatPrompt(text, truncate(ids, chat.truncate_prompt_tokens, max_tokens or 1, served), conversation, use)
