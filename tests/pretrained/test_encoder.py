import functools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from t5x_lite.convert.origin import Origin
from t5x_lite.data import Data, LabeledTexts, TableFiles
from t5x_lite.errors import InputError
from t5x_lite.objectives import Classification
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained import PretrainedEncoder, load
from t5x_lite.pretrained.encoder import check_layers, check_pooling, choose_layers, pool
from t5x_lite.training import Experiment

from ..slow import mostly_slow
from .conftest import MAX_LENGTH

LONG = "green bottles are hanging on the wall and fall " * 5
TEXTS = ["the wall", LONG, "bottles fall"]


def plain(model, text, **options):
    """The ids of one text and every output for them by the module, padded to one length so that it is compiled once."""
    vocabulary = model.tokenizer.vocabulary
    ids = np.array([[vocabulary.cls_id, *model.tokenizer.encode(text), vocabulary.sep_id]])
    length = ids.shape[1]
    padded, valid = np.pad(ids, ((0, 0), (0, MAX_LENGTH - length))), np.arange(MAX_LENGTH)[None] < length
    outputs = compiled(model.module, **options)({"params": model.params}, padded, inputs_valid=valid)

    def unpadded(value):
        return np.asarray(value)[tuple(slice(length if size == MAX_LENGTH else size) for size in value.shape)]

    return ids, jax.tree.map(unpadded, outputs)


@functools.cache
def compiled(module, **options):
    return jax.jit(functools.partial(module.apply, **options))


@pytest.mark.parametrize("pooling", mostly_slow(["mean", "cls"], "mean"))
def test_vectors_of_texts_are_those_of_the_module(bert, pooling):
    vectors = bert.encode(TEXTS, pooling=pooling)
    assert vectors.shape == (3, 12)
    for text, vector in zip(TEXTS, vectors, strict=True):
        hidden = np.asarray(plain(bert, text)[1]["hidden"])[0]
        expected = hidden.mean(axis=0) if pooling == "mean" else hidden[0]
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_vectors_of_tokens_from_several_layers(bert):
    vectors = bert.encode(TEXTS, layers="concat_last_4", pooling="tokens")
    for text, rows in zip(TEXTS, vectors, strict=True):
        _, outputs = plain(bert, text, method="encode_layers")
        expected = np.concatenate([outputs[layer][0] for layer in (4, 3, 2, 1)], axis=-1)
        np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_a_text_has_the_same_vector_whatever_stands_beside_it(bert):
    together = bert.encode([*TEXTS, *["on the wall"] * 40])
    for text, vector in zip(TEXTS, together, strict=False):
        np.testing.assert_allclose(bert.encode(text), vector, atol=1e-5)
    assert np.abs(together[0] - together[2]).max() > 1e-3


def test_pairs_have_two_segments(bert):
    vocabulary, encode = bert.tokenizer.vocabulary, bert.tokenizer.encode
    a, b = [*encode("the wall"), vocabulary.sep_id], [*encode("bottles fall"), vocabulary.sep_id]
    ids = jnp.array([[vocabulary.cls_id, *a, *b]])
    segments = jnp.array([[0] * (1 + len(a)) + [1] * len(b)])
    outputs = compiled(bert.module)({"params": bert.params}, ids, segments)
    np.testing.assert_allclose(
        bert.encode(("the wall", "bottles fall"), pooling="cls"), outputs["hidden"][0, 0], atol=1e-5
    )
    by_call, by_ids = bert([("the wall", "bottles fall")]), bert(ids, segments)
    np.testing.assert_allclose(by_call["sentence_pair_logits"], outputs["sentence_pair_logits"], atol=1e-5)
    np.testing.assert_array_equal(by_ids["sentence_pair_logits"], by_call["sentence_pair_logits"])
    assert np.abs(bert(ids)["hidden"] - by_ids["hidden"]).max() > 1e-3, "the segments count"


def test_calling_it_gives_every_output(bert):
    outputs = bert(TEXTS[::2])
    assert {name: value.shape[0] for name, value in outputs.items()} == dict.fromkeys(
        ("hidden", "pooled", "masked_lm_logits", "sentence_pair_logits"), 2
    )
    for index, text in enumerate(TEXTS[::2]):
        ids, expected = plain(bert, text)
        for name in ("hidden", "masked_lm_logits"):
            np.testing.assert_allclose(outputs[name][index, : ids.shape[1]], expected[name][0], atol=1e-5)
        np.testing.assert_allclose(outputs["pooled"][index], expected["pooled"][0], atol=1e-5)


