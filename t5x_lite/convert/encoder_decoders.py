"""Hugging Face's `bart`, and `marian`, which is the Transformer of 2017."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from t5x_lite.convert.family import HuggingFaceFamily, with_prefix
from t5x_lite.convert.fields import (
    OURS,
    OUTPUT,
    ActivationName,
    Constants,
    Numbers,
    Only,
    check_output,
    is_tied,
    our_fields,
    refuse,
)
from t5x_lite.convert.generation import read_id, special_ids
from t5x_lite.convert.heads import TASK_CLASSES, Heads
from t5x_lite.convert.table import Row, Tensors, Zeros, dense, norm
from t5x_lite.data import Vocabulary
from t5x_lite.models import BartConfig, EncoderDecoderConfig, TransformerConfig

_SHARED, _OUTPUT_BIAS = "model.shared.weight", "final_logits_bias"
_SIDES = {"encoder": "model.encoder.embed_tokens.weight", "decoder": "model.decoder.embed_tokens.weight"}
_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
_REPEATED = {"num_decoder_heads": "num_heads", "decoder_mlp_dim": "mlp_dim"}


class _Sizes(Numbers):
    """Numbers of which the decoder's are None where they are the encoder's too."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields = super().read(theirs, tensors)
        return fields | {name: None for name, whole in _REPEATED.items() if fields[name] == fields[whole]}

    def write(self, config: EncoderDecoderConfig, family: str) -> dict[str, Any]:
        values = {name: getattr(config, name) for name in self.names.values()}
        values |= {name: values[whole] for name, whole in _REPEATED.items() if values[name] is None}
        return {theirs: values[ours] for theirs, ours in self.names.items()}


@dataclass(frozen=True)
class _Embeddings:
    """Which tables there are and how they are read, some of which theirs has no place for."""

    ours: tuple[str, ...] = ("shared_embedding", "tied", "output_bias", "fixed_id")

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        refuse(theirs, decoder_vocab_size=theirs.get("vocab_size"))
        return {
            "scale_embedding": bool(theirs.get("scale_embedding")),
            "shared_embedding": _SIDES["encoder"] not in tensors,
            "tied": OUTPUT not in tensors,
            "output_bias": bool(our_fields(theirs).get("output_bias") or np.any(tensors.get(_OUTPUT_BIAS, 0))),
        }

    def write(self, config: EncoderDecoderConfig, family: str) -> dict[str, Any]:
        names = (*self.ours, "start_id") if config.heads else self.ours
        return {"scale_embedding": config.scale_embedding, OURS: {name: getattr(config, name) for name in names}}


