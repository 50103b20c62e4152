"""``POST /v1/embeddings``: parse, tokenize, embed each input, answer."""

import asyncio
import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.generation import EngineError
from pagewire.frontend.openai.admission import admitted
from pagewire.frontend.openai.deliver import accounted
from pagewire.frontend.openai.errors import from_engine, internal, unsupported
from pagewire.frontend.openai.http import ARRIVED, read_request
from pagewire.frontend.openai.params import too_long
from pagewire.frontend.openai.progress import Progress
from pagewire.frontend.openai.prompts import given_prompts, prompt_ids, truncate
from pagewire.frontend.openai.schema import EmbeddingRequest
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.state import FRONTEND, Frontend
from pagewire.protocol.messages import Sampling

# The prompt is only read.
_NO_TOKENS = Sampling(max_tokens=0)


@admitted
async def embeddings(http: web.Request) -> web.Response:
    """Handle one embeddings request."""
    frontend = http.app[FRONTEND]
    request = await read_request(http, EmbeddingRequest)
    served = await frontend.catalog.find(request.model)
    _check_model(request, served)
    inputs = await _inputs(request, served, frontend)

    progress = Progress(frontend.metrics.for_model(served.name), http[ARRIVED], len(inputs))

    def summary() -> str:
        return f"model={served.name} inputs={len(inputs)} prompt={sum(map(len, inputs))}"

    async with accounted(http, frontend, progress, summary):
        vectors = await _embed_all(request, inputs, served, frontend, progress)
    return web.Response(body=encode(_answer(request, served, inputs, vectors)), content_type="application/json")


def _check_model(request: EmbeddingRequest, served: ServedModel) -> None:
    size = served.model.embedding_size
    if not size:
        raise unsupported(f"The engine of model '{served.name}' makes no embeddings.", "model")
    if request.dimensions not in (None, size):
        message = f"'dimensions': this model's embeddings have {size} dimensions, which cannot be changed."
        raise unsupported(message, "dimensions")


async def _inputs(request: EmbeddingRequest, served: ServedModel, frontend: Frontend) -> list[tuple[int, ...]]:
    """The token ids of every input; raises ApiError naming one that is empty or too long."""
    cut = request.truncate_prompt_tokens
    given = given_prompts(
        request.input, frontend.config.max_embedding_inputs, served, param="input", any_length=cut is not None
    )
    limit = served.limits.max_model_len
    inputs = []
    for one in given:
        ids = await prompt_ids(one, request.add_special_tokens, served, frontend.metrics, any_length=cut is not None)
        ids = truncate(ids, cut, 0, served)
        if len(ids) > limit:
            raise too_long(limit, f"your input resulted in {len(ids)} tokens", "input", one.param)
        inputs.append(ids)
        # Short texts are tokenized at once; many of them must still let others have a turn.
        await asyncio.sleep(0)
    return inputs


@dataclass(frozen=True, slots=True)
class _Embedder:
    """Embeds inputs one by one; the window bounds how many of a request are with the engine at a time."""

    frontend: Frontend
    served: ServedModel
    request: EmbeddingRequest
    window: asyncio.Semaphore
    progress: Progress

    async def embed(self, index: int, ids: tuple[int, ...]) -> bytes:
        """The embedding of input ``index``, little-endian float32; raises ApiError."""
        request = self.request
        async with self.window:
            try:
                generation = self.frontend.pool.generate(
                    self.served.engine_model,
                    ids,
                    _NO_TOKENS,
                    priority=request.priority,
                    salt=request.cache_salt,
                    embed=True,
                )
                async with generation:
                    delta = await anext(generation)
            except EngineError as error:
                raise from_engine(error.error) from None
        self.progress.observe([(index, delta)])
        if delta.embedding is None:
            # An engine from before there were embeddings.
            raise internal("The engine answered without an embedding.")
        return delta.embedding


async def _embed_all(
    request: EmbeddingRequest,
    inputs: Sequence[tuple[int, ...]],
    served: ServedModel,
    frontend: Frontend,
    progress: Progress,
) -> list[bytes]:
    """All embeddings, in order; the first failure ends the others."""
    window = asyncio.Semaphore(served.limits.max_num_seqs)
    embedder = _Embedder(frontend, served, request, window, progress)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(embedder.embed(index, ids)) for index, ids in enumerate(inputs)]
    except ExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    return [task.result() for task in tasks]


def _answer(
    request: EmbeddingRequest, served: ServedModel, inputs: Sequence[tuple[int, ...]], vectors: Sequence[bytes]
) -> dict[str, Any]:
    show = _as_base64 if request.encoding_format == "base64" else _as_floats
    prompt_tokens = sum(map(len, inputs))
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": show(vector)} for index, vector in enumerate(vectors)
        ],
        "model": request.model or served.name,
        "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens},
    }


def _as_base64(vector: bytes) -> str:
    return base64.b64encode(vector).decode()


def _as_floats(vector: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))
