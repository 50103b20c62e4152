"""Keys: which routes ask for one, which ones are right, where they come from."""

from pathlib import Path

import openai
import pytest
from yarl import URL

from pagewire.frontend.auth import Keys
from pagewire.frontend.config import FrontendConfig, read_config
from tests.frontend.running import Server, StartServer

KEY = "sk-right"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/models/toy",
        "/version",
        "/metrics",
        "//v1/models",
        "/v1/../v1/models",
        "/%761/models",
        "/v1/models/",
        "/health/../v1/models",
        "/health%2f..%2fv1/models",
        "/no-such-route",
    ],
)
async def test_every_route_asks_for_a_key_whatever_its_path_looks_like(start_server: StartServer, path: str) -> None:
    server = await start_server(api_key=(KEY,))
    url = URL(server.url + path, encoded=True)
    async with server.http.get(url, allow_redirects=False) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        error = (await response.json())["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/invocations"]
)
async def test_posts_ask_for_a_key_before_they_look_at_the_body(start_server: StartServer, path: str) -> None:
    server = await start_server(api_key=(KEY,))
    status, _ = await server.post(path, {"nonsense": 1})
    assert status == 401


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/ping", "/livez", "/ready", "/readyz"])
async def test_probes_need_no_key(start_server: StartServer, path: str) -> None:
    server = await start_server(api_key=(KEY,))
    assert (await server.get(path))[0] == 200


async def test_metrics_can_be_opened(start_server: StartServer) -> None:
    server = await start_server(api_key=(KEY,), metrics_auth=False)
    async with server.http.get(f"{server.url}/metrics") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer {KEY}", 200),
        ("Bearer sk-other", 200),
        ("Bearer sk-wrong", 401),
        (f"Bearer {KEY}x", 401),
        (f"Basic {KEY}", 401),
        (KEY, 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("", 401),
        ("Bearer né", 401),
    ],
)
async def test_only_the_right_keys_open(start_server: StartServer, header: str, status: int) -> None:
    server = await start_server(api_key=(KEY, "sk-other"))
    assert (await server.get("/v1/models", Authorization=header))[0] == status


@pytest.mark.parametrize("header", ["Bearer ", "Bearer", "Bearer anything", ""])
async def test_without_keys_any_authorization_will_do(server: Server, header: str) -> None:
    assert (await server.get("/v1/models", Authorization=header))[0] == 200


async def test_openais_client_gets_its_authentication_error(start_server: StartServer) -> None:
    server = await start_server(api_key=(KEY,))
    with pytest.raises(openai.AuthenticationError):
        await server.client(api_key="sk-wrong").models.list()
    assert (await server.client(api_key=KEY).models.list()).data


def test_a_file_holds_keys_with_and_without_names(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# people\nalice:sk-a\n\n  sk-b  \n")
    keys = Keys.read(FrontendConfig(engine=("ipc:///tmp/e",), api_key=("sk-c",), api_key_file=str(file)))
    found = [keys.find(f"Bearer {key}") for key in ("sk-a", "sk-b", "sk-c")]
    assert [key and key.name for key in found] == ["alice", "line-4", "key-1"]
    assert keys.find("Bearer alice:sk-a") is None


@pytest.mark.parametrize("text", ["alice:\n", ":sk-a\n", "\xff", "", "# none yet\n"])
def test_a_file_with_no_key_no_name_or_no_text_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="key"):
        Keys.read(FrontendConfig(engine=("ipc:///tmp/e",), api_key_file=str(file)))


def test_an_empty_key_never_opens_anything() -> None:
    with pytest.raises(ValueError, match="empty"):
        Keys.read(FrontendConfig(engine=("ipc:///tmp/e",), api_key=("",)))


@pytest.mark.parametrize("value", ["", " ", ",", "[]"])
def test_an_option_that_gives_no_key_does_not_open_the_server(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_config(["--api-key", value])
    assert caught.value.code == 2
    assert "at least one key" in capsys.readouterr().err
