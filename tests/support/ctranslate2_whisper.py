"""Writes a Whisper of CTranslate2 as a directory of Hugging Face.

Trained models come in packages in CTranslate2's format alone. Its own converter
goes the other way; what it makes of each weight is undone here.
"""

import json
import pathlib
import shutil
import struct

import numpy as np
from safetensors.numpy import save_file

_VERSION = 6  # of CTranslate2's binary format
_DTYPES = "float32", "int8", "int16", "int32", "float16"
_GELU = 3  # number of this activation there
_ATTENTION = {
    # Linear layers of one input are one there.
    "self_attention": ("self_attn", "q_proj k_proj v_proj", "out_proj"),
    "attention": ("encoder_attn", "q_proj", "k_proj v_proj", "out_proj"),
}
_SIDES = "encoder", "decoder"
_EMBEDDING = "decoder/embeddings/weight"


def write_hugging_face(
    source: pathlib.Path, directory: pathlib.Path, beams: int
) -> None:
    """Writes a model and its tokenizer as `save_pretrained` would.

    Args:
        source: A directory of CTranslate2, with the `tokenizer.json` that
            faster-whisper adds to it.
        directory: The directory to write, created if missing.
        beams: Number of beams of the search, which such a model does not say.

    Raises:
        ValueError: If the model is no Whisper, or has variables that are not
            known.
    """
    directory.mkdir(parents=True, exist_ok=True)
    variables = read_variables(source / "model.bin")
    tokenizer = json.loads((source / "tokenizer.json").read_text("utf-8"))
    marks = {x["content"]: x["id"] for x in tokenizer["added_tokens"]}
    special = {
        "decoder_start_token_id": marks["<|startoftranscript|>"],
        **dict.fromkeys(
            ("bos_token_id", "eos_token_id", "pad_token_id"),
            marks["<|endoftext|>"],
        ),
    }
    said = json.loads((source / "config.json").read_text("utf-8"))
    configuration = _configuration(variables) | special
    mels = configuration["num_mel_bins"]
    for name, fields in {
        "config": configuration,
        "generation_config": special
        | {
            "alignment_heads": said["alignment_heads"],
            "begin_suppress_tokens": said["suppress_ids_begin"],
            "max_length": configuration["max_target_positions"],
            "no_timestamps_token_id": marks["<|notimestamps|>"],
            "num_beams": beams,
            "suppress_tokens": said["suppress_ids"],
        },
        "preprocessor_config": {"feature_size": mels, "sampling_rate": 16_000},
    }.items():
        (directory / f"{name}.json").write_text(json.dumps(fields))
    save_file(_weights(variables), directory / "model.safetensors")
    shutil.copy(source / "tokenizer.json", directory)


def read_variables(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the variables of a `model.bin` by name."""
    with open(path, "rb") as file:

        def number(kind="I"):
            size = struct.calcsize(kind)
            return struct.unpack(f"<{kind}", file.read(size))[0]

        def string():
            return file.read(number("H"))[:-1].decode()  # without its NUL

        version, kind, _ = number(), string(), number()
        if (version, kind) != (_VERSION, "WhisperSpec"):
            raise ValueError(
                f"`model.bin` must be a WhisperSpec of version {_VERSION}. "
                f"Received: {path}, a {kind} of version {version}."
            )
        found = {}
        for _ in range(number()):
            name = string()
            shape = [number() for _ in range(number("B"))]
            dtype, size = _DTYPES[number("B")], number()
            found[name] = np.frombuffer(file.read(size), dtype).reshape(shape)
        for _ in range(number()):  # variables of two names
            name = string()
            found[name] = found[string()]
        if file.read(1):
            raise ValueError(f"`model.bin` goes on after its end: {path}")
    return found


def _configuration(variables):
    size, width = variables[_EMBEDDING].shape
    found = {
        "model_type": "whisper",
        "activation_function": "gelu",
        "vocab_size": size,
        "d_model": width,
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1],
    }
    if variables["decoder/activation"] != _GELU:
        raise ValueError("The activation must be GELU.")
    for side, positions in zip(_SIDES, ("source", "target"), strict=True):
        found |= {
            f"max_{positions}_positions": len(
                variables[f"{side}/position_encodings/encodings"]
            ),
            f"{side}_layers": _number_of_layers(variables, side),
            f"{side}_attention_heads": int(variables[f"{side}/num_heads"]),
            f"{side}_ffn_dim": len(
                variables[f"{side}/layer_0/ffn/linear_0/bias"]
            ),
        }
    return found


def _number_of_layers(variables, side):
    begin = f"{side}/layer_"
    numbers = {x.removeprefix(begin).split("/")[0] for x in variables}
    return sum(x.isdecimal() for x in numbers)


def _weights(variables):
    """Returns the weights by their names of Hugging Face."""
    left = {x: y for x, y in variables.items() if y.ndim}
    found = {}
    for theirs, names in _names(variables):
        parts = np.split(left.pop(theirs), len(names))
        found |= dict(zip(names, parts, strict=True))
    if left.pop("decoder/projection/weight") is not variables[_EMBEDDING]:
        raise ValueError("The embedding must also make the logits.")
    if left:
        raise ValueError(f"Variables without a counterpart: {sorted(left)}")
    for name in [x for x in found if x.endswith("k_proj.bias")]:
        if found.pop(name).any():
            raise ValueError(f"Keys must have no bias. Received: {name}")
    return {x: np.ascontiguousarray(y) for x, y in found.items()}


def _names(variables):
    """Yields each name with those of the weights that are its rows."""
    yield _EMBEDDING, ["model.decoder.embed_tokens.weight"]
    for name in ("conv1", "conv2"):
        yield from _layer(f"encoder/{name}", f"model.encoder.{name}")
    for side in _SIDES:
        ours = f"model.{side}"
        yield (
            f"{side}/position_encodings/encodings",
            [f"{ours}.embed_positions.weight"],
        )
        yield from _norm(f"{side}/layer_norm", f"{ours}.layer_norm")
        for i in range(_number_of_layers(variables, side)):
            yield from _block(side, f"{side}/layer_{i}", f"{ours}.layers.{i}")


def _block(side, theirs, ours):
    for name, (own, *linears) in _ATTENTION.items():
        if (side, name) == ("encoder", "attention"):
            continue
        yield from _norm(
            f"{theirs}/{name}/layer_norm", f"{ours}.{own}_layer_norm"
        )
        for i, several in enumerate(linears):
            names = [f"{ours}.{own}.{x}" for x in several.split()]
            yield from _layer(f"{theirs}/{name}/linear_{i}", *names)
    yield from _norm(f"{theirs}/ffn/layer_norm", f"{ours}.final_layer_norm")
    for i in range(2):
        yield from _layer(f"{theirs}/ffn/linear_{i}", f"{ours}.fc{i + 1}")


def _layer(theirs, *ours):
    for x in ("weight", "bias"):
        yield f"{theirs}/{x}", [f"{name}.{x}" for name in ours]


def _norm(theirs, ours):
    yield f"{theirs}/gamma", [f"{ours}.weight"]
    yield f"{theirs}/beta", [f"{ours}.bias"]
