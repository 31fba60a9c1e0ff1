"""Residual networks: against Transformers, and what their running statistics are."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.models import ResNetConfig, init_params
from t5x_lite.parallel.mesh import STATISTICS

from ..slow import mostly_slow

BOTTLENECK = ResNetConfig(depths=(2, 1), widths=(16, 32), stem_width=8, num_classes=5)
BASIC = replace(BOTTLENECK, bottleneck=False)
IMAGES = jnp.asarray(np.random.default_rng(0).normal(size=(4, 21, 34, 3)), jnp.float32)


@pytest.fixture(scope="module")
def params():
    return init_params(BASIC, jax.random.key(0))


def test_stages_halve_the_picture_but_the_first():
    def sizes(config):
        images = jax.ShapeDtypeStruct((2, 64, 96, 3), jnp.float32)
        module = config.build()
        variables = jax.eval_shape(module.init, jax.random.key(0), images)
        maps = jax.eval_shape(lambda v, x: module.apply(v, x, method="feature_maps"), variables, images)
        return [one.shape for one in maps]

    assert sizes(ResNetConfig()) == [(2, 16, 24, 256), (2, 8, 12, 512), (2, 4, 6, 1024), (2, 2, 3, 2048)]
    assert sizes(replace(BASIC, stem="whole")) == [(2, 64, 96, 16), (2, 32, 48, 32)]


def test_in_training_a_batch_is_normalized_by_itself_and_otherwise_by_running_statistics(params):
    module = BASIC.build()
    scaled = 3.0 * IMAGES
    options = {"deterministic": False, "mutable": [STATISTICS], "method": "class_logits"}
    in_training = jax.jit(partial(module.apply, {"params": params}, **options))
    train = [in_training(images) for images in (IMAGES, scaled)]
    np.testing.assert_allclose(train[0][0], train[1][0], atol=1e-3)
    apply = jax.jit(partial(module.apply, {"params": params}))
    whole, other, alone = (apply(images)["classification_logits"] for images in (IMAGES, scaled, IMAGES[:1]))
    assert jnp.abs(whole - other).max() > 0.1
    # A row's logits depend on the others in training alone.
    np.testing.assert_allclose(alone, whole[:1], atol=1e-5)


def test_running_statistics_go_a_tenth_of_the_way(params):
    module = BASIC.build()
    _, variables = module.apply({"params": params}, IMAGES, deterministic=False, mutable=[STATISTICS])
    following = variables[STATISTICS]
    assert jax.tree.map(jnp.shape, following["stem_norm"]) == {"mean": (8,), "variance": (8,)}
    before = module.apply({"params": params}, IMAGES, method=lambda m, x: m.stem[0][0](x))
    np.testing.assert_allclose(following["stem_norm"]["mean"], 0.1 * before.mean((0, 1, 2)), atol=1e-6)
    np.testing.assert_allclose(
        following["stem_norm"]["variance"], 0.9 + 0.1 * np.var(before, (0, 1, 2), ddof=1), rtol=1e-5
    )
    momentum = replace(BASIC, norm_momentum=0.0).build()
    _, variables = momentum.apply({"params": params}, IMAGES, deterministic=False, mutable=[STATISTICS])
    np.testing.assert_allclose(variables[STATISTICS]["stem_norm"]["mean"], before.mean((0, 1, 2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", mostly_slow([BASIC, BOTTLENECK], BOTTLENECK))
def test_blocks_can_begin_as_their_shortcuts(config):
    """What the convolutions of a block give then changes nothing, and they are trained all the same."""
    zero = replace(config, zero_init=True)
    params = init_params(zero, jax.random.key(0))
    last = "norm3" if config.bottleneck else "norm2"
    block = params["stage1_block2"]
    assert not block[last]["scale"].any() and block["norm1"]["scale"].all()
    changed = params | {"stage1_block2": block | {"conv1": {"kernel": 2.0 * block["conv1"]["kernel"] + 1.0}}}
    module = zero.build()

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def compute(params):
        logits = module.apply({"params": params}, IMAGES, method="class_logits")
        return jnp.sin(logits).sum(), logits

    (_, before), gradient = compute(params)
    (_, after), _ = compute(changed)
    np.testing.assert_array_equal(before, after)
    assert jnp.abs(gradient["stage1_block2"][last]["scale"]).max() > 1e-4


def test_remat_computes_the_same(params):
    @partial(jax.jit, static_argnums=1)
    @partial(jax.value_and_grad, has_aux=True)
    def compute(params, remat):
        logits, variables = BASIC.build(remat=remat).apply(
            {"params": params}, IMAGES, deterministic=False, mutable=[STATISTICS], method="class_logits"
        )
        return jnp.sin(logits).sum(), variables

    (expected, statistics), gradient = compute(params, "none")
    (actual, again), other = compute(params, "full")
    assert float(actual) == pytest.approx(float(expected), rel=1e-5)
    for one, two in ((statistics, again), (gradient, other)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * max(1.0, np.abs(a).max())), one, two)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depths": (2, 1, 1)}, r"depths=\(2, 1, 1\) and widths=\(16, 32\) are not two numbers"),
        ({"depths": (2, 0)}, "1 or more, for each stage"),
        ({"depths": (), "widths": ()}, "for each stage"),
        ({"depths": (999, 2)}, r"depths=\(999, 2\) are more than 1000 blocks; choose fewer"),
        ({"widths": (16, 30)}, r"widths=\(16, 30\) are not multiples of 4"),
        ({"norm_momentum": 1.0}, "norm_momentum=1.0"),
        ({"num_classes": 0}, "num_classes=0"),
    ],
)
def test_sizes_that_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(BOTTLENECK, **changes)
