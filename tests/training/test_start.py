from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util

from t5x_lite.errors import InputError
from t5x_lite.layers.patches import resize_positions
from t5x_lite.models import (
    PRESETS,
    ClipConfig,
    ClipImageConfig,
    ClipResNetConfig,
    ClipTextConfig,
    DeiTConfig,
    MAEConfig,
    ViTConfig,
    abstract_params,
)
from t5x_lite.training import Experiment
from t5x_lite.training.experiment import differences
from t5x_lite.training.initialization import (
    FromModel,
    FromRun,
    describe_overlay,
    overlay,
    part_for,
    with_resized_positions,
)

from ..programs import like_new
from ..slow import mostly_slow


def tree(layers: int, width: int = 3, **others):
    """A stack, an embedding, and `others`; all values differ."""
    kernel = np.arange(layers * width * width, dtype=np.float32).reshape(layers, width, width)
    return {"encoder": {"layers": {"kernel": kernel}}, "embedding": np.full((7, width), 5.0), **others}


def test_what_both_have_is_taken_and_the_rest_is_named():
    ours = tree(2, head={"bias": np.zeros(4)}) | {"embedding": np.zeros((7, 3))}
    theirs = tree(2, pooler={"bias": np.ones(4)})
    found, fresh = overlay(ours, theirs)
    assert set(found) == {"encoder", "embedding", "head"}
    np.testing.assert_array_equal(found["embedding"], theirs["embedding"])
    np.testing.assert_array_equal(found["encoder"]["layers"]["kernel"], theirs["encoder"]["layers"]["kernel"])
    np.testing.assert_array_equal(found["head"]["bias"], np.zeros(4))
    assert fresh == ["head/bias"]


@pytest.mark.parametrize("layers", [(0, 2, 4), (5, 0, 1)])
def test_chosen_layers_come_in_their_order(layers):
    found, fresh = overlay(tree(3), tree(6), layers)
    np.testing.assert_array_equal(
        found["encoder"]["layers"]["kernel"], tree(6)["encoder"]["layers"]["kernel"][[*layers]]
    )
    np.testing.assert_array_equal(found["embedding"], tree(6)["embedding"])
    assert fresh == []


@pytest.mark.parametrize(
    ("theirs", "layers", "message"),
    [
        (tree(6), (), r"encoder/layers/kernel has shape \(6, 3, 3\) there, \(3, 3, 3\) here; choose another"),
        (tree(6), (0, 1), r"encoder/layers/kernel has shape \(2, 3, 3\) there, \(3, 3, 3\) here"),
        (tree(6), (0, 1, 6), r"start.layers=\(0, 1, 6\) names layers that it lacks; choose from 0..5"),
        (tree(6), (0, 1, -1), r"start.layers=\(0, 1, -1\) names layers that it lacks"),
        (tree(3, width=4), (), r"shape: .*\(3, 4, 4\) there.*; embedding has shape \(7, 4\) there, \(7, 3\) here"),
        ({"decoder": np.zeros(3)}, (), "shares no parameter with this one; choose its family"),
    ],
)
def test_models_that_do_not_fit(theirs, layers, message):
    with pytest.raises(InputError, match=message):
        overlay(tree(3), theirs, layers)


@pytest.mark.parametrize("start", [FromModel, FromRun])
def test_a_start_without_a_folder(start):
    with pytest.raises(InputError, match="start.folder='' names no folder"):
        start("")


def test_a_start_is_part_of_the_experiment(tiny):
    """It is saved, and another one is another run."""
    experiment = replace(tiny, start=FromModel("folder", layers=(1, 3)))
    assert Experiment.from_json(experiment.to_json()) == experiment
    changed = {field for field, _, _ in differences(experiment, replace(experiment, start=FromRun("folder")))}
    assert "start" in changed


def flat(**parameters):
    """A model of zeros, by path and shape."""
    return traverse_util.unflatten_dict({path: np.zeros(shape) for path, shape in parameters.items()}, sep="/")


