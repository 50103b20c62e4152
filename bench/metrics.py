"""From the records of a run to its figures: latencies, rates, goodput, and how the run went over time."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from pagewire.bench.client import Record
from pagewire.bench.statistics import Distribution, curve, distribution, percentile

MAX_BINS = 240
_MIN_BIN_S = 0.05
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}


class ServiceLevel(Struct, frozen=True):
    """What a good request is, in milliseconds; None sets no limit.

    ``itl_ms`` limits the 99th percentile of the request's own gaps between events.
    """

    ttft_ms: float | None = None
    itl_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


def parse_service_level(text: str) -> ServiceLevel:
    """Read ``ttft=500ms,itl=50ms,e2e=5s``; raises ``ValueError`` saying what is expected."""
    limits = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in ("ttft", "itl", "tpot", "e2e"):
            raise ValueError(f"{part!r}: expected ttft=, itl=, tpot= or e2e= with a time such as 500ms")
        limits[f"{name}_ms"] = 1000 * parse_seconds(value)
    return ServiceLevel(**limits)


def parse_seconds(text: str) -> float:
    """Read ``200ms``, ``2s``, ``5m`` or plain seconds; raises ``ValueError`` for anything else."""
    number = text.rstrip("ms")
    try:
        return float(number) * _UNIT_SECONDS[text[len(number) :]]
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not a time; expected a number with ms, s or m") from None


class Latency(Struct, frozen=True):
    """The times of one successful request in milliseconds; ``gaps_ms`` lie between events with output.

    The time to first token counts from when the request was due, so a late harness or a full queue shows in it.
    """

    e2e_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    gaps_ms: list[float]

    def meets(self, level: ServiceLevel) -> bool:
        """Tell whether every limit is kept; a time that could not be measured breaks its limit."""
        worst_gap = percentile(sorted(self.gaps_ms), 99) if self.gaps_ms else 0.0
        measured = (self.ttft_ms, worst_gap, self.tpot_ms, self.e2e_ms)
        limits = (level.ttft_ms, level.itl_ms, level.tpot_ms, level.e2e_ms)
        return all(
            limit is None or (value is not None and value <= limit)
            for value, limit in zip(measured, limits, strict=True)
        )


def latency(record: Record) -> Latency:
    """Measure one record that has no error."""
    ttft = tpot = None
    if record.first is not None:
        ttft = 1000 * (record.first - record.planned)
        if record.output_tokens > 1:
            tpot = 1000 * (record.token_times[-1] - record.first) / (record.output_tokens - 1)
    gaps = [1000 * (after - before) for before, after in pairwise(record.token_times)]
    return Latency(1000 * (record.end - record.planned), ttft, tpot, gaps)


def latency_curves(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return the percentile curve of each latency (ms) over the successful requests, by its name."""
    latencies = [latency(record) for record in records if record.error is None]
    values = {
        "ttft": [each.ttft_ms for each in latencies if each.ttft_ms is not None],
        "itl": [gap for each in latencies for gap in each.gaps_ms],
        "tpot": [each.tpot_ms for each in latencies if each.tpot_ms is not None],
        "e2e": [each.e2e_ms for each in latencies],
    }
    return {name: curve(measured) for name, measured in values.items() if measured}


class Summary(Struct, frozen=True):
    """The figures of one run. Rates are per second of ``duration_s``, from the first due time to the last answer.

    ``itl_ms`` are the gaps between events with output, ``tpot_ms`` per request (last - first) / (tokens - 1); they
    differ where an event carries several tokens. ``goodput`` is good requests per second, None without service levels.
    ``short``: requests that ended before their fixed length; ``without_usage``: the server did not count their tokens;
    ``miscounted``: more events with output than tokens in the server's count, or output events but a count of none.
    """

    requests: int
    completed: int
    errors: dict[str, int]
    error_examples: dict[str, str]
    duration_s: float
    request_rate: float
    output_tokens: int
    prompt_tokens: int
    cached_tokens: int
    output_rate: float
    prompt_rate: float
    tokens_per_event: float
    mean_running: float
    peak_running: int
    ttft_ms: Distribution | None
    itl_ms: Distribution | None
    tpot_ms: Distribution | None
    e2e_ms: Distribution | None
    goodput: float | None
    attainment: float | None
    short: int
    without_usage: int
    miscounted: int


