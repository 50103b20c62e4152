"""Cross-origin requests: preflights, allowed origins, credentials."""

import pytest

from tests.frontend.running import Server, StartServer

ORIGIN = "https://chat.example"
PREFLIGHT = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


async def headers_of_preflight(server: Server, path: str = "/v1/chat/completions") -> dict[str, str]:
    async with server.http.options(server.url + path, headers=PREFLIGHT) as response:
        assert response.status == 204
        return {name: value for name, value in response.headers.items() if name.startswith("Access-Control-")}


async def test_without_cors_a_preflight_is_answered_and_allows_nothing(server: Server) -> None:
    assert await headers_of_preflight(server) == {}


@pytest.mark.parametrize("origins", [(ORIGIN,), ("https://other.example", ORIGIN)])
async def test_an_allowed_origin_may_preflight_without_a_key(start_server: StartServer, origins: tuple[str]) -> None:
    server = await start_server(allowed_origins=origins, api_key=("sk",))
    headers = await headers_of_preflight(server)
    assert headers["Access-Control-Allow-Origin"] == ORIGIN
    assert headers["Access-Control-Allow-Methods"] == "OPTIONS, POST"
    assert headers["Access-Control-Allow-Headers"] == "authorization,content-type"


async def test_another_origin_is_allowed_nothing(start_server: StartServer) -> None:
    server = await start_server(allowed_origins=("https://other.example",))
    assert await headers_of_preflight(server) == {}


@pytest.mark.parametrize(("credentials", "origin"), [(False, "*"), (True, ORIGIN)])
async def test_any_origin(start_server: StartServer, credentials: bool, origin: str) -> None:
    server = await start_server(allowed_origins=("*",), allow_credentials=credentials)
    headers = await headers_of_preflight(server)
    assert headers["Access-Control-Allow-Origin"] == origin
    assert headers.get("Access-Control-Allow-Credentials") == ("true" if credentials else None)


async def test_configured_methods_and_headers_are_listed(start_server: StartServer) -> None:
    server = await start_server(allowed_origins=("*",), allowed_methods=("POST",), allowed_headers=("X-One", "X-Two"))
    headers = await headers_of_preflight(server)
    assert headers["Access-Control-Allow-Methods"] == "POST"
    assert headers["Access-Control-Allow-Headers"] == "X-One, X-Two"


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_may_be_read_by_an_allowed_origin(start_server: StartServer, stream: bool) -> None:
    server = await start_server(allowed_origins=(ORIGIN,))
    body = {"prompt": "x", "stream": stream}
    async with server.http.post(f"{server.url}/v1/completions", json=body, headers={"Origin": ORIGIN}) as response:
        assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert response.headers["Vary"] == "Origin"


async def test_errors_may_be_read_as_well(start_server: StartServer) -> None:
    server = await start_server(allowed_origins=(ORIGIN,), api_key=("sk",))
    async with server.http.get(f"{server.url}/v1/models", headers={"Origin": ORIGIN}) as response:
        assert response.status == 401
        assert response.headers["Access-Control-Allow-Origin"] == ORIGIN


async def test_a_preflight_for_no_route_is_not_found(server: Server) -> None:
    async with server.http.options(f"{server.url}/no-such-route", headers=PREFLIGHT) as response:
        assert response.status == 404
