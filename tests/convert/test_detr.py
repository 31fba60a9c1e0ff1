"""Hugging Face's DETR as the oracle: the same weights give the same boxes and classes, with padding and without."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, DetrConfig

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

# Every size differs from every other one.
MODEL = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 31,
    "decoder_ffn_dim": 31,
    "num_queries": 7,
    "num_labels": 5,
}
BACKBONE = {"embedding_size": 6, "hidden_sizes": [8, 12, 16, 20], "depths": [1, 2, 1, 1], "num_channels": 3}
IMAGES = np.random.default_rng(0).normal(size=(3, 100, 139, 3)).astype(np.float32)
EXTENTS = np.array([[100, 139], [64, 100], [31, 33]], np.int32)


@dataclass(frozen=True)
class Case:
    model: dict[str, Any] = field(default_factory=dict)
    backbone: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)


CASES = {
    "bottleneck": Case({"dropout": 0.2}, {}, {"num_classes": 5, "num_queries": 7, "dropout_rate": 0.2}),
    "basic": Case(
        {"activation_function": "gelu", "attention_dropout": 0.1},
        {"layer_type": "basic", "num_channels": 1},
        {"activation": "gelu", "attention_dropout_rate": 0.1, "num_channels": 1},
    ),
}


def randomize(model):
    """No parameter and no running statistic has its initial value."""
    torch.manual_seed(0)
    for name, value in model.state_dict().items():
        if name.endswith(("running_var", "norm.weight", "normalization.weight")):
            value.uniform_(0.5, 1.5)
        elif value.ndim == 1:
            value.normal_(std=0.3)
        elif "query_position" in name:
            value.normal_(std=4.0)
        else:
            value.normal_(std=1.5 * value[0].numel() ** -0.5)


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    backbone = transformers.ResNetConfig(**BACKBONE | case.backbone, out_features=["stage4"])
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        backbone_config=backbone,
        num_channels=backbone.num_channels,
        attn_implementation="eager",
        **MODEL | case.model,
    )
    model = transformers.DetrForObjectDetection(config).eval()
    randomize(model)
    return make_pair(case, model)


def inputs(config: DetrConfig) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of three sizes on canvases of one, padded with 0."""
    images = IMAGES[..., : config.num_channels].copy()
    for image, (height, width) in zip(images, EXTENTS, strict=True):
        image[height:] = 0
        image[:, width:] = 0
    return images, EXTENTS


def theirs(pair: Any, masked: bool, **options: Any) -> Any:
    images, extents = inputs(pair.config)
    mask = np.zeros(images.shape[:3], np.int64)
    for row, (height, width) in zip(mask, extents, strict=True):
        row[:height, :width] = 1
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    return pair.theirs(pixels, torch.from_numpy(mask) if masked else None, **options)


@contextmanager
def outputs_of(modules: Any) -> Iterator[list[Any]]:
    """What each module gives; their own list of hidden states has the last one after the norm."""
    outputs: list[Any] = []
    hooks = [
        one.register_forward_hook(lambda _, inputs, out: outputs.append(out[0] if isinstance(out, tuple) else out))
        for one in modules
    ]
    yield outputs
    for hook in hooks:
        hook.remove()


def test_the_architecture_is_read(pair):
    assert {name: getattr(pair.config, name) for name in pair.case.expected} == pair.case.expected
    assert pair.config.backbone.depths == (1, 2, 1, 1) and pair.config.backbone.frozen_norm


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "padded"])
def test_boxes_and_classes_are_theirs(pair, masked):
    images, extents = inputs(pair.config)
    params = jax.device_put(pair.params)
    found = jax.jit(pair.config.build().apply)({"params": params}, images, extents if masked else None)
    assert found.class_logits.shape == (3, 3, 7, 6)
    with torch.no_grad(), outputs_of(pair.theirs.model.decoder.layers) as hidden:
        expected = theirs(pair, masked)
        hidden = [pair.theirs.model.decoder.layernorm(one) for one in hidden]
        logits = torch.stack([pair.theirs.class_labels_classifier(one) for one in hidden])
        boxes = torch.stack([pair.theirs.bbox_predictor(one).sigmoid() for one in hidden])
    torch.testing.assert_close(logits[-1], expected.logits)
    np.testing.assert_allclose(found.class_logits, logits, atol=1e-4)
    np.testing.assert_allclose(found.boxes, boxes, atol=1e-5)
    # Queries differ, and so do pictures.
    assert found.boxes.std(axis=2).mean() > 0.002
    assert found.boxes.std(axis=1).mean() > 0.001


