"""How answers to chats look: ``chat.completion`` and ``chat.completion.chunk``."""

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire.frontend.openai.choices import Collected
from pagewire.frontend.openai.logprobs import chat_logprobs, prompt_logprobs
from pagewire.frontend.openai.schema import ChatRequest
from pagewire.frontend.openai.sse import encode
from pagewire.protocol.messages import Delta


@dataclass(frozen=True, slots=True)
class ChatFrame:
    """What is known of an answer before it is generated.

    ``model`` is its canonical name, ``echo`` the text that every choice begins with, ``prompt`` the ids it answers.
    """

    chat: ChatRequest
    model: str
    role: str
    echo: str
    prompt: tuple[int, ...]


class ChatShape:
    """The shape of answers that are text and nothing else."""

    def __init__(self, frame: ChatFrame):
        """The frame is around all choices."""
        chat = frame.chat
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = chat.model or frame.model
        self._chat = chat
        self._role = frame.role
        self._echo = frame.echo
        self._prompt = frame.prompt
        # A piece of plain text is by far the most frequent chunk: everything around the text is made once.
        self._text_heads = [b'{"index":%d,"delta":{"content":' % index for index in range(chat.n)]
        self._text_tail = b'},"logprobs":null,"finish_reason":null}'

    def envelope(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices."""
        kind = "chat.completion.chunk" if stream else "chat.completion"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def heading(self) -> dict[str, Any]:
        """The prompt's ids, if they are wanted."""
        return {"prompt_token_ids": self._prompt} if self._chat.return_token_ids else {}

    def opening(self) -> Iterable[bytes]:
        """The role of every choice, then the echoed text of every choice."""
        yield from self._roles()
        if self._echo:
            for index in range(self._chat.n):
                yield self._text(index, self._echo)

    def pieces(self, index: int, delta: Delta) -> Sequence[bytes]:
        """A chunk's choice for a delta."""
        logprobs = chat_logprobs(delta.logprobs or (), self._chat.top_logprobs) if self._chat.logprobs else None
        with_ids = self._chat.return_token_ids
        if logprobs is None and delta.finish is None and not with_ids:
            return (self._text(index, delta.text),) if delta.text else ()
        content = {"content": delta.text} if delta.text or logprobs else {}
        choice: dict[str, Any] = {"index": index, "delta": content, "logprobs": logprobs, "finish_reason": None}
        if with_ids:
            choice["token_ids"] = delta.ids
        if delta.finish:
            choice.update(finish_reason=delta.finish.reason, stop_reason=delta.finish.matched)
        return (encode(choice),)

    def whole(self, choices: Sequence[Collected]) -> dict[str, Any]:
        """The choices of a plain answer, and the prompt's log-probabilities if asked for."""
        answer: dict[str, Any] = {"choices": [self._choice(index, choice) for index, choice in enumerate(choices)]}
        answer |= self.heading()
        if self._chat.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(choices[0].prompt_logprobs or (), self._chat.prompt_logprobs)
        return answer

    def _choice(self, index: int, choice: Collected) -> dict[str, Any]:
        answer = {
            "index": index,
            "message": {"role": self._role, "content": self._echo + choice.text, "refusal": None},
            "logprobs": chat_logprobs(choice.logprobs, self._chat.top_logprobs) if self._chat.logprobs else None,
            "finish_reason": choice.finish.reason if choice.finish else None,
            "stop_reason": choice.finish.matched if choice.finish else None,
        }
        return answer | {"token_ids": choice.ids} if self._chat.return_token_ids else answer

    def _roles(self) -> Iterable[bytes]:
        for index in range(self._chat.n):
            delta = {"role": self._role, "content": ""}
            yield encode({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})

    def _text(self, index: int, text: str) -> bytes:
        return self._text_heads[index] + encode(text) + self._text_tail
