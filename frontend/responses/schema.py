"""The body of ``POST /v1/responses``: every field that has an effect, and those that are refused."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from pagewire.frontend.openai.fields import IGNORED, REFUSED, FieldRules, Parts, Refused
from pagewire.frontend.openai.schema import Count, Positive, SamplingFields

MAX_METADATA_PAIRS = 16
MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]


class ReasoningOptions(Struct, kw_only=True, frozen=True):
    """How the model should reason; ``effort`` is the template's business, the rest has no effect."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: str | None = None
    mode: str | None = None


class TextOptions(Struct, kw_only=True, frozen=True):
    """What the text of the answer looks like; ``verbosity`` has no effect."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponsesRequest(SamplingFields, kw_only=True, frozen=True):
    """``POST /v1/responses``. The sampling fields of chat work here too; ``n`` and ``max_tokens`` must stay unset.

    ``input`` is a string or a list of items, which ``items`` checks.
    """

    input: str | list[Any]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool = True
    max_output_tokens: Positive | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=MAX_METADATA_PAIRS)] = field(
        default_factory=dict
    )
    include: list[str] = field(default_factory=list)
    top_logprobs: Count = 0
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    truncation: Literal["auto", "disabled"] = "disabled"
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)


def _nothing(value: Any, body: Mapping[str, Any]) -> bool:
    return value in (False, [], {}, "")


_REFUSED: Mapping[str, Refused] = {
    **REFUSED,
    "background": Refused("responses in the background", _nothing),
    "background_options": Refused("responses in the background", _nothing),
    "conversation": Refused("conversations; use 'previous_response_id'"),
    "prompt": Refused("stored prompts"),
    "context_management": Refused("managing the context", _nothing),
    "moderation": Refused("moderation"),
    "image": Refused("images", _nothing),
    "max_tool_calls": Refused("tools of its own"),
    "max_completion_tokens": Refused("it here; use 'max_output_tokens'"),
    "reasoning_effort": Refused("it here; use 'reasoning.effort'"),
    "messages": Refused("it here; use 'input'"),
    "logprobs": Refused("it here; use 'include' with 'message.output_text.logprobs'", _nothing),
    "echo": Refused("an echo of the input", _nothing),
    "continue_final_message": Refused("continuing the last message", _nothing),
    "documents": Refused("documents beside the input", _nothing),
}

_IGNORED: Mapping[str, str] = {
    **{name: why for name, why in IGNORED.items() if name not in ("metadata", "store")},
    "prompt_cache_options": "prefixes are cached without options",
    "access_programs": "there are no accounts",
    "text.verbosity": "the model has no such control",
    "reasoning.summary": "reasoning is shown as it is",
    "reasoning.generate_summary": "reasoning is shown as it is",
    "reasoning.context": "the template decides what of earlier reasoning it shows",
    "reasoning.mode": "the model has no such control",
    "stream_options.include_usage": "the last event has the usage",
    "stream_options.continuous_usage_stats": "the last event has the usage",
    "reasoning.encrypted_content": "reasoning is shown as it is",
}

_PARTS: Parts = {
    "stream_options": frozenset(),
    "text": frozenset({"format"}),
    # The latter are those of a structural tag, which the engine reads as a whole.
    "text.format": frozenset({"type", "name", "description", "schema", "strict", "format", "structures", "triggers"}),
    "reasoning": frozenset({"effort"}),
    "tools": frozenset({"type", "name", "description", "parameters", "strict"}),
    "tool_choice": frozenset({"type", "name", "mode", "tools"}),
}

RULES = FieldRules(_REFUSED, _IGNORED, _PARTS)