def test_an_export_is_opened_by_transformers(pair, tmp_path):
    exported = pair.export(tmp_path)
    for name, tensor in pair.theirs.state_dict().items():
        torch.testing.assert_close(exported.state_dict()[name], tensor, rtol=0, atol=0)
    pair.assert_imports_exactly(tmp_path)
    processor = transformers.DetrImageProcessorPil.from_pretrained(tmp_path)
    assert processor.size == {"shortest_edge": 800, "longest_edge": 1333}


def test_folders_with_names_of_timm_are_read(tmp_path, params_of):
    """As the published folders have them, DC5 among them; these are what we write of a dilated backbone."""
    sizes = {"embed_dim": 8, "num_heads": 2, "mlp_dim": 6, "num_encoder_layers": 1, "num_decoder_layers": 1}
    backbone = replace(PRESETS["resnet-18"], heads=(), frozen_norm=True, dilated=True)
    config = DetrConfig(backbone, 5, 7, **sizes, mlp_dropout_rate=0.0)
    params = params_of(config)
    export_folder(tmp_path, config, params, None)
    described = json.loads((tmp_path / "config.json").read_text())
    assert (described["backbone"], described["use_timm_backbone"], described["dilation"]) == ("resnet18", True, True)
    names = load_file(tmp_path / "model.safetensors")
    assert names["model.backbone.conv_encoder.model.layer3.0.downsample.0.weight"].shape == (256, 128, 1, 1)
    again = import_folder(tmp_path)
    assert again.config == config
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    # Without dilation the same tensors are those of the backbone that is not dilated.
    (tmp_path / "config.json").write_text(json.dumps(described | {"dilation": False}))
    plain = import_folder(tmp_path)
    assert plain.config == replace(config, backbone=replace(backbone, dilated=False))
    jax.tree.map(np.testing.assert_array_equal, plain.params, params)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "swin_t"}, "backbone='swin_t' in config.json is not one that we have"),
        ({"encoder_ffn_dim": 9}, "encoder_ffn_dim=9 and decoder_ffn_dim=6 in config.json differ"),
        ({"auxiliary_loss": True}, "auxiliary_loss=True in config.json is not one that we have"),
        ({"position_embedding_type": "learned"}, "position_embedding_type=learned"),
        ({"num_queries": "many"}, "num_queries='many' in config.json is not a number"),
        ({"backbone_config": 3}, "backbone_config in config.json is not an object"),
    ],
)
def test_what_we_do_not_have_is_refused(changes, message, tmp_path, params_of):
    sizes = {"embed_dim": 8, "num_heads": 2, "mlp_dim": 6, "num_encoder_layers": 1, "num_decoder_layers": 1}
    backbone = replace(PRESETS["resnet-18"], heads=(), frozen_norm=True, dilated=True)
    config = DetrConfig(backbone, 5, 7, **sizes, mlp_dropout_rate=0.0)
    export_folder(tmp_path, config, params_of(config), None)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | changes))
    with pytest.raises(InputError, match=message):
        import_folder(tmp_path)


def test_what_transformers_lacks_is_not_exported(tmp_path):
    odd = replace(PRESETS["detr-resnet-50"].backbone, dilated=True, depths=(1, 1, 1, 1))
    with pytest.raises(
        InputError, match="backbone.dilated=True has a place in Hugging Face's DETR only with the sizes"
    ):
        export_folder(tmp_path, replace(PRESETS["detr-resnet-50"], backbone=odd), {}, None)
    with pytest.raises(InputError, match="backbone.heads=.*: the feature map is read, and no head; choose"):
        DetrConfig(PRESETS["resnet-18"])
