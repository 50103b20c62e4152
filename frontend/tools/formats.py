"""The formats in which models write calls, chosen by name or recognised from a chat template."""

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pagewire.frontend.tools import hermes, mistral, pythonic, unmarked
from pagewire.frontend.tools.outlet import Outlet
from pagewire.frontend.tools.reading import Reader

_MISTRAL_ID_LENGTH = 9
_ALPHANUMERIC = string.ascii_letters + string.digits


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _new_mistral_id() -> str:
    """Mistral's templates refuse ids of any other shape when the call comes back as history."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(_MISTRAL_ID_LENGTH))


@dataclass(frozen=True, slots=True)
class CallLayout:
    """How calls that a grammar enforces are written: ``before`` NAME ``between`` ARGUMENTS ``after``, for each.

    ``separator`` stands between two calls, ``opening`` and ``closing`` around all of them.
    """

    before: str
    between: str
    after: str
    separator: str
    opening: str = ""
    closing: str = ""


_JSON_LAYOUT = CallLayout('{"name": "', '", "parameters": ', "}", ", ", "[", "]")


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a family of models writes calls.

    ``read`` makes the reader of one answer, given the names of the tools. ``markers`` are texts that may be special
    tokens of the tokenizer, so that the engine must not hide them. ``layout`` None means that arguments in this format
    are no JSON, so that enforced calls are written as plain JSON instead. ``announced`` says that calls begin with the
    first marker, so that text and calls can be told apart while they are generated.
    """

    name: str
    read: Callable[[Outlet, frozenset[str]], Reader[None]]
    layout: CallLayout | None
    markers: tuple[str, ...] = ()
    new_id: Callable[[], str] = _new_id
    announced: bool = False


_MISTRAL_MARKERS = (mistral.MARKER, mistral.ID_MARKER, mistral.ARGUMENTS_MARKER)

FORMATS: Mapping[str, ToolFormat] = {
    entry.name: entry
    for entry in (
        ToolFormat(
            "hermes",
            hermes.read_hermes,
            CallLayout(f'{hermes.OPEN}\n{{"name": "', '", "arguments": ', f"}}\n{hermes.CLOSE}", "\n"),
            (hermes.OPEN, hermes.CLOSE),
            announced=True,
        ),
        ToolFormat(
            "llama3_json",
            unmarked.read_llama3_json,
            CallLayout('{"name": "', '", "parameters": ', "}", "; "),
            (unmarked.LLAMA_TAG,),
        ),
        ToolFormat(
            "mistral",
            mistral.read_mistral,
            CallLayout('{"name": "', '", "arguments": ', "}", ", ", f"{mistral.MARKER} [", "]"),
            _MISTRAL_MARKERS,
            _new_mistral_id,
            announced=True,
        ),
        ToolFormat(
            "mistral_args",
            mistral.read_mistral,
            CallLayout(mistral.MARKER, mistral.ARGUMENTS_MARKER, "", ""),
            _MISTRAL_MARKERS,
            _new_mistral_id,
            announced=True,
        ),
        ToolFormat("pythonic", pythonic.read_pythonic, None, (pythonic.START_TAG, pythonic.END_TAG)),
        ToolFormat("json", unmarked.read_json, _JSON_LAYOUT),
    )
}

# What the template of a model trained on a format says, the most telling first.
_SIGNS = (
    (mistral.ARGUMENTS_MARKER, "mistral_args"),
    (mistral.MARKER, "mistral"),
    (hermes.OPEN, "hermes"),
    (pythonic.START_TAG, "pythonic"),
    ("[func_name1(", "pythonic"),
    (unmarked.LLAMA_TAG, "llama3_json"),
    ('{"name": function name, "parameters"', "llama3_json"),
)


def tool_format(value: str, template: str | None) -> ToolFormat | None:
    """What ``--tool-call-parser`` stands for; None leaves calls in the text.

    ``template`` is the one that shows tools to the model; None if it is ``in_text`` that does.
    """
    if value == "none":
        return None
    if value != "auto":
        return FORMATS[value]
    return FORMATS["hermes"] if template is None else recognise(template)


def recognise(template: str) -> ToolFormat:
    """The format that a chat template teaches, or plain JSON if it gives no sign of one."""
    return FORMATS[next((name for sign, name in _SIGNS if sign in template), "json")]


def enforceable(preferred: ToolFormat) -> ToolFormat:
    """The format in which calls are written that the client insists on."""
    return preferred if preferred.layout else FORMATS["json"]
