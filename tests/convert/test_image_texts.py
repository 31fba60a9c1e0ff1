"""Hugging Face's CLIP and SigLIP as the oracle: the same weights give the same vectors, logits, loss and gradients."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.convert import export_folder
from t5x_lite.errors import InputError
from t5x_lite.models import ClipConfig, ClipResNetConfig
from t5x_lite.models.image_text import ImageTextConfig, ImageTextVectors
from t5x_lite.objectives.contrastive import contrastive_loss, sigmoid_loss

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

# Every size differs from every other one.
IMAGE = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 31,
    "image_size": 20,
    "patch_size": 4,
}
TEXT = {
    "hidden_size": 30,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "intermediate_size": 37,
    "vocab_size": 99,
    "max_position_embeddings": 11,
}
ROWS, LENGTH = 4, 9


@dataclass(frozen=True)
class Case:
    """What differs from `IMAGE` and `TEXT`, and what we must read out of it."""

    family: str

    image: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)


CASES = {
    "eos": Case(
        "CLIP",
        {"layer_norm_eps": 0.02},
        {"eos_token_id": 57, "attention_dropout": 0.1},
        {"eos_id": 57, "activation": "quick_gelu"},
    ),
    "largest-id": Case(
        "CLIP",
        {"hidden_act": "gelu", "num_channels": 1, "patch_size": 5},
        {"eos_token_id": 2, "hidden_act": "gelu_new"},
        {"eos_id": None, "activation": "gelu_tanh"},
    ),
    # As Transformers leaves it: no text has this id, and the first position is read.
    "no-eos": Case("CLIP", {}, {"num_hidden_layers": 1}, {"eos_id": 49_407, "num_layers": 1}),
    "siglip": Case("Siglip", {"image_size": 22}, {"hidden_size": 35}, {"num_layers": 3, "activation": "gelu_tanh"}),
    "siglip-grey": Case(
        "Siglip", {"num_channels": 1, "layer_norm_eps": 0.02}, {"hidden_act": "gelu"}, {"activation": "gelu"}
    ),
}


def oracle(case: Case) -> Any:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(0)
    image, text, options = IMAGE | case.image, TEXT | case.text, {}
    if case.family == "CLIP":
        options = {"projection_dim": 17}
    else:
        text["projection_size"] = image["hidden_size"]
    config = getattr(transformers, f"{case.family}Config")(
        vision_config=image, text_config=text, attn_implementation="eager", **options
    )
    model = getattr(transformers, f"{case.family}Model")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ("norm" in name.lower() and "weight" in name) or name == "logit_scale":
                parameter.uniform_(0.5, 1.5)
            elif parameter.ndim == 1:
                parameter.normal_(std=0.3)
            else:
                parameter.normal_(std=1.2 * parameter[0].numel() ** -0.5)
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request, make_pair):
    case = CASES[request.param]
    return make_pair(case, oracle(case))


def inputs(config: ImageTextConfig) -> tuple[np.ndarray, np.ndarray]:
    """Pictures, and texts of several lengths with EOS behind."""
    length = config.max_length if config.text.reads_full_rows else LENGTH
    random = np.random.default_rng(0)
    images = random.normal(size=(ROWS, *config.image.image_size, config.image.num_channels)).astype(np.float32)
    ids, eos_id = random.integers(3, 57, (ROWS, length)), 57 if getattr(config.text, "eos_id", None) == 57 else 98
    for row, end in enumerate((3, 8, 1, 5)):
        ids[row, end:] = eos_id
    return images, ids.astype(np.int32)


def theirs(pair: Any, **options: Any) -> Any:
    images, ids = inputs(pair.config)
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    return pair.theirs(input_ids=torch.from_numpy(ids).long(), pixel_values=pixels, **options)


def ours(config: ImageTextConfig, params: Any) -> ImageTextVectors:
    return jax.jit(config.build().apply)({"params": params}, *inputs(config))


def test_the_architecture_is_read(pair):
    assert {name: getattr(pair.config.text, name) for name in pair.case.expected} == pair.case.expected
    assert pair.size == sum(parameter.numel() for parameter in pair.theirs.parameters())


def test_vectors_and_logits_are_theirs(pair):
    vectors = ours(pair.config, pair.params)
    with torch.no_grad():
        expected = theirs(pair)
    np.testing.assert_allclose(vectors.images, expected.image_embeds, atol=1e-5)
    np.testing.assert_allclose(vectors.texts, expected.text_embeds, atol=1e-5)
    np.testing.assert_allclose(jax.device_get(vectors.logits()), expected.logits_per_image, atol=1e-4)


def test_loss_and_gradients_are_theirs(pair):
    def loss(params):
        vectors, weights = ours(pair.config, params), jnp.ones(ROWS)
        if pair.config.independent_pairs:
            value, weight, _ = sigmoid_loss(vectors, weights)
        else:
            value, weight, _ = contrastive_loss(vectors.images, vectors.texts, vectors.scale, weights)
        return value / weight

    value, gradient = jax.value_and_grad(loss)(pair.params)
    pair.assert_same_loss(value, gradient, theirs(pair, return_loss=True).loss)


def test_an_export_is_opened_by_transformers(pair, tmp_path):
    exported = pair.export(tmp_path)
    for name, tensor in pair.theirs.state_dict().items():
        torch.testing.assert_close(exported.state_dict()[name], tensor, rtol=0, atol=0)
    pair.assert_imports_exactly(tmp_path)
    for part in ("text_config", "vision_config"):
        kept = getattr(exported.config, part).to_dict()
        wanted = getattr(pair.theirs.config, part).to_dict()
        assert {name: kept[name] for name in (IMAGE | TEXT).keys() & kept.keys()} == {
            name: wanted[name] for name in (IMAGE | TEXT).keys() & wanted.keys()
        }


def test_what_transformers_lacks_is_not_exported(tmp_path):
    tower = ClipResNetConfig((1, 1), (8, 16), stem_width=4, image_size=(16, 16), num_heads=2)
    config = ClipConfig(tower, ClipConfig().text, 8)
    with pytest.raises(InputError, match="a ClipResNetConfig has no place in Hugging Face's CLIP, which takes a ClipI"):
        export_folder(tmp_path, config, {}, None)
    with pytest.raises(InputError, match="heads=.*: a tower of CLIP has no head"):
        ClipResNetConfig(heads=("classification",))
