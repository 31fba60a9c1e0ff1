"""Classes, choices, tags and answers from heads of tasks in a notebook: encoders, BART and GPT."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from t5x_lite.data import ByteLevelBPE, Data, LabeledTexts, TableFiles, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, GptConfig
from t5x_lite.objectives import CausalClassification
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained import PretrainedDecoder, PretrainedEncoderDecoder, load
from t5x_lite.training import Experiment

from ..slow import mostly_slow

HEADS = ("multiple_choice", "tagging", "question_answering")
CONTEXT = "green bottles are hanging on the wall  and fall " * 4


@pytest.fixture(scope="module")
def tasks(bert, make_encoder):
    """A BERT with heads of tasks, without a run."""
    return make_encoder(replace(bert.config, heads=HEADS, num_classes=3))


@functools.cache
def compiled(module):
    return jax.jit(module.apply)


def outputs(model, rows, segments=None):
    """Every output for rows of ids, padded to one length for all tests so that it is compiled once."""
    padded = np.zeros((2, 3, 24), np.int32)
    for side, values in zip(padded, (rows, segments or []), strict=True):
        for number, row in enumerate(values):
            side[number, : len(row)] = row
    valid = np.arange(24)[None] < np.array([[len(row)] for row in [*rows, [], []][:3]])
    found = compiled(model.module)({"params": model.params}, *padded, inputs_valid=valid)
    return {name: np.asarray(value) for name, value in found.items()}


def test_abilities_are_those_of_the_heads(tasks, bert):
    assert tasks.abilities == ("encode", "choose", "tag", "answer")
    for method, arguments in (("choose", ("a", ["b", "c"])), ("tag", ("a",)), ("answer", ("a", "b"))):
        with pytest.raises(InputError, match=f"{method} needs the head"):
            getattr(bert, method)(*arguments)


def test_tags_are_those_of_the_first_piece_of_each_word(tasks):
    words = ["bottles", "are", "hanging", "on", "the", "wall"]
    vocabulary, encode = tasks.tokenizer.vocabulary, tasks.tokenizer.encode
    ids, firsts = [vocabulary.cls_id], []
    for word in words:
        firsts.append(len(ids))
        ids += encode(word)
    best = outputs(tasks, [[*ids, vocabulary.sep_id]])["tagging_logits"][0].argmax(axis=-1)
    expected = [(word, str(best[first])) for word, first in zip(words, firsts, strict=True)]
    assert tasks.tag(" ".join(words)) == expected
    assert tasks.tag([words, ["wall"]])[0] == expected
    with pytest.raises(InputError, match=r"sentences\[1\] has no words"):
        tasks.tag(["a", " "])


def test_long_sentences_have_a_tag_for_every_word(tasks):
    assert [word for word, _ in tasks.tag(CONTEXT)] == CONTEXT.split()


def test_an_answer_is_a_part_of_the_text_however_long_that_is(tasks):
    found = tasks.answer("what falls", CONTEXT)
    assert found.text and found.text in CONTEXT
    assert np.isfinite(found.no_answer)


def test_the_best_answer_has_the_highest_logits(tasks):
    context = "bottles fall on the wall"
    vocabulary, tokenizer = tasks.tokenizer.vocabulary, tasks.tokenizer
    question, (text, spans) = tokenizer.encode("what"), tokenizer.encode_with_offsets([context])[0]
    ids = [vocabulary.cls_id, *question, vocabulary.sep_id, *text.tolist(), vocabulary.sep_id]
    first = len(question) + 2
    logits = outputs(tasks, [ids], [[0] * first + [1] * (len(text) + 1)])["question_answering_logits"][0]
    inside = logits[first : first + len(text)]
    scores = {
        (begin, end): inside[begin, 0] + inside[end, 1] for begin in range(len(text)) for end in range(begin, len(text))
    }
    begin, end = max(scores, key=scores.get)
    found = tasks.answer("what", context)
    assert found.text == context[spans[begin, 0] : spans[end, 1]]
    assert found.no_answer == pytest.approx(logits[0].sum() - scores[begin, end], abs=1e-4)


def test_choices_share_one(tasks):
    choices = ["on the wall", "bottles", "fall and fall"]
    shares = tasks.choose("green bottles", choices)
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)
    vocabulary, encode = tasks.tokenizer.vocabulary, tasks.tokenizer.encode
    a = [vocabulary.cls_id, *encode("green bottles"), vocabulary.sep_id]
    rows = [[*a, *encode(choice), vocabulary.sep_id] for choice in choices]
    segments = [[0] * len(a) + [1] * (len(row) - len(a)) for row in rows]
    exponentials = np.exp(outputs(tasks, rows, segments)["multiple_choice_logits"])
    np.testing.assert_allclose(shares, exponentials / exponentials.sum(), atol=1e-5)
    with pytest.raises(InputError, match="leaves nothing to choose"):
        tasks.choose("green", ["bottles"])


BYTES = ByteLevelBPE(264)  # what every text can be written with
SIZES = {"vocab_size": 270, "embed_dim": 12, "num_heads": 3, "mlp_dim": 17, "max_length": 60}


@pytest.fixture(scope="module", params=mostly_slow(["roberta", "gpt2"], "roberta"))
def generator(request, make_params):
    """A BART that classifies and answers, and a GPT that classifies and chooses, from elsewhere: without a run."""
    tokenizer = make_tokenizer(replace(BYTES, layout=request.param), lambda: iter(["the wall"]))
    ids = jnp.ones((1, 2), jnp.int32)
    if request.param == "gpt2":
        config = GptConfig(**SIZES, num_layers=2, heads=("classification", "multiple_choice"), num_classes=3)
        return PretrainedDecoder(config, config.build(), make_params(config.build(), 0, ids), tokenizer)
    heads = ("classification", "tagging", "question_answering")
    config = BartConfig(**SIZES, num_encoder_layers=1, num_decoder_layers=1, heads=heads, num_classes=3)
    return PretrainedEncoderDecoder(config, config.build(), make_params(config.build(), 0, ids, ids), tokenizer)


def logits_of(model, ids, head):
    """By the module, from one row that is not padded."""

    @jax.jit
    def compute(params, row):
        hidden = model.module.apply({"params": params}, row, method="hidden_states")
        return model.module.apply({"params": params}, hidden, method=f"{head}_logits")

    return np.asarray(compute(model.params, jnp.array([ids]))[0])


def test_generators_classify(generator):
    vocabulary, encode = generator.tokenizer.vocabulary, generator.tokenizer.encode
    texts = ["a wall", ("green bottles", "fall"), "bottles are hanging on it"]
    rows = []
    for text in texts:
        parts = [encode(part) for part in ([text] if isinstance(text, str) else text)]
        if generator.config.architecture == "decoder":
            rows.append([token_id for part in parts for token_id in part])
        else:
            rows.append([vocabulary.cls_id])
            for part in parts:
                rows[-1] += [vocabulary.sep_id] * (len(rows[-1]) > 1)  # two between texts, as RoBERTa has them
                rows[-1] += [*part, vocabulary.sep_id]
    expected = np.stack([logits_of(generator, row, "classification") for row in rows])
    np.testing.assert_allclose(generator.task_logits(texts), expected, atol=1e-5)
    for logits, classes in zip(expected, generator.classify(texts), strict=True):
        assert [each.label for each in classes] == [str(number) for number in np.argsort(-logits)]
        np.testing.assert_allclose([each.probability for each in classes], np.sort(softmax(logits))[::-1], atol=1e-5)
    assert generator.classify(texts[0]) == generator.classify(texts[:1])[0]
    assert generator.abilities[:1] == ("classify",)
    assert "generate" in generator.abilities


def test_generators_choose_tag_and_answer(generator):
    if generator.config.architecture == "decoder":
        rows = [generator.tokenizer.encode(f"the {choice}") for choice in ("wall", "green bottle")]
        logits = [logits_of(generator, row, "multiple_choice") for row in rows]
        np.testing.assert_allclose(generator.choose("the", ["wall", "green bottle"]), softmax(logits), atol=1e-5)
        with pytest.raises(InputError, match="tag needs the head tagging, and this GptConfig has heads="):
            generator.tag("the wall")
    else:
        assert [word.word for word in generator.tag("the green wall")] == ["the", "green", "wall"]
        assert generator.answer("what falls?", "bottles fall").text in "bottles fall"
        with pytest.raises(InputError, match="choose needs the head multiple_choice, and this BartConfig"):
            generator.choose("the", ["wall", "bottle"])


def test_texts_that_do_not_fit(generator):
    with pytest.raises(InputError, match=r"texts\[1\] has [0-9]+ tokens"):
        generator.classify(["a", "wall " * 30])
    with pytest.raises(InputError, match="the text='' holds no token"):
        generator.classify("")


@pytest.mark.parametrize("both_orders", [False, True])
def test_gpt_reads_texts_as_it_was_fine_tuned_to(make_params, both_orders):
    """With the marks of its rows, and pairs in both orders where it learned them so."""
    tokenizer = make_tokenizer(replace(BYTES, layout="gpt2"), lambda: iter(["the wall"]))
    config = GptConfig(**SIZES, num_layers=1, heads=("classification",), num_classes=2)
    objective = CausalClassification(24, both_orders=both_orders)
    source = LabeledTexts(TableFiles(("pairs.tsv",)), texts=("a", "b"), labels=("other", "same"))
    experiment = Experiment(config, objective, Data(source), Adafactor(), steps=1, batch_size=8)
    params = make_params(config.build(), 0, jnp.ones((1, 2), jnp.int32))
    model = PretrainedDecoder(config, config.build(), params, tokenizer, experiment)
    start, delimiter, extract = range(tokenizer.vocabulary.size, tokenizer.vocabulary.size + 3)
    a, b = tokenizer.encode("wall"), tokenizer.encode("fall")
    rows = [[start, *a, delimiter, *b, extract], [start, *b, delimiter, *a, extract]]

    def apply(module):
        vectors = [module.hidden_states(jnp.array([row])) for row in rows[: 1 + both_orders]]
        return module.classification_logits(sum(vector[:, -1:] for vector in vectors))

    expected = model.module.apply({"params": params}, method=apply)
    np.testing.assert_allclose(model.task_logits([("wall", "fall")]), expected, atol=1e-5)
    assert {each.label for each in model.classify(("wall", "fall"))} == {"other", "same"}


def test_probabilities_are_those_of_transformers(generator, tmp_path, torch, transformers):
    """From texts to classes, with Transformers' own tokenizer, from the folder that a model is exported to."""
    model = replace_heads(generator, ("classification",))
    model.export(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    again = load(tmp_path)
    for text in ("a wall", ("green bottles", "fall")):
        parts = (text,) if isinstance(text, str) else text
        with torch.no_grad():
            logits = theirs(**tokenizer(*parts, return_tensors="pt")).logits[0].numpy()
        np.testing.assert_allclose(again.task_logits([text])[0], logits, atol=1e-5)
        assert again.classify(text)[0].label == f"LABEL_{logits.argmax()}"


def replace_heads(model, heads):
    """The same model with some of its heads alone."""
    config = replace(model.config, heads=heads)
    params = {name: value for name, value in model.params.items() if name not in HEADS or name in heads}
    return replace(model, config=config, module=config.build(), params=params)
