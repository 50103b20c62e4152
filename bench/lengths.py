"""Distributions of prompt and output lengths, written by the user as short text."""

import math
import random
from typing import Literal

from msgspec import Struct

_HELP = "expected N, uniform:LOW:HIGH, normal:MEAN:STD or lognormal:MEDIAN:SIGMA"


class Lengths(Struct, frozen=True):
    """A distribution of lengths in tokens. ``a`` and ``b`` are its two parameters, in the order users write them."""

    kind: Literal["fixed", "uniform", "normal", "lognormal"]
    a: float
    b: float = 0.0

    def draw(self, rng: random.Random) -> int:
        """Draw one length; never below 1."""
        match self.kind:
            case "fixed":
                value = self.a
            case "uniform":
                value = rng.randint(int(self.a), int(self.b))
            case "normal":
                value = rng.gauss(self.a, self.b)
            case "lognormal":
                value = rng.lognormvariate(math.log(self.a), self.b)
        return max(1, round(value))


def parse_lengths(text: str) -> Lengths:
    """Read a distribution such as ``128`` or ``uniform:64:256``; raises ``ValueError`` saying what is expected."""
    kind, *numbers = text.split(":")
    if not numbers:
        kind, numbers = "fixed", [kind]
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        raise ValueError(f"{text!r} is not a length; {_HELP}") from None
    if kind == "fixed" and len(values) == 1 and values[0] >= 1:
        return Lengths("fixed", values[0])
    if kind == "uniform" and len(values) == 2 and 1 <= values[0] <= values[1]:
        return Lengths("uniform", *values)
    if kind == "normal" and len(values) == 2 and values[0] >= 1 and values[1] >= 0:
        return Lengths("normal", *values)
    if kind == "lognormal" and len(values) == 2 and values[0] >= 1 and values[1] >= 0:
        return Lengths("lognormal", *values)
    raise ValueError(f"{text!r} is not a length; {_HELP}")
