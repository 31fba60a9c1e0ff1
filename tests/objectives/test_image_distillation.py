from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import STATISTICS, Augmentation
from t5x_lite.images.mixing import Mixing
from t5x_lite.models import BertConfig, DeiTConfig, ResNetConfig, ViTConfig
from t5x_lite.objectives import ImageClassification, ImageDistillation, corrupt_rows
from t5x_lite.parallel.mesh import STATISTICS as RUNNING

from ..programs import like_new
from ..slow import mostly_slow

SIZES = {"patch_size": 4, "embed_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1, "num_classes": 5}
STUDENT, ONE_HEAD = DeiTConfig((8, 8), **SIZES), ViTConfig((8, 8), **SIZES)
TEACHER = ResNetConfig((1, 1), (8, 8), bottleneck=False, stem_width=8, stem="whole", num_classes=5)
PLAIN = ImageClassification(
    Augmentation((8, 8), normalization="inception"), (10, 10), label_smoothing=0.1, mixing=Mixing(mixup=0.8)
)
OPTIONS = {"augmentation": PLAIN.augmentation, "canvas_size": (10, 10), "label_smoothing": 0.1, "mixing": PLAIN.mixing}
BARE = ImageDistillation(**OPTIONS, teacher="folder", temperature=2.0, teacher_weight=0.3)
HARD = BARE.for_teacher(TEACHER, STUDENT, STATISTICS["imagenet"])
SOFT = replace(HARD, kind="soft")
ROWS = 12


@pytest.fixture(scope="module")
def features():
    random = np.random.default_rng(0)
    batch = {
        "image": random.integers(0, 256, (ROWS, 10, 10, 3), np.uint8),
        "size": random.integers(5, 50, (ROWS, 2), np.int32),
        "label": random.integers(0, 5, ROWS, np.int32),
    }
    features = jax.jit(lambda batch: corrupt_rows(HARD, jax.random.key(3), batch))(batch)
    return features | {"valid": jnp.arange(ROWS) != 4}


def as_teacher_sees(features):
    """Pictures under ImageNet's normalization."""
    pixels = np.asarray(features["images"]) * 0.5 + 0.5
    mean, std = map(np.array, STATISTICS["imagenet"])
    return jnp.asarray((pixels - mean) / std, jnp.float32)


@jax.jit
def teach(params, images):
    return TEACHER.build().apply({"params": params}, images, method="class_logits")


@pytest.fixture(scope="module")
def params(features):
    """Of student and teacher. The teacher's running statistics are not those of the batch; it names several classes."""
    student = like_new(STUDENT)
    for number, head in enumerate(STUDENT.heads):
        kernel = student[head]["scores"]["kernel"]
        student[head]["scores"]["kernel"] = jax.random.normal(jax.random.key(number), kernel.shape)
    teacher, keys = like_new(TEACHER, 2), iter(jax.random.split(jax.random.key(1), 99))
    teacher = jax.tree.map_with_path(
        lambda path, leaf: (
            leaf + jax.random.uniform(next(keys), leaf.shape, minval=-0.5)
            if path[-1].key in ("mean", "variance")
            else leaf
        ),
        teacher,
    )
    scores = teacher["classification"]["scores"]
    scores["kernel"] = jax.random.normal(jax.random.key(3), scores["kernel"].shape)
    scores["bias"] = -teach(teacher, as_teacher_sees(features)).mean(axis=0)
    return student, teacher


@pytest.fixture(scope="module")
def logits(params, features):
    """(class head's, distillation head's, teacher's) in float64."""
    heads = jax.jit(partial(PLAIN.apply, STUDENT.build()))(params[0], features)
    teacher = teach(params[1], as_teacher_sees(features))
    return [np.asarray(each, np.float64) for each in (*heads, teacher)]


@partial(jax.jit, static_argnums=(0, 1))
def loss_of(objective, module, params, features, key):
    return objective.loss(module, params, features, key)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def label_loss(logits, features):
    targets = np.asarray(PLAIN.targets(features, 5))
    return -(targets * log_softmax(logits)).sum(axis=-1)


@pytest.mark.parametrize("kind", mostly_slow(["hard", "soft"], "soft"))
def test_one_head_learns_the_labels_and_the_other_the_teacher(params, features, logits, kind):
    objective = replace(HARD, kind=kind)
    first, second, teacher = logits
    if kind == "hard":
        likeliest = teacher.argmax(axis=-1)
        assert len(set(likeliest)) > 1 and (likeliest != np.asarray(features["label"])).any()
        of_teacher = -log_softmax(second)[np.arange(ROWS), likeliest]
    else:
        p, q = log_softmax(teacher / 2), log_softmax(second / 2)
        of_teacher = 4 * (np.exp(p) * (p - q)).sum(axis=-1)
    used = np.arange(ROWS) != 4
    expected = (0.7 * label_loss(first, features) + 0.3 * of_teacher)[used]
    student, frozen = params
    compute = jax.jit(lambda p, f: objective.loss(STUDENT.build(), p, features, None, frozen=f))
    total, weight, metrics = compute(student, frozen)
    assert float(weight) == ROWS - 1
    assert float(total) == pytest.approx(expected.sum(), rel=1e-4)
    assert float(metrics["teacher_loss"].sum) == pytest.approx(of_teacher[used].sum(), rel=1e-4)
    agreement = (second.argmax(axis=-1) == teacher.argmax(axis=-1))[used].sum()
    assert float(metrics["agreement"].sum) == agreement
    # Loss and accuracy are those of the evaluation.
    plain, alone = (loss_of(one, STUDENT.build(), student, features, None) for one in (PLAIN, objective))
    assert alone[2].keys() == plain[2].keys()
    assert float(alone[0]) == pytest.approx(float(plain[0]), rel=1e-6) != pytest.approx(float(total), rel=1e-3)
    assert float(metrics["loss"]) == pytest.approx(float(plain[2]["loss"]), rel=1e-5)


def test_one_head_learns_both(features, params, logits):
    objective = BARE.for_teacher(TEACHER, ONE_HEAD, STATISTICS["imagenet"])
    module, student = ONE_HEAD.build(), like_new(ONE_HEAD)
    compute = jax.jit(lambda p, f: objective.loss(module, p, features, None, frozen=f))
    total, _, metrics = compute(student, params[1])
    (head,) = jax.jit(partial(PLAIN.apply, module))(student, features)
    head, used = np.asarray(head, np.float64), np.arange(ROWS) != 4
    of_labels = label_loss(head, features)[used].sum()
    of_teacher = -log_softmax(head)[np.arange(ROWS), logits[2].argmax(axis=-1)][used].sum()
    assert float(metrics["teacher_loss"].sum) == pytest.approx(of_teacher, rel=1e-4)
    assert float(total) == pytest.approx(0.7 * of_labels + 0.3 * of_teacher, rel=1e-4)


@pytest.mark.parametrize("objective", [HARD, SOFT], ids=["hard", "soft"])
def test_only_the_student_learns(objective, params, features):
    module = STUDENT.build()

    def loss(student, frozen):
        return objective.loss(module, student, features, jax.random.key(0), frozen=frozen)[0]

    student, teacher = jax.jit(jax.grad(loss, argnums=(0, 1)))(*params)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(teacher))
    for head in ("classification", "distillation"):
        assert np.abs(student[head]["scores"]["kernel"]).max() > 0


