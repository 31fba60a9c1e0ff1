"""The zoo: one file for each published family."""

from t5x_lite.models import albert, bert, distilbert, electra, roberta, t5
from t5x_lite.models.albert import AlbertConfig
from t5x_lite.models.base import ModelConfig, abstract_params, num_params
from t5x_lite.models.bert import BertConfig
from t5x_lite.models.distilbert import DistilBertConfig
from t5x_lite.models.electra import ElectraConfig, ElectraPair, ElectraPairConfig
from t5x_lite.models.encoder import Encoder, EncoderConfig
from t5x_lite.models.roberta import RobertaConfig
from t5x_lite.models.t5 import T5, T5Config

PRESETS: dict[str, ModelConfig] = {
    name: config
    for family in (t5, bert, roberta, albert, distilbert, electra)
    for name, config in family.PRESETS.items()
}
"""Every published architecture under its public name."""

__all__ = [
    "PRESETS",
    "T5",
    "AlbertConfig",
    "BertConfig",
    "DistilBertConfig",
    "ElectraConfig",
    "ElectraPair",
    "ElectraPairConfig",
    "Encoder",
    "EncoderConfig",
    "ModelConfig",
    "RobertaConfig",
    "T5Config",
    "abstract_params",
    "num_params",
]