BERT = {
    "embeddings/token/embedding": (30, 4),
    "encoder/layers/wi/kernel": (6, 4, 8),
    "encoder/layers/wo/kernel": (6, 8, 4),
    "masked_lm/scores/bias": (30,),
    "pooler/dense/kernel": (4, 4),
}
HEAD = {"classification/dense/kernel": (4, 4), "classification/scores/kernel": (4, 3)}
BODY = {path: shape for path, shape in BERT.items() if not path.startswith("masked_lm")}


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (
            BODY | {path: (3, *shape[1:]) for path, shape in BODY.items() if "layers" in path},
            BERT,
            r"gives this one 2 of its 4 parameters, and 2 of another shape: encoder/layers/wi/kernel has .*; "
            r"choose another one, 3 of its 6 layers by start.layers, or 6 layers for this one$",
        ),
        (
            BODY | {"embeddings/token/embedding": (32, 4)},
            BERT,
            r"3 of its 4 parameters, and 1 of another shape: embeddings/.* choose another one, or model.vocab_size=30$",
        ),
        (
            {path: tuple(2 * size if size == 4 else size for size in shape) for path, shape in BODY.items()},
            BERT,
            r"0 of its 4 parameters, and 4 of another shape: .*; and 1 more; choose another one, or give this one i",
        ),
        (
            {path: shape[1:] if "layers" in path else shape for path, shape in BODY.items()},
            BERT,
            r"2 of another shape: .*choose another one, of this family: its layers share their parameters, or this one",
        ),
        (
            {path.replace("encoder/layers", "decoder/layers"): shape for path, shape in BODY.items()},
            BERT,
            r"holds a model of another family: 2 of this one's 4 parameters fit \(embeddings/token/embedding, "
            r"pooler/dense/kernel\), and none of the 2 in its layers; choose its family, or FromScratch \(there are "
            r"embeddings/\*, encoder/layers/\*, masked_lm/\*, pooler/\* there, embeddings/\*, decoder/layers/\*, ",
        ),
        (
            {"decoder/layers/wi/kernel": (6, 4, 8)},
            BERT,
            r"shares no parameter with this one; choose its family \(there are embeddings/\*, .*, decoder/layers/\* h",
        ),
    ],
)
def test_errors_name_what_fits_and_what_does_not(ours, theirs, message):
    with pytest.raises(InputError, match=message):
        overlay(flat(**ours), flat(**theirs))


def test_a_tasks_head_of_other_classes_stays_as_a_whole():
    """RoBERTa's RTE began with a model of MNLI, which has three classes."""
    ours, theirs = BODY | HEAD, BODY | HEAD | {"classification/scores/kernel": (4, 2)}
    found, fresh = overlay(flat(**ours), jax.tree.map(np.ones_like, flat(**theirs)))
    assert fresh == ["classification/dense/kernel", "classification/scores/kernel"]
    assert not found["classification"]["dense"]["kernel"].any()
    assert found["pooler"]["dense"]["kernel"].all()
    assert describe_overlay(flat(**ours), flat(**theirs), fresh) == (
        "; random are classification/dense/kernel, classification/scores/kernel; not taken are classification/*"
    )
    _, fresh = overlay(flat(**ours), flat(**ours))
    assert fresh == []


def test_a_sentence_describes_an_overlay():
    """A T5 of version 1.1 has a gate in every layer, which version 1.0 lacks; many names become parts of the model."""
    ours = {f"encoder/layers/{name}/kernel": (2, 3) for name in ("wi", "wo", "gate")} | {"embeddings/token": (4, 3)}
    theirs = {path: shape for path, shape in ours.items() if "gate" not in path} | {"pooler/bias": (3,)}
    _, fresh = overlay(flat(**ours), flat(**theirs))
    assert describe_overlay(flat(**ours), flat(**theirs), fresh) == (
        "; random are encoder/layers/gate/kernel (1 of them inside layers, which are others there); not taken are "
        "pooler/*"
    )
    many = ours | {f"masked_lm/{number}": (3,) for number in range(9)}
    _, fresh = overlay(flat(**many), flat(**ours))
    assert describe_overlay(flat(**many), flat(**ours), fresh) == "; random are 9 of 13: masked_lm/*"


def test_an_encoder_begins_with_the_discriminator_of_a_pair():
    """With the embeddings that the two share, without the discriminator's head."""
    pair = PRESETS["electra-small"]
    params = nn.unbox(abstract_params(pair))
    single = replace(pair.discriminator, heads=("classification",))
    source, part = part_for(single, pair, params)
    _, fresh = overlay(ours := nn.unbox(abstract_params(single)), source)
    assert part == " (its discriminator)"
    assert {path.split("/")[0] for path in fresh} == {"classification"}
    assert describe_overlay(ours, source, fresh).endswith("; not taken are replaced_token/*")
    assert part_for(pair, pair, params) == (params, "")
    assert part_for(single, single, source) == (source, "")
    with pytest.raises(InputError, match="another family: 5 of this one's 27 parameters fit"):
        overlay(ours, params)


