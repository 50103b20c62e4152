"""The device interface: names, memory, cores."""

import os
from pathlib import Path

import pytest
import torch

from pagewire.engine.device import available_memory, physical_cores, pick_device
from pagewire.engine.models.errors import ModelError

GIB = 1 << 30


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: 1 kB\nMemAvailable:   {8 * GIB // 1024} kB\n")
    return path


def write_group(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    device = pick_device("auto")

    assert device.torch == torch.device("cpu")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    with pytest.raises(ModelError, match="cuda:3 does not exist; torch sees 1 GPUs"):
        pick_device("cuda:3")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="expected auto, cpu, cuda or cuda:N"):
        pick_device(name)


def test_free_memory_is_the_share_asked_for() -> None:
    device = pick_device("cpu")

    assert 0 < device.free_memory(0.1) < device.free_memory(1.0)


def test_available_memory_is_what_the_system_says(meminfo: Path, tmp_path: Path) -> None:
    assert available_memory(meminfo, tmp_path / "none") == 8 * GIB


def test_the_limit_of_a_container_counts_without_its_page_cache(meminfo: Path, tmp_path: Path) -> None:
    files = {"memory.max": f"{4 * GIB}\n", "memory.current": f"{3 * GIB}", "memory.stat": f"inactive_file {GIB}\n"}

    assert available_memory(meminfo, write_group(tmp_path / "group", files)) == 2 * GIB


def test_the_older_form_of_the_limit_counts_too(meminfo: Path, tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": f"{4 * GIB}",
        "memory/memory.usage_in_bytes": f"{3 * GIB}",
        "memory/memory.stat": "total_inactive_file 0\n",
    }

    assert available_memory(meminfo, write_group(tmp_path / "group", files)) == GIB


def test_a_container_without_limit_has_what_the_system_has(meminfo: Path, tmp_path: Path) -> None:
    files = {"memory.max": "max\n", "memory.current": "1", "memory.stat": ""}

    assert available_memory(meminfo, write_group(tmp_path / "group", files)) == 8 * GIB


def test_threads_of_one_core_are_counted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    siblings = {f"cpu{cpu}/topology/thread_siblings_list": f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in range(3)}

    assert physical_cores(write_group(tmp_path, siblings)) == 2


def test_without_topology_every_processor_is_a_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)

    assert physical_cores(tmp_path) == 3
