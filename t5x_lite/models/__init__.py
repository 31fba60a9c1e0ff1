"""The zoo: the published families, each a config of one of the modules here."""

from t5x_lite.layers.big_bird import BigBird
from t5x_lite.layers.linformer import Linformer
from t5x_lite.models import (
    bert,
    big_bird,
    clip,
    detr,
    electra,
    elmo,
    gpt,
    mae,
    realm,
    recurrent,
    resnet,
    siglip,
    t5,
    transformer,
    transformer_xl,
    vit,
    xlnet,
)
from t5x_lite.models.base import ModelConfig, abstract_params, init_params, num_params
from t5x_lite.models.bert import AlbertConfig, BertConfig, DistilBertConfig, RobertaConfig
from t5x_lite.models.big_bird import BigBirdConfig, BigBirdPegasusConfig
from t5x_lite.models.clip import Clip, ClipConfig, ClipImageConfig, ClipResNetConfig, ClipTextConfig
from t5x_lite.models.decoder import Decoder, DecoderConfig
from t5x_lite.models.detr import Detections, Detr, DetrConfig
from t5x_lite.models.electra import ElectraConfig, ElectraPair, ElectraPairConfig
from t5x_lite.models.elmo import Elmo, ElmoConfig
from t5x_lite.models.encoder import Encoder, EncoderConfig
from t5x_lite.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from t5x_lite.models.gpt import GptConfig
from t5x_lite.models.mae import MAE, MAEConfig, mae_loss
from t5x_lite.models.realm import Realm, RealmConfig
from t5x_lite.models.recurrent import RecurrentConfig, RecurrentEncoderDecoder
from t5x_lite.models.resnet import ResNet, ResNetConfig
from t5x_lite.models.siglip import Siglip, SiglipConfig, SiglipImageConfig, SiglipTextConfig
from t5x_lite.models.t5 import T5Config, T5DecoderConfig, T5EncoderConfig
from t5x_lite.models.transformer import BartConfig, TransformerConfig
from t5x_lite.models.transformer_xl import TransformerXL, TransformerXLConfig
from t5x_lite.models.vit import DeiTConfig, ViT, ViTConfig
from t5x_lite.models.xlnet import XLNet, XLNetConfig

_FAMILIES = (
    *(t5, transformer, gpt, bert, big_bird, electra, vit, mae, resnet, clip, siglip, detr),
    *(recurrent, elmo, transformer_xl, xlnet, realm),
)

PRESETS: dict[str, ModelConfig] = {name: config for family in _FAMILIES for name, config in family.PRESETS.items()}
"""Every published architecture under its public name."""

__all__ = [
    "MAE",
    "PRESETS",
    "AlbertConfig",
    "BartConfig",
    "BertConfig",
    "BigBird",
    "BigBirdConfig",
    "BigBirdPegasusConfig",
    "Clip",
    "ClipConfig",
    "ClipImageConfig",
    "ClipResNetConfig",
    "ClipTextConfig",
    "Decoder",
    "DecoderConfig",
    "DeiTConfig",
    "Detections",
    "Detr",
    "DetrConfig",
    "DistilBertConfig",
    "ElectraConfig",
    "ElectraPair",
    "ElectraPairConfig",
    "Elmo",
    "ElmoConfig",
    "Encoder",
    "EncoderConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "GptConfig",
    "Linformer",
    "MAEConfig",
    "ModelConfig",
    "Realm",
    "RealmConfig",
    "RecurrentConfig",
    "RecurrentEncoderDecoder",
    "ResNet",
    "ResNetConfig",
    "RobertaConfig",
    "Siglip",
    "SiglipConfig",
    "SiglipImageConfig",
    "SiglipTextConfig",
    "T5Config",
    "T5DecoderConfig",
    "T5EncoderConfig",
    "TransformerConfig",
    "TransformerXL",
    "TransformerXLConfig",
    "ViT",
    "ViTConfig",
    "XLNet",
    "XLNetConfig",
    "abstract_params",
    "init_params",
    "mae_loss",
    "num_params",
]
