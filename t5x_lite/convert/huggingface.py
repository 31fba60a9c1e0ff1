"""Hugging Face folders: `config.json`, `model.safetensors` (one file or several) and the tokenizer's files."""

import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import xxhash
from flax import linen as nn

from t5x_lite.checksums import write_checksums
from t5x_lite.convert import decoders, detr, encoder_decoders, encoders, image_texts, images, resnet, xlnet
from t5x_lite.convert.family import HuggingFaceFamily, class_of
from t5x_lite.convert.generation import read_generation, read_vocabulary
from t5x_lite.convert.origin import GENERATION_FILE, IMAGE_PROCESSOR_FILE, MULTI_LABEL, Origin, read_origin
from t5x_lite.convert.table import PutFor, keep, to_ours, to_theirs
from t5x_lite.convert.tokenizers import can_write, read_tokenizer, write_tokenizer
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.files import read_json
from t5x_lite.models import ModelConfig, abstract_params

FAMILIES: list[HuggingFaceFamily] = [
    family
    for module in (encoder_decoders, decoders, encoders, xlnet, images, resnet, image_texts, detr)
    for family in module.FAMILIES
]
"""What can be imported and exported. Of several families with one config the last that fits it is written."""

# Pretraining heads that no class of theirs has.
_OURS_ALONE = ("span_boundary",)
_EARLY_BERT = {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}
_CHECKSUMS = "t5x_lite_xxh3"
"""The metadata of model.safetensors with the XXH3 of each tensor in an export of ours."""
# What NumPy reads: no floats of eight bits or fewer.
_DTYPES = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"}
# What older and other programs write.
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")


@dataclass(frozen=True)
class Imported:
    """What a folder holds, in our terms."""

    config: ModelConfig
    params: Any
    tokenizer: Tokenizer | None
    vocabulary: Vocabulary | None
    """The tokenizer's; without one, that of config.json; None where no ids are read."""
    generation: GenerationDefaults
    origin: Origin | None


def is_huggingface_folder(folder: Path) -> bool:
    """Whether `folder` has a config.json that names a model type."""
    return "model_type" in _read_config(folder) if (folder / "config.json").exists() else False


def import_folder(folder: Path, put_for: PutFor = keep) -> Imported:
    """Reads a folder. No code in it is run and nothing is unpickled.

    Args:
      put_for: gives, for the config in the folder, what becomes of each parameter.

    Raises `InputError` for a model type we do not have, weights that are truncated or not safetensors, and weights that
    do not fit the config.
    """
    theirs = _read_config(folder)
    model_type = theirs.get("model_type")
    families = [family for family in FAMILIES if family.model_type == model_type]
    if not families:
        known = dict.fromkeys(family.model_type for family in FAMILIES)
        raise InputError(f"model_type={model_type!r} in {folder} is not known; known are {', '.join(known)}")
    tensors = _read_tensors(folder, theirs)
    family = next((family for family in families if family.reads(tensors)), families[0])
    tensors = family.canonical_tensors(theirs, tensors)
    config = family.import_config(theirs, tensors)
    try:
        params = to_ours(family.names(config), tensors, nn.unbox(abstract_params(config)), put_for(config))
    except InputError:
        named, classes = class_of(theirs), [one.name + end for one in families for end in one.heads.classes.values()]
        if named and named not in classes:
            raise InputError(
                f"{folder} holds a {named!r}, which is not one of the classes that we have: {', '.join(classes)}; "
                "save it from one of them"
            ) from None
        raise
    if config.vocab_size is None:
        return Imported(config, params, None, None, GenerationDefaults(), read_origin(folder, theirs))
    tokenizer, pad_id = read_tokenizer(folder, theirs), getattr(config, "pad_id", None)
    vocabulary = read_vocabulary(theirs, family.ids, config) if tokenizer is None else tokenizer.vocabulary
    problem = ""
    if vocabulary.size > config.vocab_size:
        problem = f"has {vocabulary.size} ids, the model only {config.vocab_size}"
    elif tokenizer is not None and pad_id not in (None, vocabulary.pad_id):
        problem = f"pads with id {vocabulary.pad_id}, the model counts positions from pad_id={pad_id}"
    if problem:
        raise InputError(
            f"the tokenizer in {folder} {problem}; put the tokenizer there that the model was trained with"
        )
    generation = read_generation(folder, theirs, config, vocabulary)
    return Imported(config, params, tokenizer, vocabulary, generation, read_origin(folder, theirs))


