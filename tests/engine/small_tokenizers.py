"""Small tokenizers of each kind, made on the spot."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEXTS = [
    "Hello world, hello!",
    "naïve café, Größe",
    "日本語のテキスト",
    "emoji 😀😁 and ‍👩‍👩‍👧",
    "line\nbreak\ttab  spaces",
]


def byte_level() -> Tokenizer:
    """Byte-level BPE with every byte, a few merges (some across character borders) and added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("i", "n"), ("in", "g"), ("Ġ", "h"), ("ð", "Ł"), ("å", "¤"), ("n", "Ã"), ("ĺ", "Ģ"), ("Ģ", "ð")]
    tokens = [*alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<｜turn｜>"])
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("two words", special=False), "é"])
    return tokenizer


def _pieces() -> Tokenizer:
    words = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "▁a",
        "a",
        "b",
        "▁Hello",
        "ing",
        "é",
        "日",
        "▁▁",
    ]
    tokenizer = Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Pieces with byte tokens, decoded as Llama 2 does it."""
    tokenizer = _pieces()
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def byte_fallback_from_gguf() -> Tokenizer:
    """The same pieces, with the steps in the order that conversions from GGUF use."""
    tokenizer = _pieces()
    steps = [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def byte_fallback_without_strip() -> Tokenizer:
    """The same pieces, decoded as Gemma does it."""
    tokenizer = _pieces()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def metaspace() -> Tokenizer:
    """Pieces decoded by the one-step Metaspace decoder, which only the tokenizer itself understands."""
    words = ["<unk>", "▁", "▁a", "a", "b", "▁Hello", "ing", "日"]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def word_pieces() -> Tokenizer:
    """Words and their continuations, as BERT has them."""
    words = ["[UNK]", "hello", "##ing", "##s", "world", ",", "日"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer
