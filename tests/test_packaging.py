"""The wheel holds the packages of the tree, all of them and nothing else."""

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import pagewire

ROOT = Path(__file__).parent.parent
PACKAGE_DIRECTORIES = {
    "pagewire": "pagewire",
    **{f"pagewire/{name}": name for name in ("bench", "engine", "examples", "frontend", "protocol")},
}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def files_of(directory: Path) -> list[Path]:
    """All files below a directory that are not the result of running or building something."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path for path in files if "__pycache__" not in path.parts and path.suffix != ".so"]


def files_of_the_tree() -> set[str]:
    """Paths of all files of all packages, as they are called once installed."""
    return {
        f"{installed}/{path.relative_to(ROOT / directory).as_posix()}"
        for installed, directory in PACKAGE_DIRECTORIES.items()
        for path in files_of(ROOT / directory)
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> list[str]:
    """The names in a wheel built from a copy of the tree, without what an earlier build left in it."""
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    for name in {*PACKAGE_DIRECTORIES.values()}:
        _copy_tree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(directory), str(source)], check=True, timeout=300)
    (built,) = directory.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


def _copy_tree(source: Path, target: Path) -> None:
    for path in files_of(source):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())


def test_the_wheel_has_exactly_the_files_of_the_tree(wheel):
    assert {name for name in wheel if ".dist-info/" not in name} == files_of_the_tree()


def test_the_wheel_carries_the_licence_and_the_commands(wheel):
    assert any(name.endswith("/licenses/LICENSE") for name in wheel)
    assert any(name.endswith("/entry_points.txt") for name in wheel)


def test_every_package_has_an_init():
    files = files_of_the_tree()
    packages = {Path(name).parent for name in files if name.endswith(".py")}
    assert {f"{package.as_posix()}/__init__.py" for package in packages} <= files


def test_the_version_is_the_same_everywhere():
    assert pagewire.__version__ == version("pagewire") == project()["project"]["version"]


def test_the_base_install_needs_no_torch():
    names = " ".join(project()["project"]["dependencies"])
    assert "torch" not in names
    assert "transformers" not in names


def test_every_direct_dependency_has_a_tested_version():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    declared = project()["project"]
    wanted = [
        *declared["dependencies"],
        *(name for group in declared["optional-dependencies"].values() for name in group),
    ]
    direct = {_normal(name.split(">=")[0]) for name in wanted if not name.startswith("pagewire[")}
    assert direct <= pinned


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


def test_no_pinned_version_is_bound_to_one_build():
    assert "+" not in (ROOT / "constraints.txt").read_text(encoding="utf-8")
