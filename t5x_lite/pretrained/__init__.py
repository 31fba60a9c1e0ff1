"""The notebook's door: a trained model from a run's folder, one of its steps, or Hugging Face."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, SingleDeviceSharding

from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.parallel import MeshShape, make_mesh, shardings
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.decoders import PretrainedDecoder, PretrainedEncoderDecoder
from t5x_lite.pretrained.encoder import Detection, PretrainedEncoder, Suggestion
from t5x_lite.pretrained.probing import Labeled, Probed, Probes, Tagged, probe_tags, probe_texts
from t5x_lite.pretrained.task_heads import FoundAnswer, LikelyClass, TaggedWord
from t5x_lite.pretrained.text_model import Answer, PretrainedTextModel, Score
from t5x_lite.runs.open_model import open_model

__all__ = [
    "Answer",
    "Detection",
    "FoundAnswer",
    "Labeled",
    "LikelyClass",
    "Pretrained",
    "PretrainedDecoder",
    "PretrainedEncoder",
    "PretrainedEncoderDecoder",
    "PretrainedTextModel",
    "Probed",
    "Probes",
    "Score",
    "Suggestion",
    "Tagged",
    "TaggedWord",
    "load",
    "probe_tags",
    "probe_texts",
]

_CLASSES = {"encoder": PretrainedEncoder, "decoder": PretrainedDecoder, "encoder-decoder": PretrainedEncoderDecoder}


def load(path: str | Path, device: str | jax.Device | MeshShape | Mesh | None = None, dtype: Any = None) -> Pretrained:
    """Opens a run's folder (its latest step), one step of it, a Hugging Face folder, or a Hugging Face hub name.

    An encoder-decoder (T5, Transformer, Marian, BART) becomes a `PretrainedEncoderDecoder`, a decoder (GPT, T5's alone)
    a `PretrainedDecoder`, an encoder a `PretrainedEncoder`, and any other model a `Pretrained`. No code from the folder
    is run, nothing is unpickled.

    Args:
      path: of the folder.
      device: where the parameters go, whatever mesh wrote them: a device or a platform (`"cpu"`, `"gpu"`, `"tpu"`), by
        default the first accelerator and a CPU where there is none; or several, over which they are sharded, as
        `MeshShape(tensor=4)` has it or a mesh.
      dtype: of the parameters and of what is computed, such as `"bfloat16"`; by default both are float32.

    Raises `InputError` for a path that holds no model, is truncated, or does not fit together, and for a device or a
    type that there is not.
    """
    try:
        dtype = None if dtype is None else jnp.dtype(dtype)
    except TypeError:
        raise InputError(f"dtype={dtype!r} is not a type; choose float32, bfloat16 or float16") from None
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise InputError(f"dtype={dtype} is not a type of parameters; choose float32, bfloat16 or float16")
    find_sharding = _sharding(device)
    opened = open_model(path)
    config, params = opened.config, opened.params
    if dtype is not None:
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    params = jax.device_put(params, find_sharding(config))
    return _CLASSES.get(config.architecture, Pretrained)(
        config,
        config.build() if dtype is None else config.build(dtype=dtype),
        params,
        opened.tokenizer,
        opened.experiment,
        opened.vocabulary,
        opened.generation,
        opened.origin,
    )


def _sharding(device: str | jax.Device | MeshShape | Mesh | None) -> Callable[[ModelConfig], Any]:
    """The sharding of a model's parameters."""
    if isinstance(device, MeshShape):
        device = make_mesh(device)
    if isinstance(device, Mesh):
        return lambda config: shardings(device, abstract_params(config))
    if device is None or isinstance(device, str):
        try:
            device = jax.local_devices(backend=device)[0]
        except RuntimeError:
            platforms = ", ".join(sorted({"cpu", jax.default_backend()}))
            raise InputError(f"device={device!r} is not here; choose one of {platforms}, or leave it out") from None
    if not isinstance(device, jax.Device):
        raise InputError(f"device={device!r} is not a device; give one of jax.devices(), a platform or a MeshShape")
    return lambda config: SingleDeviceSharding(device)
