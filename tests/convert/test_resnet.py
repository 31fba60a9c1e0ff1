"""Hugging Face's residual networks as the oracle, in training and after it."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.errors import InputError
from t5x_lite.models import ResNetConfig
from t5x_lite.parallel.mesh import STATISTICS

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

IMAGES = np.random.default_rng(0).normal(size=(4, 37, 50, 2)).astype(np.float32)
LABELS = np.array([0, 3, 1, 1])


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)


CASES = {
    "bottleneck": Case(
        "ResNetForImageClassification",
        {"hidden_sizes": [16, 32, 20], "depths": [2, 1, 1], "num_labels": 5},
        {"depths": (2, 1, 1), "widths": (16, 32, 20), "bottleneck": True, "num_classes": 5},
    ),
    "basic": Case(
        "ResNetForImageClassification",
        {"hidden_sizes": [8, 12], "depths": [1, 2], "layer_type": "basic", "num_labels": 4},
        {"bottleneck": False, "heads": ("classification",)},
    ),
    "body": Case("ResNetModel", {"hidden_sizes": [8, 12], "depths": [1, 1]}, {"heads": (), "stem_width": 6}),
}


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    """A model in which neither parameters nor running statistics have their initial values."""
    case = CASES[request.param]
    torch.manual_seed(0)
    config = transformers.ResNetConfig(num_channels=2, embedding_size=6, **case.options)
    model = getattr(transformers, case.name)(config).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_()
    return make_pair(case, model)


def pixels(images):
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


def test_architecture_and_feature_maps_are_the_same(pair):
    assert {name: getattr(pair.config, name) for name in pair.case.expected} == pair.case.expected
    params = jax.device_put(pair.params)
    maps = pair.config.build().apply({"params": params}, jnp.asarray(IMAGES), method="feature_maps")
    theirs = pair.theirs.eval()(pixels(IMAGES), output_hidden_states=True).hidden_states[1:]
    assert len(maps) == len(theirs) == len(pair.config.depths)
    for ours, expected in zip(maps, theirs, strict=True):
        expected = expected.detach().numpy().transpose(0, 2, 3, 1)
        assert expected.std() > 0.2
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("pair", ["bottleneck", "basic"], indirect=True)
@pytest.mark.parametrize("training", [False, True], ids=["running statistics", "those of the batch"])
def test_logits_loss_gradients_and_next_statistics_are_the_same(pair, training):
    before = {name: value.clone() for name, value in pair.theirs.state_dict().items()}
    module = pair.config.build()

    def loss(params):
        options = {"deterministic": not training, "mutable": [STATISTICS], "method": "class_logits"}
        logits, variables = module.apply({"params": params}, jnp.asarray(IMAGES), **options)
        return -jax.nn.log_softmax(logits)[jnp.arange(4), LABELS].mean(), (logits, variables)

    (value, (logits, variables)), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(pair.params)
    out = pair.theirs.train(training)(pixels(IMAGES), labels=torch.from_numpy(LABELS))
    np.testing.assert_allclose(logits, out.logits.detach().numpy(), rtol=0, atol=1e-4)
    pair.theirs.zero_grad()
    out.loss.backward()
    assert float(value) == pytest.approx(out.loss.item(), rel=1e-5)
    theirs = sum(float((p.grad.double() ** 2).sum()) for p in pair.theirs.parameters()) ** 0.5
    flat = flatten_dict(gradient, sep="/")
    statistics = [path for path in flat if path.endswith(("/mean", "/variance"))]
    ours = sum(float((np.float64(leaf) ** 2).sum()) for path, leaf in flat.items() if path not in statistics) ** 0.5
    assert ours == pytest.approx(theirs, rel=1e-4)
    following = pair.theirs.state_dict()
    assert bool(variables) == training
    if training:
        moved = flatten_dict(variables[STATISTICS], sep="/")
        assert sorted(moved) == sorted(statistics)
        stem = following["resnet.embedder.embedder.normalization.running_mean"].numpy()
        np.testing.assert_allclose(moved["stem_norm/mean"], stem, atol=1e-5)
        their_sum = sum(float(value.sum()) for name, value in following.items() if "running" in name)
        assert sum(float(leaf.sum()) for leaf in moved.values()) == pytest.approx(their_sum, rel=1e-4)
    pair.theirs.load_state_dict(before)


def test_export_opens_in_transformers_and_imports_exactly(pair, tmp_path):
    reopened = pair.export(tmp_path)
    assert reopened.config.architectures == [pair.case.name]
    for name, value in pair.theirs.state_dict().items():
        if "num_batches" not in name:
            np.testing.assert_array_equal(reopened.state_dict()[name].numpy(), value.numpy(), err_msg=name)
    pair.assert_imports_exactly(tmp_path)
    processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert processor["image_processor_type"] == "ConvNextImageProcessor"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depths": "deep"}, "depths='deep' in config.json is not a list of numbers"),
        ({"depths": [1, 2, 3]}, r"depths=\(1, 2, 3\) and widths=\(8, 12\)"),
        ({"layer_type": "wide"}, "layer_type='wide' in config.json is unknown"),
        ({"downsample_in_bottleneck": True}, "downsample_in_bottleneck=True in config.json is not one that we have"),
        ({"hidden_sizes": [8, 16]}, "has shape"),
    ],
)
@pytest.mark.parametrize("pair", ["basic"], indirect=True)
def test_a_config_that_does_not_fit(pair, change, message, tmp_path):
    pair.export(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match=message):
        import_folder(tmp_path)


def test_a_stem_for_small_pictures_is_not_exported(params_of, tmp_path):
    config = ResNetConfig((1,), (8,), bottleneck=False, stem_width=8, num_classes=3)
    export_folder(tmp_path / "a", config, params_of(config), None)
    assert import_folder(tmp_path / "a").config == config
    small = replace(config, stem="whole")
    with pytest.raises(InputError, match="stem='whole' has no place in Hugging Face's ResNet"):
        export_folder(tmp_path / "b", small, params_of(small), None)
