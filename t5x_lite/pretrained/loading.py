"""From a place on disk, or a name on the Hugging Face hub, to the class that fits the model there."""

from pathlib import Path

from t5x_lite.models import ModelConfig
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.decoder import PretrainedDecoder
from t5x_lite.pretrained.encoder import PretrainedEncoder
from t5x_lite.pretrained.encoder_decoder import PretrainedEncoderDecoder
from t5x_lite.runs.open_model import open_model


def load(path: str | Path) -> Pretrained:
    """Opens a run's folder (its latest step), one step of it, a Hugging Face folder, or a Hugging Face hub name.

    An encoder-decoder (T5, Transformer, Marian, BART) becomes a `PretrainedEncoderDecoder`, a decoder (GPT, T5's alone)
    a `PretrainedDecoder`, an encoder a `PretrainedEncoder`, and what is none of these a `Pretrained`. The parameters
    lie on one CPU device, whatever mesh wrote them. No code from the folder is run, nothing is unpickled. Raises
    `InputError` for a path that holds no model, is truncated, or does not fit together.
    """
    opened = open_model(path)
    return kind_of(opened.config)(
        opened.config,
        opened.config.build(),
        opened.params,
        opened.tokenizer,
        opened.experiment,
        opened.vocabulary,
        opened.generation,
    )


def kind_of(config: ModelConfig) -> type[Pretrained]:
    """The class that fits an architecture."""
    return _CLASSES.get(config.architecture, Pretrained)


_CLASSES = {
    "encoder": PretrainedEncoder,
    "decoder": PretrainedDecoder,
    "encoder-decoder": PretrainedEncoderDecoder,
}
