"""What Hugging Face's `bart` and `marian` have in common: fields of config.json and names of parameters."""

from typing import Any, Literal

import numpy as np

from t5x_lite.convert.fields import (
    ACTIVATIONS,
    OURS,
    OUTPUT,
    check_output,
    our_fields,
    read_activation,
    read_numbers,
    refuse,
    says_tied,
)
from t5x_lite.convert.special_ids import read_id, special_ids
from t5x_lite.convert.table import Row, Tensors, Zeros, dense, norm
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import EncoderDecoderConfig

_FIELDS = {
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
}
# What a config.json means where it is silent.
_DEFAULTS = {"max_position_embeddings": 1024, "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}
_NORM_EPSILON = 1e-5  # no field there
# The decoder's, where they are the encoder's too.
_REPEATED = {"num_decoder_heads": "num_heads", "decoder_mlp_dim": "mlp_dim"}
# Those of ours that theirs has no place for.
_OUR_FIELDS = ("shared_embedding", "tied", "output_bias", "fixed_id")

SHARED, OUTPUT_BIAS = "model.shared.weight", "final_logits_bias"
SIDES = {"encoder": "model.encoder.embed_tokens.weight", "decoder": "model.decoder.embed_tokens.weight"}

_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}


def own_names(theirs: dict[str, Any], tensors: Tensors) -> Tensors:
    """Their tensors under the names of `rows`, each value once: a table for both sides is `SHARED`."""
    alone = not any(name.startswith("model.") for name in tensors)
    parts = ("shared", "encoder", "decoder")
    renamed = {
        f"model.{name}" if alone and name.split(".")[0] in parts else name: value for name, value in tensors.items()
    }
    shared = renamed.pop(SHARED, None)
    encoder, decoder = (renamed.pop(name, shared) for name in SIDES.values())
    if encoder is None or decoder is None:
        return renamed  # the table says what is missing
    both_read_one = says_tied(theirs) and theirs.get("share_encoder_decoder_embeddings") is not False
    if shared is encoder is decoder or (
        our_fields(theirs).get("shared_embedding", both_read_one) and np.array_equal(encoder, decoder)
    ):
        renamed[SHARED] = encoder
    else:
        renamed |= dict(zip(SIDES.values(), (encoder, decoder), strict=True))
    kernel = renamed.get(OUTPUT)
    if our_fields(theirs).get("tied", says_tied(theirs)) and kernel is not None and np.array_equal(kernel, decoder):
        del renamed[OUTPUT]
    return renamed


def read_fields(
    theirs: dict[str, Any],
    tensors: Tensors,
    published: dict[str, int],
    starts_with: Literal["pad", "eos"],
    *,
    has_output: bool = True,
) -> dict[str, Any]:
    """The fields that both have. Raises `InputError` for what we do not have.

    `published` are the ids that silence means; what the decoder starts with is the family's own rule. A model without
    an output, which has the head of a task instead, cannot say whether that is tied; and its decoder's first id is
    always said, since `EncoderDecoder.read` would else take the last one of a row.
    """
    refuse(theirs, is_decoder=False, is_encoder_decoder=True, decoder_vocab_size=theirs.get("vocab_size"))
    fields = read_numbers(theirs, _FIELDS, _DEFAULTS)
    fields |= {name: None for name, of_encoder in _REPEATED.items() if fields[name] == fields[of_encoder]}
    ids = {
        name: read_id(published | theirs, f"{name}_token_id", fields["vocab_size"])
        for name in ("pad", "eos", "decoder_start")
    }
    ours = our_fields(theirs)
    start_id = None if ids["decoder_start"] == ids[starts_with] else ids["decoder_start"]
    if has_output:
        check_output(tensors, ours.get("tied", says_tied(theirs)))
    else:
        start_id = ours.get("start_id", ids["decoder_start"])
    return fields | {
        "activation": read_activation(theirs, "activation_function"),
        "scale_embedding": bool(theirs.get("scale_embedding")),
        "norm_epsilon": _NORM_EPSILON,
        "shared_embedding": SIDES["encoder"] not in tensors,
        "tied": OUTPUT not in tensors,
        "output_bias": bool(ours.get("output_bias") or np.any(tensors.get(OUTPUT_BIAS, 0))),
        "fixed_id": ours.get("fixed_id", ids["pad"]),
        "start_id": start_id,
    }


def describe(
    config: EncoderDecoderConfig,
    vocabulary: Vocabulary | None,
    family: str,
    published: dict[str, int],
    *our_fields: str,
) -> dict[str, Any]:
    """What both say in config.json. `our_fields` are further fields that theirs has no place for."""
    if config.norm_epsilon != _NORM_EPSILON:
        raise InputError(
            f"norm_epsilon={config.norm_epsilon} has no place in Hugging Face's {family}, where it is {_NORM_EPSILON}; "
            "export is not possible"
        )
    ids = {name: min(token_id, config.vocab_size - 1) for name, token_id in published.items()}
    if config.fixed_id is not None:
        ids["pad_token_id"] = config.fixed_id
    ids = special_ids(vocabulary, **ids)
    start = config.decoder_start_id(pad_id=ids["pad_token_id"], eos_id=ids["eos_token_id"])
    whole = {name: getattr(config, name) for name in _FIELDS.values()}
    whole |= {name: whole[of_encoder] for name, of_encoder in _REPEATED.items() if whole[name] is None}
    return {theirs: whole[ours] for theirs, ours in _FIELDS.items()} | {
        "activation_function": ACTIVATIONS[config.activation][0],
        "scale_embedding": config.scale_embedding,
        "tie_word_embeddings": config.tied,
        "is_encoder_decoder": True,
        "init_std": 0.02,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "use_cache": True,
        **ids,
        "decoder_start_token_id": start,
        OURS: {name: getattr(config, name) for name in (*_OUR_FIELDS, *our_fields)},
    }


def rows(config: EncoderDecoderConfig) -> list[Row | Zeros]:
    """The names of every parameter but those of positions and of a norm behind the embeddings."""
    sublayers = {"self_attn": "self_attention"}
    table = embedding_rows(config)
    table += _stack_rows("encoder", config, sublayers, config.num_encoder_layers)
    table += _stack_rows("decoder", config, sublayers | {"encoder_attn": "cross_attention"}, config.num_decoder_layers)
    if config.heads:
        return table
    if config.output_bias:
        return [*table, Row(OUTPUT_BIAS, "output_bias", is_vector=True)]
    return [*table, Zeros(OUTPUT_BIAS, (1, config.vocab_size))]


def embedding_rows(config: EncoderDecoderConfig) -> list[Row | Zeros]:
    """The tables of the tokens, and the output's kernel where it is none of them."""
    ours = "token_embedding/embedding"
    if config.shared_embedding:
        table = [Row(SHARED, ours)]
    else:
        table = [Row(SIDES["encoder"], ours), Row(SIDES["decoder"], f"decoder_{ours}")]
    return table if config.tied else [*table, Row(OUTPUT, "output/kernel", transpose=True)]


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
