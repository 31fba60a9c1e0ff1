"""What is counted in the forward pass against the matrix products of the gradient that JAX traces, one by one."""

import math
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from t5x_lite.data import WordPiece
from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.kernels import attention
from t5x_lite.kernels.cpu import SUM
from t5x_lite.kernels.dense_attention import AGAIN, VISIBLE
from t5x_lite.kernels.masks import Mask
from t5x_lite.layers.attention import dot_product_attention
from t5x_lite.models import (
    PRESETS,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    GptConfig,
    RealmConfig,
    T5Config,
    T5DecoderConfig,
    TransformerConfig,
    abstract_params,
)
from t5x_lite.objectives import (
    BartDenoising,
    CausalClassification,
    CausalLanguageModel,
    CausalMultipleChoice,
    Classification,
    MultipleChoice,
    Objective,
    PrefixLanguageModel,
    QuestionAnswering,
    RetrievalMaskedLanguageModel,
    SpanCorruption,
    Tagging,
    corrupt_rows,
)
from t5x_lite.tokenizers.config import expected_vocabulary
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.training.flops import count_flops, step_flops

from ..tiny_runs import ENCODERS

VOCABULARY = Vocabulary(
    size=260, pad_id=0, eos_id=1, cls_id=3, sep_id=1, mask_id=4, first_sentinel_id=259, num_sentinels=100
)


def traced_flops(jaxpr) -> int:
    """Of every dot in a jaxpr, times the rounds of its loops, without rematerialization and sums."""
    total = 0
    for equation in jaxpr.eqns:
        names, before = str(equation.source_info.name_stack), total
        if any(name in names for name in (AGAIN, SUM)):
            continue
        if equation.primitive.name == "dot_general":
            left = equation.invars[0].aval.shape
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                products = times * traced_flops(inner)
                assert not products or equation.primitive.name != "while", "how often it runs is not known"
                total += products
        if visible := re.search(rf"{VISIBLE}_(\d+)_of_(\d+)", names):
            total = before + (total - before) * int(visible[1]) // int(visible[2])
    return total


def step_of(model, objective: Objective, rows: int) -> int:
    """Traced: corruption, loss and gradient."""

    def gradient(params, frozen, batch):
        key = jax.random.key(0)
        features = corrupt_rows(objective, key, batch)

        def loss(params):
            return objective.loss(model.build(), params, features, key, frozen=frozen)[0]

        return jax.grad(loss)(params)

    frozen = objective.frozen_model and nn.unbox(abstract_params(objective.frozen_model))
    batch = abstract_batch(objective.layout.spec, rows)
    return traced_flops(jax.make_jaxpr(gradient)(nn.unbox(abstract_params(model)), frozen, batch).jaxpr)


@pytest.mark.parametrize(
    "encoder",
    [
        *(pytest.param(family, marks=pytest.mark.slow) for family in ("BERT", "RoBERTa", "Linformer")),
        *("SpanBERT", "ALBERT", "ELECTRA", "DistilBERT"),
    ],
    indirect=True,
)
def test_encoders(encoder):
    objective = encoder.objective.for_vocabulary(expected_vocabulary(WordPiece(vocab_size=100), 104))
    assert step_flops(encoder.model, objective, 3) == step_of(encoder.model, objective, 3)


def test_blocks_count_for_the_pairs_in_them():
    """Twelve blocks of two: those of two multiply with all, of ten with two global ones, three around and one drawn."""
    objective, model = ENCODERS["BigBird"]
    objective = objective.for_vocabulary(expected_vocabulary(WordPiece(vocab_size=100), 104))
    pairs = 4 * 24 + 20 * (2 + 3 + 1) * 2
    products = 3 * (4 * model.embed_dim) * (pairs - 24**2)
    assert step_flops(model, objective, 5) - step_flops(replace(model, attention=None), objective, 5) == 5 * products


