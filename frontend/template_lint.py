"""Finds what is wrong or risky in a template by trying it on small conversations and looking at what comes out."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from pagewire.frontend.template import ChatTemplate, TemplateError
from pagewire.frontend.tokenizer import Tokenizer

Level = Literal["error", "warning", "note"]

_SYSTEM = {"role": "system", "content": "lint-system"}
_USER = {"role": "user", "content": "lint-question"}
_ASSISTANT = {"role": "assistant", "content": "lint-answer"}
_NEXT_USER = {"role": "user", "content": "lint-next"}
_OTHER_ROLE = {"role": "meta-lint", "content": "lint-meta"}
_TOOL = {"type": "function", "function": {"name": "lint_tool", "parameters": {"type": "object", "properties": {}}}}

# What templates write for control tokens; where the tokenizer has no such token it is spelled in ordinary ones.
_MARKER = re.compile(r"<\|[^<>|\s]+\|>|</?s>|<(?:start|end)_of_turn>")
_SOME_TIME = datetime(2001, 2, 3, 4, 5, 6)
_SPANS = {"second": timedelta(seconds=1), "day": timedelta(days=1), "year": timedelta(days=400)}


@dataclass(frozen=True)
class Finding:
    """Something to know about a template. Errors make it unusable; warnings cost quality, speed or a feature."""

    level: Level
    name: str
    message: str


@dataclass(frozen=True)
class Subject:
    """What is examined. Without ``tokenizer`` the checks of tokens are left out."""

    text: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    eos_token_ids: tuple[int, ...] = ()

    def template(self, now: Callable[[], datetime] = datetime.now) -> ChatTemplate:
        """Compile the template with ``now`` as its clock; raises TemplateError."""
        return ChatTemplate(self.text, "lint", self.special_tokens, now=now)

    @cached_property
    def _at_some_time(self) -> ChatTemplate:
        return self.template(lambda: _SOME_TIME)

    def prompt(self, *messages: Mapping[str, Any], generate: bool = True, **options: Any) -> str | None:
        """Render a conversation at a fixed time; None if the template refuses it."""
        try:
            return self._at_some_time.render(messages, add_generation_prompt=generate, **options)
        except TemplateError:
            return None


def lint(subject: Subject) -> list[Finding]:
    """Return what is wrong with the template, the worst first."""
    try:
        subject.template()
    except TemplateError as error:
        return [Finding("error", "syntax", error.message)]
    try:
        subject.template().render([_USER], add_generation_prompt=True)
    except TemplateError as error:
        return [Finding("error", "fails", f"a single message of the user cannot be rendered: {error}")]
    findings = [finding for check in _CHECKS for finding in check(subject)]
    order: tuple[Level, ...] = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.level))


def _check_content(subject: Subject) -> Iterator[Finding]:
    if _USER["content"] not in (subject.prompt(_USER) or ""):
        yield Finding("error", "drops-content", "what the user says does not appear in the prompt")
        return
    padded = {"role": "user", "content": "\n lint-question \n"}
    if padded["content"] not in (subject.prompt(padded) or ""):
        yield Finding("note", "trims-content", "white space around the content of messages is removed")


def _check_history(subject: Subject) -> Iterator[Finding]:
    prompt = subject.prompt(_USER, _ASSISTANT, _NEXT_USER)
    if prompt is None:
        yield Finding("warning", "refuses-history", "a conversation of several turns is refused")
    elif _USER["content"] not in prompt or _ASSISTANT["content"] not in prompt:
        yield Finding("warning", "drops-history", "only the last message reaches the prompt")


def _check_roles(subject: Subject) -> Iterator[Finding]:
    yield from _check_role(subject, _SYSTEM, "warning", "system")
    yield from _check_role(subject, _OTHER_ROLE, "note", "other")
    as_assistant = subject.prompt(_USER, _ASSISTANT, _NEXT_USER)
    as_user = subject.prompt(_USER, {**_ASSISTANT, "role": "user"}, _NEXT_USER)
    if as_assistant is not None and as_assistant == as_user:
        yield Finding("warning", "ignores-roles", "the prompt does not tell who said what")


def _check_role(subject: Subject, message: Mapping[str, str], level: Level, kind: str) -> Iterator[Finding]:
    prompt = subject.prompt(message, _USER)
    role = message["role"]
    if prompt is None:
        yield Finding(level, f"refuses-{kind}-role", f"messages with the role {role!r} are refused")
    elif message["content"] not in prompt:
        yield Finding(level, f"drops-{kind}-role", f"messages with the role {role!r} do not appear in the prompt")


def _check_generation_prompt(subject: Subject) -> Iterator[Finding]:
    if subject.prompt(_USER) == subject.prompt(_USER, generate=False):
        yield Finding(
            "warning",
            "no-generation-prompt",
            "add_generation_prompt changes nothing after a message of the user: the model may go on as the user",
        )


def _check_open_end(subject: Subject) -> Iterator[Finding]:
    prompt = subject.prompt(_USER, _ASSISTANT, generate=False)
    if prompt is not None and prompt.rpartition(_ASSISTANT["content"])[2].strip():
        yield Finding(
            "warning",
            "closes-last-message",
            "the last message is closed always, so add_generation_prompt: false does not continue it; "
            "clients have to use continue_final_message",
        )


def _check_continuation(subject: Subject) -> Iterator[Finding]:
    if subject.prompt(_USER, _ASSISTANT, generate=False, continue_final_message=True) is None:
        yield Finding("warning", "cannot-continue", "continue_final_message does not work")


def _check_clock(subject: Subject) -> Iterator[Finding]:
    def prompt_after(span: timedelta) -> str:
        return subject.template(lambda: _SOME_TIME + span).render([_USER], add_generation_prompt=True)

    prompt = prompt_after(timedelta())
    for unit, span in _SPANS.items():
        later = prompt_after(span)
        if later != prompt:
            pairs = enumerate(zip(prompt, later, strict=False))
            same = next((index for index, (old, new) in pairs if old != new), len(prompt))
            yield Finding(
                "warning",
                "clock",
                f"the prompt changes every {unit} from character {same} on: nothing after that is reused "
                "from the prefix cache, and answers cannot be reproduced",
            )
            return


def _check_tools(subject: Subject) -> Iterator[Finding]:
    if subject.prompt(_USER, tools=[_TOOL]) == subject.prompt(_USER):
        yield Finding("note", "ignores-tools", "tools do not appear in the prompt")


def _check_begin_token(subject: Subject) -> Iterator[Finding]:
    prompt = subject.prompt(_USER)
    if subject.tokenizer is None or not prompt:
        return
    as_chat, as_text = (subject.tokenizer.encode(prompt, special) for special in (False, True))
    begin = subject.special_tokens.get("bos_token")
    begin_id = None if begin is None else subject.tokenizer.token_id(begin)
    if begin_id is None:
        return
    if as_chat[:2] == [begin_id, begin_id]:
        yield Finding("error", "doubled-begin-token", f"the template writes the begin token {begin} twice")
    elif as_text[:2] == [begin_id, begin_id]:
        yield Finding(
            "warning",
            "doubled-begin-token",
            f"the template writes the begin token {begin} and the tokenizer adds it: right for chat requests, which "
            "are tokenized without additions, but doubled when the same text is sent to /v1/completions "
            "without add_special_tokens: false",
        )
    elif as_text[:1] == [begin_id] and as_chat[:1] != [begin_id]:
        yield Finding(
            "warning",
            "no-begin-token",
            f"the tokenizer begins a text with {begin} but the template does not write it, so chat prompts lack it",
        )


def _check_markers(subject: Subject) -> Iterator[Finding]:
    prompt = subject.prompt(_USER, _ASSISTANT, _NEXT_USER) or subject.prompt(_USER)
    if subject.tokenizer is None or prompt is None:
        return
    unknown = [
        marker for marker in dict.fromkeys(_MARKER.findall(prompt)) if subject.tokenizer.token_id(marker) is None
    ]
    if unknown:
        yield Finding(
            "warning",
            "unknown-marker",
            f"not a token of this model: {', '.join(unknown)}; the template may be for another one",
        )


def _check_turn_end(subject: Subject) -> Iterator[Finding]:
    prompt = subject.prompt(_USER, _ASSISTANT, _NEXT_USER)
    if subject.tokenizer is None or not prompt or not subject.eos_token_ids:
        return
    after = subject.tokenizer.encode(prompt.partition(_ASSISTANT["content"])[2], False)
    end = next((token_id for token_id in after if token_id in subject.tokenizer.special_ids), None)
    if end is None or after[0] != end:
        yield Finding(
            "warning", "no-turn-end", "an answer is not closed by a special token: clients have to give a stop string"
        )
    elif end not in subject.eos_token_ids:
        yield Finding(
            "warning",
            "turn-end-is-no-stop",
            f"an answer is closed by {subject.tokenizer.token(end)}, which does not end generation for this model",
        )


_CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    _check_content,
    _check_history,
    _check_roles,
    _check_generation_prompt,
    _check_open_end,
    _check_continuation,
    _check_clock,
    _check_tools,
    _check_begin_token,
    _check_markers,
    _check_turn_end,
)
