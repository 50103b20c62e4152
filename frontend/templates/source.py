"""From the value of ``--chat-template`` to the text of a template, and a description of where it came from."""

import hashlib
import os
import re
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

import jinja2

from pagewire.frontend.templates.errors import TemplateError

# The shipped templates: beside the packages in the source tree, and installed beside them.
EXAMPLES = Path(__file__).parents[2] / "examples"

FETCH_SECONDS = 10.0
FETCH_BYTES = 2**20
_FETCH_CHUNK = 2**16

_ESCAPE = re.compile(
    r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u((?!d[89a-f])[0-9a-f]{4})|x([0-9a-f]{2})|([nrt\\\"']))",
    re.IGNORECASE,
)
_SIMPLE_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_NAME = re.compile(r"name:[\w.-]+")


@dataclass(frozen=True)
class TemplateText:
    """A template's Jinja source and the place it was found, in words."""

    text: str
    origin: str


def read_template(value: str, named: Mapping[str, str], *, offline: bool = False) -> TemplateText:
    """Return the template that ``value`` stands for.

    It is tried as ``name:NAME`` (a template of the model, else a shipped one), an http(s) URL, a file, and the
    template itself on one line, in which escapes outside of Jinja's delimiters are decoded. The text of files, URLs
    and names is taken as it stands.

    Raises TemplateError: no such name, file or page, not UTF-8, or fetching is off (``offline``, HF_HUB_OFFLINE).
    """
    if is_named(value):
        return _read_named(value.removeprefix("name:"), named)
    if value.lower().startswith(("http://", "https://")):
        return _fetch(value, offline=offline or _offline_by_environment())
    if _is_file(value):
        try:
            data = Path(value).read_bytes()
        except OSError as error:
            raise TemplateError(f"chat template from file {value} cannot be read: {error.strerror}", None) from error
        return TemplateText(_decode(data, f"file {value}"), f"file {value}")
    if not any(character in value for character in "{}\n"):
        raise TemplateError(
            f"chat template {value!r} looks like a file path, but there is no such file; "
            "expected a file, a template in one line, an http(s) URL or name:NAME",
            None,
        )
    return TemplateText(unescape_literal(value), "command line or environment")


def is_named(value: str) -> bool:
    """Whether ``value`` is the name of a template, which may be one of the model's."""
    return _NAME.fullmatch(value) is not None


def shipped_names() -> list[str]:
    """Return the NAMEs under which the shipped templates can be chosen."""
    return sorted(path.stem.removeprefix("template_") for path in EXAMPLES.glob("template_*.jinja"))


def unescape_literal(value: str) -> str:
    r"""Decode ``\n \r \t \\ \" \' \uXXXX \xXX`` where the template has plain text.

    Inside of ``{{ }}``, ``{% %}`` and ``{# #}`` nothing changes: Jinja decodes its own string literals there. Unknown
    escapes and a backslash at the end stay as they are.
    """
    # Jinja's own lexer tells text from delimiters: it knows about quotes, nested braces and raw blocks. Nothing is
    # trimmed yet, since a newline that appears by decoding has to be trimmed like one that was there before.
    lexer = jinja2.Environment(keep_trailing_newline=True).lexer
    try:
        tokens = list(lexer.tokeniter(value, None))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"chat template, line {error.lineno}: {error.message}", None) from error
    return "".join(_ESCAPE.sub(_decode_escape, text) if kind == "data" else text for _, kind, text in tokens)


def _decode_escape(match: re.Match[str]) -> str:
    high, low, unit, byte, simple = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if unit or byte:
        return chr(int(unit or byte, 16))
    return _SIMPLE_ESCAPES[simple]


def _read_named(name: str, named: Mapping[str, str]) -> TemplateText:
    if name in named:
        return TemplateText(named[name], f"the model's template {name!r}")
    if name in shipped_names():
        text = _decode((EXAMPLES / f"template_{name}.jinja").read_bytes(), name)
        return TemplateText(text, f"the shipped template {name!r}")
    known = ", ".join([*sorted(named), *shipped_names()])
    raise TemplateError(f"there is no chat template named {name!r}; known: {known}", None)


def _is_file(value: str) -> bool:
    try:
        return Path(value).is_file()
    except (OSError, ValueError):  # longer than a path may be, or with a NUL character
        return False


def _decode(data: bytes, origin: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TemplateError(f"chat template from {origin} is not UTF-8: {error.reason}", None) from error


def _offline_by_environment() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in ("1", "true", "yes", "on")


def _fetch(url: str, *, offline: bool) -> TemplateText:
    if offline:
        raise TemplateError(f"chat template {url} is not fetched: offline", None)
    # Handlers of web pages only: a redirect leads to no file and no FTP server.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(url, timeout=FETCH_SECONDS) as response:
            data = _read_limited(response, url)
    except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
        raise TemplateError(f"chat template {url} could not be fetched: {error}", None) from error
    digest = hashlib.sha256(data).hexdigest()
    return TemplateText(_decode(data, url), f"{url}, SHA-256 {digest}")


def _read_limited(response: HTTPResponse, url: str) -> bytes:
    deadline = time.monotonic() + FETCH_SECONDS
    data = bytearray()
    while chunk := response.read1(_FETCH_CHUNK):
        data += chunk
        if len(data) > FETCH_BYTES:
            raise TemplateError(f"chat template {url} is larger than {FETCH_BYTES} bytes", None)
        if time.monotonic() > deadline:
            raise TemplateError(f"chat template {url} took longer than {FETCH_SECONDS:g} seconds to fetch", None)
    return bytes(data)
