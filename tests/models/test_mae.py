import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.layers.patches import patchify
from t5x_lite.models import PRESETS, MAEConfig, ViTConfig, abstract_params, mae_loss
from t5x_lite.models.mae import fill_hidden
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh, shardings, use_mesh

from ..programs import like_new

SIZES = {"embed_dim": 24, "num_heads": 4, "mlp_dim": 34, "num_layers": 2}
CONFIG = MAEConfig(
    (16, 32), 4, 2, **SIZES, decoder_embed_dim=16, decoder_num_heads=2, decoder_mlp_dim=20, decoder_num_layers=1
)  # fmt: skip
RANDOM = np.random.default_rng(0)
IMAGES = jnp.asarray(RANDOM.normal(size=(8, 16, 32, 2)).astype(np.float32))
NOISE = jnp.asarray(RANDOM.uniform(size=(8, 32)).astype(np.float32))


@pytest.fixture(scope="module")
def params(make_params):
    return make_params(CONFIG.build(), 0, IMAGES, NOISE)


@pytest.fixture(scope="module")
def reconstruct(params):
    return jax.jit(lambda images, noise: CONFIG.build().apply({"params": params}, images, noise))


def test_exactly_three_quarters_are_hidden_those_of_the_most_noise(reconstruct):
    predicted, mask = reconstruct(IMAGES, NOISE)
    assert predicted.shape == (8, 32, 32)
    np.testing.assert_array_equal(mask.sum(1), np.full(8, 24))
    visible = np.where(np.asarray(mask) == 0, NOISE, 0).max(1)
    assert (visible < np.where(np.asarray(mask) == 1, NOISE, 1).min(1)).all()
    # Equal noise too hides as many.
    np.testing.assert_array_equal(reconstruct(IMAGES, jnp.zeros_like(NOISE))[1].sum(1), np.full(8, 24))


def test_hidden_pixels_are_not_seen(reconstruct):
    predicted, mask = reconstruct(IMAGES, NOISE)
    hidden = np.asarray(mask).reshape(8, 4, 8, 1, 1, 1).swapaxes(2, 3) * np.ones((1, 1, 4, 1, 4, 2))
    hidden = hidden.reshape(8, 16, 32, 2)
    other = jnp.where(hidden == 1, 7.0, IMAGES)
    np.testing.assert_array_equal(reconstruct(other, NOISE)[0], predicted)
    assert np.abs(reconstruct(jnp.where(hidden == 0, 7.0, IMAGES), NOISE)[0] - predicted).max() > 0.1


def test_the_order_of_visible_patches_changes_nothing(reconstruct):
    """Noise that hides the same patches in another order."""
    predicted, mask = reconstruct(IMAGES, NOISE)
    again, same = reconstruct(IMAGES, jnp.where(mask == 0, -NOISE, 2.0 - NOISE))
    np.testing.assert_array_equal(same, mask)
    np.testing.assert_allclose(again, predicted, atol=1e-4)


def test_the_gradient_of_filled_in_tokens_is_that_of_plain_indexing():
    tokens, mask_token = (jnp.asarray(RANDOM.normal(size=shape).astype(np.float32)) for shape in ((2, 3, 4), (4,)))
    order = np.array([[5, 0, 3, 1, 2, 4], [2, 4, 1, 0, 3, 5]])
    rank, weights = np.argsort(order, axis=1), RANDOM.normal(size=(2, 6, 4)).astype(np.float32)

    def plain(tokens, mask_token, visible, rank):
        filled = jnp.broadcast_to(mask_token, (2, 6, 4))
        return filled.at[np.arange(2)[:, None], visible].set(tokens)

    def gradients(fill):
        def loss(tokens, mask_token):
            out = fill(tokens, mask_token, jnp.asarray(order[:, :3]), jnp.asarray(rank))
            return (out**2 * weights).sum(), out

        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(tokens, mask_token)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), gradients(fill_hidden), gradients(plain))


@pytest.mark.parametrize("norm_pix", [False, True])
def test_the_loss_is_zero_for_the_pixels_themselves_and_where_nothing_is_hidden(norm_pix):
    target = patchify(IMAGES, 4)
    if norm_pix:
        target = (target - target.mean(-1, keepdims=True)) / target.std(-1, ddof=1, keepdims=True)
    mask = jnp.ones((8, 32)).at[:, :8].set(0)
    np.testing.assert_allclose(mae_loss(target, IMAGES, mask, norm_pix), np.zeros((8, 32)), atol=1e-5)
    np.testing.assert_allclose(mae_loss(target + 2, IMAGES, mask, norm_pix), 4 * mask, rtol=1e-3)


def test_the_encoder_is_a_vit():
    """By the names and shapes of its parameters, and by what it makes of a whole picture."""
    vit = ViTConfig((16, 32), 4, 2, **SIZES, heads=())
    params = like_new(CONFIG)
    body = {name: params[name] for name in ("embeddings", "encoder")}
    shapes = nn.unbox(abstract_params(vit))
    assert jax.tree.map(lambda leaf: leaf.shape, body) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    ours, theirs = (
        jax.jit(lambda params, module=module: module.apply({"params": params}, IMAGES, method="hidden_states"))(own)
        for module, own in ((CONFIG.build(), params), (vit.build(), body))
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    whole = abstract_params(PRESETS["mae-b"])
    encoder = [nn.unbox(whole[name]) for name in ("embeddings", "encoder")]
    assert sum(leaf.size for leaf in jax.tree.leaves(encoder)) == 85_798_656


@pytest.mark.slow
def test_eight_devices_compute_the_same_and_gather_their_own_rows(params):
    mesh = make_mesh(MeshShape(2, 2, tensor=2))
    placed, rows = shardings(mesh, abstract_params(CONFIG)), batch_sharding(mesh)

    def loss(params, images, noise):
        predicted, mask = CONFIG.build().apply({"params": params}, images, noise)
        return mae_loss(predicted, images, mask, True).sum() / mask.sum()

    def loss_on_mesh(*arguments):
        with use_mesh(mesh):
            return loss(*arguments)

    step = jax.jit(jax.value_and_grad(loss_on_mesh), in_shardings=(placed, rows, rows), out_shardings=(None, placed))
    compiled = step.lower(params, IMAGES, NOISE).compile()
    program = compiled.as_text()
    assert " scatter(" not in program
    # Nothing as large as a batch of patches is sent: eight rows of 32 patches.
    gathered = re.findall(r"= \w+\[([\d,]+)\]\S* all-gather\(", program)
    assert gathered
    assert not any(shape.startswith("8,") and shape.count(",") == 2 for shape in gathered)
    alone = jax.jit(jax.value_and_grad(loss))(params, IMAGES, NOISE)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        compiled(*jax.device_put((params, IMAGES, NOISE), (placed, rows, rows))),
        alone,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decoder_num_heads": 3}, "decoder_num_heads=3 does not divide decoder_embed_dim=512"),
        ({"decoder_embed_dim": 18, "decoder_num_heads": 2}, "decoder_embed_dim=18 is not a multiple of 4.*choose 20"),
        ({"mask_ratio": 1.0}, r"mask_ratio=1.0 is not in \(0, 1\)"),
        ({"image_size": (16, 32)}, "mask_ratio=0.75 hides all 2 patches; choose a smaller one, or a larger image_size"),
    ],
)
def test_configs_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        MAEConfig(**fields)
