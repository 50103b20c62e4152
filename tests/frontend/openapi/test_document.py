"""The OpenAPI document: complete, consistent with routes and structs, and served."""

import html
from typing import Any

import msgspec
import pytest
from aiohttp import web

from pagewire.frontend.app import make_app
from pagewire.frontend.auth import Keys
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openapi.descriptions import DESCRIPTIONS
from pagewire.frontend.openapi.document import openapi_document
from pagewire.frontend.openapi.operations import OPERATIONS
from pagewire.frontend.openapi.page import docs_page
from pagewire.frontend.pool import EnginePool
from tests.frontend.running import Server, StartServer

# Other spellings of routes that are described.
ALIASES = {"/v1/health", "/ping", "/livez", "/readyz"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document("1.2.3", "/prefix")


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_route_is_described_and_nothing_else() -> None:
    config = FrontendConfig()
    app = make_app(config, EnginePool((), "test"), Keys.read(config))
    routes = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if isinstance(route, web.ResourceRoute) and route.resource and route.method != "HEAD"
    }
    described = {(operation.method, operation.path) for operation in OPERATIONS}
    assert {route for route in routes if route[1] not in ALIASES} == described


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in references(document):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found


def test_every_field_has_a_description_and_every_description_a_field(document: dict[str, Any]) -> None:
    requests = {operation.request for operation in OPERATIONS if operation.request}
    names = {field.encode_name for request in requests for field in msgspec.structs.fields(request)}
    assert names == set(DESCRIPTIONS)
    for request in requests:
        for field in document["components"]["schemas"][request.__name__]["properties"].values():
            assert field["description"]


def test_optional_fields_may_be_null_and_required_ones_may_not(document: dict[str, Any]) -> None:
    schema = document["components"]["schemas"]["ChatRequest"]
    assert schema["required"] == ["messages"]
    assert {"type": "null"} in schema["properties"]["stream"]["anyOf"]
    assert schema["properties"]["stream"]["default"] is False
    assert "anyOf" not in schema["properties"]["messages"]


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))


def test_the_prefix_of_all_routes_is_the_server(document: dict[str, Any]) -> None:
    assert document["servers"] == [{"url": "/prefix"}]
    assert "/v1/models" in document["paths"]


def test_the_page_shows_all_operations_and_loads_nothing(document: dict[str, Any]) -> None:
    page = docs_page(document)
    for operation in OPERATIONS:
        assert f"<code>{operation.path}</code> {html.escape(operation.summary)}" in page
    for name in DESCRIPTIONS:
        assert f"<code>{name}</code>" in page or f"<code>{name} *</code>" in page
    for forbidden in ("<script", "http://", "https://", "src="):
        assert forbidden not in page


async def test_both_forms_are_served(server: Server) -> None:
    status, document = await server.get("/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    async with server.http.get(f"{server.url}/docs") as response:
        assert (response.status, response.content_type) == (200, "text/html")
        assert "script-src" not in response.headers["Content-Security-Policy"]
        assert (await response.text()).startswith("<!doctype html>")


async def test_both_need_a_key_if_there_are_keys(start_server: StartServer) -> None:
    server = await start_server(api_key=("secret",))
    for path in ("/openapi.json", "/docs"):
        async with server.http.get(f"{server.url}{path}") as response:
            assert response.status == 401
