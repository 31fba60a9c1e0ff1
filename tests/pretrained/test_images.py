"""Models of pictures in a notebook: what they name, encode, reconstruct, and where they look."""

import io
import json
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from PIL import Image

from t5x_lite.convert import export_folder
from t5x_lite.convert.origin import Origin
from t5x_lite.data import Data, ImageFolder
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.images.decoding import decode_image, encode_array
from t5x_lite.layers.patches import patchify
from t5x_lite.models import DeiTConfig, MAEConfig, ResNetConfig, ViTConfig, abstract_params
from t5x_lite.objectives import ImageClassification, NoObjective
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.pretrained import PretrainedImageModel, load
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.training.experiment import Experiment

from ..programs import apply, corrupt

SIZES = {"image_size": (12, 16), "patch_size": 4, "embed_dim": 8, "num_heads": 2, "mlp_dim": 12, "num_layers": 2}
DECODER = {"decoder_embed_dim": 8, "decoder_num_heads": 2, "decoder_mlp_dim": 8, "decoder_num_layers": 1}
CONFIGS = {
    "vit": ViTConfig(**SIZES, num_classes=3),
    "deit": DeiTConfig(**SIZES, num_classes=6),
    "mae": MAEConfig(**SIZES, **DECODER),
    "resnet": ResNetConfig((1, 1), (8, 12), stem_width=4, num_classes=4),
}
LABELS = {"vit": ("cat", "dog", "owl")}
PNG = b"\x89PNG"


def random_params(config, seed=0):
    random = np.random.default_rng(seed)
    abstract = nn.unbox(abstract_params(config))
    return jax.tree.map(lambda leaf: random.uniform(0.2, 1.0, leaf.shape).astype(np.float32) - 0.1, abstract)


