import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.patches import PatchEmbeddings, patchify, resize_positions, sincos_positions, unpatchify

IMAGES = np.random.default_rng(0).normal(size=(2, 6, 9, 2)).astype(np.float32)


def test_patches_are_cut_row_by_row_and_put_together_again():
    patches = patchify(jnp.asarray(IMAGES), 3)
    assert patches.shape == (2, 6, 18)
    for number, patch in enumerate(np.asarray(patches[1])):
        row, column = divmod(number, 3)
        expected = IMAGES[1, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
        np.testing.assert_array_equal(patch.reshape(3, 3, 2), expected)
    np.testing.assert_array_equal(unpatchify(patches, (6, 9), 3), IMAGES)


def test_the_embedding_of_patches_is_a_convolution(make_params):
    module = PatchEmbeddings((2, 3), 3, 8, special_tokens=())
    params = make_params(module, 0, jnp.asarray(IMAGES))
    kernel = params["patch"]["kernel"].reshape(3, 3, 2, 8)
    dimensions = ("NHWC", "HWIO", "NHWC")
    convolved = jax.lax.conv_general_dilated(IMAGES, kernel, (3, 3), "VALID", dimension_numbers=dimensions)
    with jax.numpy_rank_promotion("allow"):
        expected = convolved.reshape(2, 6, 8) + params["patch"]["bias"] + params["position"]["embedding"]
    np.testing.assert_allclose(module.apply({"params": params}, jnp.asarray(IMAGES)), expected, atol=1e-5)


@pytest.mark.parametrize("special_positions", [True, False])
def test_special_tokens_come_first_with_their_positions_or_without(make_params, special_positions):
    names = ("class_token", "distillation_token")
    module = PatchEmbeddings((2, 3), 3, 8, names, special_positions=special_positions)
    params = make_params(module, 0, jnp.asarray(IMAGES))
    table = np.asarray(params["position"]["embedding"])
    assert len(table) == 6 + 2 * special_positions
    out = np.asarray(module.apply({"params": params}, jnp.asarray(IMAGES)))
    assert out.shape == (2, 8, 8)
    for index, name in enumerate(names):
        expected = params[name] + (table[index] if special_positions else 0)
        np.testing.assert_allclose(out[:, index], np.broadcast_to(expected, (2, 8)), atol=1e-6)


def test_visible_patches_are_those_of_the_whole_picture(make_params):
    module, images = PatchEmbeddings((2, 3), 3, 8), jnp.asarray(IMAGES)
    params = make_params(module, 0, images)
    visible = jnp.array([[4, 0], [5, 3]])
    whole, some = (np.asarray(module.apply({"params": params}, images, *rest)) for rest in ((), (visible,)))
    np.testing.assert_allclose(some[:, 0], whole[:, 0], atol=1e-6)
    np.testing.assert_allclose(some[:, 1:], whole[[[0], [1]], np.asarray(visible) + 1], atol=1e-6)


def test_sines_and_cosines_are_a_table_that_is_not_trained():
    module, images = PatchEmbeddings((2, 3), 3, 8, positions="sincos"), jnp.asarray(IMAGES)
    params = module.init(jax.random.key(0), images)["params"]
    table = params["position"]["embedding"].unbox()
    np.testing.assert_array_equal(table[0], np.zeros(8))
    np.testing.assert_array_equal(table[1:], sincos_positions((2, 3), 8))
    gradient = jax.grad(lambda params: (module.apply({"params": params}, images) ** 2).sum())(params)
    assert (gradient["position"]["embedding"].unbox() == 0).all()
    assert (gradient["class_token"].unbox() != 0).any()


def test_sines_and_cosines_tell_rows_from_columns():
    """The distance of two positions depends on how far they are apart alone, along either axis."""
    table = sincos_positions((4, 5), 16).reshape(4, 5, 16)
    np.testing.assert_array_equal(table[:, :1, 8:], table[:, 1:2, 8:])
    np.testing.assert_array_equal(table[:1, :, :8], table[1:2, :, :8])
    np.testing.assert_allclose(table[2, 1] @ table[3, 3], table[0, 2] @ table[1, 4], rtol=1e-5)
    assert len(np.unique(table.reshape(20, 16).round(5), axis=0)) == 20


def test_positions_of_the_same_grid_stay_and_constants_stay_constant():
    table = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    assert resize_positions(table, (2, 3), (2, 3)) is table
    np.testing.assert_allclose(resize_positions(np.ones_like(table), (2, 3), (5, 4)), np.ones((20, 4)), atol=1e-6)
    assert np.abs(resize_positions(table, (2, 3), (3, 2)) - table).max() > 0.1
