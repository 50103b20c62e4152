import numpy as np
import pytest
import torch

from pagewire.engine.sampling.noise import Noise, exponential, keys

CPU = torch.device("cpu")


def words_of(vocab: int, seeds: range, positions: range) -> np.ndarray:
    """The words of every (seed, position), int32 [draws, vocab]."""
    pairs = [(seed, position) for seed in seeds for position in positions]
    seed_column, position_column = np.array(pairs).T
    words = Noise(vocab, CPU).of_all_tokens(keys(seed_column.astype(np.uint64), position_column))
    return words.numpy()


def test_single_tokens_have_the_words_that_the_whole_vocabulary_has() -> None:
    noise = Noise(1000, CPU)
    row_keys = keys(np.array([1, 2**63 + 5], np.uint64), np.array([0, 7]))
    rows, token_ids = np.array([0, 1, 1]), np.array([999, 0, 512])
    assert np.array_equal(
        noise.of_tokens(row_keys, rows, token_ids), noise.of_all_tokens(row_keys).numpy()[rows, token_ids]
    )


def test_words_are_fixed_for_all_time() -> None:
    row_keys = keys(np.array([42], np.uint64), np.array([3]))
    assert Noise(4, CPU).of_all_tokens(row_keys).tolist() == [[-1341888574, -208337448, 667229819, -1422546466]]


def test_exponential_variates_have_the_right_range_and_are_never_below_their_uniform() -> None:
    words = np.array([-(2**31), -1, 0, 2**31 - 1], np.int32)
    uniform = (2.0**31 - 0.5 - words) / 2.0**32
    values = exponential(words)
    assert values.max() == pytest.approx(33 * np.log(2))
    assert values.min() == pytest.approx(2.0**-33)
    assert (values >= uniform).all()


@pytest.mark.parametrize("axis", ["tokens", "positions", "seeds"])
def test_neighbouring_words_are_uniform_and_independent(axis: str) -> None:
    """Pairs of neighbours along each axis fill a 16 x 16 grid evenly (chi-square, 255 degrees of freedom)."""
    shape = {"tokens": (4096, 1, 64), "positions": (64, 1, 4096), "seeds": (64, 4096, 1)}[axis]
    words = words_of(shape[0], range(shape[1]), range(shape[2]))  # [draws, vocab]
    cells = (words.astype(np.int64) + 2**31) >> 28
    line = cells if axis == "tokens" else cells.T
    counts = np.bincount((16 * line[:, :-1] + line[:, 1:]).ravel(), minlength=256)
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 4 * np.sqrt(2 * 255)
