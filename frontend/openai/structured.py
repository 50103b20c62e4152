"""``response_format`` and ``structured_outputs``: what an answer must look like."""

from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from pagewire.frontend.grammars.checker import Asked, BusyError, GrammarChecker
from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.sources import Kind
from pagewire.frontend.openai.errors import ApiError, invalid, unavailable, unsupported
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.schema import SamplingFields
from pagewire.protocol.messages import Sampling

_KINDS: Mapping[str, Kind] = {
    "json": "json_schema",
    "json_object": "json_object",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
    "structural_tag": "structural_tag",
}


def asked_grammar(response_format: Any, structured_outputs: Any) -> Asked | None:
    """What a request's fields ask for; None is any text. Raises ApiError naming the field at fault."""
    asked = None if response_format is None else _of_response_format(response_format)
    more = None if structured_outputs is None else _of_structured_outputs(structured_outputs)
    if asked and more:
        raise invalid("'structured_outputs' cannot be combined with 'response_format'.", "structured_outputs")
    return asked or more


async def constrained(sampling: Sampling, fields: SamplingFields, checker: GrammarChecker) -> Sampling:
    """``sampling`` with the grammar that a request asks for, if any; raises ApiError naming the place at fault."""
    asked = asked_grammar(fields.response_format, fields.structured_outputs)
    if asked is None:
        return sampling
    check_combination(sampling, asked.param)
    return msgspec.structs.replace(sampling, grammar=await checked(checker.source(asked), asked.param))


def format_words(field: str) -> Mapping[str, str]:
    """For ``worded``: errors of an API that calls the format ``field`` and has no ``json_schema`` within it."""
    return {"'response_format.json_schema": f"'{field}", "'response_format": f"'{field}"}


def check_combination(sampling: Sampling, param: str) -> None:
    """Raise ApiError for what cannot be combined with a grammar, which ``param`` asks for."""
    for name in ("allowed_token_ids", "bad_words"):
        if getattr(sampling, name):
            # Together they can leave no token at all.
            raise invalid(f"'{name}' cannot be combined with '{param}'.", name)


async def checked(source: Awaitable[str], param: str) -> str:
    """Await the source of a grammar that stands in field ``param``; raises ApiError naming the place at fault."""
    try:
        return await source
    except GrammarError as error:
        param += error.path
        raise invalid(f"Invalid value for '{param}': {error.message}.", param) from None
    except BusyError:
        raise unavailable("The server is busy with checking the grammars of other requests; try again soon.") from None


def _of_response_format(value: Any) -> Asked | None:
    if not isinstance(value, dict):
        raise _wrong_type("response_format", "an object", value)
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return Asked("json_object", None, "response_format")
        case "json_schema":
            return Asked("json_schema", _schema_of(value), "response_format.json_schema.schema")
        case "structural_tag":
            return Asked("structural_tag", value, "response_format")
        case None:
            raise _missing("response_format.type")
        case other:
            expected = "one of 'text', 'json_object', 'json_schema' and 'structural_tag'"
            param = "response_format.type"
            raise invalid(f"Invalid value for '{param}': expected {expected}, got {show(other)}.", param)


def _schema_of(response_format: Mapping[str, Any]) -> Any:
    described = response_format.get("json_schema")
    if described is None:
        raise _missing("response_format.json_schema")
    if not isinstance(described, dict):
        raise _wrong_type("response_format.json_schema", "an object", described)
    if described.get("name") is None:
        raise _missing("response_format.json_schema.name")
    if not isinstance(described["name"], str):
        raise _wrong_type("response_format.json_schema.name", "a string", described["name"])
    if not isinstance(described.get("strict"), bool | None):
        raise _wrong_type("response_format.json_schema.strict", "a boolean", described["strict"])
    if described.get("schema") is None:
        raise _missing("response_format.json_schema.schema")
    return described["schema"]


def _of_structured_outputs(value: Any) -> Asked | None:
    if not isinstance(value, dict):
        raise _wrong_type("structured_outputs", "an object", value)
    given = {name: entry for name, entry in value.items() if entry is not None and entry is not False}
    for name in given:
        if name not in _KINDS:
            param = f"structured_outputs.{name[:60]}"
            raise unsupported(f"'{param}': this server does not know this constraint.", param)
    if len(given) > 1:
        names = ", ".join(given)
        raise invalid(f"'structured_outputs' takes one constraint, got {names}.", "structured_outputs")
    if not given:
        return None
    [(name, entry)] = given.items()
    param = f"structured_outputs.{name}"
    if name == "json_object" and entry is not True:
        raise _wrong_type(param, "a boolean", entry)
    return Asked(_KINDS[name], _decoded(entry, param) if name == "json" else entry, param)


def _decoded(schema: Any, param: str) -> Any:
    """A schema may also come as a string of JSON."""
    if not isinstance(schema, str):
        return schema
    try:
        return msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"Invalid value for '{param}': it is not valid JSON: {error}.", param) from None


def _missing(param: str) -> ApiError:
    return invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def _wrong_type(param: str, expected: str, value: Any) -> ApiError:
    return invalid(f"Invalid value for '{param}': expected {expected}, got {show(value)}.", param, "invalid_type")
