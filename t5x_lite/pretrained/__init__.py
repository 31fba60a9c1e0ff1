"""The notebook's door: a trained model from a run's folder, one of its steps, or Hugging Face."""

from pathlib import Path

from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.decoders import PretrainedDecoder, PretrainedEncoderDecoder
from t5x_lite.pretrained.encoder import Detection, PretrainedEncoder, Suggestion
from t5x_lite.pretrained.encoder_tasks import FoundAnswer, LikelyClass, TaggedWord
from t5x_lite.pretrained.probing import Labeled, Probed, Probes, Tagged, probe_tags, probe_texts
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


def load(path: str | Path) -> Pretrained:
    """Opens a run's folder (its latest step), one step of it, a Hugging Face folder, or a Hugging Face hub name.

    An encoder-decoder (T5, Transformer, Marian, BART) becomes a `PretrainedEncoderDecoder`, a decoder (GPT, T5's alone)
    a `PretrainedDecoder`, an encoder a `PretrainedEncoder`, and any other model a `Pretrained`. The parameters are on
    one CPU device, whatever mesh wrote them. No code from the folder is run, nothing is unpickled. Raises `InputError`
    for a path that holds no model, is truncated, or does not fit together.
    """
    opened = open_model(path)
    return _CLASSES.get(opened.config.architecture, Pretrained)(
        opened.config,
        opened.config.build(),
        opened.params,
        opened.tokenizer,
        opened.experiment,
        opened.vocabulary,
        opened.generation,
        opened.origin,
    )
