"""Floating-point operations of a train step, counted by formula."""

import math
from typing import Any

import jax
from flax import linen as nn

from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.errors import InputError
from t5x_lite.layers.heads import SPAN_POSITION_DIM
from t5x_lite.layers.transformer import LayerConfig
from t5x_lite.models import (
    DecoderConfig,
    ElectraPairConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    T5Config,
)
from t5x_lite.objectives import CausalLanguageModel, CausalTask, Objective, corrupt_rows
from t5x_lite.objectives.task import TaskObjective


def step_flops(model: ModelConfig, objective: Objective, batch_size: int) -> int:
    """The operations of all matrix products of one train step: three times those of the forward pass.

    A product of [n, k] and [k, m] is 2 n k m, and the backward pass has two for each of the forward pass; what is
    computed again to save memory does not count, and neither does what is no matrix product. With L queries, M keys
    and the other letters of the package, a row costs in the forward pass

        self-attention, a layer:   8 L D H K + 4 L^2 H K     (cross-attention: 4 (L + M) D H K + 4 L M H K)
        feed-forward, a layer:     4 L D F                   (gated: 6 L D F)
        vocabulary:                2 P D V                   for the P positions that are predicted

    and what a head has of its own. Masked pairs of tokens count as all others do: they are computed (Chowdhery et al.
    2022, appendix B, counts in the same way). A frozen teacher has a forward pass alone; parameters that the optimizer
    freezes count as if they were trained.

    Args:
      model: what is trained.
      objective: knows its vocabulary, which the shapes of its features do not depend on.
      batch_size: rows of a step.
    """
    features = {name: nn.unbox(leaf).shape[1:] for name, leaf in _features(objective).items()}
    row = 3 * _forward(model, objective, features)
    if objective.frozen_model is not None:
        row += _forward(objective.frozen_model, objective, features)
    return batch_size * row


def _features(objective: Objective) -> Any:
    batch = abstract_batch(objective.row_spec, 1)
    return jax.eval_shape(lambda batch: corrupt_rows(objective, jax.random.key(0), batch), batch)


def _forward(model: ModelConfig, objective: Objective, features: dict[str, tuple[int, ...]]) -> int:
    if isinstance(objective, TaskObjective):
        return _task(model, objective, features)
    (length,) = features["inputs"]
    match model:
        case T5Config() | EncoderDecoderConfig():
            (targets,) = features["targets"]
            return _two_stacks(model, length, targets) + 2 * targets * model.embed_dim * model.vocab_size
        case DecoderConfig():
            (targets,) = features["targets"]
            # One EOS stands between inputs and targets.
            row = length if isinstance(objective, CausalLanguageModel) else length - 1 + targets
            layers = model.num_layers * _layer(model.layer(), model.embed_dim, row)
            return layers + 2 * targets * model.embed_dim * model.vocab_size
        case ElectraPairConfig():
            (asked,) = features["positions"]
            generator = _encode(model.generator, length) + _head("masked_lm", model.generator, length, asked)
            detection = _head("replaced_token", model.discriminator, length, asked)
            return generator + _encode(model.discriminator, length) + detection
        case EncoderConfig():
            (asked,) = features["positions"]
            return _encode(model, length) + sum(_head(head, model, length, asked) for head in objective.heads)
    raise InputError(f"model is a {type(model).__name__}, whose operations are not known; add it to training/flops.py")


def _task(model: ModelConfig, objective: TaskObjective, features: dict[str, tuple[int, ...]]) -> int:
    """Of an example: the model on each of its rows, and the head once for each choice."""
    *choices, length = features["inputs"]
    match model:
        case EncoderConfig():
            row = _encode(model, length)
        case EncoderDecoderConfig():  # which reads the row in both stacks
            row = _two_stacks(model, length, length)
        case _:
            row = model.num_layers * _layer(model.layer(), model.embed_dim, length)
    if isinstance(objective, CausalTask) and objective.language_model_weight:
        row += 2 * length * model.embed_dim * model.vocab_size
    orders = 2 if "swapped" in features else 1
    return math.prod(choices) * (orders * row + _head(objective.head, model, length, 0))


def _two_stacks(model: T5Config | EncoderDecoderConfig, length: int, targets: int) -> int:
    layer = model.layer()
    decoder_layer = model.decoder_layer() if isinstance(model, EncoderDecoderConfig) else layer
    encoder = model.num_encoder_layers * _layer(layer, model.embed_dim, length)
    return encoder + model.num_decoder_layers * _layer(decoder_layer, model.embed_dim, targets, memory=length)


def _layer(layer: LayerConfig, embed_dim: int, length: int, memory: int | None = None) -> int:
    width = layer.num_heads * layer.head_dim

    def attention(keys: int) -> int:
        return 4 * (length + keys) * embed_dim * width + 4 * length * keys * width

    feed_forward = (6 if layer.gated else 4) * length * embed_dim * layer.mlp_dim
    return attention(length) + (0 if memory is None else attention(memory)) + feed_forward


def _encode(model: EncoderConfig, length: int) -> int:
    projection = 2 * length * model.token_embed_dim * model.embed_dim if model.projects_embeddings else 0
    return projection + model.num_layers * _layer(model.layer(), model.embed_dim, length)


def _head(head: str, model: ModelConfig, length: int, asked: int) -> int:
    width, token_width = model.embed_dim, getattr(model, "token_embed_dim", model.embed_dim)
    scores = token_width * model.vocab_size
    # On one vector for a row; a decoder's heads have no layer of their own before their scores.
    dense = 0 if isinstance(model, DecoderConfig) else width * width
    match head:
        case "masked_lm":
            return 2 * asked * (width * token_width + scores)
        case "span_boundary":
            return 2 * asked * ((2 * width + SPAN_POSITION_DIM) * width + width * token_width + scores)
        case "sentence_pair":
            return 2 * (width * width + 2 * width)
        case "replaced_token":
            return 2 * length * (width * width + width)
        case "classification":
            return 2 * (dense + width * model.num_classes)
        case "multiple_choice":
            return 2 * (dense + width)
        case "tagging":
            return 2 * length * width * model.num_classes
        case "question_answering":
            return 2 * length * width * 2
    raise InputError(f"head {head!r} has no count of operations; add it to training/flops.py")
