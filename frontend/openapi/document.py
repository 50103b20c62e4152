"""The OpenAPI 3.1 document."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from pagewire.frontend.openapi import answers
from pagewire.frontend.openapi.descriptions import DESCRIPTIONS
from pagewire.frontend.openapi.operations import OPERATIONS, Operation

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_ERRORS: Mapping[int, str] = {
    400: "The request cannot work as it stands; param names the field at fault.",
    401: "A valid API key is required.",
    404: "What the request names does not exist.",
    405: "The route does not take this method.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many requests for now; try again after Retry-After seconds.",
    500: "The server failed on this request; the same request would fail again.",
    503: "Nobody can answer for now; try again after Retry-After seconds.",
    504: "The time limit of the request passed.",
}


def openapi_document(version: str, root_path: str = "") -> Json:
    """Describe all operations. ``root_path`` is the prefix of every route."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pagewire",
            "version": version,
            "description": "OpenAI's API, Anthropic's messages and vLLM's extensions, served by engines of your own. "
            "Optional fields may be null, which is the same as leaving them out. "
            "Fields without effect are named in the X-Ignored-Params header of the answer.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": root_path or "/"}],
        "security": [{}, {"key": []}],
        "tags": [{"name": group} for group in dict.fromkeys(operation.group for operation in OPERATIONS)],
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "responses": _error_responses(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "One of --api-key."}},
        },
    }


def _paths() -> Json:
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    return paths


def _describe(operation: Operation) -> Json:
    name = operation.path.strip("/").replace("/", "_").replace("{", "").replace("}", "").replace(".", "_")
    described: Json = {
        "operationId": f"{operation.method}_{name}",
        "tags": [operation.group],
        "summary": operation.summary,
        "responses": {"200": _answer(operation), **_errors(operation)},
    }
    parameters = [_path_parameter(parameter) for parameter in operation.parameters]
    parameters += [
        {"name": parameter, "in": "query", "description": meaning, "schema": {"type": kind}}
        for parameter, kind, meaning in operation.query
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.request:
        content = {"application/json": {"schema": _reference(operation.request)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _answer(operation: Operation) -> Json:
    answer = operation.answer
    content: Json = {answer: {}} if isinstance(answer, str) else {"application/json": {"schema": _reference(answer)}}
    if operation.streams:
        content["text/event-stream"] = {}
    return {"description": "What was asked for.", "content": content}


def _errors(operation: Operation) -> Json:
    prefix = "Messages" if operation.is_anthropic else ""
    wanted = set(_ERRORS) if operation.request else {401, 405, 500, 503}
    if operation.parameters or operation.query:
        wanted |= {400, 404}
    return {str(status): {"$ref": f"#/components/responses/{prefix}{status}"} for status in sorted(wanted)}


def _error_responses() -> Json:
    return {
        f"{prefix}{status}": {
            "description": meaning,
            "content": {"application/json": {"schema": _reference(error)}},
        }
        for prefix, error in (("", answers.Error), ("Messages", answers.MessagesError))
        for status, meaning in _ERRORS.items()
    }


def _reference(struct: type[Struct]) -> Json:
    return {"$ref": _REF.format(name=struct.__name__)}


def _schemas() -> Json:
    requests: set[type[Struct]] = {operation.request for operation in OPERATIONS if operation.request}
    shown: set[type[Struct]] = {operation.answer for operation in OPERATIONS if not isinstance(operation.answer, str)}
    errors: set[type[Struct]] = {answers.Error, answers.MessagesError}
    structs = sorted(requests | shown | errors, key=lambda struct: struct.__name__)
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REF)
    for request in requests:
        _complete(schemas[request.__name__])
    return schemas


def _complete(schema: Json) -> None:
    """Say of a request's fields what they mean, and that null is the same as leaving an optional one out."""
    required = set(schema.get("required", ()))
    for name, field in schema["properties"].items():
        if name not in required and {"type": "null"} not in field.get("anyOf", ()):
            default = {"default": field.pop("default")} if "default" in field else {}
            schema["properties"][name] = field = {"anyOf": [field, {"type": "null"}], **default}
        field["description"] = DESCRIPTIONS[name]
