"""One request to an OpenAI-compatible server, timed: what is sent, what comes back, and when."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

import aiohttp
import msgspec
from msgspec import Struct

from pagewire.bench.sse import EventParser

Clock = Callable[[], float]
Endpoint = Literal["completions", "chat"]
Message = dict[str, Any]

# Idle connections are dropped before the server does it (uvicorn's 5 s is the shortest default around): a request sent
# into a connection that is being closed would count as an error of the server.
_KEEP_ALIVE_S = 4.0
_MAX_ERROR_TEXT = 300


class Target(Struct, frozen=True):
    """A server under test. ``url`` has no ``/v1`` at its end; ``name`` is how reports call it."""

    name: str
    url: str
    model: str


class RequestSettings(Struct, frozen=True):
    """How every request is made. ``extra_body`` is merged into the body last; a None in it removes a field.

    Only every ``extra_body_every``-th request gets it: 1 is all of them.
    """

    endpoint: Endpoint = "completions"
    stream: bool = True
    ignore_eos: bool = True
    temperature: float = 0.0
    extra_body: dict[str, Any] = {}
    extra_body_every: int = 1
    headers: dict[str, str] = {}
    timeout_s: float = 600.0


class Record(Struct):
    """What happened to one request. Times are seconds on the clock of the run; None did not happen.

    ``planned`` is when the request was due, ``sent`` when it was handed to the network; ``token_times`` has the arrival
    of every event that carried output. ``output_tokens`` comes from the server's usage, or else from counting events.
    """

    index: int
    turn: int
    asked_tokens: int
    planned: float
    sent: float = 0.0
    end: float = 0.0
    token_times: list[float] = []
    prompt_tokens: int | None = None
    output_tokens: int = 0
    cached_tokens: int = 0
    has_usage: bool = False
    finish_reason: str | None = None
    text: str = ""
    error: str | None = None
    error_text: str = ""

    @property
    def first(self) -> float | None:
        """When the first output arrived."""
        return self.token_times[0] if self.token_times else None


class _Delta(Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(Struct):
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Answer(Struct):
    """A stream event or a whole answer: the two have the same outer shape."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_answers = msgspec.json.Decoder(_Answer)


class RequestFailed(Exception):
    """A request without a usable answer; ``kind`` is the short name reports count it under."""

    def __init__(self, kind: str, text: str) -> None:
        """Keep the kind beside the text."""
        super().__init__(text)
        self.kind = kind


def make_body(
    settings: RequestSettings, target: Target, prompt: str | list[int] | list[Message], tokens: int, index: int = 0
) -> bytes:
    """Encode the request number ``index`` of a run; ``prompt`` is a list of messages for chat."""
    body: dict[str, Any] = {
        "model": target.model,
        "messages" if settings.endpoint == "chat" else "prompt": prompt,
        "max_tokens": tokens,
        "temperature": settings.temperature,
        "stream": settings.stream,
    }
    if settings.ignore_eos:
        body["ignore_eos"] = True
    if settings.stream:
        body["stream_options"] = {"include_usage": True}
    if index % settings.extra_body_every == 0:
        body.update(settings.extra_body)
    return msgspec.json.encode({key: value for key, value in body.items() if value is not None})


