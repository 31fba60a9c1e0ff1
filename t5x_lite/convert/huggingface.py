"""Hugging Face folders: `config.json`, `model.safetensors` (one file or several) and the tokenizer's files."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from t5x_lite.convert import t5
from t5x_lite.convert.table import to_ours, to_theirs
from t5x_lite.data import Tokenizer
from t5x_lite.data.tokenizers import ByteTokenizer, SentencePieceTokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig, T5Config, abstract_params

FAMILIES = dict.fromkeys(t5.MODEL_TYPES, t5)
"""The module with the tables of each `model_type`."""


# Their byte tokenizer counts its extra ids upwards, ours down; ours are kept under a name that theirs ignores.
_OUR_EXTRA_IDS = "t5x_lite_extra_ids"


@dataclass(frozen=True)
class Imported:
    """What a folder holds, in our terms."""

    config: ModelConfig
    params: Any
    tokenizer: Tokenizer | None


def is_huggingface_folder(folder: Path) -> bool:
    """Whether `folder` has a config.json that names a model type."""
    return "model_type" in _read_json(folder / "config.json") if (folder / "config.json").exists() else False


def import_folder(folder: Path) -> Imported:
    """Reads a folder. No code in it is run and nothing is unpickled.

    Raises `InputError` for a model type we do not have, weights that are no safetensors or truncated, and weights that
    do not fit the config.
    """
    theirs = _read_json(folder / "config.json")
    family = FAMILIES.get(theirs.get("model_type"))
    if family is None:
        raise InputError(
            f"model_type={theirs.get('model_type')!r} in {folder} is not known; known are {', '.join(FAMILIES)}"
        )
    tensors = _read_tensors(folder)
    config = family.import_config(theirs, tensors)
    if "shared.weight" not in tensors and "encoder.embed_tokens.weight" in tensors:
        tensors["shared.weight"] = tensors["encoder.embed_tokens.weight"]
    abstract = nn.unbox(abstract_params(config))
    params = to_ours(family.rows(config), tensors, abstract, family.ignored(tensors))
    tokenizer = _read_tokenizer(folder, theirs)
    if tokenizer and tokenizer.vocabulary.size > config.vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {tokenizer.vocabulary.size} ids, the model only {config.vocab_size}; "
            "put the tokenizer there that the model was trained with"
        )
    return Imported(config, params, tokenizer)


def export_folder(folder: Path, config: ModelConfig, params: Any, tokenizer: Tokenizer | None) -> None:
    """Writes a folder that Transformers' `from_pretrained` opens."""
    from safetensors.numpy import save_file

    if not isinstance(config, T5Config):
        raise InputError(f"a {type(config).__name__} has no Hugging Face counterpart; only T5Config has")
    description = t5.export_config(config)
    tensors = to_theirs(t5.rows(config), params)
    if config.tied and not config.scale_output:
        # Transformers 4 takes an output that is not scaled for one that is not tied.
        tensors["lm_head.weight"] = tensors["shared.weight"].copy()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer is not None:
        _write_tokenizer(folder, tokenizer)
    # Last, since it is what makes the folder one of theirs.
    (folder / "config.json").write_text(json.dumps(description, indent=2) + "\n")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing; name a folder with config.json and model.safetensors") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); it may be truncated") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object; it is not a model's")
    return content


def _read_tensors(folder: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("model*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weight_map = _read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise InputError(f"{index} has no weight_map; it is damaged: fetch it again")
        files = sorted({folder / name for name in weight_map.values()})
    if not files:
        pickles = [path.name for path in folder.iterdir() if path.suffix in (".bin", ".ckpt", ".h5", ".msgpack")]
        found = f" (it has {', '.join(sorted(pickles))}: save it again with safe_serialization=True)" if pickles else ""
        raise InputError(f"{folder} has no model.safetensors{found}")
    tensors = {}
    for file in files:
        try:
            # Framework flax, because numpy's does not know bfloat16.
            with safe_open(file, "flax") as opened, jax.default_device(jax.local_devices(backend="cpu")[0]):
                tensors |= {name: np.asarray(opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InputError(f"{file} cannot be read ({error}); it is missing or truncated: fetch it again") from None
    return tensors


def _read_tokenizer(folder: Path, config: dict[str, Any]) -> Tokenizer | None:
    path = folder / "tokenizer_config.json"
    described = _read_json(path) if path.exists() else {}
    if described.get("tokenizer_class") == "ByT5Tokenizer":
        # ByT5 was pretrained with its last byte ids as sentinels and never saw the extra ids of this class.
        return ByteTokenizer(described.get(_OUR_EXTRA_IDS, 0))
    model = folder / "spiece.model"
    if not model.exists():
        return None
    # mT5's sentinels are pieces of its model; T5's 100 stand behind it.
    extra_ids = described.get("extra_ids", 0 if config["model_type"] == "mt5" else 100)
    return SentencePieceTokenizer(model.read_bytes(), extra_ids=extra_ids, name=str(model))


def _write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    tokens = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    if isinstance(tokenizer, SentencePieceTokenizer):
        (folder / "spiece.model").write_bytes(tokenizer.model)
        described = {"tokenizer_class": "T5Tokenizer", "extra_ids": tokenizer.extra_ids}
    else:
        described = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125, _OUR_EXTRA_IDS: tokenizer.extra_ids}
    (folder / "tokenizer_config.json").write_text(json.dumps(described | tokens, indent=2) + "\n")
