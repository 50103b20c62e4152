"""What it costs to turn token ids into text that may be sent."""

from collections.abc import Iterator

from pagewire.bench.micro.byte_tokenizer import VOCAB_SIZE, byte_tokenizer_json
from pagewire.bench.micro.timing import Measurement, measure
from pagewire.engine.detokenize import OutputText
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.messages import Sampling

_TOKENS = 256


def measure_detokenizer() -> Iterator[Measurement]:
    """Measure a text of 256 tokens, without and with stop strings to look out for."""
    vocabulary = Vocabulary(byte_tokenizer_json(), VOCAB_SIZE)
    for name, stop in (("detokenize", ()), ("detokenize with 4 stop strings", ("\n\n", "###", "User:", "</s>"))):
        sampling = Sampling(max_tokens=_TOKENS, stop=stop)

        def read(sampling: Sampling = sampling) -> None:
            text = OutputText(vocabulary, sampling)
            for token in range(_TOKENS):
                text.push(token % 90)
            text.flush()

        yield measure(name, "token", read, units=_TOKENS)