@pytest.mark.slow
def test_suggestions_are_the_likeliest_tokens(bert):
    text = "the [MASK] bottles are [MASK]"
    ids, outputs = plain(bert, text)
    probabilities = softmax(outputs["masked_lm_logits"][0], axis=-1)
    vocabulary, decode = bert.tokenizer.vocabulary, bert.tokenizer.decode
    ordinary = [i for i in range(vocabulary.size) if i not in vocabulary.special_ids]
    positions = np.flatnonzero(ids[0] == vocabulary.mask_id)
    for position, suggestions in zip(positions, bert.fill_mask(text, top_k=3), strict=True):
        best = sorted(ordinary, key=lambda token: -probabilities[position, token])[:3]
        assert [suggestion.token for suggestion in suggestions] == [decode([token]) for token in best]
        np.testing.assert_allclose([s.probability for s in suggestions], probabilities[position, best], rtol=1e-4)
        filled = np.asarray(ids[0]).copy()
        filled[position] = best[0]
        assert suggestions[0].text == decode(filled)
        assert suggestions[0].text.count("[MASK]") == 1
    one = bert.fill_mask("the [MASK] bottles")
    assert [suggestion.probability for suggestion in one] == sorted((s.probability for s in one), reverse=True)
    assert [len(answer) for answer in bert.fill_mask(["the [MASK] bottles", text], top_k=4)] == [4, 2]


def test_no_special_token_is_suggested(bert):
    """Nor one that the tokenizer has not, though the model thinks of nothing else."""
    vocabulary = bert.tokenizer.vocabulary
    likely = np.zeros(bert.config.vocab_size, np.float32)
    likely[[*vocabulary.special_ids, *range(vocabulary.size, bert.config.vocab_size)]] = 50.0
    head = bert.params["masked_lm"]
    scores = {**head["scores"], "bias": jnp.asarray(likely)}
    sure = replace(bert, params={**bert.params, "masked_lm": {**head, "scores": scores}})
    every = vocabulary.size - len(vocabulary.special_ids)
    suggestions = sure.fill_mask("the [MASK]", top_k=every)
    assert len({suggestion.token for suggestion in suggestions}) == every
    assert sum(suggestion.probability for suggestion in suggestions) < 1e-6
    with pytest.raises(InputError, match=f"top_k={every + 1} is out of range; choose 1 to {every}"):
        sure.fill_mask("the [MASK]", top_k=every + 1)


def test_of_a_pair_the_generator_fills_in_and_the_discriminator_does_the_rest(electra, make_encoder):
    parts = {}
    for part in ("generator", "discriminator"):
        config, params = electra.config.separate(electra.params, part)
        parts[part] = PretrainedEncoder(config, config.build(), params, electra.tokenizer)
    assert electra.abilities == ("encode", "fill_mask", "detect_replacements")
    text = "the [MASK] bottles"
    for ours, theirs in zip(electra.fill_mask(text), parts["generator"].fill_mask(text), strict=True):
        assert ours.token == theirs.token
        assert ours.probability == pytest.approx(theirs.probability, rel=1e-4)
    np.testing.assert_allclose(electra.encode("the wall"), parts["discriminator"].encode("the wall"), atol=1e-5)
    outputs = electra(["the wall"])
    assert set(outputs) == {"generator", "discriminator"}
    assert outputs["discriminator"]["replaced_token_logits"].shape == outputs["generator"]["hidden"].shape[:2]


def test_replacements_are_the_sigmoid_of_their_logits(electra):
    texts = ["the wall", "green bottles are hanging"]
    for text, detections in zip(texts, electra.detect_replacements(texts), strict=True):
        _, outputs = plain(electra, text)
        logits = np.asarray(outputs["discriminator"]["replaced_token_logits"])[0, 1:-1]
        assert [detection.token for detection in detections] == [
            electra.tokenizer.decode([token]) for token in electra.tokenizer.encode(text)
        ]
        np.testing.assert_allclose([d.probability for d in detections], 1 / (1 + np.exp(-logits)), rtol=1e-4)
    assert electra.detect_replacements(texts[0])[0].token == "the"


