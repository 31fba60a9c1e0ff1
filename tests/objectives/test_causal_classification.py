"""GPT's fine-tuning: marked rows, a class from the last token, and the language model beside it."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Delimited, Vocabulary
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, GptConfig, T5DecoderConfig
from t5x_lite.objectives import CausalClassification, CausalLanguageModel, corrupt_rows

WORDS, LENGTH = Vocabulary(30, pad_id=0), 9
MODEL = GptConfig(
    vocab_size=33, embed_dim=12, num_heads=3, mlp_dim=17, num_layers=1, max_length=LENGTH, heads=("classification",)
)
PAIRS = (([10, 11], [12]), ([14], [15, 16, 17]), ([20, 21], [22, 23, 24, 25]))


def features_of(labels, texts=PAIRS, **options):
    """(objective, features) of some examples."""
    objective = CausalClassification(LENGTH, **options).for_vocabulary(WORDS)
    builder = objective.layout.start(WORDS)
    for example, label in zip(texts, labels, strict=True):
        builder.add([*(np.array(text, np.int32) for text in example), label])
    return objective, _corrupt(objective, stack(builder.take()))


@partial(jax.jit, static_argnums=0)
def _corrupt(objective, batch):
    return corrupt_rows(objective, jax.random.key(0), batch)


@pytest.fixture(scope="module")
def model(make_model):
    """(module, parameters)."""
    return make_model(MODEL)


@pytest.fixture(scope="module")
def answers(model):
    """`answers(objective, features)`: (loss, weight, metrics, logits), compiled once for each objective and shape."""

    @partial(jax.jit, static_argnums=0)
    def of(objective, features, params):
        loss = objective.loss(model[0], params, features, None)
        return *loss, objective.logits(model[0], params, features)

    return lambda objective, features: jax.tree.map(np.asarray, of(objective, features, model[1]))


def test_features_hold_marks_texts_and_the_label():
    _, features = features_of([1.0, 0.0, -3.7])
    np.testing.assert_array_equal(features["inputs"][0], [30, 10, 11, 31, 12, 32, 0, 0, 0])
    np.testing.assert_array_equal(features["segments"][0], [0, 0, 0, 0, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(features["label"], np.float32([1.0, 0.0, -3.7]))
    assert "swapped" not in features
    _, alone = features_of([1.0], [([10, 11],)])
    np.testing.assert_array_equal(alone["inputs"][0], [30, 10, 11, 32, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(alone["segments"], 0)


def test_the_other_order_is_the_row_of_the_swapped_pair():
    random = np.random.default_rng(0)
    texts = [
        [random.integers(1, 30, size) for size in sizes]
        for sizes in ((1, 1), (1, 5), (5, 1), (3, 3), (2, 4), (0, 3), (3, 0))
    ]
    labels = [0.0] * len(texts)
    _, features = features_of(labels, texts, both_orders=True)
    _, others = features_of(labels, [pair[::-1] for pair in texts], both_orders=True)
    np.testing.assert_array_equal(features["swapped"], others["inputs"])
    np.testing.assert_array_equal(features["inputs"], others["swapped"])


def test_the_last_mark_sees_all_and_padding_counts_for_nothing(answers):
    objective, features = features_of([0.0], [([10, 11], [12, 13])])
    row = features["inputs"][0]
    end = int(jnp.argmax(row == 32))
    assert end == LENGTH - 3
    places = jnp.arange(LENGTH)
    rows = jnp.tile(row[None], (LENGTH + 1, 1)).at[places, places].set(5)
    rows = rows.at[end].set(row)  # without it there is no row
    _, _, _, logits = answers(objective, {"inputs": rows, "label": jnp.zeros(len(rows))})
    moved = np.abs(logits - logits[-1])[:-1].max(axis=1)
    assert (moved[:end] > 1e-4).all()
    assert (moved[end + 1 :] < 1e-6).all()


def test_classes_by_cross_entropy_and_tokens_beside_them(model, answers):
    """The mean over the tokens of each row, from the first text's first to the last mark; by hand."""
    objective, features = features_of([1.0, 0.0, 1.0])
    total, weight, metrics, logits = answers(objective, features)
    classes = jax.nn.log_softmax(logits)
    said = jax.jit(model[0].apply)({"params": model[1]}, features["inputs"])
    tokens = np.asarray(jax.nn.log_softmax(said))
    rows = [[30, 10, 11, 31, 12, 32], [30, 14, 31, 15, 16, 17, 32], [30, 20, 21, 31, 22, 23, 24, 25, 32]]
    of_tokens = [-np.mean([tokens[n, i - 1, row[i]] for i in range(1, len(row))]) for n, row in enumerate(rows)]
    of_labels = -float(classes[0, 1] + classes[1, 0] + classes[2, 1])
    assert float(metrics["loss"]) == pytest.approx(of_labels, rel=1e-5)
    assert float(metrics["language_model_loss"]) == pytest.approx(sum(of_tokens), rel=1e-5)
    assert float(total) == pytest.approx(of_labels + 0.5 * sum(of_tokens), rel=1e-5)
    assert float(weight) == 3.0


