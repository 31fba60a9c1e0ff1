"""Hugging Face's Transformers of pictures as the oracle: the same weights give the same hidden states and losses."""

import functools
import json
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.convert.images import VIT
from t5x_lite.errors import InputError
from t5x_lite.layers.patches import bicubic_matrix, resize_positions
from t5x_lite.models import DeiTConfig, MAEConfig, ViTConfig, mae_loss

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
safetensors = pytest.importorskip("safetensors.torch")

# Every size differs from every other one.
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 31,
    "image_size": [20, 12],
    "patch_size": 4,
}
DECODER = {
    "image_size": 20,
    "decoder_hidden_size": 20,
    "decoder_num_hidden_layers": 3,
    "decoder_num_attention_heads": 5,
    "decoder_intermediate_size": 29,
}
ROWS = 3


@dataclass(frozen=True)
class Case:
    """A class of the oracle and its config, and what we must read out of them."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.name.split("For")[0].removesuffix("Model")


CASES = {
    "vit": Case(
        "ViTForImageClassification",
        {"num_labels": 7, "hidden_act": "gelu_new", "layer_norm_eps": 0.02},
        {"heads": ("classification",), "num_classes": 7, "image_size": (20, 12), "norm_epsilon": 0.02, "pooler": False},
    ),
    "vit-pooler": Case("ViTModel", {"num_channels": 2}, {"heads": (), "pooler": True, "num_channels": 2}),
    "vit-body": Case("ViTModel", {"num_hidden_layers": 3, "image_size": 16}, {"image_size": (16, 16), "num_layers": 3}),
    "deit": Case(
        "DeiTForImageClassificationWithTeacher",
        {"num_labels": 6},
        {"heads": ("classification", "distillation"), "num_classes": 6},
    ),
    "deit-one-head": Case(
        "DeiTForImageClassification", {"num_labels": 5, "hidden_act": "relu"}, {"heads": ("classification",)}
    ),
    "deit-body": Case("DeiTModel", {"hidden_dropout_prob": 0.2}, {"heads": (), "pooler": True, "dropout_rate": 0.2}),
    "mae": Case("ViTMAEForPreTraining", DECODER, {"norm_pix": False, "mask_ratio": 0.75, "decoder_num_layers": 3}),
    "mae-norm": Case(
        "ViTMAEForPreTraining",
        DECODER | {"norm_pix_loss": True, "mask_ratio": 0.6, "num_channels": 1},
        {"norm_pix": True, "mask_ratio": 0.6},
    ),
    "mae-body": Case("ViTMAEModel", DECODER, {"heads": (), "positions": "sincos", "pooler": False}),
}
CLASSIFIERS = [name for name in CASES if not name.startswith("mae")]
AUTOENCODERS = ["mae", "mae-norm"]


def oracle(case: Case) -> Any:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{case.family}Config")(**(SIZES | case.options), attn_implementation="eager")
    model = getattr(transformers, case.name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.lower() and "weight" in name:
                parameter.uniform_(0.5, 1.5)
            elif parameter.ndim == 1 or parameter.ndim == 3:
                parameter.normal_(std=0.3)
            else:
                parameter.normal_(std=1.2 * parameter[0].numel() ** -0.5)
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    return make_pair(case, oracle(case))


def pictures(config: Any, size: tuple[int, int] | None = None) -> np.ndarray:
    shape = (ROWS, *(size or config.image_size), config.num_channels)
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def hidden_states(config: Any, params: Any, images: np.ndarray) -> jax.Array:
    return jax.jit(functools.partial(config.build().apply, method="hidden_states"))({"params": params}, images)


def their_pixels(images: np.ndarray) -> Any:
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


def test_the_architecture_is_read(pair):
    assert {name: getattr(pair.config, name) for name in pair.case.expected} == pair.case.expected
    assert pair.size == sum(parameter.numel() for parameter in pair.theirs.parameters())


def our_outputs(params: Any, config: Any, images: jax.Array) -> dict[str, jax.Array]:
    def outputs(model: Any) -> dict[str, jax.Array]:
        layers = model.encode_layers(images)
        found = {"layers": layers[:-1], "hidden": layers[-1]}
        if config.pooler:
            found["pooled"] = model.pooler(layers[-1])
        if config.heads:
            found["logits"] = model.class_logits(images)
        if "distillation" in config.heads:
            found["cls_logits"] = model.classification_logits(layers[-1])
            found["distillation_logits"] = model.distillation_logits(layers[-1])
        return found

    return config.build().apply({"params": params}, method=outputs)


def their_outputs(model: Any, images: np.ndarray, config: Any, **options: Any) -> dict[str, Any]:
    out = model(their_pixels(images), output_hidden_states=True, **options)
    hidden = torch.stack(out.hidden_states[:-1])
    outputs = {"layers": hidden}
    if config.pooler:
        outputs["pooled"] = out.pooler_output
    if not config.heads:
        return outputs | {"hidden": out.last_hidden_state}
    body = model.vit if hasattr(model, "vit") else model.deit
    outputs |= {"hidden": body(their_pixels(images), **options).last_hidden_state, "logits": out.logits}
    if "distillation" in config.heads:
        outputs |= {"cls_logits": out.cls_logits, "distillation_logits": out.distillation_logits}
    return outputs


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert set(ours) == set(theirs)
    for name, expected in theirs.items():
        expected = expected.detach().numpy()
        assert expected.std() > 0.2
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("pair", CLASSIFIERS, indirect=True)
def test_hidden_states_logits_loss_and_gradients_are_the_same(pair):
    images, labels = pictures(pair.config), np.array([0, 3, 1])
    weights = np.random.default_rng(1).normal(scale=0.1, size=(ROWS, 1, SIZES["hidden_size"])).astype(np.float32)

    def loss(params):
        outputs = our_outputs(params, pair.config, jnp.asarray(images))
        total = (outputs["hidden"] * weights).sum()
        if "pooled" in outputs:
            total += (outputs["pooled"] * weights[:, 0]).sum()
        if "logits" in outputs:
            total -= jax.nn.log_softmax(outputs["logits"])[jnp.arange(ROWS), labels].sum()
        return total, outputs

    (value, outputs), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    theirs = their_outputs(pair.theirs, images, pair.config)
    assert_same(outputs, theirs)
    their_loss = (theirs["hidden"] * torch.from_numpy(weights)).sum()
    if "pooled" in theirs:
        their_loss = their_loss + (theirs["pooled"] * torch.from_numpy(weights[:, 0])).sum()
    if "logits" in theirs:
        their_loss = their_loss - torch.log_softmax(theirs["logits"], -1)[torch.arange(ROWS), labels].sum()
    assert float(value) == pytest.approx(their_loss.item(), rel=1e-5)
    pair.assert_same_loss(value, gradient, their_loss)


@pytest.mark.parametrize("pair", ["vit-body", "mae-body"], indirect=True)
def test_pictures_of_another_size_have_their_interpolated_positions(pair):
    """Transformers takes the patches that it has positions for to be a square; those of the pictures need not be."""
    images = pictures(pair.config, (12, 28))
    ours = hidden_states(pair.config, pair.params, images)
    noise = torch.arange(21.0).repeat(ROWS, 1)
    options = {"noise": noise} if pair.case.family == "ViTMAE" else {}
    if options:
        pair.theirs.config.mask_ratio = 0.0
    out = pair.theirs(their_pixels(images), interpolate_pos_encoding=True, **options)
    np.testing.assert_allclose(ours, out.last_hidden_state.detach().numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("grid", "new_grid"), [((5, 5), (3, 7)), ((4, 6), (9, 6)), ((7, 2), (2, 1)), ((1, 3), (4, 4))])
def test_positions_are_resized_as_by_torch(grid, new_grid):
    table = np.random.default_rng(0).normal(size=(grid[0] * grid[1], 6)).astype(np.float32)
    pixels = torch.from_numpy(table.reshape(*grid, 6)).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(pixels, size=new_grid, mode="bicubic", align_corners=False)
    expected = expected[0].permute(1, 2, 0).reshape(-1, 6).numpy()
    for kind in (np.asarray, jnp.asarray):
        resized = resize_positions(kind(table), grid, new_grid)
        assert isinstance(resized, np.ndarray) == (kind is np.asarray)
        np.testing.assert_allclose(resized, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(bicubic_matrix(grid[0], new_grid[0]).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("pair", AUTOENCODERS, indirect=True)
def test_noise_gives_the_autoencoders_masks_reconstructions_loss_and_gradient(pair):
    config, images = pair.config, pictures(pair.config)
    noise = np.random.default_rng(1).uniform(size=(ROWS, 25)).astype(np.float32)

    def loss(params):
        predicted, mask = config.build().apply({"params": params}, images, noise, method="reconstruct")
        return mae_loss(predicted, images, mask, config.norm_pix).sum() / mask.sum(), (predicted, mask)

    images, noise = jnp.asarray(images), jnp.asarray(noise)
    (value, (predicted, mask)), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    out = pair.theirs(their_pixels(np.asarray(images)), noise=torch.from_numpy(np.asarray(noise).copy()))
    np.testing.assert_array_equal(mask, out.mask.numpy())
    assert out.logits.std() > 0.2
    np.testing.assert_allclose(predicted, out.logits.detach().numpy(), rtol=0, atol=1e-4)
    pair.assert_same_loss(value, gradient, out.loss)
    for part in ("embeddings", "decoder"):
        assert (gradient[part]["position"]["embedding"] == 0).all()


@pytest.mark.parametrize("pair", [name for name in CASES if name != "mae-body"], indirect=True)
def test_export_opens_in_transformers_and_imports_exactly(pair, tmp_path):
    reopened = pair.export(tmp_path)
    assert reopened.config.architectures == [pair.case.name]
    for name, parameter in pair.theirs.state_dict().items():
        np.testing.assert_array_equal(reopened.state_dict()[name].numpy(), parameter.numpy(), err_msg=name)
    pair.assert_imports_exactly(tmp_path)
    names = safetensors.load_file(tmp_path / "model.safetensors")
    assert any(".encoder.layer.0.attention.attention.query.weight" in f".{name}" for name in names)
    assert not any("q_proj" in name or "decoder_encoder" in name for name in names)


def test_an_encoder_of_an_autoencoder_is_written_as_a_vit(make_pair, tmp_path):
    pair = make_pair(CASES["mae-body"], oracle(CASES["mae-body"]))
    export_folder(tmp_path, pair.config, pair.params, None)
    model = transformers.ViTModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    images = pictures(pair.config)
    ours = hidden_states(pair.config, pair.params, images)
    expected = model(their_pixels(images)).last_hidden_state.detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4)


def test_the_names_of_transformers_5_are_read(pair, tmp_path):
    pair.theirs.config.save_pretrained(tmp_path)
    tensors = {name: value.contiguous() for name, value in pair.theirs.state_dict().items()}
    assert any("q_proj" in name for name in tensors)
    safetensors.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    pair.assert_imports_exactly(tmp_path)


def test_the_export_says_how_pictures_are_prepared(params_of, tmp_path):
    config = ViTConfig((20, 12), 4, embed_dim=24, num_heads=3, mlp_dim=7, num_layers=1, num_classes=3)
    statistics = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    params, described = params_of(config), VIT.image_processor(config)
    described |= {"image_mean": statistics[0], "image_std": statistics[1]}
    export_folder(tmp_path, config, params, None, labels=("a", "b", "c"), image_processor=described)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 255, size=(20, 12, 3), dtype=np.uint8)
    prepared = np.asarray(processor(pixels, return_tensors="np")["pixel_values"])[0].transpose(1, 2, 0)
    np.testing.assert_allclose(prepared, (pixels / 255 - statistics[0]) / statistics[1], atol=1e-5)
    assert json.loads((tmp_path / "config.json").read_text())["id2label"] == {"0": "a", "1": "b", "2": "c"}
    defaults = {ViTConfig: [0.5] * 3, DeiTConfig: [0.485, 0.456, 0.406]}
    for family, mean in defaults.items():
        depth = {"drop_path_rate": 0.2, "drop_path_schedule": "constant"}
        config = family((20, 12), 4, embed_dim=24, num_heads=3, mlp_dim=7, num_layers=1, heads=(), **depth)
        export_folder(tmp_path, config, params_of(config), None)
        assert json.loads((tmp_path / "preprocessor_config.json").read_text())["image_mean"] == mean
        assert import_folder(tmp_path).config == config  # stochastic depth, which Transformers does not have, included


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ViTConfig(layer_scale=1e-4), "layer_scale=0.0001 has no place in Hugging Face's ViT"),
        (ViTConfig(pooling="mean"), "pooling='mean' has no place in Hugging Face's ViT"),
        (ViTConfig(head_norm=True), "head_norm=True has no place in Hugging Face's ViT"),
        (ViTConfig(pooler=True), r"heads=\('classification',\) with pooler=True have no class"),
    ],
)
def test_what_transformers_lacks_is_not_exported(config, message, params_of, tmp_path):
    config = replace(config, image_size=(8, 8), patch_size=4, embed_dim=8, num_heads=2, mlp_dim=4, num_layers=1)
    with pytest.raises(InputError, match=message):
        export_folder(tmp_path, config, params_of(config), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patch_size": [4, 5]}, r"patch_size=\[4, 5\] in config.json is not one that we have"),
        ({"patch_size": 3}, r"patch_size=3 does not divide image_size=\(20, 12\).*e\.g\. \(21, 12\)"),
        ({"image_size": "big"}, "image_size='big' in config.json is not a number or two"),
        ({"image_size": [24, 12]}, r"position_embeddings has shape \(16, 24\), not \(19, 24\)"),
        ({"qkv_bias": False}, "qkv_bias=False in config.json is not one that we have"),
    ],
)
def test_a_config_that_does_not_fit(change, message, make_pair, tmp_path):
    pair = make_pair(CASES["vit"], oracle(CASES["vit"]))
    described = json.loads((pair.folder / "config.json").read_text()) | change
    (pair.folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match=message):
        import_folder(pair.folder)


def test_an_autoencoders_config_goes_out_as_it_came_in(params_of, tmp_path):
    config = MAEConfig(
        (8, 12), 4, 1, embed_dim=8, num_heads=2, mlp_dim=5, num_layers=1, decoder_embed_dim=12, decoder_num_heads=3,
        decoder_mlp_dim=7, decoder_num_layers=2, mask_ratio=0.5, norm_pix=True, norm_epsilon=1e-5,
    )  # fmt: skip
    export_folder(tmp_path, config, params_of(config), None)
    assert import_folder(tmp_path).config == config
