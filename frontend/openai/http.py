"""Between aiohttp and our endpoints: reading a request's body, and what handlers leave for the middlewares."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from aiohttp import web

from pagewire.frontend.openai.deadline import Deadline
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.fields import RULES, FieldRules
from pagewire.frontend.openai.parse import ignored_header, parse, strict_error
from pagewire.frontend.state import FRONTEND
from pagewire.frontend.template import ChatTemplate

R = TypeVar("R")
T = TypeVar("T", bound=msgspec.Struct)

# Up to here a body is read on the event loop: this much takes 4 ms of it as a list of short messages, 1 ms as token
# ids, 0.3 ms as text. In a thread, decoding still holds Python's lock, but nothing after it does for long.
_INLINE_BYTES = 256 * 1024

# Handlers leave headers for their answer here; set before a stream starts, they reach it too.
EXTRA_HEADERS: web.RequestKey[dict[str, str]] = web.RequestKey("extra_headers", dict)
# The body, of requests that were admitted.
BODY: web.RequestKey[bytes] = web.RequestKey("body", bytes)
# When the request arrived, in ``time.perf_counter`` seconds.
ARRIVED: web.RequestKey[float] = web.RequestKey("arrived", float)
# When it must have been answered; of requests that were admitted.
DEADLINE: web.RequestKey[Deadline] = web.RequestKey("deadline", Deadline)
# What the access log says of a generation request beside its status.
SUMMARY: web.RequestKey[str] = web.RequestKey("summary", str)
REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)


async def read_request(http: web.Request, schema: type[T], rules: FieldRules = RULES) -> T:
    """Check the JSON body of an admitted request, and keep to the ``timeout`` in it.

    Fields without effect go to the ``X-Ignored-Params`` header of the answer. Raises ApiError.
    """
    _check_content_type(http.headers.get("Content-Type"))
    strict = http.app[FRONTEND].config.strict_params
    parsed = await beside(http, lambda: parse(http[BODY], schema, strict=strict, rules=rules))
    http[DEADLINE].shorten(getattr(parsed.request, "timeout", None))
    if parsed.ignored:
        http[EXTRA_HEADERS]["X-Ignored-Params"] = ignored_header(parsed.ignored)
    return parsed.request


async def beside(http: web.Request, work: Callable[[], R]) -> R:
    """Do work that grows with the body: in a thread if the body is large."""
    return work() if len(http[BODY]) <= _INLINE_BYTES else await asyncio.to_thread(work)


def note_ignored(http: web.Request, names: Sequence[str], rules: FieldRules) -> None:
    """Treat parts of fields like whole fields without effect; raises ApiError under ``--strict-params``."""
    if names and http.app[FRONTEND].config.strict_params:
        raise strict_error(names[0], rules)
    if names:
        known = http[EXTRA_HEADERS].get("X-Ignored-Params")
        http[EXTRA_HEADERS]["X-Ignored-Params"] = ", ".join([*([known] if known else []), ignored_header(names)])


def note_unread(
    http: web.Request, template: ChatTemplate | None, places: Mapping[str, str], rules: FieldRules = RULES
) -> None:
    """Treat what the chat template does not read like fields without effect.

    ``places`` are the variables that the client sets, and the fields it does so with.
    """
    if template and places:
        names = [place for variable, place in places.items() if variable not in template.variables]
        why = dict.fromkeys(names, "the chat template does not read it")
        note_ignored(http, names, FieldRules(rules.refused, why, rules.parts))


def _check_content_type(header: str | None) -> None:
    media_type = (header or "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise ApiError(415, f"Expected a JSON body (Content-Type: application/json), got '{media_type[:60]}'.")
