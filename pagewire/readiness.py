"""Asks a frontend whether it can answer, and words the request that a user may paste."""

import json
import shlex
from dataclasses import dataclass

import aiohttp

from pagewire.frontend.config import FrontendConfig

_TIMEOUT_S = 2.0
_LISTEN_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a frontend with this configuration is reached from the same machine."""

    config: FrontendConfig

    @property
    def base_url(self) -> str:
        """The URL before ``/v1``; for a Unix socket the host in it means nothing."""
        if self.config.uds:
            return f"{self._scheme}://localhost{self.config.root_path}"
        host = _LISTEN_ANYWHERE.get(self.config.host, self.config.host)
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self.config.port}{self.config.root_path}"

    @property
    def _scheme(self) -> str:
        return "https" if self.config.ssl_certfile else "http"

    async def is_taken(self) -> bool:
        """Whether some server already answers here."""
        status, _ = await self._get("/health")
        return status != 0

    async def is_ready(self) -> bool:
        """Whether an engine can answer."""
        status, _ = await self._get("/ready")
        return status == 200

    async def model_name(self) -> str | None:
        """The name of the served model, or None if the frontend does not tell (say, for want of a key)."""
        status, body = await self._get("/v1/models")
        if status != 200:
            return None
        models = json.loads(body)["data"]
        return str(models[0]["id"]) if models else None

    def curl(self, model: str | None) -> str:
        """Return a command that asks the model something; works when pasted into a shell."""
        question = [{"role": "user", "content": "What is the capital of France?"}]
        body: dict[str, object] = {"model": model} if model else {}
        # Greedy: a small model at temperature 1 makes a poor first impression.
        body |= {"messages": question, "temperature": 0}
        parts = ["curl", "-s"]
        if self.config.uds:
            parts += ["--unix-socket", shlex.quote(self.config.uds)]
        parts += [f"{self.base_url}/v1/chat/completions", "-H 'Content-Type: application/json'"]
        if self.config.api_key or self.config.api_key_file:
            parts.append('-H "Authorization: Bearer $PAGEWIRE_API_KEY"')
        return " ".join([*parts, "-d", shlex.quote(json.dumps(body, ensure_ascii=False))])

    async def _get(self, path: str) -> tuple[int, bytes]:
        """Return status and body; status 0 if nobody answers."""
        headers = {"Authorization": f"Bearer {self.config.api_key[0]}"} if self.config.api_key else {}
        connector = aiohttp.UnixConnector(self.config.uds) if self.config.uds else None
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session,
                # The certificate is for other names than the one that it is asked for by here.
                session.get(self.base_url + path, ssl=False) as response,
            ):
                return response.status, await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return 0, b""