VIT = ViTConfig((8, 12), 4, 1, embed_dim=8, num_heads=2, mlp_dim=6, num_layers=1, num_classes=3)
DECODER = {"decoder_embed_dim": 12, "decoder_num_heads": 2, "decoder_mlp_dim": 5, "decoder_num_layers": 1}
AUTOENCODER = MAEConfig((8, 12), 4, 1, embed_dim=8, num_heads=2, mlp_dim=6, num_layers=1, **DECODER, mask_ratio=0.5)


def started(model, config, params):
    """A new model's parameters with those of another one, and what was said about it."""
    ours = like_new(model, 1)
    source, resized = with_resized_positions(params, model, config)
    found, fresh = overlay(ours, source)
    return ours, found, resized + describe_overlay(found, source, fresh)


DEIT = DeiTConfig(**vars(VIT) | {"heads": ("classification", "distillation")})


@pytest.mark.parametrize(
    "config", mostly_slow([VIT, AUTOENCODER, replace(DEIT, heads=())], VIT), ids=lambda c: type(c).__name__
)
def test_another_resolution_and_number_of_classes(config):
    params = like_new(config)
    model = replace(VIT, image_size=(20, 8), num_classes=5)
    ours, found, message = started(model, config, params)
    assert message.startswith("; its positions of 2 x 3 patches were interpolated to 5 x 2; random are classification/")
    before, after = (np.asarray(tree["embeddings"]["position"]["embedding"]) for tree in (params, found))
    special = len(config.special_tokens)
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_allclose(after[1:], resize_positions(before[special:], (2, 3), (5, 2)), atol=1e-6)
    for name, tree in (("encoder", params), ("classification", ours)):
        jax.tree.map(np.testing.assert_array_equal, found[name], tree[name])
    jax.tree.map(np.testing.assert_array_equal, found["embeddings"]["patch"], params["embeddings"]["patch"])


def test_positions_of_tokens_that_one_of_the_models_lacks():
    params = like_new(VIT)
    table = np.asarray(params["embeddings"]["position"]["embedding"])
    _, mean, message = started(replace(VIT, pooling="mean"), VIT, params)
    np.testing.assert_array_equal(mean["embeddings"]["position"]["embedding"], table[1:])
    assert message == "; not taken are embeddings/class_token"
    ours, deit, message = started(DEIT, VIT, params)
    np.testing.assert_array_equal(deit["embeddings"]["position"]["embedding"], np.insert(table, 1, 0, axis=0))
    np.testing.assert_array_equal(deit["embeddings"]["distillation_token"], ours["embeddings"]["distillation_token"])
    assert message.startswith("; random are ")


@pytest.mark.slow
def test_an_autoencoder_of_another_resolution_has_all_its_positions():
    model = replace(AUTOENCODER, image_size=(16, 16))
    params = like_new(AUTOENCODER)
    _, found, message = started(model, AUTOENCODER, params)
    assert message == "; its positions of 2 x 3 patches were interpolated to 4 x 4"
    assert found["decoder"]["position"]["embedding"].shape == (17, 12)
    same, nothing = with_resized_positions(params, AUTOENCODER, AUTOENCODER)
    assert same is params
    assert nothing == ""


TEXT = ClipTextConfig(20, 5, embed_dim=8, num_heads=2, mlp_dim=6, num_layers=1)
TOWERS = {
    "vit": ClipImageConfig((8, 12), 4, embed_dim=8, num_heads=2, mlp_dim=6, num_layers=1),
    "resnet": ClipResNetConfig((1,), (8,), stem_width=4, image_size=(8, 12), num_heads=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("tower", [pytest.param("vit", marks=pytest.mark.slow), "resnet"])
def test_a_clip_of_another_resolution(tower):
    """As CLIP's L/14 goes on at 336 x 336 (Radford et al. 2021, section 2.5)."""
    config = ClipConfig(TOWERS[tower], TEXT, 6)
    params = like_new(config)
    model = replace(config, image=replace(config.image, image_size=(16, 8)))
    _, found, message = started(model, config, params)
    assert message == "; its positions of 2 x 3 patches were interpolated to 4 x 2"
    owner = "embeddings" if tower == "vit" else "pooler"
    before, after = (tree["image"][owner].pop("position")["embedding"] for tree in (params, found))
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_allclose(after[1:], resize_positions(np.asarray(before)[1:], (2, 3), (4, 2)), atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, found, params)


def test_patches_of_another_size_are_another_model():
    with pytest.raises(InputError, match=r"embeddings/patch/kernel has shape \(16, 8\) there, \(4, 8\) here"):
        started(replace(VIT, patch_size=2), VIT, like_new(VIT))
