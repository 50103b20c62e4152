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
class ToolFormat:
    """How a family of models writes calls.

    ``read`` makes the reader of one answer, given the names of the tools. ``markers`` are texts that may be special
    tokens of the tokenizer, so that the engine must not hide them.
    """

    name: str
    read: Callable[[Outlet, frozenset[str]], Reader[None]]
    markers: tuple[str, ...] = ()
    new_id: Callable[[], str] = _new_id


FORMATS: Mapping[str, ToolFormat] = {
    tool_format.name: tool_format
    for tool_format in (
        ToolFormat("hermes", hermes.read_hermes, (hermes.OPEN, hermes.CLOSE)),
        ToolFormat("llama3_json", unmarked.read_llama3_json, (unmarked.LLAMA_TAG,)),
        ToolFormat(
            "mistral",
            mistral.read_mistral,
            (mistral.MARKER, mistral.ID_MARKER, mistral.ARGUMENTS_MARKER),
            _new_mistral_id,
        ),
        ToolFormat("pythonic", pythonic.read_pythonic, (pythonic.START_TAG, pythonic.END_TAG)),
        ToolFormat("json", unmarked.read_json),
    )
}

# What the template of a model trained on a format says, the most telling first.
_SIGNS = (
    (mistral.MARKER, "mistral"),
    (hermes.OPEN, "hermes"),
    (pythonic.START_TAG, "pythonic"),
    ("[func_name1(", "pythonic"),
    (unmarked.LLAMA_TAG, "llama3_json"),
    ('{"name": function name, "parameters"', "llama3_json"),
)


def recognise(template: str) -> ToolFormat:
    """The format that a chat template teaches, or plain JSON if it gives no sign of one."""
    return FORMATS[next((name for sign, name in _SIGNS if sign in template), "json")]
