"""Offline use: both programs in this process, without a network.

The engine's loop runs in one thread, the frontend's in another, and they talk over sockets in a private directory. So
every request field, template rule and error is the server's, because it is the server.
"""

import asyncio
import atexit
import secrets
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import aiohttp

from pagewire.engine.build import build_engine
from pagewire.engine.config import EngineConfig
from pagewire.engine.loop import EngineLoop
from pagewire.engine.server import Server
from pagewire.frontend.app import make_app
from pagewire.frontend.auth import Keys
from pagewire.frontend.catalog import read_supplied_template
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.listen import Listener
from pagewire.frontend.pool import EnginePool
from pagewire.frontend.state import FRONTEND

T = TypeVar("T")
Message = Mapping[str, Any]

_HOST = "http://localhost"  # the socket decides where requests go; a URL needs some host
_READY_POLL_S = 0.01
_OPEN_FOR_EVER = aiohttp.ClientTimeout(total=None)


class RequestError(ValueError):
    """The server would have refused the request; ``error`` is OpenAI's error object."""

    def __init__(self, error: Mapping[str, Any]):
        """``error`` has message, type, param and code."""
        super().__init__(str(error["message"]))
        self.error = error


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API. Printed, it is the text of its first choice."""

    json: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """The text of every choice."""
        choices = self.json["choices"]
        return [(choice["message"]["content"] if "message" in choice else choice["text"]) or "" for choice in choices]

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.texts[0]

    def __str__(self) -> str:
        """The text of the first choice."""
        return self.text


class LLM:
    """A model in this process. Close it, or use it in a ``with`` statement, to free its memory. At exit it closes."""

    def __init__(
        self,
        model: str,
        *,
        chat_template: str | None = None,
        response_role: str = "assistant",
        generation_config: str = "auto",
        **engine_options: Any,
    ):
        """Load ``model``: a directory, hub id, GGUF file or ``demo``.

        The named options are the frontend's, ``engine_options`` fields of ``EngineConfig`` (``dtype="float32"``).
        Raises ``ModelError`` or ``TemplateError``.
        """
        self._directory = tempfile.TemporaryDirectory(prefix="pagewire-")
        endpoint = f"ipc://{self._directory.name}/engine"
        self._socket = str(Path(self._directory.name, "http"))
        frontend_config = FrontendConfig(
            engine=(endpoint,),
            uds=self._socket,
            chat_template=chat_template,
            response_role=response_role,
            generation_config=generation_config,
            strict_params=True,
            access_log=False,
            log_requests="off",
        )
        template = read_supplied_template(frontend_config)
        self._server = Server(endpoint)
        engine = build_engine(EngineConfig(model=model, endpoint=endpoint, **engine_options))
        self._loop = EngineLoop(self._server, engine.core, engine.model, engine.limits, secrets.token_hex(4))
        self._engine_thread = threading.Thread(target=self._loop.run, name="pagewire-engine", daemon=True)
        self._engine_thread.start()
        self._events = asyncio.new_event_loop()
        self._frontend_thread = threading.Thread(target=self._events.run_forever, name="pagewire-frontend", daemon=True)
        self._frontend_thread.start()
        pool = EnginePool(frontend_config.engine, "offline")
        app = make_app(frontend_config, pool, Keys.read(frontend_config), template)
        self._frontend = app[FRONTEND]
        self._listener = Listener(app, frontend_config)
        self._run(self._open())
        # A step that runs while the interpreter is taken down crashes the process.
        atexit.register(self.close)

    @overload
    def chat(self, messages: Sequence[Message], **fields: Any) -> Answer: ...
    @overload
    def chat(self, messages: Sequence[Sequence[Message]], **fields: Any) -> list[Answer]: ...
    def chat(self, messages: Sequence[Message] | Sequence[Sequence[Message]], **fields: Any) -> Answer | list[Answer]:
        """Answer a conversation, or several at once.

        ``fields`` are those of ``/v1/chat/completions`` (``max_tokens=32``, ``echo=True``, ...) but for ``stream``.
        Raises RequestError for what the server would refuse.
        """
        if messages and not isinstance(messages[0], Mapping):
            return self._ask("/v1/chat/completions", [{**fields, "messages": each} for each in messages])
        return self._ask("/v1/chat/completions", [{**fields, "messages": messages}])[0]

    @overload
    def generate(self, prompts: str, **fields: Any) -> Answer: ...
    @overload
    def generate(self, prompts: Sequence[str] | Sequence[Sequence[int]], **fields: Any) -> list[Answer]: ...
    def generate(self, prompts: str | Sequence[str] | Sequence[Sequence[int]], **fields: Any) -> Answer | list[Answer]:
        """Continue a prompt, or several at once; each is a text, or in a list also token ids.

        ``fields`` are those of ``/v1/completions`` but for ``stream``. Raises RequestError.
        """
        if isinstance(prompts, str):
            return self._ask("/v1/completions", [{**fields, "prompt": prompts}])[0]
        return self._ask("/v1/completions", [{**fields, "prompt": prompt} for prompt in prompts])

    def close(self) -> None:
        """Stop both threads; requests that still run end with an error. Harmless when repeated."""
        if self._events.is_closed():
            return
        atexit.unregister(self.close)
        self._run(self._listener.close())
        self._events.call_soon_threadsafe(self._events.stop)
        self._frontend_thread.join()
        self._events.close()
        self._loop.drain(0.0)
        self._engine_thread.join()
        self._server.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    async def _open(self) -> None:
        await self._listener.open()
        while self._frontend.not_ready():  # noqa: ASYNC110 (the one wait of a start; an event would serve nobody else)
            await asyncio.sleep(_READY_POLL_S)

    def _ask(self, path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Answer]:
        return self._run(self._post_all(path, bodies))

    async def _post_all(self, path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Answer]:
        # As many as the frontend takes at once; the rest waits for a connection.
        connector = aiohttp.UnixConnector(self._socket, limit=self._frontend.config.max_inflight)
        async with aiohttp.ClientSession(connector=connector, timeout=_OPEN_FOR_EVER) as session:
            return await asyncio.gather(*(_post(session, path, body) for body in bodies))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        result = asyncio.run_coroutine_threadsafe(work, self._events)
        try:
            return result.result()
        finally:
            result.cancel()  # if Ctrl-C came first: nobody waits for it any more


async def _post(session: aiohttp.ClientSession, path: str, body: Mapping[str, Any]) -> Answer:
    if body.get("stream"):
        raise RequestError({"message": "'stream' is for the server.", "param": "stream", "type": "", "code": None})
    async with session.post(_HOST + path, json=body) as response:
        answer = await response.json()
    if "error" in answer:
        raise RequestError(answer["error"])
    return Answer(answer)
