"""Hugging Face's `bart`, `marian`, which is the Transformer of 2017, `bigbird_pegasus`, `t5` and `mt5`."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from t5x_lite.convert.encoders import BlockSparse
from t5x_lite.convert.family import (
    OURS,
    OUTPUT,
    ActivationName,
    Constants,
    Heads,
    HuggingFaceFamily,
    Numbers,
    check_exportable,
    check_output,
    is_tied,
    our_fields,
    refuse,
)
from t5x_lite.convert.generation import read_id, special_ids
from t5x_lite.convert.table import Names, Tensors, drop_copy, has
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import (
    PRESETS,
    BartConfig,
    BigBirdPegasusConfig,
    EncoderDecoderConfig,
    T5Config,
    T5EncoderConfig,
    TransformerConfig,
)

_SHARED, _OUTPUT_BIAS = "model.shared.weight", "final_logits_bias"
_SIDES = {"encoder": "model.encoder.embed_tokens.weight", "decoder": "model.decoder.embed_tokens.weight"}
_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
_REPEATED = {"num_decoder_heads": "num_heads", "decoder_mlp_dim": "mlp_dim"}


class _Sizes(Numbers):
    """Numbers of which the decoder's are None where they are the encoder's too."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields = super().read(theirs, tensors)
        return fields | {name: None for name, whole in _REPEATED.items() if fields[name] == fields[whole]}

    def write(self, config: EncoderDecoderConfig, family: str) -> dict[str, Any]:
        repeated = {name: getattr(config, whole) for name, whole in _REPEATED.items() if getattr(config, name) is None}
        return super().write(replace(config, **repeated), family)


