"""Runs the micro-benchmarks that were asked for and writes their tables."""

from collections.abc import Callable, Iterable, Sequence

from pagewire.bench.micro.timing import Measurement
from pagewire.bench.report_text import format_number, format_table

# Each imports its part of the server only when it is run.
Part = Callable[[], Iterable[Measurement]]


def _codec() -> Iterable[Measurement]:
    from pagewire.bench.micro.codec import measure_codec

    return measure_codec()


def _scheduler() -> Iterable[Measurement]:
    from pagewire.bench.micro.scheduler import measure_scheduler

    return measure_scheduler()


def _detokenizer() -> Iterable[Measurement]:
    from pagewire.bench.micro.detokenizer import measure_detokenizer

    return measure_detokenizer()


def _sampler() -> Iterable[Measurement]:
    from pagewire.bench.micro.sampler import measure_sampler

    return measure_sampler()


def _attention() -> Iterable[Measurement]:
    from pagewire.bench.micro.attention import measure_attention

    return measure_attention()


def _request() -> Iterable[Measurement]:
    from pagewire.bench.micro.request import measure_request

    return measure_request()


PARTS: dict[str, Part] = {
    "codec": _codec,
    "scheduler": _scheduler,
    "detokenizer": _detokenizer,
    "sampler": _sampler,
    "attention": _attention,
    "request": _request,
}
NAMES = (*PARTS, "frontend")


def report_parts(names: Sequence[str]) -> str:
    """Measure the named parts (all but the frontend, which needs processes) and write their table."""
    rows = []
    for name in names:
        for found in PARTS[name]():
            rows.append(
                (found.name, f"us per {found.unit}", format_number(found.median_us), format_number(found.best_us))
            )
    return format_table(("part", "", "median", "best"), rows)


async def report_frontend() -> str:
    """Measure the frontend against an engine that costs nothing and write its table."""
    from pagewire.bench.micro.frontend import measure_frontend

    rows = [
        (
            row.name,
            format_number(row.requests_per_s),
            format_number(row.tokens_per_s),
            f"{row.tokens_per_event:.2f}",
            f"{row.frontend_cpu:.0%}",
            format_number(row.us_per_request),
            format_number(row.us_per_token),
            f"{row.client_cpu:.0%}",
            str(row.errors),
        )
        async for row in measure_frontend()
    ]
    header = (
        "frontend, chat",
        "req/s",
        "tokens/s",
        "tokens/event",
        "CPU",
        "us/request",
        "us/token",
        "client CPU",
        "errors",
    )
    return format_table(header, rows)
