"""One answer to a conversation, for the APIs whose requests have one choice and whose streams are typed events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from pagewire.frontend.answers import AnswerParser
from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.generation import merge
from pagewire.frontend.metrics import Metrics
from pagewire.frontend.openai.choices import Choices
from pagewire.frontend.openai.conversation import Conversation, render
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.params import fit_length
from pagewire.frontend.openai.parsing import parsing_of
from pagewire.frontend.openai.prompts import encode_prompt
from pagewire.frontend.openai.schema import SamplingFields
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.openai.tools import ToolUse
from pagewire.frontend.openai.work import Prompt, Work, plan_work
from pagewire.frontend.state import FRONTEND
from pagewire.frontend.tools.events import Event
from pagewire.protocol.messages import Delta, Finish, Logprob, Sampling


@dataclass(frozen=True, slots=True)
class TurnPrompt:
    """A rendered conversation: its text, its token ids, and how many tokens may follow."""

    text: str
    ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer ready to be generated, and the parser that takes it apart."""

    work: Work
    parser: AnswerParser


async def turn_prompt(
    conversation: Conversation,
    served: ServedModel,
    metrics: Metrics,
    *,
    max_tokens: int | None,
    default: int | None,
    param: str,
) -> TurnPrompt:
    """Render and tokenize a conversation; ``param`` is the field it came from.

    The lengths are those of ``fit_length``. Raises ApiError if the template refuses or the context is too small.
    """
    text = await render(conversation, served, metrics)
    ids = await encode_prompt(text, False, served, metrics, part="messages", param=param)
    return TurnPrompt(text, ids, fit_length(len(ids), max_tokens, default, served, part="messages", param=param))


async def plan_turn(
    http: web.Request,
    served: ServedModel,
    fields: SamplingFields,
    sampling: Sampling,
    conversation: Conversation,
    use: ToolUse | None,
    prompt: TurnPrompt,
    *,
    format_field: str,
) -> Turn:
    """Decide what to look for in the answer, and make the one job; raises ApiError if the calls cannot be enforced.

    ``format_field`` is what the API calls a ``response_format``.
    """
    parsing = parsing_of(served, use, conversation, prompt.text)
    job = Prompt(prompt.ids, prompt.max_tokens)
    if parsing is None:
        work = plan_work(http, served, fields, sampling, [job], lambda: 0, format_field=format_field)
        return Turn(work, AnswerParser(None, None))
    parser = parsing.new_parser()
    work = plan_work(
        http,
        served,
        fields,
        await parsing.bind(sampling, http.app[FRONTEND].grammars),
        [job],
        lambda: parser.reasoning_tokens,
        new_ending=parsing.new_ending,
        format_field=format_field,
    )
    return Turn(work, parser)


class TurnWriter(Protocol):
    """Writes an answer in the words of one API, as bytes of server-sent events.

    The plain answer is made of the same calls, so that it cannot differ from the joined stream.
    """

    keep_alive: bytes

    def begin(self) -> bytes:
        """What is sent before anything is generated."""
        ...

    def add(self, events: Sequence[Event], logprobs: Sequence[Logprob]) -> bytes:
        """What is sent for more of the answer; ``logprobs`` are those of the tokens it came from."""
        ...

    def end(self, finish: Finish) -> bytes:
        """What is sent when everything was generated and counted."""
        ...

    def fail(self, error: ApiError) -> bytes:
        """What is sent when it will not be."""
        ...

    def document(self) -> dict[str, Any]:
        """The answer as a whole, after ``end``."""
        ...


class TurnDelivery:
    """Delivers the answer of one turn through a writer."""

    def __init__(self, turn: Turn, writer: TurnWriter, config: FrontendConfig):
        """The configuration says how often a waiting stream gets a sign of life, and how many tokens an event has."""
        self._work = turn.work
        self._parser = turn.parser
        self._writer = writer
        self._keep_alive_s = config.sse_keep_alive_interval or None
        self._interval = config.stream_interval

    async def whole(self, choices: Choices) -> web.Response:
        """Wait for everything and return the document."""
        deltas: list[Delta] = []
        while not choices.finished:
            deltas += await self._next(choices, None)
        self._writer.begin()
        # Which log-probabilities belong to which part of the answer shows only token by token.
        for delta in deltas if deltas[0].logprobs is not None else [merge(deltas)]:
            self._write(delta)
        return web.Response(body=encode(self._writer.document()), content_type="application/json")

    async def stream(self, choices: Choices, response: web.StreamResponse) -> None:
        """Write events until the answer is complete."""
        await response.write(self._writer.begin())
        held: list[Delta] = []
        begun = False
        while not choices.finished:
            batch = await self._next(choices, None if begun else self._keep_alive_s)
            if not batch:
                await response.write(self._writer.keep_alive)
                continue
            held += batch
            if choices.finished or not begun or sum(len(delta.ids) for delta in held) >= self._interval:
                written = self._write(merge(held))
                held, begun = [], True
                if written:
                    await response.write(written)

    def failure(self, error: ApiError) -> bytes:
        """The writer's last words."""
        return self._writer.fail(error)

    async def _next(self, choices: Choices, seconds: float | None) -> list[Delta]:
        batch = await choices.next(seconds)
        self._work.progress.observe(batch)
        return [delta for _, delta in batch]

    def _write(self, delta: Delta) -> bytes:
        self._work.usage.add(0, delta)
        events = self._parser.feed(delta.text, delta.ids)
        if delta.finish:
            events += self._parser.finish()
        written = self._writer.add(events, delta.logprobs or ())
        return written + self._writer.end(delta.finish) if delta.finish else written