@pytest.fixture(scope="module")
def classifier(make_encoder, bert):
    return make_encoder(replace(bert.config, heads=("classification",), num_classes=3))


def test_classes_are_the_softmax_of_their_logits_likeliest_first(classifier):
    assert classifier.abilities == ("encode", "classify")
    for text, classes in zip(TEXTS, classifier.classify(TEXTS), strict=True):
        probabilities = softmax(plain(classifier, text)[1]["classification_logits"][0])
        order = np.argsort(-probabilities)
        assert [each.label for each in classes] == [str(index) for index in order]
        np.testing.assert_allclose([each.probability for each in classes], probabilities[order], rtol=1e-4)
    one = classifier.classify(("the wall", "bottles fall"))
    assert sum(each.probability for each in one) == pytest.approx(1.0, abs=1e-5)


def test_of_several_classes_each_has_a_probability_of_its_own(classifier):
    stated = {"problem_type": "multi_label_classification", "id2label": {"0": "old", "1": "long", "2": "sad"}}
    model = replace(classifier, origin=Origin("bert", json.dumps(stated)))
    logits = np.asarray(plain(model, "the wall")[1]["classification_logits"][0])
    found = {each.label: each.probability for each in model.classify("the wall")}
    expected = dict(zip(("old", "long", "sad"), 1 / (1 + np.exp(-logits)), strict=True))
    assert found == pytest.approx(expected, rel=1e-4)
    assert list(found) == sorted(found, key=found.get, reverse=True)
    source = LabeledTexts(TableFiles(("reviews.tsv",)), labels=("bad", "fair", "good"))
    run = Experiment(model.config, Classification(16), Data(source), Adafactor(), steps=1, batch_size=8)
    learned = replace(model, experiment=run).classify("the wall")
    assert sum(each.probability for each in learned) == pytest.approx(1.0, abs=1e-5), "its loss was a softmax's"


def test_classes_have_the_names_that_the_run_learned(classifier):
    source = LabeledTexts(TableFiles(("reviews.tsv",)), labels=("bad", "fair", "good"))
    run = Experiment(classifier.config, Classification(16), Data(source), Adafactor(), steps=1, batch_size=8)
    named = replace(classifier, experiment=run).classify("the wall")
    numbered = classifier.classify("the wall")
    assert [each.label for each in named] == [source.labels[int(each.label)] for each in numbered]


def test_a_number_is_no_class(classifier, make_encoder, bert):
    numbers = make_encoder(replace(classifier.config, num_classes=1))
    with pytest.raises(InputError, match=r"the head of this model predicts a number, which task_logits\(texts\) gives"):
        numbers.classify("the wall")
    expected = plain(numbers, "the wall")[1]["classification_logits"]
    np.testing.assert_allclose(numbers.task_logits("the wall"), expected, atol=1e-5)
    with pytest.raises(InputError, match="classify needs the head classification, and this BertConfig has heads="):
        bert.classify("the wall")


def test_a_folder_that_transformers_opens(electra, bert, tmp_path):
    bert.export(tmp_path / "bert")
    assert len({path.stat().st_mode for path in (tmp_path / "bert").iterdir()}) == 1
    again = load(tmp_path / "bert")
    assert again.config == bert.config
    jax.tree.map(np.testing.assert_array_equal, again.params, bert.params)
    electra.export(str(tmp_path / "generator"), part="generator")
    assert load(tmp_path / "generator").fill_mask("the [MASK]") == electra.fill_mask("the [MASK]")
    with pytest.raises(InputError, match="folder=.*bert is not empty; choose another folder, nothing is overwritten"):
        bert.export(tmp_path / "bert")
    bert.export(tmp_path / "half", dtype="bfloat16")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("bert", "half")]
    assert sizes[1] < 0.7 * sizes[0]
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16).astype(jnp.float32), bert.params)
    jax.tree.map(np.testing.assert_array_equal, load(tmp_path / "half").params, rounded)
    with pytest.raises(InputError, match="dtype=int8 is not a type of parameters"):
        bert.export(tmp_path / "other", dtype="int8")
    assert not (tmp_path / "other").exists()
    with pytest.raises(InputError, match="part='generator': a BertConfig is one network, no pair; leave part out"):
        bert.export(tmp_path / "none", part="generator")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.generate("a"), "a BertConfig has no generate; use encode and fill_mask"),
        (
            lambda model: model.detect_replacements("wall"),
            "needs the head replaced_token, and this BertConfig has heads=",
        ),
        (lambda model: model.fill_mask("the wall"), "the text has no mask; write \\[MASK\\]"),
        (lambda model: model.fill_mask(["the [MASK]", "wall"]), "texts\\[1\\] has no mask"),
        (lambda model: model.fill_mask("[MASK]", top_k=0), "top_k=0 is out of range"),
        (lambda model: model.fill_mask([]), "texts=\\[\\] is empty"),
        (lambda model: model.encode("wall", layers=9), "layers=9 is not a layer"),
        (lambda model: model.encode("wall", pooling="max"), "pooling='max'"),
        (lambda model: model.encode("wall " * 80), "has 82 tokens.*max_length=70; cut it"),
        (lambda model: model([]), "texts=\\[\\] is empty"),
        (lambda model: model([5, 6]), "ids of shape \\(2,\\) and type int64 are not rows"),
        (lambda model: model(np.ones((1, 71), int)), "max_length=70"),
    ],
)
def test_what_it_refuses(bert, call, message):
    with pytest.raises(InputError, match=message):
        call(bert)


