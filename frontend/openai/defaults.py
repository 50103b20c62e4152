"""Where sampling values come from when a request does not set them: OpenAI's defaults, the model's, the operator's."""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.schema import SamplingFields

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """One value for every sampling field that a generation config may set; these are OpenAI's.

    ``max_tokens`` None leaves the length to the endpoint.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None


_NAMES = frozenset(field.name for field in fields(SamplingDefaults))
_INTEGERS = frozenset({"top_k", "max_tokens"})
# Hugging Face's name for ours.
_RENAMED = {"max_new_tokens": "max_tokens"}
# ``none`` is spelled ``vllm`` by people who come from there.
_NO_CONFIG = ("none", "vllm")


def sampling_defaults(config: FrontendConfig, model_values: Mapping[str, float | int | bool]) -> SamplingDefaults:
    """Combine the model's generation config (or the file that replaces it) with the operator's overrides.

    Raises ``ValueError`` for an unreadable file, and for an override that is no sampling value.
    """
    if config.generation_config in _NO_CONFIG:
        values: Mapping[str, Any] = {}
    elif config.generation_config == "auto":
        values = model_values
    else:
        values = _read(Path(config.generation_config))
    return _apply(_apply(SamplingDefaults(), values, strict=False), config.override_generation_config, strict=True)


def check_defaults(config: FrontendConfig) -> None:
    """Raise ``ValueError`` now for what ``sampling_defaults`` would refuse later."""
    sampling_defaults(config, {})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"--generation-config: cannot read {path}: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"--generation-config: {path} must hold a JSON object")
    return values


def _apply(defaults: SamplingDefaults, values: Mapping[str, Any], *, strict: bool) -> SamplingDefaults:
    """Take over what is a sampling value; a generation config also holds much else, an override must not."""
    changes: dict[str, float | int] = {}
    for key, value in values.items():
        name = _RENAMED.get(key, key)
        if name in _NAMES and _is_number(value, integer=name in _INTEGERS):
            if fault := _out_of_range(name, value):
                if strict:
                    raise ValueError(f"--override-generation-config: wrong value for '{key}': {fault}")
                logger.warning(
                    "the generation config's %s is left out: %s, got %s", key, fault[:1].lower() + fault[1:], value
                )
            else:
                changes[name] = value
        elif strict:
            known = ", ".join(sorted(_NAMES))
            raise ValueError(f"--override-generation-config: '{key}' must be a number for one of {known}")
    if changes.get("top_k", 0) < 0:
        changes["top_k"] = 0
    return replace(defaults, **changes)  # type: ignore[arg-type]


def _out_of_range(name: str, value: float) -> str | None:
    """Why a request could not say this either, if it could not."""
    try:
        msgspec.convert({name: value}, SamplingFields)
    except msgspec.ValidationError as error:
        return str(error).partition(" - at ")[0]
    return None


def _is_number(value: object, *, integer: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
        return False
    return abs(value) <= sys.float_info.max