def test_no_running_statistics_of_the_teacher_move(params, features):
    """A student that has them moves its own, and the teacher gives what its own say in training too."""
    objective = BARE.for_teacher(TEACHER, TEACHER, STATISTICS["inception"])
    student = like_new(TEACHER, 5)
    compute = jax.jit(lambda s, f, key: objective.loss(TEACHER.build(), s, features, key, frozen=f)[2])
    metrics = compute(student, params[1], jax.random.key(0))
    plain = loss_of(PLAIN, TEACHER.build(), student, features, jax.random.key(0))[2]
    moved, expected = (each[RUNNING].sum for each in (metrics, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), moved, expected)
    own = teach(params[1], features["images"])
    apply = jax.jit(partial(objective.apply_in_training, TEACHER.build()))
    (head,), _ = apply(student, features, jax.random.key(0))
    losses = -log_softmax(np.asarray(head, np.float64))[np.arange(ROWS), np.asarray(own).argmax(axis=-1)]
    expected = losses[np.arange(ROWS) != 4].sum()
    assert float(metrics["teacher_loss"].sum) == pytest.approx(expected, rel=1e-4)


def test_a_transformer_sees_pictures_of_its_size(features):
    """Four times as many pixels of pictures without detail are the same pictures."""
    large = replace(ONE_HEAD, image_size=(16, 16))
    objective = BARE.for_teacher(large, STUDENT, STATISTICS["inception"])
    teacher = like_new(large)
    flat = jnp.broadcast_to(features["images"].mean(axis=(1, 2), keepdims=True), features["images"].shape)
    actual = jax.jit(lambda *arrays: objective.teacher_logits(*arrays, jnp.float32))(teacher, flat)
    images = jnp.repeat(jnp.repeat(flat, 2, axis=1), 2, axis=2)
    expected = jax.jit(partial(large.build().apply, method="class_logits"))({"params": teacher}, images)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert np.ptp(np.asarray(expected), axis=0).max() > 1e-3


def test_binary_cross_entropy_with_the_teachers_class(features, params):
    objective = replace(HARD, loss_type="bce")
    logits, teacher = jnp.array([[1.0, -2.0, 0.5]]), jnp.array([[0.0, 3.0, 1.0]])
    chance = 1 / (1 + np.exp(-np.array([1.0, -2.0, 0.5])))
    expected = -np.log([1 - chance[0], chance[1], 1 - chance[2]]).mean()
    np.testing.assert_allclose(objective.teacher_losses(logits, teacher), [expected], rtol=1e-6)


@pytest.mark.parametrize(
    ("teacher", "statistics", "problem"),
    [
        (BertConfig(), None, "teacher='folder' is a BertConfig that does not classify pictures; choose a ViT"),
        (replace(TEACHER, heads=()), None, "teacher='folder' is a ResNetConfig that does not classify pictures"),
        (replace(TEACHER, num_classes=6), None, "has 6 classes, and model.num_classes=5; choose a teacher"),
        (replace(TEACHER, num_channels=1), None, "with 1 channels, and objective.num_channels=3; choose another"),
        (TEACHER, None, "does not say how its pictures are normalized; put the preprocessor_config.json there"),
    ],
)
def test_teachers_that_cannot_teach(teacher, statistics, problem):
    with pytest.raises(InputError, match=problem):
        BARE.for_teacher(teacher, STUDENT, statistics)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"teacher": ""}, "teacher='' names no teacher; give the folder"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"teacher_weight": 1.5}, "teacher_weight=1.5"),
    ],
)
def test_fields_out_of_range(change, problem):
    with pytest.raises(InputError, match=problem):
        replace(BARE, **change)
