import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from t5x_lite.errors import InputError
from t5x_lite.images.randaugment import CODE_OPERATIONS, PAPER_OPERATIONS, TIMM_OPERATIONS, RandAugment

from ..slow import mostly_slow

ALL = (*CODE_OPERATIONS, "identity")


@pytest.fixture(scope="module")
def photograph():
    from sklearn.datasets import load_sample_images

    return Image.fromarray(load_sample_images().images[1]).resize((56, 48))


@pytest.fixture(scope="module")
def planes(photograph):
    return jnp.asarray(np.asarray(photograph), jnp.float32).transpose(2, 0, 1)


def apply_each(augment, planes, level, count):
    """[operations, count, C, H, W]: each operation by number, under `count` keys."""
    keys = jax.random.split(jax.random.key(0), count)
    each = jax.vmap(lambda number: jax.vmap(lambda key: augment.apply(key, planes, number, level))(keys))
    return np.asarray(jax.jit(each)(jnp.arange(len(augment.operations))))


@pytest.mark.parametrize("increasing", mostly_slow([False, True], True))
def test_every_operation_at_its_magnitude(photograph, planes, increasing):
    """At magnitude 5, by Pillow; those with a sign have one or the other of two results."""
    augment = RandAugment(magnitude=5, operations=ALL, increasing=increasing)
    results = dict(zip(ALL, apply_each(augment, planes, jnp.float32(0.5), 6), strict=True))
    size, grey = photograph.size, (128, 128, 128)

    def affine(*matrix):
        return photograph.transform(size, Image.Transform.AFFINE, matrix, fillcolor=grey)

    def enhanced(name):
        factors = (0.55, 1.45) if increasing else (1.0,)
        return [getattr(ImageEnhance, name)(photograph).enhance(factor) for factor in factors]

    # 0.5 * 100 / 224 of 56 and 48 pixels is 12.5 and 10.7, of which the whole pixels count.
    expected = {
        "identity": [photograph],
        "autocontrast": [ImageOps.autocontrast(photograph)],
        "equalize": [ImageOps.equalize(photograph)],
        "invert": [ImageOps.invert(photograph)],
        "posterize": [ImageOps.posterize(photograph, 2)],
        "solarize": [ImageOps.solarize(photograph, 128)],
        "solarize_add": [photograph.point(lambda value: min(value + 55, 255) if value < 128 else value)],
        "shear_x": [affine(1, sign * 0.15, 0, 0, 1, 0) for sign in (1, -1)],
        "shear_y": [affine(1, 0, 0, sign * 0.15, 1, 0) for sign in (1, -1)],
        "translate_x": [affine(1, 0, sign * 12, 0, 1, 0) for sign in (1, -1)],
        "translate_y": [affine(1, 0, 0, 0, 1, sign * 10) for sign in (1, -1)],
    }
    expected |= {name: enhanced(name.title()) for name in ("color", "contrast", "brightness", "sharpness")}
    for name, pictures in expected.items():
        pictures = [np.asarray(picture, np.float32).transpose(2, 0, 1) for picture in pictures]
        used = set()
        for result in results[name]:
            differences = [(np.abs(result - picture) > 1).mean() for picture in pictures]
            assert min(differences) < 0.005, name
            used.add(int(np.argmin(differences)))
        assert len(used) == len(pictures), name
    for result in results["cutout"]:
        # A box of 2 * 0.5 * 40 / 224 of the sides, cut off at the border.
        changed = (result != np.asarray(planes)).any(axis=0)
        assert (result[:, changed] == 128).all()
        assert 10 <= changed.sum() <= 9 * 11
    turned = {result.tobytes() for result in results["rotate"]}
    assert len(turned) == 2


def test_posterize_and_solarize_in_either_direction(planes):
    for increasing, bits, threshold in ((False, 4, 256), (True, 0, 0)):
        augment = RandAugment(operations=("posterize", "solarize"), increasing=increasing)
        posterized, solarized = apply_each(augment, planes, jnp.float32(1.0), 1)[:, 0]
        np.testing.assert_array_equal(posterized, np.floor(planes / 2 ** (8 - bits)) * 2 ** (8 - bits))
        np.testing.assert_array_equal(solarized, np.where(planes < threshold, planes, 255 - planes))


def test_layers_draw_their_operations_evenly_and_at_random(planes):
    """Of invert and identity twice, half of the results are the picture; by half a probability it is more."""
    few = np.asarray(planes[:, :4, :4])
    keys = jax.random.split(jax.random.key(1), 2000)
    for probability, inverted in ((1.0, 0.5), (0.5, 0.25 * 2 * 0.75)):
        augment = RandAugment(2, 0.0, ("invert", "identity"), probability=probability)
        results = np.asarray(jax.jit(jax.vmap(augment, (0, None)))(keys, few))
        is_inverted = (results == 255 - few).all(axis=(1, 2, 3))
        assert (is_inverted | (results == few).all(axis=(1, 2, 3))).all()
        assert is_inverted.mean() == pytest.approx(inverted, abs=0.04)


def test_the_magnitude_varies_where_it_is_to(planes):
    keys = jax.random.split(jax.random.key(1), 500)
    for std, count in ((0.0, 1), (0.5, 10)):
        augment = RandAugment(1, 9, ("solarize_add",), magnitude_std=std)
        added = np.asarray(jax.jit(jax.vmap(augment, (0, None)))(keys, jnp.zeros((1, 2, 2))))[:, 0, 0, 0]
        assert len(np.unique(added)) >= count
        assert added.mean() == pytest.approx(98.5, abs=1)
        assert added.max() <= 110
        assert added.std() == pytest.approx(5.5 * 2 * std, abs=1)


def test_lists_of_operations():
    assert [len(set(names)) for names in (PAPER_OPERATIONS, CODE_OPERATIONS, TIMM_OPERATIONS)] == [14, 16, 15]
    assert set(CODE_OPERATIONS) - set(PAPER_OPERATIONS) == {"invert", "cutout", "solarize_add"}
    for operations, problem in (((), "is empty"), (("blur",), "has unknown blur")):
        with pytest.raises(InputError, match=f"operations {problem}; choose PAPER_OPERATIONS"):
            RandAugment(operations=operations)


@pytest.mark.parametrize("shape", mostly_slow([(1, 1, 1), (3, 2, 5), (1, 8, 8)], (1, 1, 1)))
def test_small_pictures_and_grey_ones_are_finite(shape):
    augment = RandAugment(3, 30, ALL)
    keys = jax.random.split(jax.random.key(2), 100)
    for value in (0.0, 128.0, 255.0):
        results = np.asarray(jax.jit(jax.vmap(augment, (0, None)))(keys, jnp.full(shape, value)))
        assert (np.isfinite(results) & (results >= 0) & (results <= 255)).all()