def test_texts(writer):
    objective = writer.objective.for_vocabulary(VOCABULARY)
    assert step_flops(writer.model, objective, 3) == step_of(writer.model, objective, 3)


T5 = T5Config(264, 3, 12, head_dim=5, mlp_dim=17, num_encoder_layers=2, num_decoder_layers=3)
DECODER = T5DecoderConfig(264, 3, 12, head_dim=5, mlp_dim=17, num_layers=2, gated=True)
UNEVEN = TransformerConfig(
    264, 3, 12, mlp_dim=17, num_encoder_layers=1, num_decoder_layers=2, num_decoder_heads=2, decoder_mlp_dim=19
)


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        (replace(T5, gated=True, tied=False), SpanCorruption(40)),
        (replace(T5, num_encoder_layers=3, stacks_share_parameters=True), SpanCorruption(24)),
        (replace(DECODER, full_prefix=True), PrefixLanguageModel(20)),
        (UNEVEN, BartDenoising(24)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_encoder_decoders_and_decoders(model, objective):
    objective = objective.for_vocabulary(VOCABULARY)
    assert step_flops(model, objective, 2) == step_of(model, objective, 2)


CLASSES = {"heads": ("classification", "tagging", "question_answering"), "num_classes": 5}
ENCODER = {"vocab_size": 264, "num_heads": 3, "embed_dim": 12, "mlp_dim": 17, "num_layers": 2}
GPT = GptConfig(**ENCODER, heads=("classification", "multiple_choice"), num_classes=5)
BART = BartConfig(264, 3, 12, 17, 1, 2, num_decoder_heads=2, decoder_mlp_dim=19, **CLASSES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "objective"),
    [
        (BertConfig(**ENCODER, **CLASSES), Classification(24)),
        (BertConfig(**ENCODER, heads=("multiple_choice",)), MultipleChoice(24, 3)),
        (DistilBertConfig(**ENCODER, **CLASSES), Tagging(24)),
        (BART, Classification(24)),
        (BART, QuestionAnswering(24, 6, 6)),
        (GPT, Classification(24)),
        (GPT, CausalMultipleChoice(24, 3)),
        (GPT, CausalClassification(24, both_orders=True)),
        (GPT, CausalClassification(24, language_model_weight=0.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_tasks(model, objective):
    objective = objective.for_vocabulary(VOCABULARY)
    assert step_flops(model, objective, 2) == step_of(model, objective, 2)


def test_a_published_size():
    """6 operations a parameter and token but for the embedding, plus attention: GPT-3 175B, 3.1e23 for 300 billion."""
    objective = CausalLanguageModel(2048)
    flops = step_flops(PRESETS["gpt3-175b"], objective.for_vocabulary(VOCABULARY), 1) / 2048
    assert flops * 300e9 == pytest.approx(3.14e23, rel=0.04)


def stack_flops(length: int, width: int, mlp_dim: int, depth: int) -> int:
    return 2 * depth * length * (4 * width**2 + 2 * width * mlp_dim + 2 * length * width)


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        # 17.6 billion multiplications and additions, as the papers count.
        ("vit-b-16", 2 * (196 * 768 * 768 + 768 * 1000) + stack_flops(197, 768, 3072, 12)),
        ("deit-ti-distilled", 2 * (196 * 768 * 192 + 2 * 192 * 1000) + stack_flops(198, 192, 768, 12)),
        # The encoder computes the 49 patches that it sees and the class token alone.
        (
            "mae-b",
            2 * (49 * 768 * 768 + 50 * 768 * 512 + 196 * 512 * 768)
            + stack_flops(50, 768, 3072, 12)
            + stack_flops(197, 512, 2048, 8),
        ),
    ],
)
def test_models_of_pictures(preset, expected):
    config = PRESETS[preset]
    params = nn.unbox(abstract_params(config))
    forward = jax.make_jaxpr(lambda params, *inputs: config.build().apply({"params": params}, *inputs))
    assert count_flops(forward(params, *config.abstract_inputs()).jaxpr) == expected


def test_convolutions_branches_and_loops():
    image, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((4, 4, 3, 5))
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}

    def flops(function, *arguments) -> int:
        return count_flops(jax.make_jaxpr(function)(*arguments).jaxpr)

    def patches(image, kernel):
        return jax.lax.conv_general_dilated(image, kernel, (4, 4), "VALID", **layout)

    # Patches that do not overlap are one product of [2 * 4, 4 * 4 * 3] and [48, 5].
    assert flops(jax.checkpoint(jax.jit(patches)), image, kernel) == 2 * 8 * 48 * 5
    by_channel = {"feature_group_count": 3, **layout}
    depthwise = lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", **by_channel)  # noqa: E731
    assert flops(depthwise, image, jnp.ones((3, 3, 1, 3))) == 2 * image.size * 9
    back = lambda x, k: jax.lax.conv_transpose(x, k, (4, 4), "VALID")  # noqa: E731
    assert flops(back, jnp.ones((2, 2, 2, 5)), jnp.ones((4, 4, 5, 3))) == 2 * 8 * 48 * 5

    square = jnp.ones((5, 5))
    assert flops(lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x @ x, lambda: x @ x @ x), square) == 2 * 2 * 125
    assert flops(lambda x: jax.lax.fori_loop(0, 7, lambda _, y: y @ x, x), square) == 7 * 2 * 125
    assert flops(lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ x, x), square) == 2 * 125


