"""The door of CLIP and SigLIP: what Transformers' pieces give together, from pictures and texts to probabilities."""

import gzip

import numpy as np
import pytest
from PIL import Image

import t5x_lite
from t5x_lite.convert import export_folder
from t5x_lite.data import ClipBPE, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import (
    ClipConfig,
    ClipImageConfig,
    ClipTextConfig,
    SiglipConfig,
    SiglipImageConfig,
    SiglipTextConfig,
)
from t5x_lite.pretrained import PretrainedImageText
from t5x_lite.tokenizers.sentencepiece import SiglipTokenizer

from ..programs import like_new

MERGES = ["c a", "ca t</w>", "d o", "do g</w>", "p h", "ph o", "pho t", "phot o</w>", "o f</w>"]
SIZE = 512 + len(MERGES) + 2
NAMES = ["cat", "dog", "red {0} bird"]
TEMPLATES = ["a photo of a {}.", "{}"]


def picture(number):
    y, x = np.mgrid[: 30 + number, :41]
    return np.stack([x * 6 + number, y * 7, (x + y) * 3 * number], axis=-1).astype(np.uint8)


PICTURES = [picture(number) for number in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with random parameters as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("clip")
    merges = folder / "merges.txt.gz"
    merges.write_bytes(gzip.compress("\n".join(["#version", *MERGES, ""]).encode()))
    tokenizer = make_tokenizer(ClipBPE(str(merges), SIZE), iter)
    sizes = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 2}
    config = ClipConfig(
        ClipImageConfig(image_size=(24, 24), patch_size=8, **sizes),
        ClipTextConfig(vocab_size=SIZE, max_length=24, **sizes),
        projection_dim=12,
    )
    export_folder(folder / "hf", config, like_new(config, 1), tokenizer)
    return folder / "hf"


@pytest.fixture(scope="module")
def model(folder):
    return t5x_lite.load(folder)


def test_it_is_opened_with_its_methods(model):
    assert isinstance(model, PretrainedImageText)
    assert "zero_shot, embed_images, embed_texts, search" in repr(model)
    with pytest.raises(InputError, match="a ClipConfig has no classify; use zero_shot, .* and search"):
        model.classify(PICTURES[0])


def test_vectors_have_length_one_and_do_not_depend_on_their_neighbours(model):
    images, texts = model.embed_images(PICTURES), model.embed_texts(NAMES)
    for vectors in (images, texts):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(model.embed_images(PICTURES[1]), images[1], atol=1e-5)
    np.testing.assert_allclose(model.embed_texts(NAMES[2]), texts[2], atol=1e-5)
    np.testing.assert_allclose(model.embed_texts(70 * NAMES)[-3:], texts, atol=1e-5)


def test_zero_shot_is_what_transformers_gives(model, folder, torch, transformers):
    theirs = transformers.CLIPModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = transformers.CLIPImageProcessorPil.from_pretrained(folder)
    pixels = processor([Image.fromarray(one) for one in PICTURES], return_tensors="pt")
    with torch.no_grad():
        images = theirs(input_ids=torch.tensor([[0]]), **pixels).image_embeds
        classes = []
        for name in NAMES:
            texts = tokenizer([t.replace("{}", name) for t in TEMPLATES], padding=True, return_tensors="pt")
            vectors = theirs(pixel_values=pixels["pixel_values"][:1], **texts).text_embeds
            mean = vectors.mean(dim=0)
            classes.append(mean / mean.norm())
        expected = (theirs.logit_scale.exp() * images @ torch.stack(classes).T).softmax(dim=1).numpy()
    np.testing.assert_allclose(model.embed_images(PICTURES), images, atol=1e-4)
    answers = model.zero_shot(PICTURES, NAMES, templates=TEMPLATES)
    for answer, row in zip(answers, expected, strict=True):
        assert [one.label for one in answer] == [NAMES[i] for i in np.argsort(-row)]
        np.testing.assert_allclose([one.probability for one in answer], np.sort(row)[::-1], atol=1e-4)
    (likeliest,) = model.zero_shot(PICTURES[2], NAMES, templates=TEMPLATES, top_k=1)
    assert likeliest.label == answers[2][0].label


