"""The tokenizer inside a GGUF file, as ``tokenizer.json``.

Byte-level BPE vocabularies whose pre-tokenizer is known are built directly; anything else goes through the converter
of transformers, whose import costs seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.gguf import GgufFile

# Values of ``tokenizer.ggml.token_type``.
CONTROL, USER_DEFINED = 3, 4

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True, slots=True)
class _Splitting:
    """How text is cut into words before the merges, as the original tokenizer of the model does it.

    ``words``: the pattern of a word, None for GPT-2's own. ``digits``: every digit is a word, cut out first.
    """

    words: str | None = None
    digits: bool = False
    compose: bool = False  # Unicode NFC first
    whole_words: bool = False  # a word that is a token stays whole, whatever the merges say
    begin: bool = False  # the begin token is added unless the file says otherwise


_SPLITTINGS = {
    "default": _Splitting(),
    "gpt-2": _Splitting(),
    "smollm": _Splitting(digits=True),
    "llama-bpe": _Splitting(_LLAMA3_WORDS, whole_words=True, begin=True),
    "qwen2": _Splitting(_QWEN2_WORDS, compose=True),
}


def gguf_tokenizer_json(file: GgufFile) -> str:
    """The serialized fast tokenizer of the file; raises ``ModelError`` when there is none or it cannot be built."""
    model, splitting = file.metadata.get("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre", "default")
    if model is None:
        raise ModelError(f"{file.path} has no tokenizer (tokenizer.ggml.model is missing)")
    if model == "gpt2" and splitting in _SPLITTINGS and "tokenizer.ggml.merges" in file.metadata:
        return _byte_level(file.metadata, _SPLITTINGS[splitting]).to_str()
    return _convert(file)


def _byte_level(metadata: Mapping[str, Any], splitting: _Splitting) -> Tokenizer:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=splitting.whole_words))
    if splitting.compose:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(splitting)
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, metadata.get("tokenizer.ggml.token_type", ()))
    _add_begin(tokenizer, tokens, metadata, splitting)
    return tokenizer


def _pre_tokenizer(splitting: _Splitting) -> pre_tokenizers.PreTokenizer:
    steps: list[pre_tokenizers.PreTokenizer] = []
    if splitting.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if splitting.words:
        steps.append(pre_tokenizers.Split(Regex(splitting.words), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splitting.words is None))
    return pre_tokenizers.Sequence(steps)


def _add_tokens(tokenizer: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    """Control and user-defined tokens are found whole in the text; only the former are special."""
    added = [
        AddedToken(token, normalized=False, special=kind == CONTROL)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    if tokenizer.get_vocab_size() != len(set(tokens)):
        raise ModelError("the GGUF tokenizer is inconsistent: special tokens are not in its vocabulary")


def _add_begin(tokenizer: Tokenizer, tokens: list[str], metadata: Mapping[str, Any], splitting: _Splitting) -> None:
    """Put the begin and end tokens around a text where the file asks for them."""
    pieces = {"single": "$A", "pair": "$A $B"}
    used = []
    for key, name, default in (("bos", "add_bos_token", splitting.begin), ("eos", "add_eos_token", False)):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if index is None or not metadata.get(f"tokenizer.ggml.{name}", default):
            continue
        token = tokens[index]
        used.append((token, index))
        wrap = "{token} {text}" if key == "bos" else "{text} {token}"
        pieces = {form: wrap.format(token=token, text=text) for form, text in pieces.items()}
    if used:
        tokenizer.post_processor = processors.TemplateProcessing(**pieces, special_tokens=used)


def _convert(file: GgufFile) -> str:
    from transformers import AutoTokenizer  # costs seconds, and only unusual files need it

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.path.parent), gguf_file=file.path.name)
    except Exception as error:  # whatever transformers raises, the reason is the file's tokenizer
        raise ModelError(f"the tokenizer in {file.path} cannot be converted: {error}") from error
    return str(tokenizer.backend_tokenizer.to_str())
