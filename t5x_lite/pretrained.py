"""The notebook's door: a trained model from a run's folder, one of its steps, or Hugging Face."""

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.convert import import_folder, is_huggingface_folder
from t5x_lite.data import Tokenizer, Vocabulary, load_tokenizer
from t5x_lite.decoding import greedy_decode
from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.objectives.losses import shift_right
from t5x_lite.training.checkpoints import Checkpoint, Files, is_checkpoint, latest_step, read_checkpoint
from t5x_lite.training.experiment import Experiment

_LENGTH_STEP = 32  # inputs are padded to a multiple of it, so that few lengths are compiled


@dataclass(frozen=True)
class Pretrained:
    """A model with its weights and its tokenizer, on one device.

    Calling it gives logits; `generate` gives text. `module.apply({"params": params}, ...)` is the pure function below.
    """

    config: ModelConfig
    module: nn.Module
    params: Any
    tokenizer: Tokenizer | None
    experiment: Experiment | None = None
    """The run that made it; None for a Hugging Face folder."""

    def __call__(
        self, inputs: list[str] | Int[Array, "B M"], targets: list[str] | Int[Array, "B L"]
    ) -> Float[Array, "B L V"]:
        """Logits of each target token given the inputs and the targets before it.

        Texts are tokenized, closed by EOS and padded to the longest; of ids, those equal to the padding id count as
        padding.
        """
        input_ids, target_ids = self._ids(inputs), self._ids(targets)
        pad_id = self._vocabulary.pad_id
        return _logits(self.module, self.params, input_ids, shift_right(target_ids, pad_id), input_ids != pad_id)

    def generate(self, texts: list[str] | str, *, max_length: int = 128) -> list[str] | str:
        """The model's continuation of each text, greedily: for T5 the spans behind `<extra_id_0>`, `<extra_id_1>`, ...

        One text gives one text. `max_length` counts tokens.
        """
        if isinstance(texts, str):
            return self.generate([texts], max_length=max_length)[0]
        if max_length < 1:
            raise InputError(f"max_length={max_length} is too small; choose 1 or more")
        ids = self.generate_ids(self._encode(texts, _LENGTH_STEP), max_length=max_length)
        return [self.tokenizer.decode(row) for row in np.asarray(ids).tolist()]

    def generate_ids(
        self, inputs: Int[Array, "B M"], *, max_length: int = 128, inputs_valid: Bool[Array, "B M"] | None = None
    ) -> Int[Array, "B L"]:
        """Greedy decoding of ids; `inputs_valid` is by default true where the inputs are no padding."""
        vocabulary = self._vocabulary
        inputs = jax.numpy.asarray(inputs)
        return greedy_decode(
            self.module,
            self.params,
            inputs,
            max_length=max_length,
            inputs_valid=inputs != vocabulary.pad_id if inputs_valid is None else inputs_valid,
            start_id=vocabulary.pad_id,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
        )

    @property
    def _vocabulary(self) -> Vocabulary:
        return self.tokenizer.vocabulary if self.tokenizer else Vocabulary(self.config.vocab_size)

    def _ids(self, texts: list[str] | Int[Array, "B L"]) -> Int[Array, "B L"]:
        is_text = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        return self._encode(texts, 1) if is_text else jax.numpy.asarray(texts)

    def _encode(self, texts: list[str], multiple: int) -> Int[Array, "B L"]:
        if self.tokenizer is None:
            raise InputError("this checkpoint came without a tokenizer; give ids instead of text")
        if not texts:
            raise InputError("texts=[] is empty; give one or more")
        rows = [[*self.tokenizer.encode(text), self._vocabulary.eos_id] for text in texts]
        length = -(-max(map(len, rows)) // multiple) * multiple
        padded = [row + [self._vocabulary.pad_id] * (length - len(row)) for row in rows]
        return jax.numpy.asarray(padded, jax.numpy.int32)


def load(path: str | Path) -> Pretrained:
    """Opens a run's folder (its latest step), one step of it, a Hugging Face folder, or a Hugging Face hub name.

    The parameters lie on one CPU device, whatever mesh wrote them. No code from the folder is run, nothing is
    unpickled. Raises `InputError` for what is none of these, is truncated, or does not fit together.
    """
    folder = Path(path).expanduser()
    cpu = jax.local_devices(backend="cpu")[0]
    if not folder.exists():
        folder = _download(str(path))
    if is_huggingface_folder(folder):
        imported = import_folder(folder)
        params = jax.device_put(imported.params, cpu)
        return Pretrained(imported.config, imported.config.build(), params, imported.tokenizer)
    checkpoint = open_checkpoint(folder)
    config = checkpoint.experiment.model
    tokenizer = tokenizer_from_files(checkpoint.tokenizer_files)
    if tokenizer and tokenizer.vocabulary.size > config.vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {tokenizer.vocabulary.size} ids, the model only {config.vocab_size}; "
            "it is not the one that the model was trained with"
        )
    return Pretrained(config, config.build(), checkpoint.params, tokenizer, checkpoint.experiment)


def open_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a run's folder (the latest) or in a step's."""
    step = folder if is_checkpoint(folder) else latest_step(folder / "checkpoints")
    if step is None:
        raise InputError(
            f"{folder} holds no checkpoint; name a run's folder, one of its checkpoints, or a Hugging Face folder"
        )
    checkpoint = read_checkpoint(step, SingleDeviceSharding(jax.local_devices(backend="cpu")[0]))
    needed, found = _shapes(nn.unbox(abstract_params(checkpoint.experiment.model))), _shapes(checkpoint.params)
    if different := sorted(path for path in needed | found if needed.get(path) != found.get(path)):
        path = different[0]
        raise InputError(
            f"{step} does not fit its model: {len(different)} parameters differ, the first is {path} with shape "
            f"{found.get(path)} where the model has {needed.get(path)}; use another checkpoint"
        )
    return checkpoint


@partial(jax.jit, static_argnums=0)
def _logits(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    decoder_inputs: Int[Array, "B L"],
    inputs_valid: Bool[Array, "B M"],
) -> Float[Array, "B L V"]:
    return module.apply({"params": params}, inputs, decoder_inputs, inputs_valid=inputs_valid)


def _shapes(params: Any) -> dict[str, tuple[int, ...]]:
    return {path: leaf.shape for path, leaf in traverse_util.flatten_dict(params, sep="/").items()}


def tokenizer_from_files(files: Files) -> Tokenizer | None:
    """The tokenizer that a checkpoint carries; None if it carries none."""
    if not files:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / Path(name).name).write_bytes(content)
        return load_tokenizer(Path(folder))


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["config.json", "*.safetensors", "*.safetensors.index.json", "spiece.model", "tokenizer_config.json"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name} is no folder here and no model on the Hugging Face hub ({reason}); check the name"
        ) from None
