"""API keys: where they come from, and a comparison that takes the same time whatever is sent."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pagewire.frontend.config import FrontendConfig


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what the log calls it, and its digest, which is who it is. Names may come to mean another key."""

    name: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that clients may use, and whether they need one: no key at all does not mean that none is needed.

    Comparing digests instead of keys makes all comparisons equally long, so that timing says nothing about a key.
    """

    known: tuple[Key, ...] = ()
    required: bool = False

    @classmethod
    def read(cls, config: FrontendConfig) -> Self:
        """Collect keys from options and file.

        Raises ``ValueError`` if the file cannot be read or has an empty key or name, and if all that was given holds
        no key.
        """
        named = [(f"key-{number}", key) for number, key in enumerate(config.api_key, start=1)]
        if config.api_key_file:
            named += _read_file(Path(config.api_key_file))
        if any(not key for _, key in named):
            raise ValueError("an API key must not be empty")
        required = bool(config.api_key or config.api_key_file)
        if required and not named:
            raise ValueError(f"--api-key-file: there is no key in {config.api_key_file}")
        return cls(tuple(Key(name, _digest(key)) for name, key in named), required)

    def find(self, authorization: str | None) -> Key | None:
        """The key in an ``Authorization: Bearer`` header, or None if it is none of ours."""
        scheme, _, token = (authorization or "").partition(" ")
        sent = _digest(token.strip())
        found = None
        for key in self.known:
            # No early exit: how long it takes must not depend on which key matches.
            if hmac.compare_digest(sent, key.digest):
                found = key
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
            if colon and not name.strip():
                raise ValueError(f"--api-key-file: {path}, line {number}: expected a name before the colon of a key")
            named.append((name.strip(), key.strip()) if colon else (f"line-{number}", line))
    return named