@dataclass(frozen=True)
class _Embeddings:
    """The tables of embeddings and how they are read."""

    ours: tuple[str, ...] = ("shared_embedding", "tied", "output_bias", "fixed_id")
    """The fields that theirs does not have."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        refuse(theirs, decoder_vocab_size=theirs.get("vocab_size"))
        return {
            "scale_embedding": bool(theirs.get("scale_embedding")),
            "shared_embedding": _SIDES["encoder"] not in tensors,
            "tied": OUTPUT not in tensors,
            "output_bias": bool(our_fields(theirs).get("output_bias") or _OUTPUT_BIAS in tensors),
        }

    def write(self, config: EncoderDecoderConfig, family: str) -> dict[str, Any]:
        names = (*self.ours, "start_id") if config.heads else self.ours
        return {"scale_embedding": config.scale_embedding, OURS: {name: getattr(config, name) for name in names}}


_NUMBERS: dict[str, Any] = {
    "vocab_size": "vocab_size",
    "d_model": "embed_dim",
    "encoder_attention_heads": "num_heads",
    "decoder_attention_heads": "num_decoder_heads",
    "encoder_ffn_dim": "mlp_dim",
    "decoder_ffn_dim": "decoder_mlp_dim",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "max_position_embeddings": ("max_length", 1024),
    "dropout": ("dropout_rate", 0.1),
    "attention_dropout": ("attention_dropout_rate", 0.0),
    "activation_dropout": ("mlp_dropout_rate", 0.0),
}
_FIELDS = (
    _Sizes(_NUMBERS),
    Constants({"is_decoder": False, "is_encoder_decoder": True}, ours={"norm_epsilon": 1e-5}),
    Constants({"init_std": 0.02, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "use_cache": True}, checked=False),
    ActivationName("activation_function"),
)


@dataclass(frozen=True, kw_only=True)
class _EncoderDecoderFamily(HuggingFaceFamily):
    prefix: str = "model"
    body: tuple[str, ...] = ("shared", "encoder", "decoder")
    constants: tuple[str, ...] = (".version",)  # in early files
    start_id: int
    """The id that the published models' decoders begin with, and those whose config.json does not name one."""

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        """Without biases of zeros where ours has none; a table for both sides is `_SHARED`."""
        renamed, ours = super().canonical_tensors(theirs, tensors), our_fields(theirs)
        bias = renamed.pop(_OUTPUT_BIAS, np.zeros(1))
        if ours.get("output_bias") or np.any(bias):
            renamed[_OUTPUT_BIAS] = bias[0] if len(bias) == 1 else bias  # theirs is a matrix of one row
        shared = renamed.pop(_SHARED, None)
        encoder, decoder = (renamed.pop(name, shared) for name in _SIDES.values())
        if encoder is None or decoder is None:
            return renamed  # the error lists what is missing
        both_read_one = is_tied(theirs) and theirs.get("share_encoder_decoder_embeddings") is not False
        equal = ours.get("shared_embedding", both_read_one) and np.array_equal(encoder, decoder)
        if shared is encoder is decoder or equal:
            renamed[_SHARED] = encoder
        else:
            renamed |= dict(zip(_SIDES.values(), (encoder, decoder), strict=True))
        if ours.get("tied", is_tied(theirs)):
            drop_copy(renamed, OUTPUT, _SHARED if _SHARED in renamed else _SIDES["decoder"])
        return renamed

    def further_tensors(self, config: EncoderDecoderConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        """Zeros for biases that ours does not have, and the shared table where the output is not tied."""
        further: dict[str, np.ndarray] = {}
        if not config.heads:
            further[_OUTPUT_BIAS] = tensors.get(_OUTPUT_BIAS, np.zeros(config.vocab_size, np.float32))[None]
        if not config.attention_bias:
            products = (name for name in tensors if name.endswith("_proj.weight"))
            zeros = np.zeros(config.embed_dim, np.float32)
            further |= {f"{name.removesuffix('weight')}bias": zeros for name in products}
        if config.shared_embedding and not config.tied:
            further |= dict.fromkeys(_SIDES.values(), tensors[_SHARED])
        return further

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        """A model with the head of a task has no output that could be tied. Its decoder's first id is always set, since
        `EncoderDecoder.hidden_states` would otherwise take the last id of a row.
        """
        config, ours = super().import_config(theirs, tensors, **fields), our_fields(theirs)
        stated = {"decoder_start_token_id": self.start_id, **self.ids, **theirs}
        pad, eos, start = (
            read_id(stated, f"{name}_token_id", config.vocab_size) for name in ("pad", "eos", "decoder_start")
        )
        config = replace(config, fixed_id=ours.get("fixed_id", pad))
        if config.heads:
            return replace(config, start_id=ours.get("start_id", start))
        check_output(tensors, ours.get("tied", is_tied(theirs)))
        return replace(config, start_id=None if start == config.decoder_start_id(pad_id=pad, eos_id=eos) else start)

    def special_ids(self, config: EncoderDecoderConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        ids = {name: min(token_id, config.vocab_size - 1) for name, token_id in self.ids.items()}
        if config.fixed_id is not None:
            ids["pad_token_id"] = config.fixed_id
        ids = special_ids(vocabulary, **ids)
        start = config.decoder_start_id(pad_id=ids["pad_token_id"], eos_id=ids["eos_token_id"])
        return ids | {"decoder_start_token_id": start}

    def names(self, config: EncoderDecoderConfig) -> Names:
        names = {
            "token_embedding/embedding": _SHARED if config.shared_embedding else _SIDES["encoder"],
            "decoder_token_embedding/embedding": _SIDES["decoder"],
            "output": "lm_head",
            "output_bias": _OUTPUT_BIAS,
            **self.heads.names,
        }
        for stack in ("encoder", "decoder"):
            theirs, ours = f"model.{stack}.layers.{{layer}}", f"{stack}/layers"
            names |= {
                f"{stack}_embeddings/position": f"model.{stack}.embed_positions",
                f"{stack}_embeddings/norm": f"model.{stack}.layernorm_embedding",
                f"{ours}/feed_forward/wi": f"{theirs}.fc1",
                f"{ours}/feed_forward/wo": f"{theirs}.fc2",
                f"{ours}/feed_forward_norm": f"{theirs}.final_layer_norm",
            }
            for attention, name in {"self_attention": "self_attn", "cross_attention": "encoder_attn"}.items():
                names[f"{ours}/{attention}_norm"] = f"{theirs}.{name}_layer_norm"
                names |= {f"{ours}/{attention}/{one}": f"{theirs}.{name}.{two}" for one, two in _ATTENTION.items()}
        return names


class _Bart(_EncoderDecoderFamily):
    def export_config(self, config: BartConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        # All three tables are one there, or none are.
        written = super().export_config(config, vocabulary)
        return written | {"tie_word_embeddings": config.tied and config.shared_embedding}

    def further_tensors(self, config: BartConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        further = super().further_tensors(config, tensors)
        if not config.shared_embedding:
            further[_SHARED] = tensors[_SIDES["encoder"]]
            if config.tied and not config.heads:
                further[OUTPUT] = tensors[_SIDES["decoder"]]
        return further


class _Marian(_EncoderDecoderFamily):
    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        # The paper's projections have no biases; an export of ours gives them zeros, which others may have trained.
        tensors = super().canonical_tensors(theirs, tensors)
        biases = [name for name in tensors if name.endswith("_proj.bias")]
        if our_fields(theirs).get("attention_bias", True) or any(np.any(tensors[name]) for name in biases):
            return tensors
        return {name: value for name, value in tensors.items() if name not in biases}

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> TransformerConfig:
        has_bias = any(name.endswith("_proj.bias") for name in tensors) or our_fields(theirs).get(
            "attention_bias", True
        )
        return super().import_config(theirs, tensors, attention_bias=has_bias, **fields)

    def export_config(self, config: TransformerConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        return super().export_config(config, vocabulary) | {
            "bos_token_id": None,
            "decoder_vocab_size": config.vocab_size,
            "share_encoder_decoder_embeddings": config.shared_embedding,
        }


class _AttentionBias:
    """Whether the projections of the attention have biases."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        return {"attention_bias": bool(theirs.get("use_bias", False))}

    def write(self, config: BigBirdPegasusConfig, family: str) -> dict[str, Any]:
        return {"use_bias": config.attention_bias}


class _BigBirdPegasus(_Bart):
    def further_tensors(self, config: BigBirdPegasusConfig, tensors: Tensors) -> dict[str, np.ndarray]:
        return super().further_tensors(replace(config, attention_bias=True), tensors)  # none of zeros

    def names(self, config: BigBirdPegasusConfig) -> Names:
        names = super().names(config)
        for stack in ("encoder", "decoder"):  # the norm after the layers, whatever its name says
            names[f"{stack}/final_norm"] = names.pop(f"{stack}_embeddings/norm")
        ours, theirs = "encoder/layers/self_attention", "model.encoder.layers.{layer}.self_attn"
        names |= {f"{ours}/{name}": f"{theirs}.self.{name}" for name in ("query", "key", "value")}
        return names | {f"{ours}/out": f"{theirs}.output"}


BART = _Bart(
    model_type="bart",
    name="Bart",
    config=BartConfig,
    ids={"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    start_id=2,
    fields=(*_FIELDS, _Embeddings(), Constants({"classifier_dropout": 0.0}, checked=False)),
    heads=Heads(
        {
            "classification": {"dense": "classification_head.dense", "scores": "classification_head.out_proj"},
            "question_answering": {"scores": "qa_outputs"},
        },
        {
            ("classification",): "ForSequenceClassification",
            ("question_answering",): "ForQuestionAnswering",
            (): "ForConditionalGeneration",
        },
        default=0.0,
    ),
)
MARIAN = _Marian(
    model_type="marian",
    name="Marian",
    config=TransformerConfig,
    constants=(".version", ".embed_positions.weight"),
    ids={"pad_token_id": 58_100, "eos_token_id": 0},
    start_id=58_100,
    fields=(
        *_FIELDS,
        _Embeddings(("shared_embedding", "tied", "output_bias", "fixed_id", "attention_bias")),
        Constants(ours={"positions": "sinusoidal", "norm_first": False}),
    ),
    heads=Heads({}, {(): "MTModel"}),
)


BIG_BIRD_PEGASUS = _BigBirdPegasus(
    model_type="bigbird_pegasus",
    name="BigBirdPegasus",
    config=BigBirdPegasusConfig,
    ids={"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1},
    start_id=2,
    fields=(
        _Sizes(_NUMBERS | {"max_position_embeddings": ("max_length", 4096)}),
        *_FIELDS[1:-1],
        ActivationName("activation_function", default="gelu_new"),
        _Embeddings(),
        _AttentionBias(),
        BlockSparse(),
        Constants({"classifier_dropout": 0.0}, checked=False),
    ),
    heads=Heads({}, {(): "ForConditionalGeneration"}),
)


# (activation, gated) of each feed_forward_proj; "gated-gelu" means the tanh approximation.
_ACTIVATIONS = {name: name for name in ("relu", "gelu", "silu", "tanh")} | {"gelu_new": "gelu_tanh", "swish": "silu"}
_PROJECTIONS = {theirs: (ours, False) for theirs, ours in _ACTIVATIONS.items()}
_PROJECTIONS |= {f"gated-{theirs}": (ours, True) for theirs, ours in _ACTIVATIONS.items()}
_PROJECTIONS["gated-gelu"] = ("gelu_tanh", True)


class _FeedForward:
    """The feed-forward layers' activation, and whether they are gated."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        projection = theirs.get("feed_forward_proj", "relu")
        if not isinstance(projection, str) or projection not in _PROJECTIONS:
            raise InputError(
                f"feed_forward_proj={projection!r} in config.json is unknown; known are {', '.join(_PROJECTIONS)}"
            )
        activation, gated = _PROJECTIONS[projection]
        return {"activation": activation, "gated": gated}

    def write(self, config: T5Config | T5EncoderConfig, family: str) -> dict[str, Any]:
        feed_forward = (config.activation, config.gated)
        projection = next((theirs for theirs, ours in _PROJECTIONS.items() if ours == feed_forward), None)
        if projection is None:
            raise InputError(
                f"activation={config.activation!r} with gated={config.gated} has no name in Hugging Face's {family}, "
                "where gated-gelu means gelu_tanh; export is not possible"
            )
        return {"feed_forward_proj": projection}


class _T5Output:
    """Whether the output is tied and scaled."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        # Only v1.0 scales the output, never mT5. Transformers 4 tells by the tied embedding, 5 by this flag.
        scaled = theirs["model_type"] != "mt5" and theirs.get("scale_decoder_outputs", is_tied(theirs))
        return {"tied": OUTPUT not in tensors, "scale_output": scaled}

    def write(self, config: T5Config, family: str) -> dict[str, Any]:
        check_exportable(family, "stacks_share_parameters", config.stacks_share_parameters, False)
        return {
            "tie_word_embeddings": config.tied and config.scale_output,
            "scale_decoder_outputs": config.scale_output,
        }


class _EncoderDropout:
    """T5 has one rate for all."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        return {"attention_dropout_rate": theirs.get("dropout_rate", 0.1)}

    def write(self, config: T5EncoderConfig, family: str) -> dict[str, Any]:
        check_exportable(family, "attention_dropout_rate", config.attention_dropout_rate, config.dropout_rate)
        return {}


class _T5Family(HuggingFaceFamily):
    def reads(self, tensors: Tensors) -> bool:
        return has(tensors, "decoder.") == (self.config is T5Config)

    def names(self, config: T5Config | T5EncoderConfig) -> Names:
        attention = {"query": "q", "key": "k", "value": "v", "out": "o"}
        sublayers = {
            "self_attention": ("SelfAttention", attention),
            "cross_attention": ("EncDecAttention", attention),
            "feed_forward": ("DenseReluDense", {"gate": "wi_0", "wi": "wi_1" if config.gated else "wi", "wo": "wo"}),
        }
        names = {"token_embedding": "shared", "embeddings/token": "shared", "output": "lm_head"}
        names["position_bias/bias"] = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        for stack, stacked in {"encoder": ("self_attention", "feed_forward"), "decoder": tuple(sublayers)}.items():
            bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            names |= {f"{stack}/final_norm": f"{stack}.final_layer_norm", f"{stack}_position_bias/bias": bias}
            for index, sublayer in enumerate(stacked):
                (theirs, layers), block = sublayers[sublayer], f"{stack}.block.{{layer}}.layer.{index}"
                names[f"{stack}/layers/{sublayer}_norm"] = f"{block}.layer_norm"
                names |= {f"{stack}/layers/{sublayer}/{ours}": f"{block}.{theirs}.{layers[ours]}" for ours in layers}
        return names

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        """Without those that repeat another one, and a bias in early exports that no layer reads."""
        unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        renamed = {
            name: value for name, value in tensors.items() if name not in ("decoder.embed_tokens.weight", unused)
        }
        embedding = renamed.pop("encoder.embed_tokens.weight", None)
        if embedding is not None:
            renamed.setdefault("shared.weight", embedding)
        drop_copy(renamed, OUTPUT, "shared.weight")
        return renamed

    def further_tensors(self, config: T5Config, tensors: Tensors) -> dict[str, np.ndarray]:
        # Transformers 4 takes an output that is not scaled for one that is not tied.
        untied = isinstance(config, T5Config) and config.tied and not config.scale_output
        return {OUTPUT: tensors["shared.weight"]} if untied else {}

    def special_ids(self, config: T5Config, vocabulary: Vocabulary | None) -> dict[str, Any]:
        ids = super().special_ids(config, vocabulary)
        return ids | {"decoder_start_token_id": ids["pad_token_id"]}


_T5_NUMBERS = {
    "vocab_size": "vocab_size",
    "d_model": "embed_dim",
    "num_heads": "num_heads",
    "d_kv": "head_dim",
    "d_ff": "mlp_dim",
    "relative_attention_num_buckets": ("relative_buckets", 32),
    "relative_attention_max_distance": ("relative_max_distance", 128),
    "dropout_rate": ("dropout_rate", 0.1),
    "layer_norm_epsilon": ("norm_epsilon", 1e-6),
}
T5 = _T5Family(
    model_type="t5",
    name="T5",
    config=T5Config,
    ids={"pad_token_id": 0, "eos_token_id": 1},
    fields=(
        Numbers(
            _T5_NUMBERS
            | {"num_layers": "num_encoder_layers", "num_decoder_layers": ("num_decoder_layers", "num_layers")}
        ),
        _FeedForward(),
        _T5Output(),
        Constants({"is_encoder_decoder": True, "use_cache": True, "initializer_factor": 1.0}, checked=False),
    ),
    heads=Heads({}, {(): "ForConditionalGeneration"}),
)
MT5 = replace(
    T5,
    model_type="mt5",
    name="MT5",
    # A T5 v1.1 with mT5's vocabulary; nothing else tells them apart.
    fits=lambda config, tokenizer: config.vocab_size == PRESETS["mt5-small"].vocab_size and not config.scale_output,
)
T5_ENCODER = replace(
    T5,
    config=T5EncoderConfig,
    fields=(
        Numbers(_T5_NUMBERS | {"num_layers": "num_layers"}),
        _FeedForward(),
        _EncoderDropout(),
        Constants({"is_encoder_decoder": False, "use_cache": False, "initializer_factor": 1.0}, checked=False),
    ),
    heads=Heads({}, {(): "EncoderModel"}),
)
MT5_ENCODER = replace(
    T5_ENCODER,
    model_type="mt5",
    name="MT5",
    fits=lambda config, tokenizer: config.vocab_size == PRESETS["mt5-small"].vocab_size,
)
FAMILIES = (T5, MT5, T5_ENCODER, MT5_ENCODER, BART, MARIAN, BIG_BIRD_PEGASUS)
