"""How the answers of a chat request are taken apart, if they are."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pagewire.frontend.answers import AnswerParser
from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.generation import IsComplete
from pagewire.frontend.grammars.checker import GrammarChecker
from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.json_schema import enforceable_schema
from pagewire.frontend.openai.conversation import Conversation
from pagewire.frontend.openai.errors import unsupported
from pagewire.frontend.openai.structured import check_combination, checked
from pagewire.frontend.openai.tools import Mode, Tool, ToolUse
from pagewire.frontend.reasoning import ReasoningParser, ReasoningTags
from pagewire.frontend.reasoning_grammar import after_reasoning
from pagewire.frontend.template import content_text
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.frontend.tools.formats import ToolFormat, enforceable
from pagewire.frontend.tools.grammar import call_grammar, text_with_calls
from pagewire.frontend.tools.parser import ToolParser
from pagewire.protocol.grammar import MAX_GRAMMAR_CHARS
from pagewire.protocol.messages import Delta, Sampling


@dataclass(frozen=True, slots=True)
class Parsing:
    """What to look for in the answers of one request, and what the engine must do to make that possible.

    ``opened`` is whether answers begin within the reasoning, ``continues`` whether they go on with a message begun.
    """

    tokenizer: Tokenizer
    tags: ReasoningTags | None
    opened: bool
    continues: bool
    tool_format: ToolFormat | None
    use: ToolUse | None

    @property
    def mode(self) -> Mode | None:
        """Who decides that tools are called; None if no calls are looked for."""
        return self.use.mode if self.use else None

    def new_parser(self, *, from_start: bool = False) -> AnswerParser:
        """A parser for one answer; ``from_start`` if it is given the message that the answer continues, too."""
        opened, use = self.opened and not from_start, self.use
        reasoning = tools = None
        if self.tags:
            reasoning = ReasoningParser(self.tags, self.tokenizer, opened=opened)
        if self.tool_format and use:
            tools = ToolParser(self.tool_format, use.names, use.max_calls, only_calls=use.mode != "auto")
        return AnswerParser(reasoning, tools)

    def new_ending(self) -> IsComplete | None:
        """What tells when one answer holds all the calls it may; None without a limit, or if a grammar keeps it."""
        if self.use is None or self.use.mode != "auto" or self.use.max_calls is None:
            return None
        parser, max_calls = self.new_parser(), self.use.max_calls

        def is_complete(delta: Delta) -> bool:
            parser.feed(delta.text, delta.ids)
            return parser.num_complete_calls >= max_calls

        return is_complete

    async def bind(self, sampling: Sampling, checker: GrammarChecker) -> Sampling:
        """Show the parsers the special tokens that they look for, and enforce the calls that the client insists on.

        A grammar that ``sampling`` already has binds answers in text: not the reasoning, nor calls in their place.
        Raises ApiError if such a grammar cannot be combined with the calls, or a schema cannot be enforced.
        """
        markers = (self.tool_format.markers if self.tool_format else ()) + (
            (self.tags.open, self.tags.close) if self.tags else ()
        )
        special = special_markers(markers, self.tokenizer)
        grammar = sampling.grammar
        enforces_calls = self._enforces_calls()
        if enforces_calls:
            check_combination(sampling, "tools" if self.mode == "auto" else "tool_choice")
        if grammar is not None or enforces_calls:
            source = checker.made(self._parts(grammar, special), lambda: self._grammar(grammar, special))
            grammar = await checked(source, "tools")
        return msgspec.structs.replace(sampling, shown_token_ids=tuple(special.values()), grammar=grammar)

    def _enforces_calls(self) -> bool:
        """Whether calls follow a grammar even if text need not."""
        if self.tool_format is None or self.use is None:
            return False
        if self.use.mode != "auto":
            return True
        can_be_told = self.tool_format.layout is not None and self.tool_format.announced
        return can_be_told and any(tool.strict for tool in self.use.tools)

    def _parts(self, of_text: str | None, special: Mapping[str, int]) -> Any:
        """All that decides about the grammar."""
        calls = (self.tool_format.name, self.use.mode, self.use.max_calls) if self.tool_format and self.use else None
        tools = [(tool.name, tool.parameters, tool.where, tool.strict) for tool in self.use.tools] if self.use else []
        tags = (self.tags.open, self.tags.close, self.opened) if self.tags else None
        return "answer", of_text, special, calls, tools, tags

    def _grammar(self, of_text: str | None, special: Mapping[str, int]) -> str:
        """The grammar of whole answers. Takes milliseconds as a rule; raises GrammarError, its place below 'tools'."""
        grammar = self._answer_grammar(of_text, special)
        return after_reasoning(grammar, self.tags, special, opened=self.opened) if self.tags else grammar

    def _answer_grammar(self, of_text: str | None, special: Mapping[str, int]) -> str:
        if self.tool_format is None or self.use is None:
            assert of_text is not None, "nothing is bound"
            return of_text
        layout, tools, max_calls = self.tool_format.layout, self.use.tools, self.use.max_calls
        if layout is None:
            raise GrammarError(f"calls in the format '{self.tool_format.name}' exclude an output format")
        if self.mode == "auto" and of_text is None:
            bound = _bound(tool if tool.strict else replace(tool, parameters={}) for tool in tools)
            return text_with_calls(self.tool_format.markers[0], layout, bound, max_calls, special)
        otherwise = of_text if self.mode == "auto" else None
        return call_grammar(layout, _bound(tools), max_calls, special, otherwise)


def parsing_of(served: ServedModel, use: ToolUse | None, conversation: Conversation, prompt: str) -> Parsing | None:
    """What to look for in answers to ``prompt``, the rendered conversation; None if an answer is its text.

    Raises ApiError for calls that are insisted on where the operator wants none to be recognised.
    """
    tool_format = _format(served.tool_format, use)
    tags = served.reasoning
    if tool_format is None and tags is None:
        return None
    begun = _begun(conversation, prompt)
    opened = tags is not None and _opened(tags, begun, prompt)
    return Parsing(served.tokenizer, tags, opened, begun is not None, tool_format, use if tool_format else None)


def _bound(tools: Iterable[Tool]) -> list[Tool]:
    """Tools with their schemas as a grammar enforces them; raises GrammarError naming what none can enforce."""
    bound, room = [], MAX_GRAMMAR_CHARS
    for tool in tools:
        place = tool.where.removeprefix("tools")
        try:
            schema = enforceable_schema(tool.parameters)
        except GrammarError as error:
            raise GrammarError(error.message, place + error.path) from None
        room -= len(json.dumps(schema))
        if room < 0:
            raise GrammarError(f"the schemas up to here are longer than {MAX_GRAMMAR_CHARS} characters", place)
        bound.append(replace(tool, parameters=schema))
    return bound


def special_markers(markers: tuple[str, ...], tokenizer: Tokenizer) -> dict[str, int]:
    """Those of ``markers`` that are special tokens, with their ids."""
    ids = {marker: tokenizer.token_id(marker) for marker in markers}
    return {marker: token for marker, token in ids.items() if token is not None and token in tokenizer.special_ids}


def _format(served: ToolFormat | None, use: ToolUse | None) -> ToolFormat | None:
    if use is None or (served is None and use.mode == "auto"):
        return None
    if served is None:
        raise unsupported("'tool_choice': this server does not recognise tool calls.", "tool_choice")
    return served if use.mode == "auto" else enforceable(served)


def _begun(conversation: Conversation, prompt: str) -> str | None:
    """The message that answers continue; None if they are messages of their own."""
    if conversation.add_generation_prompt:
        return None
    begun = content_text(conversation.messages[-1].get("content"))
    # Without a generation prompt, it is up to the template to leave the last message open.
    left_open = bool(begun.strip()) and prompt.rstrip().endswith(begun.strip())
    return begun if conversation.continue_final_message or left_open else None


def _opened(tags: ReasoningTags, begun: str | None, prompt: str) -> bool:
    """Whether answers begin within the reasoning: of the prompt, or of the message that they continue."""
    return tags.opened_by(prompt) if begun is None else begun.rfind(tags.open) > begun.rfind(tags.close)
