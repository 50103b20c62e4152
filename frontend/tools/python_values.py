"""Python literals as JSON."""

import ast
import json
import warnings
from typing import Any

_JSON_NAMES = {"true": True, "false": False, "null": None}


def keyword_as_json(argument: str) -> str:
    """``city='Rome'`` as ``"city": "Rome"``; unchanged if it is not a keyword with a literal that JSON can say."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            call = ast.parse(f"call({argument}\n)", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or len(call.keywords) != 1 or not call.keywords[0].arg:
            return argument
        key, value = call.keywords[0].arg, _literal(call.keywords[0].value)
        return f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}".encode().decode()
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return argument


def _literal(node: ast.expr) -> Any:
    """The value of a literal, in which JSON's names for true, false and null count as well."""
    match node:
        case ast.Name(id) if id in _JSON_NAMES:
            return _JSON_NAMES[id]
        case ast.List(elements) | ast.Tuple(elements):
            return [_literal(element) for element in elements]
        case ast.Dict(keys, values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
        case _:
            return ast.literal_eval(node)


def _key(node: ast.expr | None) -> str:
    key = _literal(node) if node is not None else None
    if not isinstance(key, str):
        raise ValueError("JSON has strings as keys only")
    return key
