"""What an answer consists of, in the order in which it was generated."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins. ``index`` counts the calls of one answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text that is the arguments of call ``index``."""

    index: int
    text: str


Event = Text | Reasoning | CallStart | CallArguments
