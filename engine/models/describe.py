"""What a frontend is told of a model: tokenizer, templates, special tokens, defaults, end tokens."""

import json
import logging
from collections.abc import Mapping
from typing import Any, Literal

import torch

from pagewire.engine.models.config import ModelConfig
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import ModelFiles
from pagewire.engine.models.gguf_tokenizer import gguf_tokenizer_json
from pagewire.protocol.messages import Model

logger = logging.getLogger(__name__)

GENERATION_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
GGUF_SPECIAL_TOKENS = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "seperator": "sep_token",  # spelled so in the format
}


def describe_model(
    files: ModelFiles, config: ModelConfig, dtype: torch.dtype, *, created: int, name: str | None = None
) -> Model:
    """Collect from the model's files what a frontend needs to serve it as ``name`` (default: the files' own name).

    ``created`` is a Unix time. Raises ``ModelError`` when there is no usable tokenizer.
    """
    tell = _describe_directory if files.gguf is None else _describe_gguf
    return Model(
        name=name or files.name,
        path=str(files.path),
        created=created,
        vocab_size=config.vocab_size,
        dtype=str(dtype).removeprefix("torch."),
        **tell(files),
    )


def model_pooling(files: ModelFiles) -> Literal["last", "mean"]:
    """How the checkpoint says that embeddings are made of its hidden states; the last one's unless it says mean."""
    said = files.read_json("1_Pooling/config.json")
    return "mean" if said.get("pooling_mode_mean_tokens") is True else "last"


def _describe_gguf(files: ModelFiles) -> dict[str, Any]:
    file = files.gguf_file
    tokens = file.metadata.get("tokenizer.ggml.tokens", [])
    ids = {key: file.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in (*GGUF_SPECIAL_TOKENS, "eot")}
    prefix = "tokenizer.chat_template"
    templates = {
        key.removeprefix(prefix).removeprefix(".") or "default": text
        for key, text in file.metadata.items()
        if isinstance(text, str) and (key == prefix or key.startswith(prefix + "."))
    }
    return {
        "tokenizer_json": gguf_tokenizer_json(file),
        "chat_templates": templates,
        "special_tokens": {
            name: tokens[index] for key, name in GGUF_SPECIAL_TOKENS.items() if (index := ids[key]) is not None
        },
        "generation_defaults": {},
        "eos_token_ids": _distinct(ids["eos"], ids["eot"]),
    }


def _describe_directory(files: ModelFiles) -> dict[str, Any]:
    tokenizer_config = files.read_json("tokenizer_config.json")
    generation = files.read_json("generation_config.json")
    special = _special_tokens(files.read_json("special_tokens_map.json")) | _special_tokens(tokenizer_config)
    tokenizer_json = _tokenizer_json(files)
    eos = (files.read_json("config.json").get("eos_token_id"), generation.get("eos_token_id"))
    return {
        "tokenizer_json": tokenizer_json,
        "chat_templates": _templates(files, tokenizer_config.get("chat_template")),
        "special_tokens": special,
        "generation_defaults": _generation_defaults(generation),
        "eos_token_ids": _distinct(*eos, _token_id(tokenizer_json, special.get("eos_token"))),
    }


def _generation_defaults(generation: Mapping[str, Any]) -> dict[str, float | int]:
    """The sampling values that are set. What is no number is left out; a frontend judges whether it makes sense."""
    defaults: dict[str, float | int] = {}
    for key in GENERATION_DEFAULTS:
        value = generation.get(key)
        # MessagePack holds no larger integers; NaN is below nothing.
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
            defaults[key] = value
        elif value is not None:
            logger.warning("the generation config's %s is left out: expected a number, got %.40r", key, value)
    return defaults


def _tokenizer_json(files: ModelFiles) -> str:
    path = files.directory / "tokenizer.json"
    if path.is_file():
        return path.read_text("utf-8")
    from transformers import AutoTokenizer  # costs seconds, and only old checkpoints need it

    try:
        return str(AutoTokenizer.from_pretrained(str(files.directory)).backend_tokenizer.to_str())
    except Exception as error:  # whatever transformers raises, the reason is the missing tokenizer
        raise ModelError(f"{files.directory} has no tokenizer.json, and none can be made: {error}") from error


def _templates(files: ModelFiles, configured: object) -> dict[str, str]:
    """Files of their own win over the field of tokenizer_config.json, as in transformers."""
    templates: dict[str, str] = {}
    if isinstance(configured, str):
        templates["default"] = configured
    elif isinstance(configured, list):
        templates |= {entry["name"]: entry["template"] for entry in configured}
    single = files.directory / "chat_template.jinja"
    if single.is_file():
        templates["default"] = single.read_text("utf-8")
    for path in sorted((files.directory / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text("utf-8")
    return templates


def _special_tokens(values: Mapping[str, Any]) -> dict[str, str]:
    """Every ``..._token`` that is text, plain or as a serialized added token; extra ones have a dict of their own."""
    extra = values.get("extra_special_tokens")
    entries = {key: value for key, value in values.items() if key.endswith("_token")}
    tokens: dict[str, str] = {}
    for key, value in (entries | (extra if isinstance(extra, dict) else {})).items():
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[key] = text
    return tokens


def _token_id(tokenizer_json: str, token: str | None) -> int | None:
    """The id of a special token, which the tokenizer lists among its added tokens."""
    if token is None:
        return None

    added = json.loads(tokenizer_json).get("added_tokens") or []
    return next((entry["id"] for entry in added if entry["content"] == token), None)


def _distinct(*ids: int | list[int] | None) -> tuple[int, ...]:
    flat = [index for entry in ids if entry is not None for index in (entry if isinstance(entry, list) else [entry])]
    return tuple(dict.fromkeys(flat))
