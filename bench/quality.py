"""What a number format costs: perplexity and agreement of the likeliest token, against float32, over a text.

    python -m pagewire.bench.quality --model demo --text FILE

The default text, ``data/prose.txt``, is the Gospel of Luke and Ecclesiastes in the King James translation of 1611, in
the public domain, without verse numbers. Each window of tokens is scored as a prompt of its own.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from pagewire.engine.attention.reference import ReferenceAttention
from pagewire.engine.batch import Batch
from pagewire.engine.models.base import BLOCK_SIZE, Model
from pagewire.engine.models.decoder import Decoder
from pagewire.engine.models.describe import describe_model
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_config, load_weights
from pagewire.engine.models.native import NativeDecoder

TEXT = Path(__file__).parent / "data" / "prose.txt"
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Score:
    """One format's figures over the whole text."""

    perplexity: float
    agreement: float  # share of positions whose likeliest token is float32's


@dataclass(frozen=True, slots=True)
class Window:
    """Token ids of one prompt, with what float32 makes of them."""

    token_ids: list[int]
    loss: float  # summed negative log-likelihood of all tokens but the first
    likeliest: Tensor  # int64 [tokens - 1]


def prompt_batch(token_ids: list[int]) -> Batch:
    """One row that computes a whole prompt, in blocks 0, 1, ..., with logits for every token but the last."""
    count = len(token_ids)
    positions = torch.arange(count)
    blocks = torch.arange(-(-count // BLOCK_SIZE), dtype=torch.int32)[None]
    lengths = torch.tensor([count], dtype=torch.int32)
    starts = torch.tensor([0, count], dtype=torch.int32)
    tokens = torch.tensor(token_ids)
    return Batch(tokens, positions, positions, blocks, lengths, starts, positions[:-1], (0, count), (count,))


def losses(model: Model, token_ids: list[int]) -> tuple[float, Tensor]:
    """Summed negative log-likelihood of a prompt's tokens, and the likeliest token at each position."""
    logits = model.forward(prompt_batch(token_ids))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(token_ids[1:]), reduction="sum")
    return float(loss), logits.argmax(-1)


def score(model: Model, windows: list[Window]) -> Score:
    """Perplexity and agreement of ``model`` over the windows."""
    loss, agreed, count = 0.0, 0, 0
    for window in windows:
        window_loss, likeliest = losses(model, window.token_ids)
        loss += window_loss
        agreed += int((likeliest == window.likeliest).sum())
        count += len(window.token_ids) - 1
    return Score(math.exp(loss / count), agreed / count)


def run(model_name: str, text: str, limit: int, window_tokens: int) -> Iterator[tuple[str, Score]]:
    """Name and score of each format, float32 first."""
    files = resolve_model(model_name)
    config = load_config(files)
    tokenizer = Tokenizer.from_str(describe_model(files, config, torch.float32, created=0).tokenizer_json)
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:limit]
    starts = range(0, len(ids) - window_tokens + 1, window_tokens)

    def native(quantization: str | None, kv_cache_dtype: str = "auto") -> Model:
        weights = load_weights(files, config, torch.float32 if quantization else torch.bfloat16, CPU)
        return NativeDecoder(config, weights, quantization=quantization, kv_cache_dtype=kv_cache_dtype)

    # Not load_model: in bfloat16 that would choose the native code.
    def in_torch(dtype: torch.dtype) -> Model:
        return Decoder(config, load_weights(files, config, dtype, CPU), ReferenceAttention(BLOCK_SIZE))

    formats: dict[str, Callable[[], Model]] = {
        "native bfloat16": lambda: native(None),
        "native int8-weight-only": lambda: native("int8-weight-only"),
        "native int8": lambda: native("int8"),
        "native int8, KV in bfloat16": lambda: native("int8", "bfloat16"),
        "native bfloat16, KV in int8": lambda: native(None, "int8"),
        "torch bfloat16": lambda: in_torch(torch.bfloat16),
    }
    blocks = -(-window_tokens // BLOCK_SIZE)
    reference = in_torch(torch.float32)
    reference.allocate_kv(blocks)
    chunks = [ids[start : start + window_tokens] for start in starts]
    windows = [Window(chunk, *losses(reference, chunk)) for chunk in chunks]
    loss = sum(window.loss for window in windows)
    yield "float32", Score(math.exp(loss / (len(windows) * (window_tokens - 1))), 1.0)
    for name, build in formats.items():
        model = build()
        model.allocate_kv(blocks)
        yield name, score(model, windows)


def main() -> None:
    """Print one line per format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--tokens", type=int, default=24_576, help="how much of the text to use")
    parser.add_argument("--window", type=int, default=1024, help="tokens per prompt")
    arguments = parser.parse_args()
    text = arguments.text.read_text("utf-8")
    base: Score | None = None
    print(f"{'format':30}{'perplexity':>12}{'change':>10}{'same top token':>16}")
    for name, result in run(arguments.model, text, arguments.tokens, arguments.window):
        base = base or result
        change = result.perplexity / base.perplexity - 1
        print(f"{name:30}{result.perplexity:12.4f}{change:+10.2%}{result.agreement:16.1%}", flush=True)


if __name__ == "__main__":
    main()
