import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec

from t5x_lite.errors import InputError
from t5x_lite.models import DeiTConfig, ViTConfig, abstract_params, init_params
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh, shardings, use_mesh
from t5x_lite.parallel.mesh import STATISTICS

from ..slow import mostly_slow

CONFIG = ViTConfig((12, 20), 4, 2, embed_dim=24, num_heads=4, mlp_dim=34, num_layers=3, num_classes=5)
DEIT = DeiTConfig((12, 20), 4, 2, embed_dim=24, num_heads=4, mlp_dim=34, num_layers=3, num_classes=5)
IMAGES = jnp.asarray(np.random.default_rng(0).normal(size=(8, 12, 20, 2)).astype(np.float32))


def run(config, params, images=IMAGES, method="class_logits"):
    return jax.jit(functools.partial(config.build().apply, method=method))({"params": params}, images)


@pytest.fixture(scope="module")
def params(make_params):
    return make_params(CONFIG.build(), 0, IMAGES)


def test_a_new_model_has_a_head_positions_and_tokens_of_its_own():
    params = init_params(CONFIG, jax.random.key(0))
    assert set(params) == {"embeddings", "encoder", "classification"}
    assert 0.01 < params["embeddings"]["position"]["embedding"].std() < 0.03
    assert jnp.abs(run(CONFIG, params)).max() > 0.001


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_without_positions_patches_are_a_set(params, pooling):
    """Permuted patches permute their hidden states, and change no class."""
    config = replace(CONFIG, pooling=pooling)
    table = jnp.zeros_like(params["embeddings"]["position"]["embedding"])[int(pooling == "mean") :]
    embeddings = {name: leaf for name, leaf in params["embeddings"].items() if name in ("patch", "class_token")}
    if pooling == "mean":
        del embeddings["class_token"]
    without = params | {"embeddings": embeddings | {"position": {"embedding": table}}}
    shuffled = np.random.default_rng(1).permutation(15)
    pixels = np.asarray(IMAGES).reshape(8, 3, 4, 5, 4, 2).swapaxes(2, 3)
    moved = pixels[:, shuffled // 5, shuffled % 5].reshape(8, 3, 5, 4, 4, 2).swapaxes(2, 3).reshape(8, 12, 20, 2)
    first, second = (run(config, without, images, "hidden_states") for images in (IMAGES, jnp.asarray(moved)))
    special = 1 if pooling == "cls" else 0
    assert first.shape == (8, 15 + special, 24)
    np.testing.assert_allclose(second[:, special:], first[:, special:][:, shuffled], atol=1e-4)
    np.testing.assert_allclose(run(config, without, jnp.asarray(moved)), run(config, without), atol=1e-4)
    assert np.abs(second[:, special:] - first[:, special:]).max() > 0.1


def test_positions_make_a_sequence_of_them(params):
    flipped = IMAGES[:, :, ::-1]
    assert np.abs(run(CONFIG, params, flipped) - run(CONFIG, params)).max() > 0.1


def test_the_two_heads_of_deit_read_their_tokens_and_are_averaged(make_params):
    params = make_params(DEIT.build(), 1, IMAGES)
    outputs = jax.jit(DEIT.build().apply)({"params": params}, IMAGES)
    assert outputs["hidden"].shape == (8, 17, 24)
    for index, head in enumerate(("classification", "distillation")):
        scores = params[head]["scores"]
        expected = outputs["hidden"][:, index] @ scores["kernel"] + scores["bias"][None]
        np.testing.assert_allclose(outputs[f"{head}_logits"], expected, atol=1e-4)
    mean = (outputs["classification_logits"] + outputs["distillation_logits"]) / 2
    np.testing.assert_allclose(run(DEIT, params), mean, atol=1e-5)


def test_the_head_can_read_normalized_features(params):
    """By the batch in training, by running statistics otherwise, and without a scale and a bias to learn."""
    config = replace(CONFIG, head_norm=True)
    statistics = {"mean": jnp.full(24, 0.3), "variance": jnp.full(24, 4.0)}
    probe = params | {"classification_norm": statistics}
    assert jax.tree.structure(probe) == jax.tree.structure(nn.unbox(abstract_params(config)))
    features = np.asarray(run(CONFIG, params, method="hidden_states")[:, 0])
    scores = jax.device_get(params["classification"]["scores"])
    expected = (features - 0.3) / np.sqrt(4.0 + 1e-6) @ scores["kernel"] + scores["bias"][None]
    np.testing.assert_allclose(run(config, probe), expected, atol=1e-5)
    options = {"deterministic": False, "mutable": [STATISTICS], "method": "class_logits"}
    logits, variables = jax.jit(functools.partial(config.build().apply, **options))({"params": probe}, IMAGES)
    centred = (features - features.mean(0, keepdims=True)) / np.sqrt(features.var(0, keepdims=True) + 1e-6)
    np.testing.assert_allclose(logits, centred @ scores["kernel"] + scores["bias"][None], atol=1e-4)
    following = variables[STATISTICS]["classification_norm"]
    np.testing.assert_allclose(following["mean"], 0.9 * 0.3 + 0.1 * features.mean(0), atol=1e-6)
    np.testing.assert_allclose(following["variance"], 0.9 * 4.0 + 0.1 * features.var(0, ddof=1), rtol=1e-5)


def test_layer_scale_of_ones_is_a_vit(params):
    config = replace(CONFIG, layer_scale=1.0, drop_path_rate=0.3)
    ones = {f"{name}_scale": {"scale": jnp.ones((3, 24))} for name in ("self_attention", "feed_forward")}
    layers = params["encoder"]["layers"] | ones
    scaled = params | {"encoder": params["encoder"] | {"layers": layers}}
    assert jax.tree.structure(scaled) == jax.tree.structure(nn.unbox(abstract_params(config)))
    np.testing.assert_allclose(run(config, scaled), run(CONFIG, params), atol=1e-6)


def test_hidden_states_of_layers_end_with_those_of_the_model(params):
    layers = run(CONFIG, params, method="encode_layers")
    assert layers.shape == (4, 8, 16, 24)
    np.testing.assert_allclose(layers[-1], run(CONFIG, params, method="hidden_states"), atol=1e-5)


@pytest.mark.slow
def test_eight_devices_compute_the_same_and_drop_the_same(params):
    config = replace(CONFIG, drop_path_rate=0.4, dropout_rate=0.1)
    mesh = make_mesh(MeshShape(2, 2, tensor=2))
    placed = shardings(mesh, abstract_params(config))

    def loss(params, images):
        rngs = {"dropout": jax.random.key(5)}
        logits = config.build().apply({"params": params}, images, deterministic=False, rngs=rngs, method="class_logits")
        return (logits**2).mean()

    def loss_on_mesh(params, images):
        with use_mesh(mesh):
            return loss(params, images)

    alone = jax.jit(jax.value_and_grad(loss))(params, IMAGES)
    step = jax.jit(
        jax.value_and_grad(loss_on_mesh), in_shardings=(placed, batch_sharding(mesh)), out_shardings=(None, placed)
    )
    together = step(params, IMAGES)
    assert together[1]["embeddings"]["patch"]["kernel"].sharding.spec == PartitionSpec(None, "fsdp")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), together, alone)


