"""The operations that touch whole rows of logits, each in its fastest exact form per device.

On the CPU numpy works on the tensor's own memory: its argmax, comparisons and integer sort use vector instructions
where torch's are scalar (49,152 logits: argmax 3 us against 27, comparison and search 8 against 53). What these
operations find is small and is returned as host arrays.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Logits of one pass on the CPU whose temporaries are as large as the logits: these should stay near the size of a
# core's cache (1 MiB), as fresh memory of several MiB costs more in page faults than the arithmetic on it.
IN_CACHE = 2**18
# Logits of one pass where temporaries are usually small, but may in the worst case hold 100 bytes for each logit.
IN_MEMORY = 2**22
# The same on a GPU.
ON_GPU = 2**26


def passes(num_rows: int, logits: Tensor, elements: int) -> Iterator[slice]:
    """Split rows of the width of ``logits`` into slices of about so many elements (on the CPU)."""
    step = max(1, (elements if logits.device.type == "cpu" else ON_GPU) // logits.shape[-1])
    return (slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step))


def on_device(values: NDArray[np.generic], device: torch.device) -> Tensor:
    """The array as a tensor on the device; on the CPU it shares the array's memory."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)


def argmax(logits: Tensor) -> Tensor:
    """The lowest index of each row's largest value, int64 [rows]; the first NaN counts as the largest."""
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def where_at_least(values: Tensor, cuts: Tensor) -> tuple[Ints, Ints]:
    """Row and column, [found] each in row-major order, of the values [rows, columns] not below their row's cut.

    ``cuts`` is [rows, 1] or [1, 1]. NaN is below everything.
    """
    if values.device.type == "cpu":
        found = np.flatnonzero(np.greater_equal(values.numpy(), cuts.numpy()))
    else:
        found = (values >= cuts).flatten().nonzero()[:, 0].cpu().numpy()
    rows, columns = np.divmod(found, values.shape[-1])
    return rows, columns


def count_above(values: Tensor, limits: Tensor) -> Tensor:
    """How many values of each row [rows, columns] are larger than the row's limit [rows, 1], int64 [rows]."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.count_nonzero(np.greater(values.numpy(), limits.numpy()), axis=-1))
    return (values > limits).sum(-1)


def pick(values: Tensor, rows: Ints, columns: Ints) -> NDArray[np.float32]:
    """The entries at (row, column) pairs of a float32 tensor, as a host array."""
    if values.device.type == "cpu":
        return values.numpy()[rows, columns]
    device = values.device
    return values[on_device(rows, device), on_device(columns, device)].cpu().numpy()


def sort_descending(rows: Ints, columns: Ints, values: NDArray[np.float32], num_columns: int) -> tuple[Ints, Ints]:
    """Order entries by row, within a row by falling value, and equal values by rising column.

    Each entry becomes one integer that holds all three, so the order is total and no stable sort is needed.
    Returns the sorted rows and columns.
    """
    column_bits = (num_columns - 1).bit_length()
    bits = (values + np.float32(0.0)).view(np.int32)  # + 0.0 makes -0.0 equal to 0.0
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # as integers, floats of one sign are in order; flip the negative ones
    falling = np.bitwise_not(rising).astype(np.int64) + 2**31
    keys = (((rows << 32) | falling) << column_bits) | columns
    keys.sort()
    return keys >> (32 + column_bits), keys & ((1 << column_bits) - 1)
