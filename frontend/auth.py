"""API keys: where they come from, and a comparison that takes the same time whatever is sent."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pagewire.frontend.config import FrontendConfig


@dataclass(frozen=True, slots=True)
class Keys:
    """Digests of the keys that clients may use, with the name that each key has in the log.

    Comparing digests instead of keys makes all comparisons equally long, so that timing says nothing about a key.
    """

    digests: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def read(cls, config: FrontendConfig) -> Self:
        """Collect keys from options and file; raises ``ValueError`` if the file cannot be read or has an empty key."""
        named = [(f"key-{number}", key) for number, key in enumerate(config.api_key, start=1)]
        if config.api_key_file:
            named += _read_file(Path(config.api_key_file))
        if any(not key for _, key in named):
            raise ValueError("an API key must not be empty")
        return cls(tuple((name, _digest(key)) for name, key in named))

    def __bool__(self) -> bool:
        """Whether a key is needed at all."""
        return bool(self.digests)

    def find(self, authorization: str | None) -> str | None:
        """The name of the key in an ``Authorization: Bearer`` header, or None if it is none of ours."""
        scheme, _, token = (authorization or "").partition(" ")
        sent = _digest(token.strip())
        found = None
        for name, digest in self.digests:
            # No early exit: how long it takes must not depend on which key matches.
            if hmac.compare_digest(sent, digest):
                found = name
        return found if scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _read_file(path: Path) -> Iterable[tuple[str, str]]:
    """Lines of KEY or NAME:KEY; empty ones and those that begin with # do not count."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ValueError(f"--api-key-file: cannot read {path}: {error}") from None
    named = []
    for number, line in enumerate(lines, start=1):
        line = line.strip()
        if line and not line.startswith("#"):
            name, colon, key = line.partition(":")
            named.append((name.strip(), key.strip()) if colon else (f"line-{number}", line))
    return named
