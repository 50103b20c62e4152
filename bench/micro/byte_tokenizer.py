"""The smallest real tokenizer: one token for each byte. It is built, not shipped."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 256


def byte_tokenizer_json() -> str:
    """Return the serialized tokenizer; its ids are not the values of the bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return str(tokenizer.to_str())