_FIELDS = (
    _Sizes(
        {
            "vocab_size": "vocab_size",
            "d_model": "embed_dim",
            "encoder_attention_heads": "num_heads",
            "decoder_attention_heads": "num_decoder_heads",
            "encoder_ffn_dim": "mlp_dim",
            "decoder_ffn_dim": "decoder_mlp_dim",
            "encoder_layers": "num_encoder_layers",
            "decoder_layers": "num_decoder_layers",
            "max_position_embeddings": "max_length",
            "dropout": "dropout_rate",
            "attention_dropout": "attention_dropout_rate",
            "activation_dropout": "mlp_dropout_rate",
        },
        {"max_position_embeddings": 1024, "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0},
    ),
    Constants({"is_decoder": False, "is_encoder_decoder": True}),
    Constants({"init_std": 0.02, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "use_cache": True}, checked=False),
    ActivationName("activation_function"),
    Only({"norm_epsilon": 1e-5}),
)


@dataclass(frozen=True, kw_only=True)
class _EncoderDecoderFamily(HuggingFaceFamily):
    """What the two have in common."""

    start_id: int
    """The id that the published models' decoders begin with, which silence means too."""

    def own_names(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        """A table for both sides is `_SHARED`."""
        renamed = with_prefix(tensors, "model", ("shared", "encoder", "decoder"))
        if self.config.positions == "sinusoidal":
            renamed = {name: value for name, value in renamed.items() if not name.endswith(".embed_positions.weight")}
        shared = renamed.pop(_SHARED, None)
        encoder, decoder = (renamed.pop(name, shared) for name in _SIDES.values())
        if encoder is None or decoder is None:
            return renamed  # the table says what is missing
        both_read_one = is_tied(theirs) and theirs.get("share_encoder_decoder_embeddings") is not False
        if shared is encoder is decoder or (
            our_fields(theirs).get("shared_embedding", both_read_one) and np.array_equal(encoder, decoder)
        ):
            renamed[_SHARED] = encoder
        else:
            renamed |= dict(zip(_SIDES.values(), (encoder, decoder), strict=True))
        kernel = renamed.get(OUTPUT)
        if our_fields(theirs).get("tied", is_tied(theirs)) and kernel is not None and np.array_equal(kernel, decoder):
            del renamed[OUTPUT]
        return renamed

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        """A model without an output, which has the head of a task instead, cannot say whether that is tied; and its
        decoder's first id is always said, since `EncoderDecoder.hidden_states` would else take the last one of a row.
        """
        config, ours = super().import_config(theirs, tensors, **fields), our_fields(theirs)
        silent = {"decoder_start_token_id": self.start_id, **self.ids}
        pad, eos, start = (
            read_id(silent | theirs, f"{name}_token_id", config.vocab_size) for name in ("pad", "eos", "decoder_start")
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

    def rows(self, config: EncoderDecoderConfig) -> list[Row | Zeros]:
        ours = "token_embedding/embedding"
        if config.shared_embedding:
            table: list[Row | Zeros] = [Row(_SHARED, ours)]
        else:
            table = [Row(_SIDES["encoder"], ours), Row(_SIDES["decoder"], f"decoder_{ours}")]
        if not config.tied:
            table.append(Row(OUTPUT, "output/kernel", transpose=True))
        sublayers = {"self_attn": "self_attention"}
        table += _stack_rows("encoder", config, sublayers, config.num_encoder_layers)
        sublayers["encoder_attn"] = "cross_attention"
        table += _stack_rows("decoder", config, sublayers, config.num_decoder_layers)
        for side in _SIDES if config.positions == "learned" else ():
            table.append(Row(f"model.{side}.embed_positions.weight", f"{side}_embeddings/position/embedding"))
        for side in _SIDES if config.norm_embedding else ():
            table += norm(f"model.{side}.layernorm_embedding", f"{side}_embeddings/norm")
        if config.heads:
            return table + self.heads.rows(config)
        if config.output_bias:
            return [*table, Row(_OUTPUT_BIAS, "output_bias", is_vector=True)]
        return [*table, Zeros(_OUTPUT_BIAS, (1, config.vocab_size))]


class _Bart(_EncoderDecoderFamily):
    def export_config(self, config: BartConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        # All three tables are one there, or none are.
        written = super().export_config(config, vocabulary)
        return written | {"tie_word_embeddings": config.tied and config.shared_embedding}

    def repeated(self, config: BartConfig) -> dict[str, str]:
        if config.shared_embedding:
            return {} if config.tied else dict.fromkeys(_SIDES.values(), _SHARED)
        output = {OUTPUT: _SIDES["decoder"]} if config.tied and not config.heads else {}
        return {_SHARED: _SIDES["encoder"]} | output


class _Marian(_EncoderDecoderFamily):
    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> TransformerConfig:
        # The paper's projections have no biases; an export of ours gives them zeros, which others may have trained.
        biases = [value for name, value in tensors.items() if "_attn." in name and name.endswith("_proj.bias")]
        has_bias = our_fields(theirs).get("attention_bias", True) or any(map(np.any, biases))
        return super().import_config(theirs, tensors, attention_bias=has_bias, **fields)

    def export_config(self, config: TransformerConfig, vocabulary: Vocabulary | None) -> dict[str, Any]:
        return super().export_config(config, vocabulary) | {
            "bos_token_id": None,
            "decoder_vocab_size": config.vocab_size,
            "share_encoder_decoder_embeddings": config.shared_embedding,
        }

    def repeated(self, config: TransformerConfig) -> dict[str, str]:
        # Where the output is not tied, nothing is.
        return dict.fromkeys(_SIDES.values(), _SHARED) if config.shared_embedding and not config.tied else {}


def _stack_rows(
    stack: str, config: EncoderDecoderConfig, attention: dict[str, str], num_layers: int
) -> list[Row | Zeros]:
    theirs, ours = f"model.{stack}.layers.{{layer}}", f"{stack}/layers"
    table: list[Row | Zeros] = []
    for their_name, our_name in attention.items():
        table += norm(f"{theirs}.{their_name}_layer_norm", f"{ours}/{our_name}_norm")
        for their_part, our_part in _ATTENTION.items():
            kernel, bias = dense(f"{theirs}.{their_name}.{their_part}", f"{ours}/{our_name}/{our_part}")
            table.append(kernel)
            if config.attention_bias:
                table.append(bias)
            else:
                names = (bias.theirs.format(layer=layer) for layer in range(num_layers))
                table += [Zeros(name, (config.embed_dim,)) for name in names]
    table += dense(f"{theirs}.fc1", f"{ours}/feed_forward/wi") + dense(f"{theirs}.fc2", f"{ours}/feed_forward/wo")
    return table + norm(f"{theirs}.final_layer_norm", f"{ours}/feed_forward_norm")


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
            **{(task,): TASK_CLASSES[(task,)] for task in ("classification", "question_answering")},
            (): "ForConditionalGeneration",
        },
        default=0.0,
    ),
)
MARIAN = _Marian(
    model_type="marian",
    name="Marian",
    config=TransformerConfig,
    ids={"pad_token_id": 58_100, "eos_token_id": 0},
    start_id=58_100,
    fields=(
        *_FIELDS,
        _Embeddings(("shared_embedding", "tied", "output_bias", "fixed_id", "attention_bias")),
        Only({"positions": "sinusoidal", "norm_first": False}),
    ),
    heads=Heads({}, {(): "MTModel"}),
)
FAMILIES = (BART, MARIAN)
