"""Learning rates that fall towards the embeddings: the factors of every family, and the updates that they give."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util

from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, abstract_params
from t5x_lite.models.encoder import TASK_HEADS
from t5x_lite.optim.masks import rate_factors
from t5x_lite.optim.optimizers import Adafactor, AdamW, Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import logical_axes


def factors(preset, decay, offset=2, **changes):
    model = replace(PRESETS[preset], **changes)
    boxed = abstract_params(model)
    found = rate_factors(logical_axes(boxed), nn.unbox(boxed), decay, model.below_layers, offset)
    return traverse_util.flatten_dict(found, sep="/")


def test_an_encoder_has_the_rates_of_electras_code():
    """Its table for 12 layers: embeddings and their projection at depth 0, layer i at i, the task's head at 14."""
    found = factors("electra-small-discriminator", 0.8, heads=("classification",))
    for path, factor in found.items():
        part, *rest = path.split("/")
        if part in ("embeddings", "projection"):
            assert factor == pytest.approx(0.8**14), path
        elif part == "encoder":
            np.testing.assert_allclose(factor, [0.8 ** (14 - depth) for depth in range(1, 13)], rtol=1e-6, err_msg=path)
        else:
            assert (part, factor) == ("classification", 1.0), rest


def test_each_stack_counts_by_itself_and_embeddings_lie_below_the_deepest():
    found = factors("t5-small", 0.5, num_encoder_layers=2, num_decoder_layers=3)
    np.testing.assert_allclose(found["encoder/layers/feed_forward/wi/kernel"], [1 / 8, 1 / 4])
    np.testing.assert_allclose(found["decoder/layers/cross_attention/key/kernel"], [1 / 16, 1 / 8, 1 / 4])
    assert found["token_embedding/embedding"] == found["encoder_position_bias/bias"] == 1 / 32
    assert found["decoder/final_norm/scale"] == 1.0
    pair = factors("electra-base", 0.5)
    assert pair["generator/encoder/layers/self_attention/key/bias"].shape == (12,)
    assert pair["embeddings/token/embedding"] == pair["generator/projection/kernel"] == 0.5**14
    assert pair["discriminator/replaced_token/dense/kernel"] == pair["generator/masked_lm/scores/bias"] == 1.0


def test_a_vit_can_have_the_rates_of_maes_code():
    """He et al. 2022: for 12 layers embeddings have id 0, layer i has id i, what is above has 13."""
    found = factors("vit-b-16", 0.65, offset=1)
    for path, factor in found.items():
        part, *rest = path.split("/")
        if part == "embeddings":
            assert factor == pytest.approx(0.65**13), path
        elif rest[0] == "layers":
            np.testing.assert_allclose(factor, [0.65 ** (13 - i) for i in range(1, 13)], rtol=1e-6, err_msg=path)
        else:
            assert factor == 1.0, path
    assert {path.split("/")[0] for path in found} == {"embeddings", "encoder", "classification"}


def test_layers_that_share_their_parameters_are_one():
    found = factors("albert-base-v2", 0.5)
    assert found["encoder/layers/feed_forward/wi/kernel"] == 1 / 4
    assert found["embeddings/token/embedding"] == found["projection/kernel"] == 1 / 8
    assert found["pooler/dense/kernel"] == 1.0


ABOVE = {
    *TASK_HEADS,
    "masked_lm",
    "sentence_pair",
    "span_boundary",
    "replaced_token",
    "pooler",
    "output",
    "output_bias",
    "distillation",
}
FAMILIES = ("bert-base-uncased", "xlm-roberta-base", "albert-base-v2", "distilbert-base-uncased", "electra-base")
FAMILIES += ("t5-v1_1-small", "transformer-base-en-de", "bart-base", "gpt2", "openai-gpt", "t5-lm-small")
FAMILIES += ("vit-ti-16", "deit-ti-distilled", "deit3-s", "mae-b")


@pytest.mark.slow
def test_every_family_is_sorted_into_embeddings_layers_and_what_is_above():
    """A new name in a model belongs to one of these; the sets here list it."""
    for preset in FAMILIES:
        model = PRESETS[preset]
        paths = traverse_util.flatten_dict(logical_axes(abstract_params(model)), sep="/")
        below = {path for path in paths if path.startswith(tuple(f"{name}/" for name in model.below_layers))}
        assert {path.split("/")[0] for path in below} & {"embeddings", "token_embedding"}, preset
        names = {path.split("/")[path.split("/")[0] in model.networks] for path in set(paths) - below}
        assert names <= {*ABOVE, "encoder", "decoder"}, preset