def summarize(records: Sequence[Record], level: ServiceLevel | None = None, *, fixed_length: bool = True) -> Summary:
    """Reduce the records of one run; raises ``ValueError`` when there are none."""
    if not records:
        raise ValueError("no request was sent")
    good = [record for record in records if record.error is None]
    failed = [record for record in records if record.error is not None]
    latencies = [latency(record) for record in good]
    duration = max(record.end for record in records) - min(record.planned for record in records)
    output = sum(record.output_tokens for record in good)
    prompt = sum(record.prompt_tokens or 0 for record in good)
    events = sum(len(record.token_times) for record in good)
    kept = None if level is None else sum(each.meets(level) for each in latencies)
    running = running_changes(records)
    per_second = 1 / duration if duration > 0 else 0.0
    return Summary(
        requests=len(records),
        completed=len(good),
        errors=dict(Counter(record.error for record in failed if record.error)),
        error_examples={record.error: record.error_text for record in failed if record.error},
        duration_s=duration,
        request_rate=len(good) * per_second,
        output_tokens=output,
        prompt_tokens=prompt,
        cached_tokens=sum(record.cached_tokens for record in good),
        output_rate=output * per_second,
        prompt_rate=prompt * per_second,
        tokens_per_event=output / events if events else 0.0,
        mean_running=sum(record.end - record.sent for record in records) * per_second,
        peak_running=max(count for _, count in running),
        ttft_ms=distribution([each.ttft_ms for each in latencies if each.ttft_ms is not None]),
        itl_ms=distribution([gap for each in latencies for gap in each.gaps_ms]),
        tpot_ms=distribution([each.tpot_ms for each in latencies if each.tpot_ms is not None]),
        e2e_ms=distribution([each.e2e_ms for each in latencies]),
        goodput=None if kept is None else kept * per_second,
        attainment=None if kept is None else kept / len(records),
        short=sum(record.output_tokens < record.asked_tokens for record in good) if fixed_length else 0,
        without_usage=sum(not record.has_usage for record in good),
        miscounted=sum(_is_miscounted(record) for record in good),
    )


def _is_miscounted(record: Record) -> bool:
    return record.has_usage and len(record.token_times) > record.output_tokens


def running_changes(records: Sequence[Record]) -> list[tuple[float, int]]:
    """Return how many requests were running after each send and each end, in order of time."""
    steps = sorted([(record.sent, 1) for record in records] + [(record.end, -1) for record in records])
    running, changes = 0, []
    for moment, step in steps:
        running += step
        changes.append((moment, running))
    return changes


class Timeline(Struct, frozen=True):
    """A run over time in bins of ``bin_s``: mean requests running, output events and failures per second."""

    bin_s: float
    running: list[float]
    output_rate: list[float]
    error_rate: list[float]


def timeline(records: Sequence[Record]) -> Timeline:
    """Cut a run into at most ``MAX_BINS`` bins, from the first due time to the last answer."""
    start = min(record.planned for record in records)
    duration = max(record.end for record in records) - start
    width = max(duration / MAX_BINS, _MIN_BIN_S)
    count = max(1, min(MAX_BINS, int(duration / width) + 1))
    running, output, errors = [0.0] * count, [0.0] * count, [0.0] * count

    def bin_of(moment: float) -> int:
        return min(count - 1, max(0, int((moment - start) / width)))

    for record in records:
        first, last = bin_of(record.sent), bin_of(record.end)
        for number in range(first, last + 1):
            left = max(record.sent, start + number * width)
            right = min(record.end, start + (number + 1) * width)
            running[number] += max(0.0, right - left) / width
        tokens = record.output_tokens / len(record.token_times) if record.token_times else 0.0
        for moment in record.token_times:
            output[bin_of(moment)] += tokens / width
        if record.error is not None:
            errors[last] += 1 / width
    return Timeline(width, running, output, errors)
