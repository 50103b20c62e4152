"""Write the demo model as every server under comparison wants it, all from the same weights.

The demo model's file is quantized. Its weights, expanded and rounded to bfloat16, become a Hugging Face directory and a
GGUF file that hold the same numbers; llama.cpp's own tool makes the smaller GGUF files of that one.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, ReaderField
from gguf.quants import quantize
from safetensors.torch import save_file

from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.gguf import GgufFile
from pagewire.engine.models.gguf_model import gguf_config, stream_gguf
from pagewire.engine.models.gguf_tokenizer import gguf_tokenizer_json

NAME = "SmolLM2-135M-Instruct"
QUANTIZATIONS = ("Q8_0", "Q4_0")
# The writer puts these there itself.
_HEADER_FIELDS = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type")


def write_directory(source: GgufFile, directory: Path) -> None:
    """Write a Hugging Face model directory in bfloat16."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in stream_gguf(source)}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    _write_json(directory / "config.json", _config(source))
    (directory / "tokenizer.json").write_text(gguf_tokenizer_json(source), encoding="utf-8")
    _write_json(directory / "tokenizer_config.json", _tokenizer_config(source))


def _config(source: GgufFile) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        **gguf_config(source),
        "bos_token_id": source.metadata["tokenizer.ggml.bos_token_id"],
    }


def _tokenizer_config(source: GgufFile) -> dict[str, Any]:
    tokens = source.metadata["tokenizer.ggml.tokens"]
    special = {
        f"{kind}_token": tokens[source.metadata[f"tokenizer.ggml.{long}_token_id"]]
        for kind, long in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": source.metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": source.metadata["llama.context_length"],
        **special,
    }


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def write_gguf(source: GgufFile, path: Path) -> None:
    """Write the model as a GGUF file in bfloat16; vectors stay float32, as llama.cpp's converter leaves them."""
    writer = GGUFWriter(path, str(source.metadata["general.architecture"]))
    writer.add_file_type(LlamaFileType.MOSTLY_BF16)
    for field in GGUFReader(source.path).fields.values():
        if field.name not in _HEADER_FIELDS:
            _copy_field(writer, field)
    for name in source.tensors:
        values = source.tensor(name).to(torch.bfloat16).float().numpy()
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            kind = GGMLQuantizationType.BF16
            writer.add_tensor(name, np.ascontiguousarray(quantize(values, kind)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_field(writer: GGUFWriter, field: ReaderField) -> None:
    element = field.types[-1] if len(field.types) > 1 else None
    writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)


def make_models(output: Path, model: str = "demo", quantizer: Path | None = None) -> None:
    """Write all files into ``output``; without llama.cpp's ``quantizer`` no smaller GGUF files.

    Raises ``ValueError`` when ``model`` is no GGUF model, ``ModelError`` when there is none.
    """
    files = resolve_model(model)
    if files.gguf is None:
        raise ValueError(f"{model} is no GGUF model")
    source = files.gguf_file
    write_directory(source, output / NAME)
    plain = output / f"{NAME}.BF16.gguf"
    write_gguf(source, plain)
    for kind in QUANTIZATIONS if quantizer else ():
        subprocess.run([str(quantizer), plain, output / f"{NAME}.{kind}.gguf", kind], check=True)


def main() -> int:
    """Write the models into the directory given; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="where the models go")
    parser.add_argument("--model", default="demo", help="a GGUF model; default demo")
    parser.add_argument("--quantizer", type=Path, help="llama.cpp's llama-quantize; without it no smaller GGUF files")
    args = parser.parse_args()
    try:
        make_models(args.output, args.model, args.quantizer)
    except (ValueError, ModelError) as error:
        print(f"make_models: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
