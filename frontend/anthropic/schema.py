"""The bodies of Anthropic's routes: every field that has an effect, and those that are refused or ignored."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from pagewire.frontend.openai.fields import FieldRules, Parts, Refused
from pagewire.frontend.openai.schema import Fraction, Positive


class Thinking(Struct, kw_only=True, frozen=True):
    """Whether the model should think first. A budget cannot be enforced; thoughts are always shown."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputConfig(Struct, kw_only=True, frozen=True):
    """How hard to try, and what the text of the answer looks like."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class PromptFields(Struct, kw_only=True, frozen=True):
    """What the prompt is made of. Content blocks are checked in ``conversation``."""

    model: str | None = None
    messages: Annotated[list[Any], Meta(min_length=1)]
    system: str | list[Any] | None = None
    tools: list[Any] = field(default_factory=list)
    tool_choice: dict[str, Any] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig = OutputConfig()


class MessagesRequest(PromptFields, kw_only=True, frozen=True):
    """``POST /v1/messages``."""

    max_tokens: Positive
    stream: bool = False
    stop_sequences: list[str] = field(default_factory=list)
    temperature: Fraction | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None


class CountTokensRequest(PromptFields, kw_only=True, frozen=True):
    """``POST /v1/messages/count_tokens``."""


def _nothing(value: Any, body: Mapping[str, Any]) -> bool:
    return value in (False, [], {}, "")


_REFUSED: Mapping[str, Refused] = {
    "container": Refused("containers"),
    "mcp_servers": Refused("MCP servers", _nothing),
    "context_management": Refused("managing the context", _nothing),
    "stop": Refused("it here; use 'stop_sequences'", _nothing),
    "n": Refused("several answers", lambda value, body: value == 1),
}

_IGNORED: Mapping[str, str] = {
    "metadata": "there are no accounts",
    "service_tier": "there is one tier",
    "speed": "there is one speed",
    "inference_geo": "there is one place",
    "cache_control": "prefixes are cached without being told",
    "citations": "documents are not cited",
    "thinking.budget_tokens": "the model has no such control",
}

_PARTS: Parts = {
    # Content blocks say the last two of these about themselves, wherever they are: ``conversation`` notes it.
    "system": frozenset({"type", "text", "cache_control", "citations"}),
    "thinking": frozenset({"type", "display"}),
    "output_config": frozenset({"effort", "format"}),
    # The latter are those of a structural tag, as in chats.
    "output_config.format": frozenset({"type", "schema", "format", "structures", "triggers"}),
    "tools": frozenset({"type", "name", "description", "input_schema", "strict"}),
    "tool_choice": frozenset({"type", "name", "disable_parallel_tool_use"}),
}

RULES = FieldRules(_REFUSED, _IGNORED, _PARTS)
