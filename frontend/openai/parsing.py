"""How the answers of a chat request are taken apart, if they are."""

from collections.abc import Callable
from dataclasses import dataclass

from pagewire.frontend.answers import AnswerParser
from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.openai.conversation import Conversation
from pagewire.frontend.openai.errors import unsupported
from pagewire.frontend.openai.tools import Mode, ToolUse
from pagewire.frontend.reasoning import ReasoningParser, ReasoningTags
from pagewire.frontend.template import content_text
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.frontend.tools.formats import ToolFormat, enforceable
from pagewire.frontend.tools.parser import ToolParser


@dataclass(frozen=True, slots=True)
class Parsing:
    """What to look for in the answers of one request.

    ``mode`` says who decided that tools are called, None that none are looked for. ``shown_token_ids`` are the special
    tokens that the parsers must see. ``counts_reasoning`` is whether usage tells the tokens of the reasoning.
    """

    new_parser: Callable[[], AnswerParser]
    mode: Mode | None
    shown_token_ids: tuple[int, ...]
    counts_reasoning: bool


def parsing_of(served: ServedModel, use: ToolUse | None, conversation: Conversation, prompt: str) -> Parsing | None:
    """What to look for in answers to ``prompt``, the rendered conversation; None if an answer is its text.

    Raises ApiError for calls that are insisted on where the operator wants none to be recognised.
    """
    tool_format = _format(served.tool_format, use)
    tags = served.reasoning
    if tool_format is None and tags is None:
        return None
    opened = tags is not None and _opened(tags, conversation, prompt)

    def new_parser() -> AnswerParser:
        return AnswerParser(
            ReasoningParser(tags, served.tokenizer, opened=opened) if tags else None,
            ToolParser(tool_format, use.names, use.max_calls) if tool_format and use else None,
        )

    markers = (tool_format.markers if tool_format else ()) + ((tags.open, tags.close) if tags else ())
    return Parsing(
        new_parser,
        use.mode if tool_format and use else None,
        tuple(special_markers(markers, served.tokenizer).values()),
        tags is not None,
    )


def special_markers(markers: tuple[str, ...], tokenizer: Tokenizer) -> dict[str, int]:
    """Those of ``markers`` that are special tokens, with their ids."""
    ids = {marker: tokenizer.token_id(marker) for marker in markers}
    return {marker: token for marker, token in ids.items() if token is not None and token in tokenizer.special_ids}


def _format(served: ToolFormat | None, use: ToolUse | None) -> ToolFormat | None:
    if use is None or (served is None and use.mode == "auto"):
        return None
    if served is None:
        raise unsupported("'tool_choice': this server does not recognise tool calls.", "tool_choice")
    return served if use.mode == "auto" else enforceable(served)[0]


def _opened(tags: ReasoningTags, conversation: Conversation, prompt: str) -> bool:
    """Whether answers begin within the reasoning: of the prompt, or of the message that they continue."""
    if not conversation.continue_final_message:
        return tags.opened_by(prompt)
    begun = content_text(conversation.messages[-1].get("content"))
    return begun.rfind(tags.open) > begun.rfind(tags.close)
