"""The command line's options, and the settings they make."""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pagewire.bench.client import RequestFailed, RequestSettings, Target, discover_model
from pagewire.bench.lengths import parse_lengths
from pagewire.bench.metrics import parse_seconds, parse_service_level
from pagewire.bench.results import LoadKind, LoadSettings, Settings
from pagewire.bench.workloads import PromptKind, WorkloadSettings

DEFAULT_URL = "http://127.0.0.1:8000"
_API_KEY_VARIABLES = ("PAGEWIRE_API_KEY", "OPENAI_API_KEY")


def option_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a parser so that argparse shows the message of its ``ValueError``."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _numbers(text: str) -> list[float]:
    numbers = [float(part) for part in text.split(",")]
    if min(numbers) <= 0:
        raise ValueError("expected numbers above 0")
    return numbers


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError("expected a number above 0")
    return int(text)


def _concurrencies(text: str) -> list[float]:
    if any(number != int(number) for number in _numbers(text)):
        raise ValueError("expected whole numbers")
    return _numbers(text)


def _token_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not 0 <= int(low) < int(high):
        raise ValueError("expected LOW:HIGH")
    return int(low), int(high)


def _json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(f"expected a JSON object: {error}") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ValueError("expected NAME: VALUE")
    return name.strip(), value.strip()


seconds = option_type(parse_seconds)
token_range = option_type(_token_range)


def add_server_options(parser: argparse.ArgumentParser, *, several: bool = True) -> None:
    """Add which server, or servers, and how to be let in."""
    group = parser.add_argument_group("server")
    group.add_argument("url", nargs="?", default=DEFAULT_URL, metavar="[NAME=]URL", help=f"default {DEFAULT_URL}")
    if several:
        group.add_argument(
            "--against",
            action="append",
            default=[],
            metavar="[NAME=]URL",
            help="another server that takes turns with the first (A B A B); repeat for more",
        )
    group.add_argument("--model", help="default: the first one each server lists")
    group.add_argument("--api-key", help=f"default: ${' or $'.join(_API_KEY_VARIABLES)}")
    group.add_argument("--header", action="append", default=[], type=option_type(_header), metavar="NAME: VALUE")
    group.add_argument("--timeout", type=seconds, default=600.0, metavar="TIME", help="of a request; default 600s")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """Add what every request is like."""
    group = parser.add_argument_group("requests")
    group.add_argument("--endpoint", choices=["completions", "chat"], default="completions")
    group.add_argument("--stream", action=argparse.BooleanOptionalAction, default=True)
    group.add_argument(
        "--ignore-eos", action=argparse.BooleanOptionalAction, default=True, help="keep answers at their fixed length"
    )
    group.add_argument("--temperature", type=float, default=0.0)
    group.add_argument(
        "--extra-body", type=option_type(_json_object), default={}, metavar="JSON", help="fields added to every request"
    )
    group.add_argument(
        "--extra-body-every",
        type=option_type(_positive),
        default=1,
        metavar="N",
        help="add them to every N-th request only; default 1",
    )


