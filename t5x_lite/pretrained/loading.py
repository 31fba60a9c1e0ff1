"""From a place on disk, or a name on the Hugging Face hub, to the class that fits the model there."""

from pathlib import Path

from t5x_lite.models import T5Config
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.encoder import PretrainedEncoder
from t5x_lite.pretrained.encoder_decoder import PretrainedEncoderDecoder
from t5x_lite.training.open_model import open_model


def load(path: str | Path) -> Pretrained:
    """Opens a run's folder (its latest step), one step of it, a Hugging Face folder, or a Hugging Face hub name.

    A T5 becomes a `PretrainedEncoderDecoder`, every other family a `PretrainedEncoder`. The parameters lie on one CPU
    device, whatever mesh wrote them. No code from the folder is run, nothing is unpickled. Raises `InputError` for what
    is none of these, is truncated, or does not fit together.
    """
    opened = open_model(path)
    kind = PretrainedEncoderDecoder if isinstance(opened.config, T5Config) else PretrainedEncoder
    return kind(opened.config, opened.config.build(), opened.params, opened.tokenizer, opened.experiment)
