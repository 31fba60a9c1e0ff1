"""GPT's fine-tuning on answers to choose from."""

from functools import partial

import jax
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, GptConfig
from t5x_lite.objectives import CausalMultipleChoice, corrupt_rows

WORDS, LENGTH = Vocabulary(30, pad_id=0), 9
MODEL = GptConfig(
    vocab_size=33, embed_dim=12, num_heads=3, mlp_dim=17, num_layers=1, max_length=LENGTH, heads=("multiple_choice",)
)
TEXTS = ([10, 11], [12, 13, 14])
ANSWERS = ([[20], [21, 22], [23]], [[24, 25], [20], [21, 22, 23]])
LABELS = (1, 2)


def features_of(order=(0, 1, 2)):
    """(objective, features), the answers in another order."""
    objective = CausalMultipleChoice(LENGTH, 3).for_vocabulary(WORDS)
    builder = objective.layout.start(WORDS)
    for text, answers, label in zip(TEXTS, ANSWERS, LABELS, strict=True):
        pieces = [text, *(answers[number] for number in order)]
        builder.add([*(np.array(ids, np.int32) for ids in pieces), order.index(label)])
    return objective, _corrupt(objective, stack(builder.take()))


@partial(jax.jit, static_argnums=0)
def _corrupt(objective, batch):
    return corrupt_rows(objective, jax.random.key(0), batch)


@pytest.fixture(scope="module")
def answer(make_model):
    """`answer(features)`: (loss, weight, metrics, logits, the answers' numbers)."""
    (module, params), (objective, _) = make_model(MODEL), features_of()

    @jax.jit
    def of(params, features):
        loss = objective.loss(module, params, features, None)
        said = objective.logits(module, params, features)
        tokens = module.apply({"params": params}, features["inputs"].reshape(-1, LENGTH))
        return *loss, said, objective.predict(module, params, features), jax.nn.log_softmax(tokens)

    return lambda features: jax.tree.map(np.asarray, of(params, features))


def test_each_answer_stands_behind_the_text():
    _, features = features_of()
    np.testing.assert_array_equal(features["inputs"][0, 1], [30, 10, 11, 31, 21, 22, 32, 0, 0])
    np.testing.assert_array_equal(features["inputs"][1, 2], [30, 12, 13, 14, 31, 21, 22, 23, 32])
    np.testing.assert_array_equal(features["segments"][0, 1], [0, 0, 0, 0, 1, 1, 1, 0, 0])
    assert features["label"].tolist() == [1, 2]


def test_the_loss_is_that_of_the_choice_and_of_all_tokens(answer):
    _, features = features_of()
    total, weight, metrics, logits, best, tokens = answer(features)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    of_choice = -np.log(shares[0, 1] * shares[1, 2])
    rows = np.asarray(features["inputs"]).reshape(-1, LENGTH)
    means = []
    for said, row in zip(tokens, rows, strict=True):
        end = row.tolist().index(32)
        means.append(-np.mean([said[place - 1, row[place]] for place in range(1, end + 1)]))
    of_tokens = np.mean(means[:3]) + np.mean(means[3:])
    assert float(metrics["loss"]) == pytest.approx(of_choice, rel=1e-5)
    assert float(metrics["language_model_loss"]) == pytest.approx(of_tokens, rel=1e-5)
    assert float(total) == pytest.approx(of_choice + 0.5 * of_tokens, rel=1e-5)
    assert float(weight) == 2.0
    np.testing.assert_array_equal(best, logits.argmax(axis=1))


def test_the_order_of_the_answers_counts_for_nothing(answer):
    order = (2, 0, 1)
    before, after = answer(features_of()[1]), answer(features_of(order)[1])
    np.testing.assert_allclose(after[3], before[3][:, order], atol=1e-5)
    assert float(after[0]) == pytest.approx(float(before[0]), rel=1e-5)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (BertConfig(), "model is a BertConfig, which CausalMultipleChoice cannot train; .* with MultipleChoice"),
        (GptConfig(heads=("classification",)), "lacks multiple_choice, which CausalMultipleChoice trains"),
    ],
)
def test_models_that_do_not_fit(model, problem):
    with pytest.raises(InputError, match=problem):
        CausalMultipleChoice(LENGTH).check_model(model)
