"""The OpenAPI document as one HTML page: no scripts, nothing loaded from elsewhere."""

import html
import json
from typing import Any

Json = dict[str, Any]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
details { margin: .5rem 0; border: 1px solid #8886; border-radius: .4rem; padding: .4rem .8rem; }
summary { cursor: pointer; }
summary code { font-weight: 600; }
.method { display: inline-block; min-width: 4.5rem; font: 600 .85rem ui-monospace, monospace; }
.method { text-transform: uppercase; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #8883; }
td:nth-child(2) { white-space: nowrap; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { overflow-x: auto; background: #8881; padding: .6rem; border-radius: .4rem; }
"""


def docs_page(document: Json) -> str:
    """Show every operation with its fields and answers."""
    info = document["info"]
    groups = [tag["name"] for tag in document["tags"]]
    sections = "".join(_section(group, document) for group in groups)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{_text(info["title"])} API</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        f"<h1>{_text(info['title'])} API <small>{_text(info['version'])}</small></h1>"
        f"<p>{_text(info['description'])}</p>"
        f"<p>With API keys, send <code>Authorization: Bearer KEY</code>. "
        f'The same for programs: <a href="openapi.json">openapi.json</a>.</p>'
        f"{sections}</body></html>\n"
    )


def _section(group: str, document: Json) -> str:
    operations = [
        _operation(method, path, operation, document)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if group in operation["tags"]
    ]
    return f"<h2>{_text(group)}</h2>{''.join(operations)}"


def _operation(method: str, path: str, operation: Json, document: Json) -> str:
    parts = [f'<summary><span class="method">{method}</span> <code>{_text(path)}</code> {_text(operation["summary"])}']
    parts.append("</summary>")
    if parameters := operation.get("parameters"):
        rows = [(one["name"], one["schema"]["type"], one.get("description", "")) for one in parameters]
        parts.append(_table("Parameter", rows))
    if body := operation.get("requestBody"):
        schema = _resolve(body["content"]["application/json"]["schema"], document)
        parts.append(f"<p>{_text(schema.get('description', ''))}</p>")
        required = set(schema.get("required", ()))
        rows = [
            (f"{name} *" if name in required else name, _type(field), _meaning(field))
            for name, field in sorted(schema["properties"].items(), key=lambda item: (item[0] not in required, item[0]))
        ]
        parts.append(_table("Field", rows))
    parts.append(
        _table("Answer", [_answer_row(status, answer, document) for status, answer in operation["responses"].items()])
    )
    return f"<details>{''.join(parts)}</details>"


def _answer_row(status: str, answer: Json, document: Json) -> tuple[str, str, str]:
    answer = _resolve(answer, document)
    kinds = ", ".join(_name(content.get("schema"), kind) for kind, content in answer["content"].items())
    return status, kinds, answer["description"]


def _name(schema: Json | None, kind: str) -> str:
    return schema["$ref"].rpartition("/")[2] if schema and "$ref" in schema else kind


def _table(first: str, rows: list[tuple[str, str, str]]) -> str:
    body = "".join(
        f"<tr><td><code>{_text(name)}</code></td><td>{_text(kind)}</td><td>{_text(meaning)}</td></tr>"
        for name, kind, meaning in rows
    )
    return f"<table><tr><th>{first}</th><th></th><th></th></tr>{body}</table>"


def _meaning(field: Json) -> str:
    default = field.get("default")
    shown = f" Default {json.dumps(default)}." if default not in (None, [], {}) else ""
    return f"{field.get('description', '')}{shown}"


def _type(field: Json) -> str:
    """A field's type and range in a few characters; that it may be null goes without saying."""
    if "anyOf" in field:
        return " or ".join(_type(part) for part in field["anyOf"] if part != {"type": "null"})
    if "$ref" in field:
        return "object"
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    kind = str(field.get("type", "any"))
    if kind == "array" and "type" in field.get("items", {}):
        kind = f"list of {field['items']['type']}"
    bounds = [f"{sign} {field[key]}" for key, sign in _BOUNDS if abs(field.get(key, 2**31)) < 2**31 - 1]
    return f"{kind} {', '.join(bounds)}" if bounds else kind


_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))


def _resolve(schema: Json, document: Json) -> Json:
    if "$ref" not in schema:
        return schema
    found: Any = document
    for step in schema["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    resolved: Json = found
    return resolved


def _text(value: str) -> str:
    return html.escape(value.replace("``", ""))
