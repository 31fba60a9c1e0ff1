"""The notebook's door: a trained model from a run's folder, one of its steps, or Hugging Face."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh, SingleDeviceSharding

from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, ModelConfig, SiglipConfig, abstract_params
from t5x_lite.parallel import MeshShape, make_mesh, shardings
from t5x_lite.pretrained.base import Pretrained, float_dtype
from t5x_lite.pretrained.decoders import PretrainedDecoder, PretrainedEncoderDecoder
from t5x_lite.pretrained.detection import FoundObject, FoundObjects, PretrainedDetector, QueryAttention
from t5x_lite.pretrained.elmo import PretrainedElmo
from t5x_lite.pretrained.encoder import Detection, PretrainedEncoder, Suggestion
from t5x_lite.pretrained.image_texts import FoundImage, ImageSearch, PretrainedImageText
from t5x_lite.pretrained.images import AttentionRollout, DrawnResult, PretrainedImageModel, ReadsImages, Reconstruction
from t5x_lite.pretrained.probing import Labeled, Probed, Probes, Tagged, probe_tags, probe_texts
from t5x_lite.pretrained.retriever import FoundPassage, FoundPassages, OpenAnswer, PretrainedRetriever
from t5x_lite.pretrained.task_heads import FoundAnswer, LikelyClass, TaggedWord
from t5x_lite.pretrained.text_model import Answer, PretrainedTextModel, Score
from t5x_lite.runs.open_model import OpenedModel, check_tokenizer, open_model
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.config import SentencePiece, TokenizerConfig, TokenizerFile, is_trained, make_tokenizer

__all__ = [
    "Answer",
    "AttentionRollout",
    "Detection",
    "DrawnResult",
    "FoundAnswer",
    "FoundImage",
    "FoundObject",
    "FoundObjects",
    "FoundPassage",
    "FoundPassages",
    "ImageSearch",
    "Labeled",
    "LikelyClass",
    "OpenAnswer",
    "Pretrained",
    "PretrainedDecoder",
    "PretrainedDetector",
    "PretrainedEncoder",
    "PretrainedEncoderDecoder",
    "PretrainedImageModel",
    "PretrainedImageText",
    "PretrainedRetriever",
    "PretrainedTextModel",
    "Probed",
    "Probes",
    "QueryAttention",
    "ReadsImages",
    "Reconstruction",
    "Score",
    "Suggestion",
    "Tagged",
    "TaggedWord",
    "load",
    "probe_tags",
    "probe_texts",
]

_CLASSES = {
    "encoder": PretrainedEncoder,
    "decoder": PretrainedDecoder,
    "encoder-decoder": PretrainedEncoderDecoder,
    "images": PretrainedImageModel,
    "images and texts": PretrainedImageText,
    "detection": PretrainedDetector,
    "words": PretrainedElmo,
    "retriever": PretrainedRetriever,
}


def load(
    path: str | Path,
    device: str | jax.Device | MeshShape | Mesh | None = None,
    dtype: Any = None,
    *,
    tokenizer: str | Path | TokenizerConfig | Tokenizer | None = None,
) -> Pretrained:
    """Opens a run's folder (its latest step), one of its steps, a Hugging Face folder or hub name, a checkpoint of T5X,
    or a model that comes with the package: `demo/de-en`, `demo/bert-novels`, `demo/t5-novels`.

    An encoder-decoder (T5, Transformer, Marian, BART) becomes a `PretrainedEncoderDecoder`, a decoder (GPT, T5's alone)
    a `PretrainedDecoder`, an encoder a `PretrainedEncoder`, a model of pictures (ViT, DeiT, MAE, ResNet) a
    `PretrainedImageModel`, one of pictures and texts (CLIP, SigLIP) a `PretrainedImageText`, one that finds objects
    (DETR) a `PretrainedDetector`, ELMo a `PretrainedElmo`, a retriever (REALM) a `PretrainedRetriever`, and any other
    model a `Pretrained`. No code from the folder is run, nothing is unpickled.

    Args:
      path: of the folder; of T5X's checkpoints of one file, that file.
      device: where the parameters go, whatever mesh wrote them: a device or a platform (`"cpu"`, `"gpu"`, `"tpu"`), by
        default the first accelerator and a CPU where there is none; or several, over which they are sharded, as
        `MeshShape(tensor=4)` has it or a mesh. They go there one after another, as they are read.
      dtype: of the parameters and of what is computed, such as `"bfloat16"`; by default both are float32.
      tokenizer: of a model that comes without one, as T5X's do: a SentencePiece model, a tokenizer.json, or a value
        such as `SentencePiece(model_file=...)`. A `.model` file has T5's 100 sentinels on top unless it is mT5's.

    Raises `InputError` for a path that holds no model, is truncated, or does not fit together, for a device or a type
    that there is not, for a model that its devices have no memory for, and for a second tokenizer.
    """
    dtype = float_dtype(dtype)
    try:
        opened = open_model(path, _sharding(device), dtype)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise InputError(
            f"{path} is larger than the memory of its device; give several, such as device=MeshShape(tensor=4), "
            "device='cpu', or dtype='bfloat16'"
        ) from None
    config = opened.config
    if tokenizer is not None and config.vocab_size is None:
        raise InputError(f"tokenizer={str(tokenizer)!r:.99}: {path} reads no tokens; leave tokenizer out")
    if tokenizer is not None:
        if opened.tokenizer is not None:
            raise InputError(f"tokenizer={str(tokenizer)!r:.99}: {path} has its own tokenizer; leave tokenizer out")
        own = _open_tokenizer(tokenizer, config)
        opened = replace(opened, tokenizer=own, vocabulary=own.vocabulary)
    return with_methods(opened, _name(path), dtype)


def with_methods(opened: OpenedModel, name: str, dtype: Any = None) -> Pretrained:
    """An opened model as what `load` gives, computing in `dtype`, under a name for titles."""
    config = opened.config
    return _CLASSES.get(config.architecture, Pretrained)(
        config,
        config.build() if dtype is None else config.build(dtype=dtype),
        opened.params,
        opened.tokenizer,
        opened.experiment,
        opened.vocabulary,
        opened.generation,
        opened.origin,
        name,
        opened.classes,
    )


def _name(path: str | Path) -> str:
    """The end of a path that names the model.

    >>> _name("runs/t5_tiny/"), _name("/home/me/runs/t5_tiny/checkpoints/500"), _name("google/t5-small")
    ('runs/t5_tiny', 'runs/t5_tiny/checkpoints/500', 'google/t5-small')
    """
    parts = Path(path).parts
    return "/".join(part.strip("/") for part in parts[-4 if "checkpoints" in parts[-2:] else -2 :]).strip("/")


def _open_tokenizer(given: str | Path | TokenizerConfig | Tokenizer, config: ModelConfig) -> Tokenizer:
    """The tokenizer that a user gives to a model without one."""
    value = given
    if isinstance(value, str | Path):
        path = Path(value).expanduser()
        if path.suffix == ".model":
            # mT5's sentinels are pieces of its model.
            extra_ids = 0 if config.vocab_size == PRESETS["mt5-small"].vocab_size else 100
            layout = "siglip" if isinstance(config, SiglipConfig) else "t5"
            value = SentencePiece(extra_ids=extra_ids, model_file=str(path), layout=layout)
        else:
            value = TokenizerFile(str(path))
    if isinstance(value, TokenizerConfig) and is_trained(value):
        raise InputError(f"tokenizer={value} is one to be trained; name the file of one that was trained")
    tokenizer = make_tokenizer(value, iter) if isinstance(value, TokenizerConfig) else value
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"tokenizer={given!r:.99} is not a tokenizer; name its file")
    check_tokenizer(str(given), config, tokenizer)
    return tokenizer


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