def add_workload_options(parser: argparse.ArgumentParser) -> None:
    """Add what is asked."""
    group = parser.add_argument_group(
        "workload", "LENGTH is N, uniform:LOW:HIGH, normal:MEAN:STD, lognormal:MEDIAN:SIGMA"
    )
    length = option_type(parse_lengths)
    group.add_argument(
        "--input-tokens", type=length, default=parse_lengths("256"), metavar="LENGTH", help="default 256"
    )
    group.add_argument("--output-tokens", type=length, metavar="LENGTH", help="default 128, or as the chat log has it")
    group.add_argument("--prompt", choices=["ids", "text"], help="default ids for completions, text for chat")
    group.add_argument("--token-range", type=token_range, default=(1000, 30000), metavar="LOW:HIGH")
    group.add_argument("--shared-prefix", type=int, default=0, metavar="N", help="tokens that begin every prompt")
    group.add_argument("--prefix-groups", type=int, default=1, metavar="N", help="different shared prefixes; default 1")
    group.add_argument("--turns", type=int, default=1, metavar="N", help="questions of a conversation; default 1")
    group.add_argument("--think-time", type=seconds, default=0.0, metavar="TIME", help="pause between turns")
    group.add_argument("--sharegpt", metavar="FILE", help="take conversations from a JSON chat log")
    group.add_argument("--trace", metavar="FILE", help="replay JSON lines: timestamp (ms), input_length, output_length")


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Add how hard to press, and for how long."""
    group = parser.add_argument_group("load", "a list of levels measures each of them; the default is --concurrency 1")
    levels = group.add_mutually_exclusive_group()
    levels.add_argument("--concurrency", type=option_type(_concurrencies), metavar="N[,N...]", help="closed loop")
    levels.add_argument("--rate", type=option_type(_numbers), metavar="R[,R...]", help="open loop, requests per second")
    levels.add_argument("--trace-speed", type=option_type(_numbers), metavar="X[,X...]", help="of --trace; default 1")
    add_arrival_options(group)
    group.add_argument("--repeats", type=int, default=1, metavar="N", help="of each level; default 1")
    group.add_argument("--max-in-flight", type=int, metavar="N", help="of an open loop; waiting counts as latency")
    group.add_argument("--requests", type=int, metavar="N", help="conversations per level")
    group.add_argument("--duration", type=seconds, metavar="TIME", help="begin no more after this time")


def add_arrival_options(group: argparse._ActionsContainer) -> None:
    """Add how an open loop's requests arrive, and what every measurement needs: seed, warm-up, service level."""
    group.add_argument("--arrivals", choices=["constant", "poisson", "gamma", "ramp"], default="poisson")
    group.add_argument("--burstiness", type=float, default=1.0, metavar="X", help="of gamma: below 1 comes in bursts")
    group.add_argument("--end-rate", type=float, metavar="R", help="of ramp")
    group.add_argument("--warmup", type=int, default=4, metavar="N", help="requests not counted; default 4")
    group.add_argument("--seed", type=int, default=0)
    group.add_argument(
        "--slo",
        type=option_type(parse_service_level),
        metavar="LEVEL",
        help="what a good request is: ttft=500ms,itl=50ms,tpot=40ms,e2e=5s (itl: p99 of the request's own gaps)",
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add where results go."""
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", metavar="FILE", help="write the result as JSON")
    group.add_argument("--html", metavar="FILE", help="write a report with plots")
    group.add_argument("--records", metavar="FILE", help="write every request as a line of JSON")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress")


def request_settings(args: argparse.Namespace) -> RequestSettings:
    """Make the request settings; commands without request options get the defaults."""
    headers = dict(args.header)
    key = args.api_key or next((os.environ[name] for name in _API_KEY_VARIABLES if os.environ.get(name)), None)
    if key:
        headers["Authorization"] = f"Bearer {key}"
    settings = RequestSettings(headers=headers, timeout_s=args.timeout)
    if "endpoint" not in args:
        return settings
    return msgspec.structs.replace(
        settings,
        endpoint=args.endpoint,
        stream=args.stream,
        ignore_eos=args.ignore_eos,
        temperature=args.temperature,
        extra_body=args.extra_body,
        extra_body_every=args.extra_body_every,
    )


def workload_settings(args: argparse.Namespace) -> WorkloadSettings:
    """Make the workload settings; raises ``ValueError`` for options that contradict each other."""
    prompt: PromptKind = args.prompt or ("text" if args.endpoint == "chat" or args.turns > 1 else "ids")
    if prompt == "ids" and args.endpoint == "chat":
        raise ValueError("chat takes no token ids: use --prompt text")
    if prompt == "ids" and args.turns > 1:
        raise ValueError("a history of answers is text: use --prompt text with --turns")
    if args.sharegpt and args.trace:
        raise ValueError("choose one of --sharegpt and --trace")
    output = args.output_tokens
    if output is None and not args.sharegpt:
        output = parse_lengths("128")
    return WorkloadSettings(
        input=args.input_tokens,
        output=output,
        prompt=prompt,
        shared_prefix=args.shared_prefix,
        prefix_groups=args.prefix_groups,
        turns=args.turns,
        token_range=args.token_range,
        sharegpt=args.sharegpt,
        trace=args.trace,
    )


def load_settings(args: argparse.Namespace) -> LoadSettings:
    """Make the load settings; raises ``ValueError`` for options that contradict each other."""
    kind: LoadKind = "closed"
    levels = args.concurrency or [1.0]
    if args.rate:
        kind, levels = "open", args.rate
    elif args.trace_speed or (args.trace and not args.concurrency):
        kind, levels = "trace", args.trace_speed or [1.0]
    if kind == "trace" and not args.trace:
        raise ValueError("--trace-speed needs --trace")
    if args.arrivals == "ramp" and not args.end_rate:
        raise ValueError("a ramp needs --end-rate")
    return LoadSettings(
        kind=kind,
        levels=levels,
        arrivals=args.arrivals,
        burstiness=args.burstiness,
        end_rate=args.end_rate,
        max_in_flight=args.max_in_flight,
        requests=args.requests,
        duration_s=args.duration,
        warmup=args.warmup,
        repeats=args.repeats,
        seed=args.seed,
        think_time_s=args.think_time,
    )


def run_settings(args: argparse.Namespace) -> Settings:
    """Make all settings of a measurement; raises ``ValueError`` for options that contradict each other."""
    return Settings(load_settings(args), workload_settings(args), request_settings(args), args.slo)


async def find_targets(urls: Sequence[str], model: str | None, settings: RequestSettings) -> list[Target]:
    """Name the servers and ask each for its model; raises ``RequestFailed`` when one does not answer."""
    targets = []
    for number, text in enumerate(urls):
        name, url = split_target(text, "server" if len(urls) == 1 else chr(ord("A") + number))
        targets.append(Target(name, url, model or await discover_model(url, settings)))
    if len({target.name for target in targets}) < len(targets):
        raise RequestFailed("names", "two servers have the same name")
    return targets


def split_target(text: str, default_name: str) -> tuple[str, str]:
    """Split ``NAME=URL`` and bring the URL into the form without ``/v1`` at its end."""
    before, equals, after = text.partition("=")
    name, url = (before, after) if equals and "/" not in before else (default_name, text)
    if "://" not in url:
        url = f"http://{url}"
    return name, url.rstrip("/").removesuffix("/v1")
