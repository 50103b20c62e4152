"""HTTPS: served with the certificate given, and with a new one after it was read again."""

import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from pagewire.frontend.app import make_app
from pagewire.frontend.auth import Keys
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.listen import Listener
from pagewire.frontend.pool import EnginePool
from pagewire.frontend.reload import Reloader
from pagewire.frontend.state import FRONTEND
from pagewire.frontend.tls import tls_context
from tests.fake_engine import until

CERTIFICATES = Path(__file__).parent / "tls"


class SecureServer:
    """A frontend whose certificate can be replaced."""

    def __init__(self, directory: Path):
        self._directory = directory
        self.install("first")
        config = FrontendConfig(
            ssl_certfile=str(directory / "current.crt"), ssl_keyfile=str(directory / "current.key"), engine=()
        )
        tls = tls_context(config)
        app = make_app(config, EnginePool((), "test"), Keys.read(config))
        self.listener = Listener(app, config, port=0, tls=tls)
        self.reloader = Reloader(app[FRONTEND], tls)

    def install(self, name: str) -> None:
        for kind in ("crt", "key"):
            shutil.copy(CERTIFICATES / f"{name}.{kind}", self._directory / f"current.{kind}")

    async def answers_to_those_who_trust(self, name: str) -> bool:
        """Whether a new connection is made by a client that trusts one certificate alone."""
        trust = ssl.create_default_context(cafile=str(CERTIFICATES / f"{name}.crt"))
        try:
            async with (
                aiohttp.ClientSession() as http,
                http.get(f"https://127.0.0.1:{self.listener.port}/health", ssl=trust) as response,
            ):
                return response.status == 200
        except aiohttp.ClientConnectorCertificateError:
            return False


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SecureServer]:
    server = SecureServer(tmp_path)
    await server.listener.open()
    yield server
    await server.listener.close()


async def test_clients_see_the_certificate(server: SecureServer) -> None:
    assert await server.answers_to_those_who_trust("first")
    assert not await server.answers_to_those_who_trust("second")


async def test_a_new_certificate_is_used_once_it_was_read(
    server: SecureServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.install("second")
    assert await server.answers_to_those_who_trust("first")
    server.reloader.start()
    await until(lambda: "read the certificate again" in caplog.text)
    assert await server.answers_to_those_who_trust("second")


async def test_a_certificate_that_is_none_changes_nothing(
    server: SecureServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "current.crt").write_text("nonsense")
    server.reloader.start()
    await until(lambda: "the certificate stays as it was" in caplog.text)
    assert await server.answers_to_those_who_trust("first")


@pytest.mark.parametrize(("certificate", "key"), [("first.crt", "second.key"), ("no.crt", "first.key")])
def test_what_does_not_fit_is_refused(certificate: str, key: str) -> None:
    config = FrontendConfig(ssl_certfile=str(CERTIFICATES / certificate), ssl_keyfile=str(CERTIFICATES / key))
    with pytest.raises(ValueError, match="--ssl-certfile"):
        tls_context(config)


def test_a_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(ValueError, match="--ssl-keyfile"):
        FrontendConfig(ssl_keyfile="key")
