"""The zoo: one file for each published family."""

from t5x_lite.models import albert, bart, bert, distilbert, electra, gpt, roberta, t5, t5_decoder, transformer
from t5x_lite.models.albert import AlbertConfig
from t5x_lite.models.bart import BartConfig
from t5x_lite.models.base import ModelConfig, abstract_params, num_params
from t5x_lite.models.bert import BertConfig
from t5x_lite.models.decoder import Decoder, DecoderConfig
from t5x_lite.models.distilbert import DistilBertConfig
from t5x_lite.models.electra import ElectraConfig, ElectraPair, ElectraPairConfig
from t5x_lite.models.encoder import Encoder, EncoderConfig
from t5x_lite.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from t5x_lite.models.gpt import GptConfig
from t5x_lite.models.roberta import RobertaConfig
from t5x_lite.models.t5 import T5, T5Config
from t5x_lite.models.t5_decoder import T5DecoderConfig
from t5x_lite.models.transformer import TransformerConfig

PRESETS: dict[str, ModelConfig] = {
    name: config
    for family in (t5, t5_decoder, transformer, bart, gpt, bert, roberta, albert, distilbert, electra)
    for name, config in family.PRESETS.items()
}
"""Every published architecture under its public name."""

__all__ = [
    "PRESETS",
    "T5",
    "AlbertConfig",
    "BartConfig",
    "BertConfig",
    "Decoder",
    "DecoderConfig",
    "DistilBertConfig",
    "ElectraConfig",
    "ElectraPair",
    "ElectraPairConfig",
    "Encoder",
    "EncoderConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "GptConfig",
    "ModelConfig",
    "RobertaConfig",
    "T5Config",
    "T5DecoderConfig",
    "TransformerConfig",
    "abstract_params",
    "num_params",
]