def test_without_a_head_or_a_tokenizer(electra, make_encoder, bert):
    discriminator = make_encoder(electra.config.discriminator)
    with pytest.raises(
        InputError, match="fill_mask needs the head masked_lm, .* has heads=\\('replaced_token',\\); use"
    ):
        discriminator.fill_mask("the [MASK]")
    bare = replace(bert, tokenizer=None)
    with pytest.raises(InputError, match="without a tokenizer; give ids"):
        bare.encode("the wall")
    ids, outputs = plain(bert, "the wall")
    np.testing.assert_allclose(bare(ids)["pooled"], outputs["pooled"], atol=1e-5)
    padded = np.pad(ids, ((0, 0), (0, 3)))
    np.testing.assert_allclose(bare(padded)["pooled"], outputs["pooled"], atol=1e-5)


OUTPUTS = np.random.default_rng(0).normal(size=(6, 2, 3, 4)).astype(np.float32)
"""Of embeddings and five layers, for two texts of three tokens."""


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("last", OUTPUTS[5]),
        ("second_to_last", OUTPUTS[4]),
        ("sum_last_4", OUTPUTS[2] + OUTPUTS[3] + OUTPUTS[4] + OUTPUTS[5]),
        ("concat_last_4", np.concatenate([OUTPUTS[5], OUTPUTS[4], OUTPUTS[3], OUTPUTS[2]], axis=-1)),
        ("sum_all", OUTPUTS[1:].sum(axis=0)),
        ("mean", OUTPUTS[1:].mean(axis=0)),
        (0, OUTPUTS[0]),
        (2, OUTPUTS[2]),
        (-1, OUTPUTS[5]),
    ],
)
def test_layers(layers, expected):
    check_layers(layers, 5)
    np.testing.assert_allclose(choose_layers(jnp.asarray(OUTPUTS), layers), expected, rtol=1e-6)


def test_pooling_leaves_padding_out():
    vectors, valid = jnp.asarray(OUTPUTS[0]), jnp.array([[True, True, False], [True, True, True]])
    expected = [OUTPUTS[0, 0, :2].mean(axis=0), OUTPUTS[0, 1].mean(axis=0)]
    np.testing.assert_allclose(pool(vectors, valid, "mean"), expected, rtol=1e-6)
    np.testing.assert_array_equal(pool(vectors, valid, "cls"), OUTPUTS[0, :, 0])
    np.testing.assert_array_equal(pool(vectors, valid, "tokens"), OUTPUTS[0])


@pytest.mark.parametrize(
    ("layers", "num_layers", "message"),
    [
        (6, 5, "layers=6 is not a layer of this model; choose 0"),
        (-7, 5, "layers=-7"),
        (True, 5, "layers=True is unknown"),
        ("first", 5, "layers='first' is unknown; choose one of last"),
        ("concat_last_4", 3, "needs four layers and this model has 3"),
        ("second_to_last", 1, "needs two layers"),
    ],
)
def test_layers_that_a_model_has_not(layers, num_layers, message):
    with pytest.raises(InputError, match=message):
        check_layers(layers, num_layers)


def test_a_pooling_that_there_is_not():
    with pytest.raises(InputError, match="pooling='max' is unknown; choose one of mean, cls, tokens"):
        check_pooling("max")
