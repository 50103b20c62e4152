from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pagewire.engine.build import _decide_limits
from pagewire.engine.config import read_config
from pagewire.engine.step_memory import step_bytes
from tests.engine.test_step_memory import SHAPE

BLOCK_BYTES = 2**19
FREE = 6 * 2**30


@dataclass
class FakeDevice:
    """A device with so much free memory, whatever share of it is asked for."""

    torch: torch.device
    name: str = "fake"

    def free_memory(self, utilization: float) -> int:
        return FREE


@pytest.mark.parametrize(
    ("device", "for_steps"), [("cuda", step_bytes(SHAPE, 2, 1024, 256)), ("cpu", 0)], ids=["gpu", "cpu"]
)
def test_on_a_gpu_the_pool_leaves_room_for_the_steps(device: str, for_steps: int) -> None:
    config = read_config(["model", "--dtype", "bfloat16", "--max-num-batched-tokens", "1024", "--max-num-seqs", "256"])
    model: Any = SimpleNamespace(kv_bytes_per_block=lambda: BLOCK_BYTES)
    limits = _decide_limits(config, SHAPE, model, FakeDevice(torch.device(device)))
    assert limits.num_blocks == (FREE - for_steps) // BLOCK_BYTES