def export_folder(
    folder: Path,
    config: ModelConfig,
    params: Any,
    tokenizer: Tokenizer | None,
    *,
    vocabulary: Vocabulary | None = None,
    generation: GenerationDefaults | None = None,
    origin: Origin | None = None,
    labels: tuple[str, ...] = (),
    part: str | None = None,
    image_processor: Mapping[str, Any] | None = None,
    independent_classes: bool | None = None,
    dtype: str = "float32",
) -> None:
    """Writes a folder that Transformers' `from_pretrained` opens; without the tokenizer where it has no class for it.

    Args:
      vocabulary: the special ids where there is no tokenizer; None means those of the published models.
      generation: how it generates.
      origin: the folder that the model came from, whose special ids and labels are written again.
      labels: the names of the classes of a task's head, where they are known.
      part: the network to write of a model of several (ELECTRA); None means the one that is kept.
      image_processor: the preprocessor_config.json of a model of pictures; None means that of `default_processor`.
      independent_classes: whether each class has a probability of its own; None means as `origin` has it.
      dtype: of the tensors.
    """
    from safetensors.numpy import save_file

    if config.networks:
        config, params = config.separate(params, part or config.networks[0])
    families = [family for family in FAMILIES if family.config is type(config)]
    fitting = [family for family in families if family.fits(config, tokenizer)]
    fitting += [family for family in families if origin and family.model_type == origin.model_type]
    if not fitting:
        known = ", ".join(dict.fromkeys(family.config.__name__ for family in FAMILIES))
        raise InputError(f"{type(config).__name__} has no Hugging Face counterpart; those with one are {known}")
    family = fitting[-1]
    vocabulary = vocabulary if tokenizer is None else tokenizer.vocabulary
    description = _description(family, config, vocabulary, generation, origin, labels, independent_classes)
    params, abstract = (
        {name: tree[name] for name in tree if name not in _OURS_ALONE}
        for tree in (params, nn.unbox(abstract_params(config)))
    )
    tensors = to_theirs(family.names(config), params, abstract)
    tensors |= family.further_tensors(config, tensors)
    counts = {name: tensor for name, tensor in tensors.items() if tensor.dtype.kind == "i"}
    tensors = {name: tensor.astype(jnp.dtype(dtype)) for name, tensor in tensors.items() if name not in counts}
    description["dtype"] = dtype
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None and can_write(tokenizer):
        write_tokenizer(folder, tokenizer, description["model_type"])
    # Among the weights, so that a program that writes these anew leaves no checksums of the old ones.
    sums = {name: _checksum(tensor) for name, tensor in tensors.items()}
    weights = folder / "model.safetensors"
    save_file(tensors | counts, weights, metadata={"format": "pt", _CHECKSUMS: json.dumps(sums)})
    _sort_metadata(weights)
    if origin and origin.generation:
        (folder / GENERATION_FILE).write_text(json.dumps(json.loads(origin.generation), indent=2) + "\n")
    if processor := image_processor or default_processor(config, origin):
        (folder / IMAGE_PROCESSOR_FILE).write_text(json.dumps(processor, indent=2) + "\n")
    # Last, since it makes the folder one of theirs.
    (folder / "config.json").write_text(json.dumps(description, indent=2) + "\n")
    # safetensors writes a file that nobody else may read; not every file system has modes.
    with contextlib.suppress(OSError):
        shutil.copymode(folder / "config.json", weights)
    write_checksums(folder)


