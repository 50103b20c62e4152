"""``/tokenize`` and ``/detokenize``: what the model sees of a text, and the way back; ``/tokenizer_info``."""

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.admission import admitted
from pagewire.frontend.openai.conversation import Conversation, conversation_of, render, variable_places
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.http import beside, note_unread, read_request
from pagewire.frontend.openai.prompts import count_prompt
from pagewire.frontend.openai.schema import DetokenizeRequest, TokenizeRequest
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.openai.token_limits import check_token_ids
from pagewire.frontend.openai.tools import tool_use
from pagewire.frontend.state import FRONTEND

# Of a request; more only where the context is longer.
_MOST_IDS = 100_000


@admitted
async def tokenize(http: web.Request) -> web.Response:
    """The ids of a prompt as completions would make them, or of messages as chat would."""
    frontend = http.app[FRONTEND]
    request = await read_request(http, TokenizeRequest)
    served = await frontend.catalog.find(request.model)
    if (request.prompt is None) == (request.messages is None):
        raise invalid("Expected either 'prompt' or 'messages'.", "prompt", "missing_required_parameter")
    special = request.add_special_tokens
    if request.messages is not None:
        note_unread(http, served.template, variable_places(request))
        conversation = await beside(http, lambda: _conversation(request, frontend.config))
        text = await render(conversation, served, frontend.metrics)
        special = bool(special)
    else:
        text = request.prompt or ""
        special = special is not False
    ids = await count_prompt(text, special, served, "prompt" if request.messages is None else "messages")
    answer = {"count": len(ids), "max_model_len": served.limits.max_model_len, "tokens": ids}
    return web.Response(body=encode(answer), content_type="application/json")


@admitted
async def detokenize(http: web.Request) -> web.Response:
    """The text of ids, special tokens included."""
    request = await read_request(http, DetokenizeRequest)
    served = await http.app[FRONTEND].catalog.find(request.model)
    most = max(_MOST_IDS, served.limits.max_model_len)
    if len(request.tokens) > most:
        message = f"Invalid value for 'tokens': expected at most {most} token ids, got {len(request.tokens)}."
        raise invalid(message, "tokens", "array_above_max_length")
    check_token_ids(request.tokens, "tokens", served.model.vocab_size)
    answer = {"prompt": await served.tokenizer.decode_async(request.tokens)}
    return web.Response(body=encode(answer), content_type="application/json")


async def tokenizer_info(http: web.Request) -> web.Response:
    """What clients need that tokenize over HTTP and template for themselves, under transformers' names."""
    served = await http.app[FRONTEND].catalog.find(http.query.get("model"))
    answer = {
        **dict.fromkeys(("bos_token", "pad_token", "unk_token")),
        "eos_token": _first_end(served),
        **served.model.special_tokens,
        # What transformers makes of a bare tokenizer.json; the checkpoint's own class is not known here.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": served.limits.max_model_len,
        "chat_template": served.template.text if served.template else None,
    }
    return web.Response(body=encode(answer), content_type="application/json")


def _conversation(request: TokenizeRequest, config: FrontendConfig) -> Conversation:
    use = tool_use(request.tools, request.tool_choice)
    return conversation_of(request.messages or (), request, config, use.shown if use else None)


def _first_end(served: ServedModel) -> str | None:
    """The token that ends an answer, for models that name none."""
    ends = served.model.eos_token_ids
    return served.tokenizer.decode(ends[:1]) or None
