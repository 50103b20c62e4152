"""Making an endpoint ready to bind: private directory, no second engine on the same socket, no stale socket."""

import socket
from pathlib import Path

from pagewire.protocol.addresses import AddressError, parse_address, prepare_ipc_directory


def prepare_endpoint(endpoint: str) -> None:
    """Check and clear an ipc endpoint; raises ``AddressError`` if another engine listens there, or no socket is.

    ZeroMQ itself would silently take a living engine's socket away. tcp needs no preparation: a bound port is refused.
    """
    address = parse_address(endpoint)
    if address.scheme != "ipc":
        return
    prepare_ipc_directory(address.path)
    path = Path(address.path)
    if not path.exists():
        return
    if not path.is_socket():
        raise AddressError(f"{endpoint}: there is something that is no socket; choose another --endpoint")
    if _is_live(path):
        raise AddressError(f"{endpoint}: an engine is running there; stop it or choose another --endpoint")
    path.unlink(missing_ok=True)


def _is_live(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
