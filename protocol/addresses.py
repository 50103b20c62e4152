"""Where an engine listens: ZeroMQ addresses, the default one, and the rules that keep them private.

The default is a Unix socket in a directory that only the user can enter. There is no authentication between the
programs, so tcp beyond this machine has to be asked for explicitly.
"""

import ipaddress
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from pagewire.protocol.option_types import Kind, text, texts

# sun_path holds 108 bytes on Linux, the last of them the terminating zero.
MAX_IPC_PATH_BYTES = 107


class AddressError(ValueError):
    """An address is malformed or not safe to use; the message is meant for the user."""


class Address(NamedTuple):
    """A parsed address. ``host`` and ``port`` are set for tcp (the port may be ``*`` or 0 when binding), else empty."""

    scheme: Literal["ipc", "tcp"]
    path: str = ""
    host: str = ""
    port: str = ""


def address() -> Kind[str]:
    """The option kind of one address."""
    return text("an address such as ipc:///path/to/socket or tcp://127.0.0.1:5570", "ADDRESS", check=_is_address)


def addresses() -> Kind[tuple[str, ...]]:
    """The option kind of several addresses, each of them checked."""
    plain = texts()

    def read(raw: object) -> tuple[str, ...]:
        values = plain.read(raw)
        if not values or not all(map(_is_address, values)):
            raise ValueError
        return values

    return Kind("addresses such as ipc:///path/to/socket or tcp://127.0.0.1:5570", "ADDRESS", read, many=True)


def parse_address(value: str) -> Address:
    """Split an address; raises ``AddressError`` if it is not ipc or tcp with what they need."""
    if value.startswith("ipc://"):
        path = value.removeprefix("ipc://")
        length = len(os.fsencode(path))
        if not path:
            raise AddressError(f"{value}: the path of the socket is missing")
        if length > MAX_IPC_PATH_BYTES:
            raise AddressError(f"{value}: the path has {length} bytes, and a socket's may have {MAX_IPC_PATH_BYTES}")
        return Address("ipc", path=path)
    if value.startswith("tcp://"):
        host, colon, port = value.removeprefix("tcp://").rpartition(":")
        if not colon or not host or not (port == "*" or (port.isdecimal() and int(port) < 65536)):
            raise AddressError(f"{value}: expected tcp://HOST:PORT")
        return Address("tcp", host=host.strip("[]"), port=port)
    raise AddressError(f"{value}: expected an address that begins with ipc:// or tcp://")


def default_address() -> str:
    """Return the address used when none is given: a socket of this user alone.

    It lies in ``$XDG_RUNTIME_DIR/pagewire`` if there is such a directory, else in ``pagewire-UID`` under the
    directory for temporary files.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directory = Path(runtime, "pagewire") if runtime else Path(tempfile.gettempdir(), f"pagewire-{os.getuid()}")
    return f"ipc://{directory / 'engine'}"


def prepare_ipc_directory(path: str) -> None:
    """Make the directory of a socket's ``path`` with mode 0700, or check that the one there is private.

    Raises ``AddressError`` if it belongs to someone else, if others may enter it, or if it cannot be made. The check
    is on the directory itself (a symbolic link is refused), so nobody can put a socket of theirs in its place.
    """
    directory = Path(path).parent
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError as error:
        raise AddressError(f"{directory}: cannot make the socket's directory: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise AddressError(f"{directory}: the socket's directory is not a directory")
    if status.st_uid != os.getuid():
        raise AddressError(f"{directory}: the socket's directory belongs to another user (uid {status.st_uid})")
    if status.st_mode & 0o077:
        raise AddressError(
            f"{directory}: the socket's directory is open to others (mode {stat.S_IMODE(status.st_mode):04o});"
            " run chmod 700 on it or choose another one"
        )


def prepare_ipc_directories(values: Iterable[str]) -> None:
    """Do so for every ipc address among ``values``.

    A frontend needs it as much as an engine: in a directory of someone else's it would hand them its prompts.
    """
    for parsed in map(parse_address, values):
        if parsed.scheme == "ipc":
            prepare_ipc_directory(parsed.path)


def check_exposure(value: str, insecure_tcp: bool) -> None:
    """Refuse a tcp address beyond this machine unless the user said so; raises ``AddressError``."""
    parsed = parse_address(value)
    if parsed.scheme == "tcp" and not insecure_tcp and not _is_loopback(parsed.host):
        raise AddressError(
            f"{value}: reaches beyond this machine, unencrypted and without authentication;"
            " add --insecure-tcp to allow it"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(value: str) -> bool:
    try:
        parse_address(value)
    except AddressError:
        return False
    return True
