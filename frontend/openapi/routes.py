"""``GET /openapi.json`` and ``GET /docs``."""

from dataclasses import dataclass

from aiohttp import web

from pagewire.frontend.openai.sse import encode
from pagewire.frontend.openapi.document import openapi_document
from pagewire.frontend.openapi.page import docs_page


@dataclass(frozen=True, slots=True)
class Description:
    """Both forms of the description, encoded."""

    document: bytes
    page: str


DESCRIPTION: web.AppKey[Description] = web.AppKey("description", Description)


def describe_api(version: str, root_path: str) -> Description:
    """Make both forms; ``root_path`` is the prefix of every route."""
    document = openapi_document(version, root_path)
    return Description(encode(document), docs_page(document))


async def openapi_json(http: web.Request) -> web.Response:
    """The OpenAPI document."""
    return web.Response(body=http.app[DESCRIPTION].document, content_type="application/json")


async def docs(http: web.Request) -> web.Response:
    """The same for people."""
    return web.Response(
        text=http.app[DESCRIPTION].page,
        content_type="text/html",
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )
