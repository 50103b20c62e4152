"""The GGUF file format: metadata and tensors, read through a memory map.

The header is parsed here and not by the ``gguf`` package, whose reader spends more than a second of Python on a
vocabulary of 50,000 tokens; the package does the dequantization, of which it knows every kind.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from pagewire.engine.models.errors import ModelError

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32  # bytes; ``general.alignment`` overrides it

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where one tensor lies. ``shape`` is in torch order (outermost first); ``start`` counts bytes of the file."""

    name: str
    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    start: int


class GgufFile:
    """A GGUF file: ``metadata`` as plain Python values, ``tensors`` by name, contents on demand."""

    def __init__(self, path: Path) -> None:
        """Map ``path`` and parse its header; raises ``ModelError`` when it is not a readable GGUF file."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.metadata, self.tensors = _parse(self._bytes)
        except (OSError, ValueError, KeyError, OverflowError, struct.error) as error:
            raise ModelError(f"{path} is not a readable GGUF file: {error}") from error

    def tensor(self, name: str) -> Tensor:
        """The tensor dequantized: float32 (or float16/bfloat16 where the file stores that), its own memory."""
        entry = self.tensors[name]
        block, size = gguf.GGML_QUANT_SIZES[entry.kind]
        count = int(np.prod(entry.shape, dtype=np.int64))
        end = entry.start + count // block * size
        if end > len(self._bytes):
            raise ModelError(f"{self.path} is cut short: tensor {name!r} ends at byte {end} of {len(self._bytes)}")
        raw = np.frombuffer(self._bytes, np.uint8, end - entry.start, entry.start)
        stored = {gguf.GGMLQuantizationType.F16: torch.float16, gguf.GGMLQuantizationType.BF16: torch.bfloat16}
        if entry.kind in stored:
            return torch.from_numpy(raw.copy()).view(stored[entry.kind]).reshape(entry.shape)
        rows = raw.reshape(*entry.shape[:-1], -1)
        return torch.from_numpy(np.array(gguf.dequantize(rows, entry.kind), np.float32)).reshape(entry.shape)


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item, length = self.scalar("I"), self.scalar("Q")
        if item in _SCALARS:
            layout = f"<{length}{_SCALARS[item]}"
            self.at += struct.calcsize(layout)
            return list(struct.unpack_from(layout, self.data, self.at - struct.calcsize(layout)))
        return [self.value(item) for _ in range(length)]


def _parse(data: mmap.mmap) -> tuple[Mapping[str, Any], Mapping[str, GgufTensor]]:
    cursor = _Cursor(data)
    magic = struct.pack("<I", cursor.scalar("I"))
    version = cursor.scalar("I")
    if magic != MAGIC or version not in (2, 3):
        raise ValueError(f"it starts with {magic!r}, version {version}; expected {MAGIC!r}, version 2 or 3")
    tensor_count, value_count = cursor.scalar("Q"), cursor.scalar("Q")
    metadata = {cursor.string(): cursor.value(cursor.scalar("I")) for _ in range(value_count)}
    entries = []
    for _ in range(tensor_count):
        name = cursor.string()
        dimensions = [cursor.scalar("Q") for _ in range(cursor.scalar("I"))]
        entries.append((name, tuple(reversed(dimensions)), cursor.scalar("I"), cursor.scalar("Q")))
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    base = -(-cursor.at // alignment) * alignment
    tensors = {
        name: GgufTensor(name, shape, gguf.GGMLQuantizationType(kind), base + offset)
        for name, shape, kind, offset in entries
    }
    return metadata, tensors
