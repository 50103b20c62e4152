"""The HTTP application of one frontend: routes, middlewares, and what lives as long as it does."""

import asyncio

from aiohttp import web

from pagewire.frontend import status
from pagewire.frontend.anthropic.errors import answer_in_anthropic_shape
from pagewire.frontend.anthropic.messages import count_tokens, create_message
from pagewire.frontend.auth import Keys
from pagewire.frontend.catalog import Catalog
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.metrics import Metrics
from pagewire.frontend.middlewares import add_headers, answer_errors, answer_preflight, check_keys, observe
from pagewire.frontend.openai.chat import chat_completions
from pagewire.frontend.openai.completions import completions
from pagewire.frontend.openai.embeddings import embeddings
from pagewire.frontend.openai.models import list_models, retrieve_model
from pagewire.frontend.openai.render import render_chat, render_completions
from pagewire.frontend.openai.tokenize import detokenize, tokenize, tokenizer_info
from pagewire.frontend.openapi.routes import DESCRIPTION, describe_api, docs, openapi_json
from pagewire.frontend.pool import EnginePool
from pagewire.frontend.responses.create import create_response
from pagewire.frontend.responses.store import ResponseStore
from pagewire.frontend.responses.stored import (
    RESPONSES,
    cancel_response,
    delete_response,
    list_input_items,
    retrieve_response,
)
from pagewire.frontend.state import FRONTEND, Frontend
from pagewire.frontend.templates.source import TemplateText

_WATCHER: web.AppKey[asyncio.Task[None]] = web.AppKey("watcher", asyncio.Task)


def make_app(
    config: FrontendConfig, pool: EnginePool, keys: Keys, supplied_template: TemplateText | None = None
) -> web.Application:
    """Build the application; the pool is started and closed with it.

    ``supplied_template`` is what ``--chat-template`` led to, see ``catalog.read_supplied_template``.
    """
    open_handlers = {status.health, status.ready}
    if not config.metrics_auth:
        open_handlers.add(status.metrics)
    app = web.Application(
        client_max_size=config.max_body_size,
        middlewares=[
            observe,
            answer_errors,
            answer_in_anthropic_shape(config.root_path.rstrip("/")),
            answer_preflight,
            check_keys(frozenset(open_handlers)),
        ],
    )
    served_name = config.served_model_name[0] if config.served_model_name else None
    metrics = Metrics(
        pool,
        config.metrics_prefix,
        status.version_string(),
        served_name,
        with_vllm_names=config.metrics_compat == "vllm",
    )
    app[FRONTEND] = Frontend(config, pool, Catalog(config, pool, supplied_template), keys, metrics)
    app[RESPONSES] = ResponseStore(config.max_stored_responses, config.response_store_size)
    app[DESCRIPTION] = describe_api(status.version_string(), config.root_path.rstrip("/"))
    app.router.add_routes(_routes(config))
    app.on_response_prepare.append(add_headers)
    app.on_startup.append(_start)
    app.on_shutdown.append(_stop)
    return app


def _routes(config: FrontendConfig) -> list[web.RouteDef]:
    prefix = config.root_path.rstrip("/")
    routes = [
        web.post(f"{prefix}/v1/chat/completions", chat_completions),
        web.post(f"{prefix}/v1/completions", completions),
        web.post(f"{prefix}/v1/chat/completions/render", render_chat),
        web.post(f"{prefix}/v1/completions/render", render_completions),
        web.post(f"{prefix}/v1/embeddings", embeddings),
        web.post(f"{prefix}/v1/responses", create_response),
        web.get(f"{prefix}/v1/responses/{{id}}", retrieve_response),
        web.delete(f"{prefix}/v1/responses/{{id}}", delete_response),
        web.post(f"{prefix}/v1/responses/{{id}}/cancel", cancel_response),
        web.get(f"{prefix}/v1/responses/{{id}}/input_items", list_input_items),
        web.post(f"{prefix}/v1/messages", create_message),
        web.post(f"{prefix}/v1/messages/count_tokens", count_tokens),
        web.get(f"{prefix}/v1/models", list_models),
        web.get(f"{prefix}/v1/models/{{name:.+}}", retrieve_model),
        web.post(f"{prefix}/tokenize", tokenize),
        web.post(f"{prefix}/detokenize", detokenize),
        web.get(f"{prefix}/version", status.version),
        web.get(f"{prefix}/openapi.json", openapi_json),
        web.get(f"{prefix}/docs", docs),
    ]
    routes += [web.get(f"{prefix}/{path}", status.health) for path in ("health", "v1/health", "ping", "livez")]
    routes += [web.get(f"{prefix}/{path}", status.ready) for path in ("ready", "readyz")]
    if config.tokenizer_info:
        routes.append(web.get(f"{prefix}/tokenizer_info", tokenizer_info))
    if config.metrics:
        routes.append(web.get(f"{prefix}/metrics", status.metrics))
    return routes


async def _start(app: web.Application) -> None:
    frontend = app[FRONTEND]
    frontend.pool.start()
    app[_WATCHER] = asyncio.create_task(frontend.catalog.watch())


async def _stop(app: web.Application) -> None:
    """Runs before connections are closed: streams still open get to say why they end."""
    app[_WATCHER].cancel()
    app[FRONTEND].pool.close()
    app[FRONTEND].grammars.close()