@pytest.mark.parametrize("on", ["cpu", "tpu"])
@pytest.mark.parametrize(("mask", "pairs"), [(Mask(), 200 * 200), (Mask(causal=True), 100 * 200)], ids=str)
def test_half_of_the_pairs_of_causal_attention_count_on_any_platform(on, mask, pairs, monkeypatch):
    monkeypatch.setattr(attention, "platform", lambda: on)
    query = jax.ShapeDtypeStruct((3, 200, 2, 16), jnp.float32)
    jaxpr = jax.make_jaxpr(lambda *arrays: dot_product_attention(*arrays, mask=mask))(query, query, query)
    assert ("pallas_call" in str(jaxpr)) == (on == "tpu")
    assert count_flops(jaxpr.jaxpr) == 2 * 2 * 3 * 2 * pairs * 16


def test_a_search_and_the_passages_of_a_step_count_once():
    """Of 21 passages with 24 rows in the index a step encodes 8; a row is read with two passages and an empty one."""
    bert = BertConfig(50, 2, 8, 12, 1, 24)
    model = RealmConfig(bert, projection_dim=6, reader=replace(bert, heads=("masked_lm",)))
    vocabulary = Vocabulary(50, cls_id=2, sep_id=3, mask_id=4, eos_id=3)
    options = {"num_retrieved": 2, "refresh_every": 3, "input_length": 10, "span_length": 2, "vocabulary": vocabulary}
    objective = RetrievalMaskedLanguageModel(8, **options).for_corpus(21)

    def layers(length: int, rows: int) -> int:
        """Of a BERT: four matrices and two of the feed-forward layer for a token, and all pairs of tokens."""
        return rows * length * 2 * (4 * 8 * 8 + 2 * 8 * 12 + 2 * 8 * length)

    def vectors(length: int, rows: int) -> int:
        return layers(length, rows) + rows * 2 * (8 * 8 + 8 * 6)

    # Inner products with what is found; the head's transform and scores of two tokens, of each of three rows.
    reader = layers(19, 3) + 3 * 2 * 2 * (8 * 8 + 8 * 50)
    row = vectors(10, 1) + vectors(10, 2) + 2 * 2 * 6 + reader
    # The empty passage is one for all rows; traced with two of them.
    empty = vectors(10, 1) // 2 + 2 * 6
    search = 2 * 24 * 6
    assert step_flops(model, objective, 4) == 4 * (3 * (row + empty) + search) + vectors(10, 8)