@pytest.mark.slow
def test_the_gradient_beside_the_label_is_that_of_the_language_model(model):
    """On rows without padding, which the language model reads as they are. Without it, lambda is 0."""
    objective, features = features_of([1.0, 0.0], [([10, 11], [12, 13, 14, 15]), ([20, 21, 22], [23, 24, 25])])

    def parts(objective, features):
        """((loss, (weight, metrics)), gradient)."""

        def loss(params):
            total, *others = objective.loss(model[0], params, features, None)
            return total, others

        return jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(model[1]))

    (_, (_, metrics)), gradient = parts(replace(objective, language_model_weight=2.0), features)
    (total, (_, alone)), without = parts(replace(objective, language_model_weight=0.0), features)
    assert set(metrics) - set(alone) == {"language_model_loss"}
    assert float(total) == pytest.approx(float(metrics["loss"]), rel=1e-6)

    language_model = CausalLanguageModel(LENGTH - 1).for_vocabulary(WORDS)
    rows = _corrupt(language_model, {"ids": features["inputs"]})
    (_, (tokens, _)), expected = parts(language_model, rows)
    assert float(tokens) == 2 * (LENGTH - 1)
    factor = 2.0 / (LENGTH - 1)
    assert sum(np.square(leaf).sum() for leaf in jax.tree.leaves(expected)) > 1.0
    assert np.abs(without["classification"]["scores"]["kernel"]).max() > 1e-3
    for got, label, language in zip(*map(jax.tree.leaves, (gradient, without, expected)), strict=True):
        np.testing.assert_allclose(got - label, factor * language, atol=2e-5)


def test_with_both_orders_the_order_counts_for_nothing(answers):
    swapped = [pair[::-1] for pair in PAIRS]
    for both, differs in ((True, False), (False, True)):
        said, other = (
            answers(*features_of([1.0, 0.0, 1.0], texts, both_orders=both))[-1] for texts in (PAIRS, swapped)
        )
        assert (np.abs(said - other).max() > 1e-3) == differs


def test_the_vectors_of_both_orders_are_added_up(answers):
    """The scores have no bias, so their sums are those of each order; the tokens' losses are means."""
    objective, features = features_of([1.0, 0.0, 1.0], both_orders=True)
    _, _, metrics, both = answers(objective, features)
    single = replace(objective, both_orders=False)
    one, other = (answers(single, features | {"inputs": features[name]}) for name in ("inputs", "swapped"))
    np.testing.assert_allclose(both, one[-1] + other[-1], atol=1e-5)
    losses = [float(said[2]["language_model_loss"]) for said in (one, other)]
    assert float(metrics["language_model_loss"]) == pytest.approx(sum(losses) / 2, rel=1e-5)


def test_rows_that_fill_up_a_batch_count_for_nothing(answers):
    objective, features = features_of([1.0, 0.0, 1.0])
    with_mask = answers(objective, features | {"valid": jnp.array([True, False, True])})
    all_rows = answers(objective, features)
    _, second = features_of([0.0] * 3, [PAIRS[1]] * 3)
    alone = answers(objective, second)
    assert float(with_mask[1]) == 2.0
    for some, every, thrice in zip(*(jax.tree.leaves(said[:3]) for said in (with_mask, all_rows, alone)), strict=True):
        assert float(some) == pytest.approx(float(every - thrice / 3), rel=1e-4, abs=1e-6)


def test_numbers_by_squared_error(make_model):
    model = make_model(replace(MODEL, num_classes=1))
    objective, features = features_of([0.5, 4.2, -1.0], both_orders=True)

    @jax.jit
    def answer(params):
        return objective.loss(model[0], params, features, None), objective.predict(model[0], params, features)

    (total, _, metrics), said = jax.tree.map(np.asarray, answer(model[1]))
    squares = ((said - np.float32([0.5, 4.2, -1.0])) ** 2).sum()
    assert float(metrics["loss"]) == pytest.approx(squares, rel=1e-5)
    assert float(total) == pytest.approx(squares + 0.5 * float(metrics["language_model_loss"]), rel=1e-5)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (BertConfig(), "model is a BertConfig, which CausalClassification cannot train; give it a GptConfig, or"),
        (T5DecoderConfig(100), "model is a T5DecoderConfig, which CausalClassification cannot train"),
        (GptConfig(), r"model.heads=\(\) lacks classification, which CausalClassification trains"),
        (GptConfig(heads=("classification",), max_length=8), "input_length=9 exceeds model.max_length=8"),
    ],
)
def test_models_that_do_not_fit(model, problem):
    with pytest.raises(InputError, match=problem):
        CausalClassification(LENGTH).check_model(model)


@pytest.mark.parametrize("weight", [-0.5, float("nan"), float("inf")])
def test_weights_that_are_none(weight):
    with pytest.raises(InputError, match=f"language_model_weight={weight} is not (in .0, inf.|finite); choose 0"):
        CausalClassification(language_model_weight=weight)


def test_a_store_of_pairs_alone_where_both_orders_are_read():
    assert CausalClassification(LENGTH, both_orders=True).layout == Delimited(LENGTH, pairs=True)
