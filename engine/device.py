"""The device that an engine runs on: which one, and how much memory it has left."""

import os
import re
from pathlib import Path
from typing import Protocol

import torch

from pagewire.engine.models.errors import ModelError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_CPU_TOPOLOGY = Path("/sys/devices/system/cpu")


class Device(Protocol):
    """What the engine asks of a device. ``torch`` is where tensors live; ``name`` is for people."""

    torch: torch.device
    name: str

    def free_memory(self, utilization: float) -> int:
        """Bytes that may still be taken if, of all memory, the share ``utilization`` is to be used in the end.

        On a CPU, whose memory is shared with everything else, that share is taken of what is available now.
        """
        ...


class CpuDevice:
    """The host itself."""

    def __init__(self) -> None:
        """Nothing is claimed until tensors are made."""
        self.torch = torch.device("cpu")
        self.name = "cpu"

    def free_memory(self, utilization: float) -> int:
        """See ``Device``; the limit of a control group (a container) counts too."""
        return int(available_memory() * utilization)


class CudaDevice:
    """One NVIDIA GPU."""

    def __init__(self, index: int) -> None:
        """Make GPU ``index`` the current one; raises ``ModelError`` when there is none of that number."""
        count = torch.cuda.device_count()
        if index >= count:
            raise ModelError(f"device cuda:{index} does not exist; torch sees {count} GPUs")
        self.torch = torch.device("cuda", index)
        torch.cuda.set_device(self.torch)
        self.name = f"cuda:{index} ({torch.cuda.get_device_name(index)})"

    def free_memory(self, utilization: float) -> int:
        """See ``Device``; what other processes hold counts as used."""
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self.torch)
        return max(0, int(free - total * (1.0 - utilization)))


def pick_device(name: str) -> Device:
    """The device that ``name`` means: "cpu", "cuda", "cuda:N", or "auto", which is the first GPU or else the CPU.

    Raises ``ModelError`` for another name and for a GPU that is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return CpuDevice()
    match = re.fullmatch(r"cuda(?::(\d+))?", name)
    if match is None:
        raise ModelError(f"device {name!r} is not known, expected auto, cpu, cuda or cuda:N")
    return CudaDevice(int(match[1] or 0))


def available_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Bytes this process can still take without swapping, within the limit of its control group."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if meminfo.is_file() and (match := re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())):
        available = int(match[1]) * 1024
    room = _control_group_room(cgroup)
    return available if room is None else min(available, room)


def _control_group_room(root: Path) -> int | None:
    """What the limit of the control group (as a container sees its own, version 2 or 1) leaves, None without one."""
    for limit, usage, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        try:
            allowed, used = (root / limit).read_text().strip(), int((root / usage).read_text())
            statistics = (root / stat).read_text()
        except (OSError, ValueError):
            continue
        if allowed == "max":
            return None
        # Cached file pages count as used but are given back under pressure.
        cached = re.search(r"^(?:total_)?inactive_file (\d+)$", statistics, re.MULTILINE)
        return max(0, int(allowed) - used + int(cached[1] if cached else 0))
    return None


def physical_cores(topology: Path = _CPU_TOPOLOGY) -> int:
    """Cores this process may run on, hardware threads of one core counted once."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in cpus:
        try:
            cores.add((topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip())
        except OSError:
            return len(cpus)
    return len(cores)
