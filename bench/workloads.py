"""What is asked of the server: conversations made from a seed, read from a chat log or from a trace.

A conversation is one or more turns; most workloads have one. The n-th conversation of a workload depends on the seed
and n alone, so that two servers, or two runs, get the same prompts.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from pagewire.bench.lengths import Lengths

PromptKind = Literal["ids", "text"]

# Common words that are one token in the vocabularies of today's models: a text of n of them has about n tokens.
_NOUNS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea body information back parent face others
level office door health person art war history party result change morning reason research girl guy moment air teacher
force education
"""
_WORDS = _NOUNS.split()

# Without a tokenizer, the length of a logged answer is guessed from its characters.
_CHARACTERS_PER_TOKEN = 4
# Traces in the Mooncake format name the content of each block of this many prompt tokens by a hash.
_TRACE_BLOCK = 512


class Turn(Struct, frozen=True):
    """One question: what is added to the history, and how many tokens to answer with."""

    prompt: str | list[int]
    output_tokens: int


class Conversation(Struct, frozen=True):
    """Turns sent one after the other, each with all earlier turns and answers before it."""

    index: int
    turns: list[Turn]


class WorkloadSettings(Struct, frozen=True):
    """What to ask. Lengths in tokens; ``output`` None takes the lengths of the logged answers (chat logs only).

    ``shared_prefix`` tokens begin every prompt of one of ``prefix_groups`` groups. ``token_range`` is the half-open
    range random token ids are drawn from: it should leave out special tokens, and ids the model does not have.
    """

    input: Lengths
    output: Lengths | None
    prompt: PromptKind = "ids"
    shared_prefix: int = 0
    prefix_groups: int = 1
    turns: int = 1
    token_range: tuple[int, int] = (1000, 30000)
    sharegpt: str | None = None
    trace: str | None = None


class Workload(Struct, frozen=True):
    """Conversations by number. ``size`` is how many different ones there are (None: any number).

    ``offsets`` are the start times (seconds) a trace gives them.
    """

    conversation: Callable[[int], Conversation]
    size: int | None = None
    offsets: list[float] | None = None


def make_workload(settings: WorkloadSettings, seed: str) -> Workload:
    """Build the workload that ``settings`` describe; raises ``ValueError`` for files that can't be used."""
    if settings.trace is not None:
        return _trace_workload(settings, seed)
    if settings.sharegpt is not None:
        return _sharegpt_workload(settings, seed)
    return Workload(lambda index: _random_conversation(settings, seed, index))


def _random_conversation(settings: WorkloadSettings, seed: str, index: int) -> Conversation:
    rng = random.Random(f"{seed}/conversation/{index}")
    turns = []
    for number in range(settings.turns):
        prompt = _random_prompt(settings, rng, settings.input.draw(rng))
        if number == 0 and settings.shared_prefix:
            prefix_rng = random.Random(f"{seed}/prefix/{index % settings.prefix_groups}")
            prompt = _join(_random_prompt(settings, prefix_rng, settings.shared_prefix), prompt)
        turns.append(Turn(prompt, _output_length(settings).draw(rng)))
    return Conversation(index, turns)


def _random_prompt(settings: WorkloadSettings, rng: random.Random, length: int) -> str | list[int]:
    if settings.prompt == "ids":
        return rng.choices(range(*settings.token_range), k=length)
    return " ".join(rng.choices(_WORDS, k=length))


def _join(prefix: str | list[int], rest: str | list[int]) -> str | list[int]:
    if isinstance(prefix, str) or isinstance(rest, str):
        return f"{prefix} {rest}"
    return prefix + rest


def _output_length(settings: WorkloadSettings) -> Lengths:
    if settings.output is None:
        raise ValueError("an output length is needed")
    return settings.output


def _sharegpt_workload(settings: WorkloadSettings, seed: str) -> Workload:
    """Conversations of a JSON list in ShareGPT's form (``conversations``: from, value) or OpenAI's (``messages``)."""
    logs = []
    for entry in _read_json(settings.sharegpt or ""):
        pairs = _question_answer_pairs(entry)[: settings.turns]
        if pairs:
            logs.append(pairs)
    if not logs:
        raise ValueError(f"{settings.sharegpt} has no conversation that begins with a question and its answer")
    random.Random(f"{seed}/order").shuffle(logs)

    def conversation(index: int) -> Conversation:
        rng = random.Random(f"{seed}/conversation/{index}")
        turns = []
        for question, answer in logs[index % len(logs)]:
            guessed = max(1, len(answer) // _CHARACTERS_PER_TOKEN)
            turns.append(Turn(question, settings.output.draw(rng) if settings.output else guessed))
        return Conversation(index, turns)

    return Workload(conversation, size=len(logs))


def _read_json(path: str) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=list[dict[str, Any]])
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(f"{path} is not a JSON list of conversations: {error}") from None


def _question_answer_pairs(entry: dict[str, Any]) -> list[tuple[str, str]]:
    messages = entry.get("conversations") or entry.get("messages") or []
    said = [
        (message.get("from") or message.get("role"), message.get("value") or message.get("content"))
        for message in messages
    ]
    said = [(role, text) for role, text in said if isinstance(text, str) and text and role != "system"]
    pairs = []
    for (asker, question), (answerer, answer) in zip(said[::2], said[1::2], strict=False):
        if asker not in ("human", "user") or answerer not in ("gpt", "assistant"):
            break
        pairs.append((question, answer))
    return pairs


class _TraceRow(Struct):
    """One line of a trace: ``timestamp`` in milliseconds, as published traces have it."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


def _trace_workload(settings: WorkloadSettings, seed: str) -> Workload:
    decoder = msgspec.json.Decoder(_TraceRow)
    try:
        rows = [decoder.decode(line) for line in Path(settings.trace or "").read_bytes().splitlines() if line.strip()]
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(
            f"{settings.trace} is not a trace; expected lines of JSON with timestamp (ms), input_length and "
            f"output_length: {error}"
        ) from None
    if not rows:
        raise ValueError(f"{settings.trace} is empty")
    rows.sort(key=lambda row: row.timestamp)

    def conversation(index: int) -> Conversation:
        row = rows[index % len(rows)]
        return Conversation(index, [Turn(_trace_prompt(settings, seed, index, row), max(1, row.output_length))])

    start = rows[0].timestamp
    return Workload(conversation, size=len(rows), offsets=[(row.timestamp - start) / 1000 for row in rows])


def _trace_prompt(settings: WorkloadSettings, seed: str, index: int, row: _TraceRow) -> str | list[int]:
    """Make a prompt of the row's length in which equal hash ids stand for equal content."""
    rngs = [random.Random(f"{seed}/block/{block}") for block in row.hash_ids]
    rngs.append(random.Random(f"{seed}/conversation/{index}"))
    prompt: str | list[int] | None = None
    left = max(1, row.input_length)
    for rng in rngs:
        if left == 0:
            break
        length = left if rng is rngs[-1] else min(_TRACE_BLOCK, left)
        part = _random_prompt(settings, rng, length)
        prompt = part if prompt is None else _join(prompt, part)
        left -= length
    assert prompt is not None
    return prompt