@pytest.mark.parametrize("remat", mostly_slow(["none", "dots", "full"], "dots"))
def test_half_precision_and_remat_train(params, remat):
    module = replace(CONFIG, drop_path_rate=0.2).build(dtype=jnp.bfloat16, remat=remat)

    def loss(params):
        rngs = {"dropout": jax.random.key(0)}
        logits = module.apply({"params": params}, IMAGES, deterministic=False, rngs=rngs, method="class_logits")
        assert logits.dtype == jnp.float32
        return (logits**2).mean()

    gradient = jax.jit(jax.grad(loss))(params)
    assert all(jnp.isfinite(leaf).all() and leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradient))
    assert jnp.abs(gradient["embeddings"]["patch"]["kernel"]).max() > 0


def test_pictures_that_do_not_fit(params):
    with pytest.raises(InputError, match=r"patch_size=4 does not divide image_size=\(12, 18\) .*e\.g\. \(12, 16\)"):
        run(CONFIG, params, IMAGES[:, :, :18])
    with pytest.raises(InputError, match="the pictures have 1 channels, the model num_channels=2"):
        run(CONFIG, params, IMAGES[..., :1])


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (ViTConfig, {"patch_size": 15}, r"patch_size=15 does not divide image_size=\(224, 224\).*\(225, 225\)"),
        (ViTConfig, {"image_size": (8, 224)}, r"patch_size=16 does not divide image_size=\(8, 224\)"),
        (ViTConfig, {"num_heads": 7}, "num_heads=7 does not divide embed_dim=768"),
        (ViTConfig, {"positions": "sincos", "embed_dim": 6, "num_heads": 1}, "embed_dim=6 is not a multiple of 4.* 8"),
        (ViTConfig, {"heads": ("classification", "distillation")}, "heads=.* are not those of ViTConfig; choose"),
        (DeiTConfig, {"heads": ("distillation",)}, "heads=.* are not those of DeiTConfig; choose"),
        (ViTConfig, {"pooler": True, "pooling": "mean"}, "pooler=True reads the class token"),
        (DeiTConfig, {"pooling": "mean"}, "pooling='mean' has no class token"),
        (ViTConfig, {"drop_path_rate": 1.0}, r"drop_path_rate=1.0 is not in \[0, 1\)"),
        (ViTConfig, {"layer_scale": -1.0}, "layer_scale=-1.0 is too small"),
    ],
)
def test_configs_that_do_not_fit(family, fields, message):
    with pytest.raises(InputError, match=message):
        family(**fields)