def _description(
    family: HuggingFaceFamily,
    config: ModelConfig,
    vocabulary: Vocabulary | None,
    generation: GenerationDefaults | None,
    origin: Origin | None,
    labels: tuple[str, ...],
    independent_classes: bool | None,
) -> dict[str, Any]:
    """The config.json of `export_folder`."""
    description = family.export_config(config, vocabulary)
    if description.get("is_encoder_decoder"):
        # Even where nothing is forced, since what is left out means the family's defaults there.
        forced = generation or GenerationDefaults()
        description |= {"forced_bos_token_id": forced.forced_first_id, "forced_eos_token_id": forced.forced_last_id}
        if forced.suppressed_ids:
            description["bad_words_ids"] = [[token_id] for token_id in forced.suppressed_ids]
    elif generation and not generation.ends:
        description |= dict.fromkeys(("bos_token_id", "eos_token_id"))
    if len(labels) == getattr(config, "num_classes", 0) and "id2label" in description:
        description |= {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
    if origin and origin.model_type == family.model_type:
        num_classes = config.num_classes if "id2label" in description else None
        description = origin.restore(description, num_classes)
    if independent_classes is not None and "id2label" in description and config.num_classes > 1:
        description.pop("problem_type", None)
        description |= {"problem_type": MULTI_LABEL} if independent_classes else {}
    return description


def default_processor(config: ModelConfig, origin: Origin | None) -> dict[str, Any]:
    """The preprocessor_config.json of a model of pictures: that of the folder it came from, or else what the published
    models of the family have, for pictures of the config's size; empty for other models."""
    if origin and origin.processor:
        return origin.processor
    families = [family for family in FAMILIES if family.config is type(config)]
    of_origin = [family for family in families if origin and family.model_type == origin.model_type]
    return (of_origin or families)[0].image_processor(config) if families else {}


def _checksum(tensor: np.ndarray) -> str:
    # As bytes, since bfloat16 is not a format of Python's buffers.
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))


def _sort_metadata(file: Path) -> None:
    """Gives equal weights equal files: the library writes its metadata in any order."""
    with file.open("r+b") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        sorted_header = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(sorted_header) <= size:
            opened.seek(8)
            opened.write(sorted_header.ljust(size))


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.exists():
        raise InputError(f"{path} is missing; name a folder with config.json and model.safetensors")
    config = read_json(path)
    # Early conversions of BERT and SpanBERT name no type, and nothing that only another family has.
    if "model_type" not in config and set(config) >= _EARLY_BERT and "embedding_size" not in config:
        return config | {"model_type": "bert"}
    return config


def _read_tensors(folder: Path, theirs: dict[str, Any]) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("model*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise InputError(f"{index} has no weight_map; it is damaged: fetch it again")
        files = sorted({folder / name for name in weight_map.values()})
    if not files:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
        remedy = "fetch it, or name another folder"
        if pickles:
            # The class of the weights: another one would lose heads, or add untrained ones.
            name = class_of(theirs) or "AutoModel"
            call = f"transformers.{name}.from_pretrained({str(folder)!r}).save_pretrained('new_folder')"
            remedy = (
                f"it has {', '.join(pickles)}, which we do not open; if you trust it, convert it once with "
                f"Transformers: import transformers; {call}"
            )
        raise InputError(f"{folder} has no model.safetensors; {remedy}")
    tensors = {}
    for file in files:
        try:
            with safe_open(file, "numpy") as opened:
                dtypes = {name: opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
                found = {name: opened.get_tensor(name) for name, dtype in dtypes.items() if dtype in _DTYPES}
                sums = json.loads((opened.metadata() or {}).get(_CHECKSUMS, "{}"))
        except (SafetensorError, OSError, ValueError) as error:
            raise InputError(f"{file} cannot be read ({error}); it is missing or truncated: fetch it again") from None
        if unread := [name for name in dtypes if name not in found]:
            raise InputError(
                f"{file} has {unread[0]} in {dtypes[unread[0]]}, which is not read; save it in BF16 or F32"
            )
        if isinstance(sums, dict) and (different := [n for n in sums if n in found and _checksum(found[n]) != sums[n]]):
            raise InputError(
                f"{file} is damaged: {different[0]} is not what was written; use a copy, or export it again"
            )
        tensors |= found
    return tensors
