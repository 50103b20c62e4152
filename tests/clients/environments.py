"""Installs clients where they disturb nobody, under ``build/clients``, and again only when their versions change."""

import platform
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
DRIVERS = HERE / "drivers"
BUILD = HERE.parents[1] / "build" / "clients"
# A slow registry; one that is not there is noticed by its own timeouts, long before.
INSTALL_TIMEOUT_S = 600
STAMP = "installed"


class InstallError(Exception):
    """A client cannot be had; the message says which and why."""


def python_with(client: str, *, above_ours: bool = False) -> Path:
    """The interpreter of an environment with what ``client``'s list of versions names.

    ``above_ours``: what the list lacks is found in the environment that runs now, such as torch, which is large.
    """
    requirements = HERE / f"{client}.txt"
    directory = BUILD / client
    interpreter = directory / "bin" / "python"
    ours = sysconfig.get_path("purelib") if above_ours else ""

    def build() -> None:
        venv.create(directory, with_pip=True)
        if ours:
            _site_packages(directory).joinpath("ours.pth").write_text(f"{ours}\n", encoding="utf-8")
        pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "--retries", "2"]
        _run(client, [*pip, "install", "--quiet", "--no-deps", "--requirement", str(requirements)])

    _install(directory, "\n".join([platform.python_version(), ours, requirements.read_text(encoding="utf-8")]), build)
    return interpreter


def node_with_clients() -> Path:
    """A directory with the clients for Node and the drivers beside them, which find them there only."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise InstallError("Node 20 or newer, with npm, is needed for the clients in JavaScript")
    directory = BUILD / "node"
    lists = [HERE / "package.json", HERE / "package-lock.json"]

    def build() -> None:
        directory.mkdir(parents=True)
        for file in lists:
            shutil.copy(file, directory)
        _run("the clients for Node", ["npm", "ci", "--no-audit", "--no-fund", "--fetch-retries=2"], directory)

    _install(directory, "\n".join(file.read_text(encoding="utf-8") for file in lists), build)
    for driver in DRIVERS.glob("*.mjs"):
        shutil.copy(driver, directory)
    return directory


def _install(directory: Path, fingerprint: str, build: Callable[[], None]) -> None:
    """Build anew unless a build with the same fingerprint was completed."""
    stamp = directory / STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint:
        return
    shutil.rmtree(directory, ignore_errors=True)
    build()
    stamp.write_text(fingerprint, encoding="utf-8")


def _site_packages(directory: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return directory / "lib" / version / "site-packages"


def _run(client: str, command: Sequence[str], directory: Path | None = None) -> None:
    try:
        ended = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"installing {client} took more than {INSTALL_TIMEOUT_S} s") from None
    if ended.returncode:
        said = "\n".join(ended.stdout.splitlines()[-15:])
        raise InstallError(f"installing {client} failed; is the package registry within reach?\n{said}")