def pixels(height=12, width=16, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """By name the Hugging Face folder of a model with random parameters."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, config in CONFIGS.items():
        export_folder(folder / name, config, random_params(config), None, labels=LABELS.get(name, ()))
    return folder


@pytest.fixture(scope="session")
def models(folders):
    return {name: load(folders / name) for name in CONFIGS}


def with_params(model, change):
    """The model with parameters changed by `change(path, leaf)`."""
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: change(jax.tree_util.keystr(path, simple=True, separator="/"), leaf), model.params
    )
    return replace(model, params=params)


@pytest.mark.oracle
def test_probabilities_and_rollout_are_those_of_transformers(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    torch.manual_seed(0)
    names = {0: "cat", 1: "dog", 2: "owl", 3: "car"}
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 31}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, id2label=names, attn_implementation="eager")
    theirs = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.4)
    theirs.save_pretrained(tmp_path)
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]
    kind = getattr(transformers, "ViTImageProcessorPil", transformers.ViTImageProcessor)
    processor = kind(size={"height": 16, "width": 16}, image_mean=mean, image_std=std)
    processor.save_pretrained(tmp_path)
    model = load(tmp_path)
    for height, width in ((16, 16), (29, 41)):
        image = Image.fromarray(pixels(height, width))
        with torch.no_grad():
            out = theirs(**processor(image, return_tensors="pt"), output_attentions=True)
        expected = dict(zip(names.values(), out.logits.softmax(-1)[0].tolist(), strict=True))
        answer = model.classify(image)
        assert [one.label for one in answer] == sorted(expected, key=lambda name: -expected[name])
        assert max(expected.values()) - min(expected.values()) > 0.1
        probabilities = [expected[one.label] for one in answer]
        np.testing.assert_allclose([one.probability for one in answer], probabilities, atol=1e-5)
        # By hand, without the processor: Pillow's bilinear filter.
        resized = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR))
        np.testing.assert_allclose(model.prepare(image), (resized / 255 - mean) / std, atol=1e-5)
    rollout = np.eye(17)
    for weights in out.attentions:
        rollout = (weights[0].mean(0).numpy() + np.eye(17)) / 2 @ rollout
    assert rollout[0, 1:].std() > 1e-3
    np.testing.assert_allclose(model.attention(image).weights, rollout[0, 1:].reshape(4, 4), atol=1e-5)


def test_a_preprocessor_config_goes_out_as_it_came_in(folders, tmp_path):
    described = {"feature_extractor_type": "ViTFeatureExtractor", "size": 24, "image_mean": [0.1, 0.2, 0.3], "x": 1}
    config = CONFIGS["vit"]
    export_folder(tmp_path / "in", config, random_params(config), None, image_processor=described)
    model = load(tmp_path / "in")
    assert model.prepare(pixels()).shape == (24, 24, 3)
    model.export(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "preprocessor_config.json").read_text()) == described
    (tmp_path / "in" / "preprocessor_config.json").unlink()
    (tmp_path / "in" / "checksums.0.json").unlink(missing_ok=True)
    default = load(tmp_path / "in")
    assert "prepared by default, size {'height': 12, 'width': 16}" in repr(default)
    np.testing.assert_allclose(default.prepare(pixels()), pixels() / 127.5 - 1, atol=1e-5)


def test_one_or_many_pictures(models):
    model, images = models["vit"], [pixels(seed=seed) for seed in range(3)]
    assert isinstance(model, PretrainedImageModel)
    together = model.classify(images, top_k=2)
    assert [len(one) for one in together] == [2, 2, 2]
    for image, answer in zip(images, together, strict=True):
        alone = model.classify(image)
        assert [one.label for one in alone[:2]] == [one.label for one in answer]
        assert sum(one.probability for one in alone) == pytest.approx(1)
        np.testing.assert_allclose([p for _, p in answer], [p for _, p in alone[:2]], atol=1e-5)
    many = model.encode([images[n % 3] for n in range(19)])  # more than a batch
    np.testing.assert_allclose(many, np.stack([model.encode(images[n % 3]) for n in range(19)]), atol=5e-4)
    assert {label for label, _ in model.classify(images[0])} == {"cat", "dog", "owl"}
    assert len(models["deit"].classify(images[0])) == 5


def test_vectors_are_the_models_hidden_states(models):
    model, image = models["deit"], pixels()
    prepared = jnp.asarray(model.prepare(image)[None])
    outputs = apply(model.module, model.params, prepared, method="encode_layers")[:, 0]
    assert outputs.shape == (3, 2 + 12, 8)
    np.testing.assert_allclose(model.encode(image), outputs[-1][0], atol=1e-5)
    np.testing.assert_allclose(model.encode(image, layers=1, pooling="mean"), outputs[1][2:].mean(0), atol=1e-5)
    np.testing.assert_allclose(model.encode([image], layers=0, pooling="patches")[0], outputs[0][2:], atol=1e-5)
    resnet = models["resnet"]
    prepared = jnp.asarray(resnet.prepare(image)[None])
    (last,) = apply(resnet.module, resnet.params, prepared, method="hidden_states")
    assert last.std() > 1e-3
    np.testing.assert_allclose(resnet.encode(image), last.mean(0), rtol=1e-4)
    np.testing.assert_allclose(resnet.encode(image, pooling="patches"), last, rtol=1e-4)


def test_visible_patches_stay_and_seeds_choose_the_others(models):
    model, image = models["mae"], pixels()
    result = model.reconstruct(image, seed=3)
    assert result.is_hidden.sum() == 9 and result.is_hidden.shape == (3, 4)
    np.testing.assert_array_equal(result.original, image)
    hidden = np.repeat(np.repeat(result.is_hidden, 4, axis=0), 4, axis=1)
    np.testing.assert_array_equal(result.reconstruction[~hidden], image[~hidden])
    np.testing.assert_array_equal(result.reconstruction[hidden], result.predicted[hidden])
    np.testing.assert_array_equal(result.masked[~hidden], image[~hidden])
    assert (result.masked[hidden] == 128).all()
    assert (result.reconstruction[hidden] != image[hidden]).any()
    again, other = (model.reconstruct(image, seed=seed) for seed in (3, 4))
    np.testing.assert_array_equal(again.reconstruction, result.reconstruction)
    assert (other.is_hidden != result.is_hidden).any()
    assert model.reconstruct(image, mask_ratio=0.5).is_hidden.sum() == 6


def test_a_patch_gets_its_own_mean_and_deviation_back(models):
    """A decoder that predicts 0 for each normalized pixel gives the mean of each patch; one that predicts 1 a standard
    deviation more."""
    for value in (0.0, 1.0):
        model = with_params(
            models["mae"],
            lambda path, leaf, value=value: (
                jnp.full_like(leaf, value * path.endswith("bias")) if "decoder/prediction" in path else leaf
            ),
        )
        image = pixels() // 3 + 80  # no pixel ends at 0 or 255
        normalized = model.prepare(image)
        patches = np.asarray(patchify(jnp.asarray(normalized)[None], 4))[0]
        expected = patches.mean(1) + value * patches.std(1, ddof=1)
        predicted = model.reconstruct(image).predicted
        mean, std = model.preparation.statistics
        blocks = np.asarray(patchify(jnp.asarray((predicted / 255 - mean) / std, jnp.float32)[None], 4))[0]
        np.testing.assert_allclose(blocks, np.repeat(expected[:, None], 48, axis=1), atol=0.5 / 255 / min(std) + 1e-3)


def test_rollout_of_even_attention(models):
    """Heads that look everywhere alike: after N layers each patch has (1 - 2 ** -N) / L of what the class token has."""
    model = with_params(models["deit"], lambda path, leaf: leaf * 0 if "query" in path else leaf)
    result = model.attention(pixels())
    np.testing.assert_allclose(result.weights, np.full((3, 4), (1 - 0.25) / 14), rtol=1e-4)
    assert models["mae"].attention(pixels()).weights.sum() < 1


@pytest.mark.slow
def test_pictures_are_drawn(models, tmp_path):
    for result in (models["mae"].reconstruct(pixels()), models["vit"].attention(pixels())):
        assert result._repr_png_().startswith(PNG)
        result.save(tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
        with pytest.raises(InputError, match=r"path=a.jpg is not the name of a picture; choose one that ends in .png"):
            result.save("a.jpg")
    titles = [axes.get_title() for axes in models["mae"].reconstruct(pixels()).picture().axes]
    assert titles == ["original", "masked, 75%", "reconstruction"]
    assert models["vit"].plot_positions()._repr_png_().startswith(PNG)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("runs") / "vit", ViTConfig(**SIZES | {"image_size": (8, 8)}, num_classes=3)
    objective = ImageClassification(Augmentation((8, 8), resize=10), canvas_size=(16, 24))
    data = Data(ImageFolder("absent"), tokenizer=None)
    experiment = Experiment(config, objective, data, AdamW(Constant(1e-3)), steps=1, batch_size=8)
    files = {"classes.json": json.dumps(["cat", "dog", "owl"]).encode()}
    write_checkpoint(folder / "checkpoints", 1, experiment, files, random_params(config))
    return folder


def with_loss(model, loss_type):
    objective = replace(model.experiment.objective, loss_type=loss_type)
    return replace(model, experiment=replace(model.experiment, objective=objective))


@pytest.mark.parametrize("loss_type", ["bce", "multilabel_bce"])
def test_a_model_of_binary_cross_entropies_gives_each_class_its_own_probability(loss_type, run, tmp_path):
    image = pixels(8, 8)
    softmax, binary = (with_loss(load(run), one) for one in ("softmax", loss_type))
    write_checkpoint(tmp_path / "run" / "checkpoints", 1, binary.experiment, {}, binary.params)
    binary.export(tmp_path / "binary")
    multi = Origin("vit", json.dumps({"problem_type": "multi_label_classification"}))
    replace(softmax, origin=multi).export(tmp_path / "softmax")
    described = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("binary", "softmax")]
    assert [one.get("problem_type") for one in described] == ["multi_label_classification", None]
    converted = replace(softmax, experiment=replace(softmax.experiment, objective=NoObjective()), origin=multi)
    for model in (binary, load(tmp_path / "run"), load(tmp_path / "binary"), converted):
        images = jnp.asarray(model.prepare([image]))
        (logits,) = np.asarray(apply(model.module, model.params, images, method="class_logits"))
        found = [each.probability for each in model.classify(image)]
        assert found == pytest.approx(sorted(1 / (1 + np.exp(-logits)), reverse=True), rel=1e-4)
    for model in (softmax, replace(softmax, origin=multi), load(tmp_path / "softmax")):
        assert sum(each.probability for each in model.classify(image)) == pytest.approx(1.0, abs=1e-5)


def test_a_run_reads_pictures_as_its_evaluation_and_exports_how(run, tmp_path):
    model, image = load(run), pixels(30, 50)
    objective = model.experiment.objective
    row = {"image": decode_image(encode_array(image), (16, 24, 3)), "size": np.array([30, 50]), "label": np.array(0)}
    batch = {name: value[None] for name, value in row.items()}
    features = corrupt(objective.for_evaluation(), jax.random.key(0), batch)
    np.testing.assert_allclose(model.prepare([image]), features["images"], atol=1e-5)
    (number,) = objective.predict(model.module, model.params, features).tolist()
    assert model.classify(image)[0].label == ("cat", "dog", "owl")[number]
    model.export(tmp_path / "out")
    exported = load(tmp_path / "out")
    assert exported.preparation.processor == model.preparation.processor
    assert exported._class_names == ("cat", "dog", "owl")
    small = pixels(10, 10)  # nothing is scaled: both cut out the same center
    np.testing.assert_allclose(
        exported.prepare(small), (small[1:9, 1:9] / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225], atol=1e-5
    )


def test_a_representation_says_what_is_read(models, run):
    assert "methods: classify, encode, attention, export, summary" in repr(models["vit"])
    assert "methods: encode, reconstruct, attention, export, summary" in repr(models["mae"])
    assert "methods: classify, encode, export, summary" in repr(models["resnet"])
    assert "pictures: 3 channels, prepared as the run's evaluation, (8, 8)" in repr(load(run))


BAD = {
    "head": ("mae", lambda model: model.classify(pixels()), "a MAEConfig has no classify; use encode, reconstruct and"),
    "mae": ("vit", lambda model: model.reconstruct(pixels()), "a ViTConfig has no reconstruct; use classify, encode"),
    "attention": ("resnet", lambda model: model.attention(pixels()), "a ResNetConfig has no attention; use classify"),
    "text": ("vit", lambda model: model.generate("a"), "a ViTConfig has no generate; use classify, encode and"),
    "tokens": ("vit", lambda model: model.neighbours("a"), "a ViTConfig reads no tokens; load a model of texts"),
    "positions": ("resnet", lambda model: model.plot_positions(), "a ResNetConfig has no plot_positions"),
    "none": ("vit", lambda model: model.classify(pixels(), top_k=0), "top_k=0 is out of range; choose 1 to 3"),
    "many": ("vit", lambda model: model.classify(pixels(), top_k=4), "top_k=4 is out of range; choose 1 to 3"),
    "empty": ("vit", lambda model: model.encode([]), "images is empty; give one or more"),
    "second": ("vit", lambda model: model.encode([pixels(), 1]), r"images\[1\] is a int, not a picture"),
    "pooling": ("vit", lambda model: model.encode(pixels(), pooling="max"), "pooling='max' is unknown; choose one of"),
    "cls": ("resnet", lambda model: model.encode(pixels(), pooling="cls"), "pooling='cls' needs a class token"),
    "layers": ("vit", lambda model: model.encode(pixels(), layers=3), "layers=3 is not a layer of this model; choose"),
    "last": ("resnet", lambda model: model.encode(pixels(), layers=1), "layers=1: the layers of a ResNet differ in"),
    "url": ("vit", lambda model: model.classify("ftp://a/b.png"), "ftp://a/b.png cannot be read .ftp:// is not one"),
    "nothing": ("mae", lambda model: model.reconstruct(pixels(), mask_ratio=0.0), "mask_ratio=0.0"),
    "everything": ("mae", lambda model: model.reconstruct(pixels(), mask_ratio=1.0), "mask_ratio=1.0"),
    "all": ("mae", lambda model: model.reconstruct(pixels(), mask_ratio=0.99), "mask_ratio=0.99 hides all 12 patches"),
    "seed": ("mae", lambda model: model.reconstruct(pixels(), seed=-1), "seed=-1 is out of range; choose one from 0"),
    "list": ("mae", lambda model: model.reconstruct([pixels()]), "image is a list of 1; give one picture"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(models, name):
    family, call, message = BAD[name]
    with pytest.raises(InputError, match=message):
        call(models[family])


def test_pictures_that_are_read_warn_of_nothing(models):
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(models["vit"].classify(file.getvalue())) == 3


def test_channels_that_no_picture_has(tmp_path):
    config = ViTConfig(**SIZES, num_channels=2, num_classes=3)
    export_folder(tmp_path / "two", config, random_params(config), None)
    with pytest.raises(InputError, match="num_channels=2: pictures have 1 or 3; apply the module to arrays"):
        load(tmp_path / "two").classify(pixels())
    with pytest.raises(InputError, match="reads no tokens; leave tokenizer out"):
        load(tmp_path / "two", tokenizer="a.model")
