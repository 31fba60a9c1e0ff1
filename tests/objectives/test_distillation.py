from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, DistilBertConfig, T5Config
from t5x_lite.objectives import Distillation, MaskedLanguageModel, corrupt_rows

STUDENT = DistilBertConfig(
    vocab_size=67, embed_dim=12, num_heads=3, mlp_dim=17, num_layers=1, max_length=40, heads=("masked_lm",)
)
TEACHER = BertConfig(
    vocab_size=67, embed_dim=12, num_heads=2, mlp_dim=19, num_layers=2, max_length=50, heads=("masked_lm",)
)


def make_objective(vocabulary, **changes):
    objective = Distillation(30, teacher="folder", temperature=3.0, **changes)
    return objective.for_teacher(TEACHER, STUDENT).for_vocabulary(vocabulary)


@pytest.fixture(scope="module")
def objective(vocabulary):
    return make_objective(vocabulary)


@pytest.fixture(scope="module")
def features(objective, make_rows):
    raw = jnp.asarray(make_rows(objective.layout, 5))
    features = jax.jit(lambda raw: corrupt_rows(objective, jax.random.key(0), {"ids": raw}))(raw)
    return features | {"valid": jnp.array([True, True, False, True, True])}


@pytest.fixture(scope="module")
def both(make_model):
    """((student's module, parameters), (teacher's module, parameters))"""
    return make_model(STUDENT, 0), make_model(TEACHER, 1)


@pytest.fixture(scope="module")
def loss(objective, both):
    """`loss(params, frozen, features)`"""
    student = both[0][0]
    return jax.jit(lambda params, frozen, features: objective.loss(student, params, features, None, frozen=frozen))


def asked_logits(logits, features, pad_id):
    """[T V]: the logits of each token asked for in a valid row."""
    used = (features["targets"] != pad_id) & features["valid"][:, None]
    return np.take_along_axis(logits, features["positions"][..., None], 1)[used]


def divergence(student, teacher, temperature):
    """temperature^2 * KL(teacher || student) of each pair of rows of logits."""

    def shares(logits):
        shares = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
        return shares / shares.sum(-1, keepdims=True)

    p, q = shares(teacher), shares(student)
    return temperature**2 * (p * np.log(p / q)).sum(-1)


@pytest.fixture(scope="module")
def answers(objective, both, features, say):
    """(features, student's, teacher's answers) in numpy."""
    features = jax.device_get(features)
    ask = (features["inputs"], features["segments"], objective.vocabulary.pad_id)
    return features, *(say(module, params, *ask) for module, params in both)


def test_loss_is_the_weighted_sum_of_three_means(objective, both, features, loss, answers, token_losses):
    (_, params), (_, frozen) = both
    total, weight, metrics = loss(params, frozen, features)
    pad_id = objective.vocabulary.pad_id
    features, student, teacher = answers
    tokens = token_losses(student["masked_lm_logits"], features, pad_id)
    logits = [asked_logits(said["masked_lm_logits"], features, pad_id) for said in (student, teacher)]
    soft = divergence(*logits, temperature=3.0)
    a, b = student["hidden"], teacher["hidden"]
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    real = (features["inputs"] != pad_id) & features["valid"][:, None]
    assert not real[0].all()
    cosine = 1 - cosine[real]
    assert len(soft) == len(tokens) == weight
    expected = 5.0 * soft.mean() + 2.0 * tokens.mean() + 1.0 * cosine.mean()
    assert total / weight == pytest.approx(expected, rel=1e-5)
    assert metrics["loss"] == pytest.approx(tokens.sum(), rel=1e-5)
    assert metrics["soft_loss"].sum == pytest.approx(soft.sum(), rel=1e-5)
    assert metrics["cosine_loss"].sum == pytest.approx(cosine.sum(), rel=1e-5)
    assert metrics["cosine_loss"].weight == real.sum()


def test_soft_targets_are_torchs(objective, torch):
    student, teacher = np.random.default_rng(0).normal(size=(2, 1, 4, 67)).astype(np.float32)
    for temperature in (1.0, 2.0, 5.0):
        losses = replace(objective, temperature=temperature).soft_losses(jnp.asarray(student), jnp.asarray(teacher))
        expected = torch.nn.functional.kl_div(
            torch.log_softmax(torch.tensor(student) / temperature, -1),
            torch.softmax(torch.tensor(teacher) / temperature, -1),
            reduction="none",
        )
        np.testing.assert_allclose(losses, temperature**2 * expected.sum(-1).numpy(), rtol=1e-4, atol=1e-6)


def test_the_teacher_is_not_taught(both, features, loss):
    (_, params), (_, frozen) = both
    gradients = jax.jit(jax.grad(lambda *args: loss(*args, features)[0], argnums=(0, 1)))(params, frozen)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(gradients[1]))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients[0]))


def test_without_a_teacher_it_is_the_masked_language_model(objective, both, features, loss, vocabulary):
    """Held-out figures compare with those of any masked language model."""
    module, params = both[0]
    plain = MaskedLanguageModel(30).for_vocabulary(vocabulary)
    expected = jax.jit(lambda f: plain.loss(module, params, f, None))(features)
    found = loss(params, None, features)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)
    assert set(found[2]) == {"loss", "accuracy"}


def test_a_student_that_is_its_teacher_has_nothing_to_learn_from_it(vocabulary, both, features):
    module, params = both[1]
    objective = replace(make_objective(vocabulary), teacher_model=TEACHER)
    compute = jax.jit(lambda params: objective.loss(module, params, features, None, frozen=params))
    total, _, metrics = compute(params)
    assert metrics["soft_loss"].sum == pytest.approx(0, abs=1e-4)
    assert metrics["cosine_loss"].sum == pytest.approx(0, abs=1e-4)
    assert total == pytest.approx(2.0 * float(metrics["loss"]), rel=1e-5)


def test_without_the_cosine_widths_may_differ(vocabulary, make_model, both, features):
    narrow = replace(STUDENT, embed_dim=6, num_heads=2)
    objective = Distillation(30, teacher="folder", cosine_weight=0.0)
    objective = objective.for_teacher(TEACHER, narrow).for_vocabulary(vocabulary)
    assert objective.frozen_model == TEACHER
    module, params = make_model(narrow)
    _, _, metrics = jax.eval_shape(lambda: objective.loss(module, params, features, None, frozen=both[1][1]))
    assert "cosine_loss" not in metrics
    assert "soft_loss" in metrics


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (replace(TEACHER, embed_dim=14), "teacher's embed_dim=14 is not the student's 12.*set objective.cosine_weight"),
        (replace(TEACHER, vocab_size=80), "model.vocab_size=67 is not the teacher's 80; choose the teacher's"),
        (replace(TEACHER, heads=()), "objective.teacher='folder' is a BertConfig without masked_lm; choose an encoder"),
        (replace(TEACHER, max_length=20), "input_length=30 exceeds the teacher's max_length=20"),
        (T5Config(), "objective.teacher='folder' is a T5Config without masked_lm"),
    ],
)
def test_teachers_that_cannot_teach(teacher, message):
    with pytest.raises(InputError, match=message):
        Distillation(30, teacher="folder").for_teacher(teacher, STUDENT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher": ""}, "teacher='' names no teacher"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"soft_weight": -1.0}, "soft_weight=-1.0"),
        ({"token_weight": float("nan")}, "token_weight=nan"),
        ({"cosine_weight": -0.5}, "cosine_weight=-0.5"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        Distillation(**{"teacher": "folder"} | change)
