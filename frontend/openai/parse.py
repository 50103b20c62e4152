"""From the bytes of a request to a typed object, or to an error that says what was wrong, where, and why."""

import gc
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from pagewire.frontend.openai.errors import ApiError, invalid, unsupported
from pagewire.frontend.openai.fields import RULES, FieldRules

T = TypeVar("T", bound=msgspec.Struct)

MAX_SHOWN_CHARS = 60
# Of a list, how many entries are searched for fields without effect: as many as there may be tools.
_MAX_ENTRIES = 512
# While more than this is decoded, no garbage is collected: with 8 MB of small lists that took 4 times as long as they.
_COLLECTED_BYTES = 256 * 1024
# A header must stay small and plain whatever names a client invents.
MAX_IGNORED_NAMES = 32
_UNPRINTABLE = re.compile(r"[^!-~]|,")
# msgspec words its errors as "<what> - at `<path>`", the path starting with "$". What comes before may be a client's.
_PLACE = re.compile(r"`?(?:key in `)?\$(?P<path>[^`]*)`")
_MISSING = re.compile(r"^Object missing required field `(?P<name>\w+)`$")
_MISMATCH = re.compile(r"^Expected `(?P<types>[^`]+)`(?P<bound>.*?)(?:, got `(?P<got>\w+)`)?$")
# What comes after it is the client's value, however long.
_NO_CHOICE = "Invalid enum value "
_STEP = re.compile(r"\.(?P<key>\w+)|\[(?P<index>\d+)\]")
_TYPE_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "array": "a list",
    "object": "an object",
}


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """A valid request, and the names of the fields in it that have no effect."""

    request: T
    ignored: tuple[str, ...]


def parse(body: bytes, schema: type[T], *, strict: bool, rules: FieldRules = RULES) -> Parsed[T]:
    """Read a request body; null counts as absent. Raises ApiError, and nothing else, for whatever bytes.

    With ``strict``, fields that would be ignored are an error. ``rules`` are for the fields outside of the schema.
    """
    fields = {name: value for name, value in _decode_object(body).items() if value is not None}
    known = frozenset(schema.__struct_encode_fields__)
    extra = [name for name in fields if name not in known]
    for name in extra:
        _refuse_unsupported(name, fields, rules)
    ignored = (*(name for name in extra if name not in rules.refused), *_parts_without_effect(fields, known, rules))
    if strict and ignored:
        raise strict_error(ignored[0], rules)
    try:
        request = msgspec.convert({name: fields[name] for name in fields if name in known}, schema, strict=True)
    except msgspec.ValidationError as error:
        raise explain(error, fields) from None
    except RecursionError:
        raise invalid("The request body is nested too deeply.", code=None) from None
    return Parsed(request, ignored)


def ignored_header(names: Iterable[str]) -> str:
    """The value of ``X-Ignored-Params``: names reduced to what a header may carry."""
    plain = [_UNPRINTABLE.sub("?", name[:MAX_SHOWN_CHARS]) for name in islice(names, MAX_IGNORED_NAMES + 1)]
    if len(plain) > MAX_IGNORED_NAMES:
        plain = [*plain[:MAX_IGNORED_NAMES], "..."]
    return ", ".join(plain)


def strict_error(name: str, rules: FieldRules) -> ApiError:
    """A field that would be ignored, where that is not wanted."""
    shown = name if len(name) <= MAX_SHOWN_CHARS else name[:MAX_SHOWN_CHARS] + "..."
    why = rules.ignored.get(name, "it is unknown")
    return invalid(f"'{shown}' has no effect here ({why}), and --strict-params is on.", shown, "unknown_parameter")


def explain(error: msgspec.ValidationError, fields: Mapping[str, Any]) -> ApiError:
    """Word a schema error with the field's path, what was expected, and the value found there."""
    what, path = str(error), ""
    before, _, place = what.rpartition(" - at ")
    if located := _PLACE.fullmatch(place):
        what, path = before, located["path"]
    param = path.replace("[...]", "").lstrip(".")
    if missing := _MISSING.match(what):
        name = f"{param}.{missing['name']}" if param else missing["name"]
        return invalid(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    mismatch = _MISMATCH.match(what)
    if not mismatch:
        if what.startswith(_NO_CHOICE):
            what = _NO_CHOICE + show(_look_up(fields, path))
        return invalid(f"Invalid value for '{param}': {what}.", param=param or None)
    expected = _describe_types(mismatch["types"]) + mismatch["bound"]
    found = show(_look_up(fields, path), mismatch["got"])
    code = "invalid_type" if mismatch["got"] else "invalid_value"
    return invalid(f"Invalid value for '{param}': expected {expected}, got {found}.", param=param or None, code=code)


def show(value: Any, kind: str | None = None) -> str:
    """A short, JSON-safe picture of a value for an error message; ``kind`` names what cannot be shown."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            text = repr(value)
            return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."
        case str():
            return f"'{value}'" if len(value) <= MAX_SHOWN_CHARS else f"a string of {len(value)} characters"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
        case _:
            return _TYPE_WORDS.get(kind or "", "another value")


def _decode(body: bytes) -> Any:
    """Decode JSON, without collecting garbage meanwhile if it is long: there is none, and all would be walked anew."""
    if len(body) <= _COLLECTED_BYTES or not gc.isenabled():
        return msgspec.json.decode(body)
    gc.disable()
    try:
        return msgspec.json.decode(body)
    finally:
        gc.enable()


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        fields = _decode(body)
    except msgspec.DecodeError as error:
        raise invalid(f"The request body is not valid JSON: {error}.", code=None) from None
    except RecursionError:
        raise invalid("The request body is nested too deeply.", code=None) from None
    if not isinstance(fields, dict):
        raise invalid("The request body must be a JSON object.", code=None)
    return fields


def _refuse_unsupported(name: str, fields: Mapping[str, Any], rules: FieldRules) -> None:
    refused = rules.refused.get(name)
    if refused and not refused.asks_nothing(fields[name], fields):
        raise unsupported(f"'{name}': this server does not support {refused.feature}.", param=name)


def _parts_without_effect(fields: Mapping[str, Any], known: Collection[str], rules: FieldRules) -> Iterator[str]:
    """The parts of known fields that nobody reads, as ``path.key``; values that ask for nothing do not count."""
    for path, read in rules.parts.items():
        field, _, below = path.partition(".")
        if field in fields and field in known:
            objects = _objects(fields[field], below)
            keys = dict.fromkeys(key for entry in objects for key, value in entry.items() if value)
            yield from (f"{path}.{key}" for key in keys if key not in read)


def _objects(value: Any, path: str) -> Iterator[Mapping[str, Any]]:
    """What is at ``path`` below a value that may be a list, as far as it is objects."""
    for entry in value[:_MAX_ENTRIES] if isinstance(value, list) else (value,):
        if isinstance(entry, Mapping):
            if path:
                name, _, below = path.partition(".")
                yield from _objects(entry.get(name), below)
            else:
                yield entry


def _describe_types(types: str) -> str:
    words = [_TYPE_WORDS.get(name, name) for name in types.split(" | ") if name != "null"]
    return " or ".join(words)


def _look_up(fields: Mapping[str, Any], path: str) -> Any:
    """The value at a msgspec path such as ``.messages[0]``; None where the path does not say (dict keys)."""
    value: Any = fields
    if "[...]" in path:
        return None
    for step in _STEP.finditer(path):
        try:
            value = value[step["key"]] if step["key"] else value[int(step["index"])]
        except (KeyError, IndexError, TypeError):
            return None
    return value
