"""A tokenizer whose tokens are bytes: token id 0 to 255 is that byte, and a few special tokens come after."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

IM_START, IM_END, END_OF_TEXT = 256, 257, 258
SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
VOCAB_SIZE = 256 + len(SPECIAL_TOKENS)

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _byte_letters() -> list[str]:
    """The letter that byte-level tokenizers write for each byte: printable ones stand for themselves."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def tokenizer_json() -> str:
    """The serialized tokenizer."""
    vocab = {letter: byte for byte, letter in enumerate(_byte_letters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return tokenizer.to_str()