def test_siglip_gives_each_class_a_probability_of_its_own(spiece, tmp_path, torch, transformers):
    sizes = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 1}
    tokenizer = SiglipTokenizer(spiece.model)
    text = SiglipTextConfig(vocab_size=tokenizer.vocabulary.size, max_length=12, **sizes)
    config = SiglipConfig(SiglipImageConfig(image_size=(26, 26), patch_size=8, **sizes), text)
    params = like_new(config, 1) | {"logit_bias": np.float32(-1.0), "logit_scale": np.float32(1.0)}
    export_folder(tmp_path, config, params, tokenizer)
    ours = t5x_lite.load(tmp_path)
    theirs = transformers.SiglipModel.from_pretrained(tmp_path).eval()
    processor = transformers.SiglipImageProcessorPil.from_pretrained(tmp_path)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pixels = processor([Image.fromarray(one) for one in PICTURES], return_tensors="pt")
    texts = their_tokenizer(NAMES, padding="max_length", max_length=12, return_tensors="pt")
    with torch.no_grad():
        expected = theirs(input_ids=texts["input_ids"], **pixels).logits_per_image.sigmoid().numpy()
    for answer, row in zip(ours.zero_shot(PICTURES, NAMES, templates="{}"), expected, strict=True):
        assert {one.label: one.probability for one in answer} == pytest.approx(
            dict(zip(NAMES, row, strict=True)), abs=1e-4
        )
    assert "prepared as preprocessor_config.json says" in repr(ours)


def test_a_search_finds_the_nearest_and_draws_them(model, tmp_path):
    result = model.search(NAMES, PICTURES, top_k=2)
    cosines = model.embed_texts(NAMES) @ model.embed_images(PICTURES).T
    for found, row in zip(result.found, cosines, strict=True):
        assert [one.index for one in found] == np.argsort(-row)[:2].tolist()
        np.testing.assert_allclose([one.similarity for one in found], np.sort(row)[::-1][:2], atol=1e-6)
    result.save(tmp_path / "search.png")
    assert Image.open(tmp_path / "search.png").size[0] > 100
    assert "'cat': " in repr(result)
    assert len(model.search("cat", PICTURES).found[0]) == 3, "all there are"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.zero_shot(PICTURES[0], "cat"), "labels='cat' is one text; give a list of names"),
        (lambda m: m.zero_shot(PICTURES[0], []), r"labels=\[\] is not a list of texts"),
        (lambda m: m.zero_shot(PICTURES[0], ["cat", " "]), r"labels\[1\]=' ' is not a text"),
        (lambda m: m.zero_shot(PICTURES[0], ["cat", "cat"]), "labels holds 'cat' twice"),
        (lambda m: m.zero_shot(PICTURES[0], NAMES, templates="a photo"), "'a photo' does not hold {} once"),
        (lambda m: m.zero_shot(PICTURES[0], NAMES, templates=[]), r"templates=\[\] is not a list"),
        (lambda m: m.zero_shot(PICTURES[0], NAMES, top_k=4), "top_k=4 is out of range; choose 1 to 3"),
        (lambda m: m.zero_shot([], NAMES), "images is empty"),
        (lambda m: m.embed_texts(7), "texts=7 is not a list of texts"),
        (lambda m: m.embed_texts(["cat", 7]), r"texts\[1\]=7 is not a text"),
        (lambda m: m.embed_texts(30 * "cat "), "has 32 tokens and the model positions for 24; shorten it"),
        (lambda m: m.embed_images("absent.png"), "absent.png"),
        (lambda m: m.search("cat", PICTURES[0]), "images is one picture; give a list to search in"),
        (lambda m: m.search("cat", []), "images is empty"),
        (lambda m: m.search("cat", PICTURES, top_k=0), "top_k=0 is out of range; choose 1 or more"),
    ],
)
def test_bad_input_is_refused(model, call, message):
    with pytest.raises(InputError, match=message):
        call(model)
