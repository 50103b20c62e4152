"""How completions look: ``text_completion``, plain and streamed."""

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire.frontend.openai.choices import Collected
from pagewire.frontend.openai.completion_prompts import CompletionPrompt
from pagewire.frontend.openai.logprobs import LegacyLogprobs, prompt_logprobs
from pagewire.frontend.openai.schema import CompletionRequest
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.openai.token_names import id_name
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.protocol.messages import Delta, Logprob


@dataclass(frozen=True, slots=True)
class Echo:
    """What an answer begins with when its prompt is echoed.

    ``hidden`` is how many characters of special tokens the engine counts before those of ``text``.
    """

    text: str
    first_token: str
    hidden: int


class CompletionShape:
    """How completions look: ``text_completion``, plain and streamed. Choice ``i`` belongs to prompt ``i // n``."""

    def __init__(
        self,
        completion: CompletionRequest,
        model: str,
        prompts: Sequence[tuple[int, ...]],
        echoes: Sequence[Echo] | None,
    ):
        """``echoes`` has one entry per prompt, or is None if prompts are not echoed."""
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = completion.model or model
        self._completion = completion
        self._prompts = prompts
        self._num_choices = len(prompts) * completion.n
        self._echoes = echoes
        # A piece of plain text is by far the most frequent chunk: everything around the text is made once.
        self._text_heads = [b'{"index":%d,"text":' % index for index in range(self._num_choices)]
        self._text_tail = b',"logprobs":null,"finish_reason":null}'

    def envelope(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices, the same in streams."""
        return {"id": self._id, "object": "text_completion", "created": self._created, "model": self._model}

    def heading(self) -> dict[str, Any]:
        """Nothing: a prompt's ids belong to its choices."""
        return {}

    def opening(self) -> Iterable[bytes]:
        """Ids and echoes of the prompts; with log-probabilities echoes go out with those of the prompt."""
        if self._completion.return_token_ids:
            for index in range(self._num_choices):
                empty = {"index": index, "text": "", "logprobs": None, "finish_reason": None}
                yield encode({**empty, "prompt_token_ids": self._prompt_ids(index), "token_ids": []})
        if self._echoes and self._completion.logprobs is None:
            for index in range(self._num_choices):
                yield self._text(index, self._echo_text(index))

    def pieces(self, index: int, delta: Delta) -> Sequence[bytes]:
        """A chunk's choice for a delta."""
        text, logprobs = delta.text, None
        if self._completion.logprobs is not None:
            logprobs = self._logprobs(index, delta.prompt_logprobs, delta.logprobs or ())
            if delta.prompt_logprobs is not None:
                text = self._echo_text(index) + text
        with_ids = self._completion.return_token_ids
        if logprobs is None and delta.finish is None and not with_ids:
            return (self._text(index, text),) if text else ()
        choice: dict[str, Any] = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}
        if with_ids:
            choice["token_ids"] = delta.ids
        if delta.finish:
            choice.update(finish_reason=delta.finish.reason, stop_reason=delta.finish.matched)
        return (encode(choice),)

    def whole(self, choices: Sequence[Collected]) -> dict[str, Any]:
        """The choices of a plain answer."""
        return {"choices": [self._choice(index, choice) for index, choice in enumerate(choices)]}

    def _choice(self, index: int, choice: Collected) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "index": index,
            "text": self._echo_text(index) + choice.text,
            "logprobs": None,
            "finish_reason": choice.finish.reason if choice.finish else None,
            "stop_reason": choice.finish.matched if choice.finish else None,
        }
        if self._completion.logprobs is not None:
            answer["logprobs"] = self._logprobs(index, choice.prompt_logprobs, choice.logprobs)
        if self._completion.prompt_logprobs is not None:
            top = self._completion.prompt_logprobs
            answer["prompt_logprobs"] = prompt_logprobs(choice.prompt_logprobs or (), top)
        if self._completion.return_token_ids:
            answer |= {"prompt_token_ids": self._prompt_ids(index), "token_ids": choice.ids}
        return answer

    def _logprobs(
        self, index: int, prompt: Sequence[Logprob | None] | None, generated: Sequence[Logprob]
    ) -> dict[str, Any] | None:
        listing = LegacyLogprobs(self._completion.logprobs or 0)
        if self._echoes:
            echo = self._echoes[index // self._completion.n]
            if prompt is not None:
                listing.add_first(echo.first_token)
                listing.extend(prompt[1:], -echo.hidden)
            listing.extend(generated, len(echo.text))
        else:
            listing.extend(generated, 0)
        return listing.as_json()

    def _echo_text(self, index: int) -> str:
        return self._echoes[index // self._completion.n].text if self._echoes else ""

    def _prompt_ids(self, index: int) -> tuple[int, ...]:
        return self._prompts[index // self._completion.n]

    def _text(self, index: int, text: str) -> bytes:
        return self._text_heads[index] + encode(text) + self._text_tail


async def echo_of(prompt: CompletionPrompt, completion: CompletionRequest, tokenizer: Tokenizer) -> Echo:
    """What the answers to a prompt begin with."""
    decoded = await tokenizer.decode_async(prompt.ids)
    text = decoded if prompt.text is None else prompt.text
    hidden = len(decoded) - len(text) if decoded.endswith(text) else 0
    by_id = completion.return_tokens_as_token_ids
    first = id_name(prompt.ids[0]) if by_id else tokenizer.decode(prompt.ids[:1])
    return Echo(text, first, hidden)
