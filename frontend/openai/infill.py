"""Filling in the middle: prompts for models that were trained to complete what stands between two texts."""

from collections.abc import Sequence

from pagewire.frontend.openai.errors import unsupported
from pagewire.frontend.tokenizer import Tokenizer

# What stands before the prefix, before the suffix, and before the middle that is to be generated.
MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<|fim▁begin|>", "<|fim▁hole|>", "<|fim▁end|>"),  # DeepSeek
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
)


def infill(prefix: Sequence[int], suffix: Sequence[int], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The prompt whose continuation belongs between ``prefix`` and ``suffix``.

    Raises ApiError if the tokenizer has no tokens for it.
    """
    for markers in MARKERS:
        ids = [token for marker in markers if (token := tokenizer.token_id(marker)) is not None]
        if len(ids) == len(markers):
            before, after, middle = ids
            return (before, *prefix, after, *suffix, middle)
    raise unsupported("'suffix': this model has no tokens for filling in the middle.", "suffix")
