"""What a checkpoint of the Llama family says about itself, checked: everything in it is honoured or refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagewire.engine.models.errors import ModelError

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# What each kind of rotary scaling is made of.
ROPE_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        *("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate"),
    ),
    "factors": (),
}
REQUIRED_ROPE_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "llama3": ROPE_NUMBERS["llama3"],
    "yarn": ("factor", "original_max_position_embeddings"),
}
DEFAULT_ROPE_THETA = 10_000.0
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding. ``kind`` is a key of ``ROPE_NUMBERS``; ``scaling`` holds that kind's numbers.

    Kind "factors" (from GGUF files) divides the plain frequencies by ``factors``, one for each pair of dimensions.
    """

    theta: float
    kind: str
    scaling: Mapping[str, float]
    factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of one decoder. ``windows`` has one entry per layer: the sliding window in tokens, or None."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    dtype: str


def parse_config(values: Mapping[str, Any]) -> ModelConfig:
    """Read the values of a Hugging Face ``config.json``, of the old and of the new (transformers 5) form.

    Raises ``ModelError`` naming the field for an unknown architecture and for anything that is not supported.
    """
    kind = _architecture(values)
    _refuse_unsupported(values)
    bias = bool(values.get("attention_bias", False)) and kind in ("llama", "qwen3")
    heads = _size(values, "num_attention_heads")
    hidden = _size(values, "hidden_size")
    kv_heads = int(values.get("num_key_value_heads") or heads)
    if heads % kv_heads:
        raise ModelError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    layers = _size(values, "num_hidden_layers")
    head_dim = int(values.get("head_dim") or (128 if kind == "qwen3" else hidden // heads))
    return ModelConfig(
        architecture=kind,
        vocab_size=_size(values, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_size(values, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_position=_size(values, "max_position_embeddings"),
        norm_eps=float(values.get("rms_norm_eps", 1e-6)),
        rope=_rope(values, head_dim),
        windows=_windows(kind, values, layers),
        tied_embeddings=bool(values.get("tie_word_embeddings", False)),
        qkv_bias=bias or kind == "qwen2",
        output_bias=bias,
        mlp_bias=bool(values.get("mlp_bias", False)) and kind == "llama",
        qk_norm=kind == "qwen3",
        dtype=_dtype(values),
    )


def _architecture(values: Mapping[str, Any]) -> str:
    names = values.get("architectures") or [ARCHITECTURES.get(str(values.get("model_type")), values.get("model_type"))]
    for kind, name in ARCHITECTURES.items():
        if name == names[0]:
            return kind
    raise ModelError(f"architecture {names[0]} is not supported; supported are {', '.join(ARCHITECTURES.values())}")


def _size(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"config field {name} must be a positive integer, not {value!r}")
    return value


def _refuse_unsupported(values: Mapping[str, Any]) -> None:
    if (activation := values.get("hidden_act", "silu")) != "silu":
        raise ModelError(f"hidden_act {activation!r} is not supported, only 'silu'")
    if quantization := values.get("quantization_config"):
        raise ModelError(f"quantization_config {quantization.get('quant_method')!r} is not supported")
    if values.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"partial_rotary_factor {values['partial_rotary_factor']} is not supported, only 1.0")


def _dtype(values: Mapping[str, Any]) -> str:
    name = str(values.get("dtype") or values.get("torch_dtype") or "float32").removeprefix("torch.")
    if name not in DTYPES:
        raise ModelError(f"checkpoint dtype {name} is not supported, only {', '.join(DTYPES)}")
    return name


def _rope(values: Mapping[str, Any], head_dim: int) -> RopeConfig:
    # Files of transformers 5 say `rope_parameters`, older ones `rope_scaling` with `rope_theta` beside it.
    given = dict(values.get("rope_scaling") or values.get("rope_parameters") or {})
    if any(isinstance(value, Mapping) for value in given.values()):
        raise ModelError(f"rope parameters per layer type are not supported (got {', '.join(given)})")
    kind = str(given.get("rope_type") or given.get("type") or "default")
    if kind not in ROPE_NUMBERS:
        raise ModelError(f"rope type {kind!r} is not supported; supported are default, linear, llama3 and yarn")
    if given.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"partial_rotary_factor {given['partial_rotary_factor']} is not supported, only 1.0")
    theta = float(given.get("rope_theta") or values.get("rope_theta") or DEFAULT_ROPE_THETA)
    factors = tuple(given.get("factors", ()))
    if kind == "factors" and len(factors) != head_dim // 2:
        raise ModelError(f"the rope has {len(factors)} frequency factors, expected {head_dim // 2}")
    return RopeConfig(theta, kind, _rope_scaling(kind, given, values), factors)


def _rope_scaling(kind: str, given: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that ``kind`` uses; raises ``ModelError`` naming one that is missing."""
    numbers = {name: given[name] for name in ROPE_NUMBERS[kind] if given.get(name) is not None}
    if "original_max_position_embeddings" in ROPE_NUMBERS[kind]:
        # The field outside wins, as in transformers; without any, the whole length was trained.
        outer = values.get("original_max_position_embeddings")
        numbers.setdefault("original_max_position_embeddings", values.get("max_position_embeddings"))
        numbers["original_max_position_embeddings"] = outer or numbers["original_max_position_embeddings"]
    if kind == "yarn":
        numbers.setdefault("factor", values["max_position_embeddings"] / numbers["original_max_position_embeddings"])
    for name in REQUIRED_ROPE_NUMBERS.get(kind, ()):
        if not isinstance(numbers.get(name), int | float):
            raise ModelError(f"rope type {kind!r} needs the number {name}, got {numbers.get(name)!r}")
    return numbers


def _windows(kind: str, values: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    window = values.get("sliding_window")
    if kind == "llama" or (kind.startswith("qwen") and not values.get("use_sliding_window", False)):
        window = None
    types = values.get("layer_types")
    if types is None or kind == "llama":
        first = int(values.get("max_window_layers", 28)) if kind.startswith("qwen") else 0
        return tuple(window if layer >= first else None for layer in range(layers))
    known = {"full_attention": None, "sliding_attention": window}
    if unknown := sorted(set(types) - set(known)):
        raise ModelError(f"layer type {unknown[0]!r} is not supported, only {', '.join(known)}")
    if len(types) != layers:
        raise ModelError(f"layer_types has {len(types)} entries for {layers} layers")
    if window is None and "sliding_attention" in types:
        raise ModelError("layer_types asks for sliding_attention but sliding_window is not set")
    return tuple(known[name] for name in types)