@pytest.mark.parametrize("optimizer", [AdamW(Constant(0.1), weight_decay=0.3), Adafactor(Constant(0.1))])
def test_updates_are_multiplied_after_everything_else(optimizer):
    """Weight decay included, and what is frozen in a stack counts as a layer."""
    axes = {"encoder": {"layers": {"kernel": ("layers", "embed", "mlp")}}, "embeddings": {"token": ("vocab", "embed")}}
    axes |= {"classification": {"bias": ("classes",)}}
    random = np.random.default_rng(0)
    params, gradients = (
        {
            "encoder": {"layers": {"kernel": jnp.asarray(random.normal(size=(3, 4, 5)), jnp.float32)}},
            "embeddings": {"token": jnp.asarray(random.normal(size=(7, 4)), jnp.float32)},
            "classification": {"bias": jnp.asarray(random.normal(size=2), jnp.float32)},
        }
        for _ in range(2)
    )

    @jax.jit
    def updates():
        changes = {}, {"layerwise_decay": 0.5}, {"layerwise_decay": 0.5, "frozen_layers": 1}
        made = [replace(optimizer, **fields).build(axes, ("embeddings",)) for fields in changes]
        return [one.update(gradients, one.init(params), params)[0] for one in made]

    plain, decayed, frozen = updates()
    np.testing.assert_allclose(decayed["classification"]["bias"], plain["classification"]["bias"])
    np.testing.assert_allclose(decayed["embeddings"]["token"], plain["embeddings"]["token"] / 32, rtol=1e-6)
    scale = np.array([1 / 16, 1 / 8, 1 / 4])[:, None, None]
    expected = plain["encoder"]["layers"]["kernel"] * scale
    np.testing.assert_allclose(decayed["encoder"]["layers"]["kernel"], expected, rtol=1e-6)
    frozen = frozen["encoder"]["layers"]["kernel"]
    assert not frozen[0].any()
    np.testing.assert_allclose(frozen[1:], expected[1:], rtol=1e-6)


def test_the_optimizer_takes_its_offset():
    axes = {"encoder": {"layers": {"bias": ("layers", "mlp")}}, "embeddings": {"bias": ("embed",)}}
    ones = {"encoder": {"layers": {"bias": jnp.ones((2, 3))}}, "embeddings": {"bias": jnp.ones(3)}}
    transformation = Sgd(Constant(1.0), layerwise_decay=0.5, layerwise_offset=1).build(axes, ("embeddings",))
    updates, _ = transformation.update(ones, transformation.init(ones), ones)
    np.testing.assert_allclose(updates["encoder"]["layers"]["bias"][:, 0], [-1 / 4, -1 / 2])
    np.testing.assert_allclose(updates["embeddings"]["bias"], -1 / 8)


def test_adamws_first_update_by_hand():
    """Rate times factor times (the gradient's sign and the decay of the weight)."""
    axes = {"embeddings": {"token": ("vocab", "embed")}, "encoder": {"layers": {"kernel": ("layers", "embed", "mlp")}}}
    shapes = {"embeddings": {"token": (2, 3)}, "encoder": {"layers": {"kernel": (2, 3, 1)}}}
    params, gradients = (
        jax.tree.map(lambda shape: np.full(shape, value, np.float32), shapes, is_leaf=lambda node: type(node) is tuple)  # noqa: B023
        for value in (2.0, -0.01)
    )
    transformation = AdamW(Constant(0.1), weight_decay=0.25, layerwise_decay=0.8).build(axes, ("embeddings",))
    updates = jax.jit(lambda: transformation.update(gradients, transformation.init(params), params)[0])()
    step = 0.1 * (1 - 0.25 * 2.0)
    np.testing.assert_allclose(updates["embeddings"]["token"], step * 0.8**4, rtol=1e-3)
    by_layer = updates["encoder"]["layers"]["kernel"][:, 0, 0]
    np.testing.assert_allclose(by_layer, [step * 0.8**3, step * 0.8**2], rtol=1e-3)


def test_parts_of_a_model_have_rates_by_patterns_beside_their_layers():
    axes = {"backbone": {"stem": {"kernel": ("embed",)}}, "encoder": {"layers": {"kernel": ("layers", "mlp")}}}
    ones = {"backbone": {"stem": {"kernel": jnp.ones(3)}}, "encoder": {"layers": {"kernel": jnp.ones((2, 3))}}}
    rates = (("backbone/stem/*", 0.5), ("backbone/*", 0.1), ("encoder/*", 2.0))
    transformation = Sgd(Constant(1.0), rates=rates, layerwise_decay=0.5, layerwise_offset=1).build(axes, ("backbone",))
    updates, _ = transformation.update(ones, transformation.init(ones), ones)
    np.testing.assert_allclose(updates["backbone"]["stem"]["kernel"], -0.5 / 8)
    np.testing.assert_allclose(updates["encoder"]["layers"]["kernel"][:, 0], [-2 / 4, -2 / 2])


def test_rates_of_nothing_and_rates_below_nothing_are_refused():
    with pytest.raises(InputError, match=r"optimizer.rates has 0.0 for 'backbone/\*'; choose"):
        Sgd(Constant(1.0), rates=(("backbone/*", 0.0),))
    with pytest.raises(
        InputError, match=r"optimizer.rates with 'spine/\*' matches no parameter; choose among .*backbone"
    ):
        AdamW(rates=(("spine/*", 0.1),)).check_model(PRESETS["detr-resnet-50"])
