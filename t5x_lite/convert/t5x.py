"""T5X's checkpoints of T5, mT5 and ByT5 (Roberts et al. 2022): a msgpack file, or a folder of arrays for TensorStore.

They hold no config: sizes are those of the arrays, and the rest is that of T5 v1.0 where the output is the embedding,
of v1.1 elsewhere. Optimizer states are not read. Layers are apart, or in one array with their axis second (`nn.scan`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn
from flax import serialization, traverse_util

from t5x_lite.checksums import Folder
from t5x_lite.convert.huggingface import Imported
from t5x_lite.convert.table import Names, PutFor, TensorName, keep, to_ours
from t5x_lite.data import Bytes, Vocabulary, make_tokenizer
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket
from t5x_lite.models import PRESETS, ModelConfig, T5Config, abstract_params

_FILE = "checkpoint"
_NUMBERED = re.compile(r"checkpoint_(\d+)")
_OTHER_FILES = (".safetensors", ".json", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".model", ".py")
_PLACEHOLDER = "PLACEHOLDER://"  # for an array that Orbax has written beside the file
_MOST_COMPRESSION = 2_000  # deflate's is 1,032
_EMBEDDING, _OUTPUT = "token_embedder/embedding", "decoder/logits_dense/kernel"
_LAYER = re.compile(r"(encoder|decoder)/layers_(\d+)/")
_SUBLAYERS = {
    "encoder": {"self_attention": "attention", "feed_forward": "mlp"},
    "decoder": {
        "self_attention": "self_attention",
        "cross_attention": "encoder_decoder_attention",
        "feed_forward": "mlp",
    },
}
_NORMS = {
    ("encoder", "self_attention"): "pre_attention_layer_norm",
    ("decoder", "self_attention"): "pre_self_attention_layer_norm",
    ("decoder", "cross_attention"): "pre_cross_attention_layer_norm",
    ("encoder", "feed_forward"): "pre_mlp_layer_norm",
    ("decoder", "feed_forward"): "pre_mlp_layer_norm",
}


def find_t5x_checkpoint(path: Folder) -> Folder | None:
    """The checkpoint at a path: a file, a folder with a file `checkpoint`, or the latest in a folder of such folders
    and files (`checkpoint_1000`); None where there is none. Raises `InputError` for a file of another format."""
    if path.is_file() and path.suffix in _OTHER_FILES:
        raise InputError(f"{path} is one file of a model; name its folder, {path.parent}")
    if path.is_file() or (path / _FILE).is_file():
        return path
    if not path.is_dir():
        return None
    steps = {entry: match for entry in path.iterdir() if (match := _NUMBERED.fullmatch(entry.name))}
    found = [entry for entry in steps if entry.is_file() or (entry / _FILE).is_file()]
    return max(found, key=lambda entry: int(steps[entry][1]), default=None)


def import_t5x(checkpoint: Folder, put_for: PutFor = keep) -> Imported:
    """Reads a checkpoint that `find_t5x_checkpoint` gives. Arrays are read one after another, none is unpickled.

    ByT5 has its tokenizer, the others none.

    Args:
      put_for: as in `import_folder`.

    Raises `InputError` for one that is damaged, and for other models than T5.
    """
    tensors = _read_tensors(checkpoint)
    try:
        config, stacked = _read_config(tensors), not any(map(_LAYER.match, tensors))
    except KeyError as missing:
        raise InputError(
            f"{checkpoint} has no {missing.args[0]}, as T5X's checkpoints of T5 have; give one of T5, mT5 or ByT5"
        ) from None
    except InputError as error:
        raise InputError(f"the arrays in {checkpoint} are not those of a T5: {error}") from None
    abstract, names = nn.unbox(abstract_params(config)), _names(config, stacked)
    params = to_ours(names, tensors, abstract, put_for(config), described="T5X's names for a T5 of its sizes")
    tokenizer = make_tokenizer(Bytes(0), iter) if config.vocab_size == PRESETS["byt5-small"].vocab_size else None
    vocabulary = tokenizer.vocabulary if tokenizer else Vocabulary(config.vocab_size)
    return Imported(config, params, tokenizer, vocabulary, GenerationDefaults(), None)


@dataclass(frozen=True)
class _Tensor:
    """An array of a checkpoint, with the axes of heads joined and that of layers first; it is read when it is used."""

    name: str
    stored: Any
    """Of NumPy or of TensorStore."""
    has_layers: bool

    @property
    def shape(self) -> tuple[int, ...]:
        shape = tuple(self.stored.shape)
        layers = ()
        if self.has_layers and len(shape) > 1:
            layers, shape = shape[1:2], shape[:1] + shape[2:]
        if re.search("/(query|key|value)/kernel$", self.name):
            shape = (*shape[:1], math.prod(shape[1:]))
        elif self.name.endswith("/out/kernel"):
            shape = (math.prod(shape[:-1]), *shape[-1:])
        return layers + shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        try:
            values = self.stored if isinstance(self.stored, np.ndarray) else self.stored.read().result()
        except (ValueError, OSError) as error:
            raise InputError(f"{self.name} cannot be read ({error!s:.200}); fetch the checkpoint again") from None
        if self.has_layers and values.ndim > 1:
            values = np.moveaxis(values, 1, 0)
        return values.reshape(self.shape).astype(dtype or values.dtype)


def _read_tensors(checkpoint: Folder) -> dict[str, _Tensor]:
    """By path with slashes."""
    folder = checkpoint.parent if checkpoint.is_file() else checkpoint
    file = checkpoint if checkpoint.is_file() else checkpoint / _FILE
    damaged = f"{file} cannot be read as a checkpoint of T5X"
    if not file.is_file():
        raise InputError(f"{damaged}: it is not a file; fetch it again")
    try:
        with epath.Path(file).open("rb") as opened:
            target = _read_target(opened)
    except Exception as error:  # what msgpack and Flax raise depends on the damage
        raise InputError(f"{damaged} ({str(error) or type(error).__name__:.200}); fetch it again") from None
    if not isinstance(target, dict) or not target:
        raise InputError(f"{damaged}: it has no optimizer/target; name a file or folder that T5X wrote")
    leaves = traverse_util.flatten_dict(target, is_leaf=lambda _, value: "driver" in value or not value)
    tensors, folders = {}, {entry.name for entry in folder.iterdir() if entry.is_dir()}
    for path, leaf in leaves.items():
        name = "/".join(map(str, path))
        stored = leaf if isinstance(leaf, np.ndarray) else _open_array(folder, folders, name, leaf)
        if not jnp.issubdtype(jnp.dtype(getattr(stored.dtype, "numpy_dtype", stored.dtype)), jnp.floating):
            raise InputError(f"{name} in {file} does not hold floating-point numbers; fetch it again")
        tensors[name] = _Tensor(name, stored, bool(re.match(r"encoder/encoder/|decoder/decoder/", name)))
    return tensors


def _read_target(file: Any) -> Any:
    """The tree of parameters in a msgpack file; what stands beside it is skipped."""
    import msgpack

    unpacker = msgpack.Unpacker(file, max_buffer_size=0)
    for wanted in (("optimizer", "_optimizer"), ("target",)):
        for _ in range(unpacker.read_map_header()):
            if unpacker.unpack() in wanted:
                break
            unpacker.skip()
        else:
            return None
    start = unpacker.tell()
    unpacker.skip()
    size = unpacker.tell() - start
    file.seek(start)
    return serialization.msgpack_restore(file.read(size))


def _open_array(folder: Folder, folders: set[str], name: str, leaf: Any) -> Any:
    """The array in one of the folders in `folder` that a leaf of the msgpack file stands for."""
    import tensorstore

    spec = leaf if isinstance(leaf, Mapping) else {}
    if isinstance(leaf, str) and leaf.startswith(_PLACEHOLDER):
        stated = leaf.removeprefix(_PLACEHOLDER)
    else:
        kvstore = spec.get("kvstore")
        stated = str(kvstore.get("path", "")) if isinstance(kvstore, Mapping) else ""
    # Where the checkpoint was written does not matter: its arrays lie beside its file.
    last = stated.rstrip("/").rpartition("/")[2]
    if last not in folders:
        raise InputError(f"{folder} lacks the folder {last!r:.99} with the array {name}; fetch the whole checkpoint")
    array = folder / last
    if not is_in_bucket(array):
        files = [file for file in Path(array).rglob("*") if not file.is_dir()]
        if odd := [file for file in files if not file.is_file()]:
            raise InputError(f"{odd[0]} is not a file; fetch the checkpoint again")
    opening: dict[str, Any] = {
        "driver": "zarr",
        "kvstore": _location(array),
        "open": True,
        "fill_missing_data_reads": False,
    }
    if not (array / ".zarray").exists():  # as where files that begin with a dot were left behind
        opening |= {"assume_metadata": True} | {key: spec[key] for key in ("metadata", "dtype") if key in spec}
    try:
        stored = tensorstore.open(opening, read=True).result()
    except (ValueError, OSError, TypeError) as error:
        raise InputError(f"{array} cannot be read ({error!s:.200}); fetch the checkpoint again") from None
    if not is_in_bucket(array):
        there = sum(file.stat().st_size for file in files)
        if math.prod(stored.shape) > there * _MOST_COMPRESSION:
            raise InputError(f"{array} has {there:,} bytes for the shape {stored.shape}; fetch the checkpoint again")
    return stored


def _location(array: Folder) -> str | dict[str, str]:
    return f"{array}/" if is_in_bucket(array) else {"driver": "file", "path": f"{array}/"}


def _read_config(tensors: Mapping[str, _Tensor]) -> T5Config:
    """Raises KeyError with the name of an array that T5 has and these do not."""
    (vocab_size, embed_dim), tied = _shape(tensors, _EMBEDDING, 2), _OUTPUT not in tensors
    depths = {"encoder": 0, "decoder": 0}
    for match in filter(None, map(_LAYER.match, tensors)):
        depths[match[1]] = max(depths[match[1]], int(match[2]) + 1)
    stacks = {"encoder": "encoder/layers_0", "decoder": "decoder/layers_0"}
    if not any(depths.values()):
        stacks = {"encoder": "encoder/encoder", "decoder": "decoder/decoder"}
        for stack, layers in stacks.items():
            depths[stack] = _shape(tensors, f"{layers}/pre_mlp_layer_norm/scale", 2)[0]
    query = _shape(tensors, f"{stacks['encoder']}/attention/query/kernel")
    num_heads, buckets = _shape(tensors, "encoder/relpos_bias/rel_embedding", 2)
    if query[-1] % max(num_heads, 1):
        raise InputError(f"query has {query[-1]} features for {num_heads} heads; fetch the checkpoint again")
    gated = f"{stacks['encoder']}/mlp/wi_0/kernel" in tensors
    return T5Config(
        vocab_size=vocab_size,
        embed_dim=embed_dim,
        num_heads=num_heads,
        head_dim=query[-1] // num_heads,
        mlp_dim=_shape(tensors, f"{stacks['encoder']}/mlp/wo/kernel")[-2],
        num_encoder_layers=depths["encoder"],
        num_decoder_layers=depths["decoder"],
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        tied=tied,
        scale_output=tied,
        relative_buckets=buckets,
    )


def _shape(tensors: Mapping[str, _Tensor], name: str, dims: int | None = None) -> tuple[int, ...]:
    shape = tensors[name].shape
    if len(shape) < 2 or len(shape) != (dims or len(shape)):
        raise InputError(f"{name} has the shape {shape}; fetch the checkpoint again")
    return shape


def _names(config: ModelConfig, stacked: bool) -> Names:
    names = {
        "token_embedding/embedding": TensorName(_EMBEDDING),
        "output/kernel": TensorName(_OUTPUT),
    }
    for stack, sublayers in _SUBLAYERS.items():
        layers = f"{stack}/{stack}" if stacked else f"{stack}/layers_{{layer}}"
        names[f"{stack}/final_norm/scale"] = TensorName(f"{stack}/{stack}_norm/scale")
        names[f"{stack}_position_bias/bias"] = TensorName(f"{stack}/relpos_bias/rel_embedding", transpose=True)
        for ours, theirs in sublayers.items():
            names[f"{stack}/layers/{ours}_norm/scale"] = TensorName(f"{layers}/{_NORMS[stack, ours]}/scale")
            kernels = {kernel: kernel for kernel in ("query", "key", "value", "out")}
            if ours == "feed_forward":
                kernels = {"gate": "wi_0", "wi": "wi_1" if config.gated else "wi", "wo": "wo"}
            for kernel, name in kernels.items():
                names[f"{stack}/layers/{ours}/{kernel}/kernel"] = TensorName(f"{layers}/{theirs}/{name}/kernel")
    return names
