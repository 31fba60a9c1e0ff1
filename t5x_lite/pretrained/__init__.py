"""The notebook's door: a trained model from a run's folder, one of its steps, or Hugging Face."""

from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.decoder import PretrainedDecoder
from t5x_lite.pretrained.encoder import Detection, PretrainedEncoder, Suggestion
from t5x_lite.pretrained.encoder_decoder import PretrainedEncoderDecoder
from t5x_lite.pretrained.encoder_tasks import FoundAnswer, LikelyClass, TaggedWord
from t5x_lite.pretrained.loading import load
from t5x_lite.pretrained.probing import Labeled, Probed, Probes, Tagged, probe_tags, probe_texts
from t5x_lite.pretrained.text_model import Answer, PretrainedTextModel, Score

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
