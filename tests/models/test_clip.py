"""The towers of CLIP with a ResNet, and those of SigLIP; those with a ViT are compared in `tests/convert`."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.models import (
    ClipConfig,
    ClipResNetConfig,
    ClipTextConfig,
    SiglipConfig,
    SiglipImageConfig,
    SiglipTextConfig,
    init_params,
)
from t5x_lite.parallel.mesh import STATISTICS

from ..programs import apply, like_new

TOWER = ClipResNetConfig(depths=(2, 1), widths=(16, 24), stem_width=8, image_size=(24, 32), num_heads=3)
TEXT = ClipTextConfig(vocab_size=40, max_length=6, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1)
CLIP = ClipConfig(TOWER, TEXT, 10)
SIZES = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 1}
SIGLIP = SiglipConfig(
    SiglipImageConfig(image_size=(12, 12), patch_size=4, **SIZES), SiglipTextConfig(vocab_size=9, max_length=5, **SIZES)
)
IDS = jnp.array([[3, 9, 39, 39, 39, 39], [1, 39, 39, 39, 39, 39]])


@pytest.fixture(scope="module")
def params():
    """Random ones, running statistics too."""
    random = np.random.default_rng(0)

    def drawn(path, leaf):
        name = path[-1].key
        if name in ("scale", "variance"):
            return jnp.asarray(random.uniform(0.5, 1.5, leaf.shape), jnp.float32)
        return jnp.asarray(random.normal(0, 0.3, leaf.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(drawn, like_new(CLIP))


def by_torch(torch, params, images):
    """The vectors of pictures before they are scaled to length 1, from the description in section 2.4 and in He et al.
    2019: pooling instead of strides, and one layer of attention whose query is the mean."""
    functional = torch.nn.functional

    def tensor(x):
        return torch.from_numpy(np.array(x))

    def conv(x, p, strides=1):
        kernel = tensor(p["kernel"]).permute(3, 2, 0, 1)
        return functional.conv2d(x, kernel, stride=strides, padding=kernel.shape[-1] // 2)

    def norm(x, p):
        return functional.batch_norm(x, *(tensor(p[name]) for name in ("mean", "variance", "scale", "bias")), eps=1e-5)

    tower = params["image"]
    x = tensor(images).permute(0, 3, 1, 2)
    for number in (1, 2, 3):
        x = norm(conv(x, tower[f"stem_conv{number}"], 2 if number == 1 else 1), tower[f"stem_norm{number}"]).relu()
    x = functional.avg_pool2d(x, 2)
    for name, strides in (("stage1_block1", 1), ("stage1_block2", 1), ("stage2_block1", 2)):
        block = tower[name]
        y = norm(conv(x, block["conv1"]), block["norm1"]).relu()
        y = functional.avg_pool2d(norm(conv(y, block["conv2"]), block["norm2"]).relu(), strides)
        y = norm(conv(y, block["conv3"]), block["norm3"])
        if "shortcut_conv" in block:
            x = norm(conv(functional.avg_pool2d(x, strides), block["shortcut_conv"]), block["shortcut_norm"])
        x = (x + y).relu()
    x = x.flatten(2).permute(2, 0, 1)
    pooler = tower["pooler"]
    x = torch.cat([x.mean(dim=0, keepdim=True), x]) + tensor(pooler["position"]["embedding"])[:, None]
    kernels = {name: tensor(pooler[name]["kernel"]).T for name in ("query", "key", "value")}
    out, _ = functional.multi_head_attention_forward(
        x[:1],
        x,
        x,
        x.shape[-1],
        TOWER.num_heads,
        None,
        torch.cat([tensor(pooler[name]["bias"]) for name in kernels]),
        None,
        None,
        False,
        0.0,
        tensor(params["image_projection"]["kernel"]).T,
        tensor(params["image_projection"]["bias"]),
        use_separate_proj_weight=True,
        q_proj_weight=kernels["query"],
        k_proj_weight=kernels["key"],
        v_proj_weight=kernels["value"],
    )
    return out[0]


def test_a_resnet_is_read_by_the_attention_of_its_mean(params, torch):
    images = np.random.default_rng(1).normal(size=(3, *TOWER.image_size, 3)).astype(np.float32)
    with torch.no_grad():
        expected = torch.nn.functional.normalize(by_torch(torch, params, images), dim=-1)
    found = jax.jit(CLIP.build().apply)({"params": params}, images, IDS)
    np.testing.assert_allclose(found.images, expected, atol=1e-5)
    np.testing.assert_allclose(jnp.linalg.norm(found.texts, axis=1), 1, rtol=1e-5)


def test_pictures_of_other_sizes_have_interpolated_positions(params):
    images = jnp.ones((1, 16, 24, 3))
    vectors = apply(CLIP.build(), params, images, method="embed_images")
    assert vectors.shape == (1, 10)
    with pytest.raises(InputError, match=r"image_size=\(20, 24\) is not a multiple of 8"):
        CLIP.build().apply({"params": params}, jnp.ones((1, 20, 24, 3)), method="embed_images")


def test_its_statistics_go_on_in_training(params):
    images = jnp.asarray(np.random.default_rng(1).normal(size=(3, *TOWER.image_size, 3)), jnp.float32)
    train = functools.partial(CLIP.build().apply, deterministic=False, mutable=[STATISTICS])
    _, variables = jax.jit(train)({"params": params}, images, IDS)
    following = variables[STATISTICS]["image"]
    assert following.keys() == {name for name in params["image"] if name.startswith(("stem_norm", "stage"))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 5}, "num_heads=5 does not divide the channels of the last stage, 24"),
        ({"image_size": (20, 32)}, r"image_size=\(20, 32\) is not a multiple of 8.*e.g. \(16, 32\)"),
    ],
)
def test_towers_are_checked(changes, message):
    with pytest.raises(InputError, match=message):
        replace(TOWER, **changes)


def test_siglip_leaves_out_what_is_left_of_a_picture():
    """As a convolution does: of 14 pixels three patches of 4 are read."""
    config = replace(SIGLIP, image=replace(SIGLIP.image, image_size=(14, 14)))
    params = like_new(config)
    images = jax.random.normal(jax.random.key(1), (2, 14, 14, 3))
    embed = jax.jit(lambda images: config.build().apply({"params": params}, images, method="embed_images"))
    expected = embed(images)
    np.testing.assert_array_equal(embed(images.at[:, 12:].set(9.0).at[:, :, 12:].set(9.0)), expected)
    assert (embed(images.at[:, 11].set(9.0)) != expected).any()
    assert config.image.grid == (3, 3)
    with pytest.raises(InputError, match="does not divide"):
        replace(SIGLIP.image, image_size=(3, 12))


def test_texts_of_siglip_are_read_at_the_end_of_a_full_row_and_see_all_of_it():
    params = like_new(SIGLIP)
    module = SIGLIP.build()
    ids = jnp.array([[3, 4, 1, 1, 1]])
    gradient = jax.jit(jax.grad(lambda p: module.apply({"params": p}, ids, method="embed_texts")[0, 0]))(params)
    moved = jnp.abs(gradient["text"]["token_embedding"]["embedding"]).sum(axis=1) > 0
    assert np.flatnonzero(moved).tolist() == [1, 3, 4]
    with pytest.raises(InputError, match="rows have length 4, and are read at position max_length=5; fill them up"):
        module.apply({"params": params}, ids[:, :4], method="embed_texts")


def test_siglip_begins_with_the_authors_temperature_and_bias():
    scale, bias = SIGLIP.build().apply({"params": init_params(SIGLIP, jax.random.key(0))}, method="scale_and_bias")
    assert (float(scale), float(bias)) == (pytest.approx(10.0), -10.0)
