"""Chat templates: from a conversation to the text of the prompt.

``load_chat_template`` chooses and compiles a template once; ``ChatTemplate.render`` applies it. Rendering is the same
as in transformers, in a sandbox, with limits on time and size. Everything that goes wrong is a TemplateError.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import jinja2
from jinja2.meta import find_undeclared_variables

from pagewire.frontend.templates.continuation import Continuation
from pagewire.frontend.templates.detection import content_use
from pagewire.frontend.templates.environment import (
    TemplateEnvironment,
    build_environment,
    compile_template,
    parse_template,
    render_template,
)
from pagewire.frontend.templates.errors import TemplateError
from pagewire.frontend.templates.limits import Budget, TimeLimitError
from pagewire.frontend.templates.messages import (
    PART_SEPARATOR,
    ContentFormat,
    content_text,
    content_texts,
    plain,
    prepare_messages,
)
from pagewire.frontend.templates.source import TemplateText, read_template

__all__ = [
    "NO_TEMPLATE",
    "RESERVED_TEMPLATE_KWARGS",
    "ChatTemplate",
    "ContentFormat",
    "TemplateError",
    "check_template_kwargs",
    "content_text",
    "is_short",
    "load_chat_template",
]

logger = logging.getLogger(__name__)

# Names that ``chat_template_kwargs`` may not set: they have fields of their own, or are no business of a request.
RESERVED_TEMPLATE_KWARGS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "messages",
        "padding",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
        "max_length",
    }
)

RENDER_SECONDS = 10.0
# What a rendering may take of the event loop before it is done again in a thread.
_INLINE_SECONDS = 0.02
_INLINE_MESSAGES = 64
_INLINE_CHARACTERS = 50_000

NO_TEMPLATE = (
    "This model has no chat template, so chat requests cannot be answered. "
    "Start pagewire-frontend with --chat-template, or use /v1/completions with a prompt you format yourself."
)


@dataclass(frozen=True)
class _Variant:
    """One compiled template and what it wants message content to be."""

    text: str
    compiled: jinja2.Template
    content_format: ContentFormat
    keep_strings: bool
    variables: frozenset[str]


class ChatTemplate:
    """A compiled template. Immutable, so any number of requests and threads may render at once."""

    def __init__(
        self,
        text: str,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        tool_use: str | None = None,
        content_format: Literal["auto", "string", "openai"] = "auto",
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compile ``text``, found at ``source``; TemplateError names the line of a syntax error.

        ``special_tokens`` (``bos_token``, ...) are variables of the template. ``tool_use`` is a second template for
        conversations with tools. ``now`` is the clock that templates see.
        """
        environment = build_environment(now)
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._default = _compile_variant(environment, text, content_format)
        self._tool_use = None if tool_use is None else _compile_variant(environment, tool_use, content_format)

    @property
    def text(self) -> str:
        """The Jinja source (of the default variant)."""
        return self._default.text

    @property
    def tool_text(self) -> str:
        """The Jinja source that renders conversations with tools."""
        return (self._tool_use or self._default).text

    @property
    def takes_tools(self) -> bool:
        """Whether the template looks at the tools of a conversation."""
        return self._tool_use is not None or "tools" in self._default.variables

    @cached_property
    def shows_calls(self) -> bool:
        """Whether the prompt tells of calls made earlier in a conversation without tools, found by trying."""
        call = {"id": "call", "type": "function", "function": {"name": "called-earlier", "arguments": {}}}
        turn: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
        messages = [{"role": "user", "content": "-"}, turn]
        try:
            return "called-earlier" in self.render(messages, add_generation_prompt=False)
        except TemplateError:
            return False

    @property
    def content_format(self) -> ContentFormat:
        """Whether messages reach the template with content as a string or as a list of parts."""
        return self._default.content_format

    @cached_property
    def variables(self) -> frozenset[str]:
        """The variables that the template reads, with tools or without."""
        return self._default.variables | (self._tool_use.variables if self._tool_use else frozenset())

    @property
    def request_variables(self) -> frozenset[str]:
        """The variables the template reads that only ``chat_template_kwargs`` can set, such as ``enable_thinking``."""
        return self.variables - RESERVED_TEMPLATE_KWARGS - self._special_tokens.keys()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool = False,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        seconds: float = RENDER_SECONDS,
    ) -> str:
        """Return the text of the prompt.

        Raises TemplateError: the template refuses or fails, content that is no text, a continuation that is not
        possible, reserved ``template_kwargs``, or more than ``seconds`` of work.
        """
        kwargs = dict(template_kwargs or {})
        _check_arguments(kwargs, add_generation_prompt, continue_final_message)
        variant = self._tool_use if tools and self._tool_use is not None else self._default
        try:
            prepared = prepare_messages(messages, variant.content_format, variant.keep_strings)
            given = {**plain(kwargs), "tools": plain(tools) or None, "documents": plain(documents)}
        except RecursionError:
            raise TemplateError("the conversation is nested too deeply") from None
        continuation = Continuation(prepared) if continue_final_message else None
        variables = {
            **self._special_tokens,
            **given,
            "messages": prepared,
            "add_generation_prompt": add_generation_prompt,
        }
        rendered = render_template(variant.compiled, variables, Budget(seconds))
        return rendered if continuation is None else continuation.cut(rendered)

    def content_text(self, content: Any) -> str:
        """Return the text of a message's content with text parts joined as this template joins them."""
        texts = content_texts(content)
        if len(texts) < 2 or self.content_format == "string":
            return PART_SEPARATOR.join(texts)
        return self._part_separator.join(texts)

    @cached_property
    def _part_separator(self) -> str:
        """What the template puts between two text parts of one message, found by trying."""
        first, second = "first-part", "second-part"
        parts = [{"type": "text", "text": first}, {"type": "text", "text": second}]
        try:
            rendered = self.render([{"role": "user", "content": parts}], add_generation_prompt=False)
        except TemplateError:
            return ""
        _, found, rest = rendered.partition(first)
        between, found_too, _ = rest.partition(second)
        return between if found and found_too else ""

    async def render_async(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool = False,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Render like ``render`` without holding up the event loop: what is long or slow is done in a thread."""

        def render(seconds: float) -> str:
            return self.render(
                messages,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=tools,
                documents=documents,
                template_kwargs=template_kwargs,
                seconds=seconds,
            )

        if is_short(messages, tools, documents, template_kwargs):
            try:
                return render(_INLINE_SECONDS)
            except TimeLimitError:
                logger.debug("a short conversation takes long to render: going on in a thread")
        return await asyncio.to_thread(render, RENDER_SECONDS)


def load_chat_template(
    value: str | None,
    model_templates: Mapping[str, str],
    special_tokens: Mapping[str, str],
    *,
    content_format: Literal["auto", "string", "openai"] = "auto",
    offline: bool = False,
) -> ChatTemplate | None:
    """Return the template to use: the one ``value`` stands for, else the model's own, else None. Logs which.

    Raises TemplateError: ``value`` leads to no template, or the template has a syntax error.
    """
    tool_use = None
    if value:
        found = read_template(value, model_templates, offline=offline)
        logger.info("using the supplied chat template (%s)", found.origin)
    elif "default" in model_templates:
        found = TemplateText(model_templates["default"], "model")
        tool_use = model_templates.get("tool_use")
        logger.info("using the model's chat template")
    else:
        logger.warning("no chat template provided, the chat API will not work (see --chat-template)")
        return None
    logger.debug("chat template: %s", found.text)
    return ChatTemplate(found.text, found.origin, special_tokens, tool_use=tool_use, content_format=content_format)


def _compile_variant(
    environment: TemplateEnvironment, text: str, content_format: Literal["auto", "string", "openai"]
) -> _Variant:
    tree = parse_template(environment, text)
    use = content_use(tree)
    return _Variant(
        text,
        compile_template(environment, text),
        use.content_format if content_format == "auto" else content_format,
        use.tests_string,
        frozenset(find_undeclared_variables(tree) - environment.globals.keys()),
    )


def check_template_kwargs(kwargs: Mapping[str, Any], name: str) -> None:
    """Raise TemplateError if ``kwargs``, which are called ``name``, have a variable that is not for them to set."""
    if reserved := sorted(RESERVED_TEMPLATE_KWARGS & kwargs.keys()):
        raise TemplateError(f"{name} must not contain {', '.join(reserved)}", name)


def _check_arguments(kwargs: Mapping[str, Any], add_generation_prompt: bool, continue_final_message: bool) -> None:
    check_template_kwargs(kwargs, "chat_template_kwargs")
    if add_generation_prompt and continue_final_message:
        raise TemplateError(
            "continue_final_message and add_generation_prompt exclude each other: "
            "the last message is either continued or followed by a new one",
            "continue_final_message",
        )


def is_short(messages: Sequence[Mapping[str, Any]], *others: Any) -> bool:
    """Whether little enough is to be rendered; ``others`` is whatever else a template may walk through."""
    return len(messages) <= _INLINE_MESSAGES and _has_at_most(_INLINE_CHARACTERS, [messages, *others])


def _has_at_most(characters: int, values: list[Any]) -> bool:
    """Whether JSON values have no more characters in all; takes no longer than it takes to find that many."""
    while values:
        value = values.pop()
        if isinstance(value, str):
            characters -= len(value)
        elif isinstance(value, dict):
            characters -= len(value)
            values += value
            values += value.values()
        elif isinstance(value, list | tuple):
            characters -= len(value)
            values += value
        else:
            characters -= 1
        if characters < 0:
            return False
    return True