class Client:
    """Sends requests to one server over as many connections as they need. Use it as an async context manager."""

    def __init__(self, target: Target, settings: RequestSettings, clock: Clock = time.perf_counter) -> None:
        """Prepare for one server; nothing is opened yet."""
        self.target = target
        self.settings = settings
        self._clock = clock
        path = "/v1/chat/completions" if settings.endpoint == "chat" else "/v1/completions"
        self._url = target.url + path

    async def __aenter__(self) -> "Client":
        """Open the session."""
        self._session = open_session(self.settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        await self._session.close()

    async def send(self, prompt: str | list[int] | list[Message], record: Record) -> None:
        """Send one request and fill in ``record``; failures are recorded, not raised."""
        body = make_body(self.settings, self.target, prompt, record.asked_tokens, record.index)
        record.sent = self._clock()
        try:
            async with self._session.post(self._url, data=body) as response:
                if response.status != 200:
                    raise RequestFailed(f"http {response.status}", await response.text(errors="replace"))
                if self.settings.stream:
                    await self._read_stream(response, record)
                else:
                    self._read_answer(await response.read(), record)
        except RequestFailed as error:
            record.error, record.error_text = error.kind, str(error)[:_MAX_ERROR_TEXT]
        except TimeoutError:
            record.error = "timeout"
        except aiohttp.ClientConnectorError as error:
            record.error, record.error_text = "connect", str(error)
        except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as error:
            record.error, record.error_text = "connection lost", str(error)
        record.end = self._clock()

    async def _read_stream(self, response: aiohttp.ClientResponse, record: Record) -> None:
        parser, done = EventParser(), False
        async for chunk in response.content.iter_any():
            now = self._clock()
            for event in parser.feed(chunk):
                done = done or not self._take_event(event, now, record)
        for event in parser.flush():
            done = done or not self._take_event(event, self._clock(), record)
        if not done and record.finish_reason is None:
            raise RequestFailed("stream cut", "the stream ended without a finish reason or [DONE]")
        if not record.has_usage:
            record.output_tokens = len(record.token_times)

    def _take_event(self, event: bytes, now: float, record: Record) -> bool:
        """Account for one event; False says that the stream is complete."""
        if event.startswith(b"[DONE]"):
            return False
        answer = _decode(event)
        for choice in answer.choices or ():
            record.text += _content(choice)
            if choice.finish_reason is not None:
                record.finish_reason = choice.finish_reason
            if _carries_output(choice):
                record.token_times.append(now)
        _take_usage(answer, record)
        return True

    def _read_answer(self, data: bytes, record: Record) -> None:
        answer = _decode(data)
        for choice in answer.choices or ():
            record.text += _content(choice)
            record.finish_reason = choice.finish_reason
        _take_usage(answer, record)


def open_session(settings: RequestSettings) -> aiohttp.ClientSession:
    """Open a session without a limit on connections: the load decides how many there are."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=settings.timeout_s),
        headers={"Content-Type": "application/json", **settings.headers},
        auto_decompress=False,
        skip_auto_headers=("Accept-Encoding",),
    )


def _decode(data: bytes) -> _Answer:
    try:
        answer = _answers.decode(data)
    except msgspec.MsgspecError as error:
        raise RequestFailed("bad answer", f"{error}: {data[:100]!r}") from None
    if answer.error is not None:
        raise RequestFailed("error event", str(answer.error))
    return answer


def _content(choice: _Choice) -> str:
    """Return what belongs into the history of a conversation: neither reasoning nor tool calls."""
    part = choice.delta or choice.message
    return (choice.text if part is None else part.content) or ""


def _carries_output(choice: _Choice) -> bool:
    """Tell an event for a token, which may have no text yet, from one that only opens or closes a stream."""
    delta = choice.delta
    if delta is None:
        return bool(choice.text) or choice.finish_reason is None
    if delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls:
        return True
    return choice.finish_reason is None and delta.role is None


def _take_usage(answer: _Answer, record: Record) -> None:
    usage = answer.usage
    if usage is None or usage.completion_tokens is None:
        return
    record.has_usage = True
    record.prompt_tokens, record.output_tokens = usage.prompt_tokens, usage.completion_tokens
    if usage.prompt_tokens_details is not None:
        record.cached_tokens = usage.prompt_tokens_details.cached_tokens or 0


class _ModelCard(Struct):
    id: str


class _ModelList(Struct):
    data: list[_ModelCard]


async def discover_model(url: str, settings: RequestSettings) -> str:
    """Return the first model a server lists; raises ``RequestFailed`` when it lists none or can't be reached."""
    try:
        async with open_session(settings) as session, session.get(f"{url}/v1/models") as response:
            data = await response.read()
            if response.status != 200:
                raise RequestFailed(
                    f"http {response.status}", f"{url}/v1/models answered {response.status}: {data[:200]!r}"
                )
        models = msgspec.json.decode(data, type=_ModelList).data
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
        raise RequestFailed("connect", f"{url}/v1/models: {error}") from None
    if not models:
        raise RequestFailed("no model", f"{url}/v1/models lists no model")
    return models[0].id
