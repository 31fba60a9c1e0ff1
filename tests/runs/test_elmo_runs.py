"""ELMo from words to tasks: a run that begins with a pretrained one, and reads characters where that numbered words."""

import io
import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import traverse_util
from rich.console import Console

import t5x_lite
from t5x_lite.cli.main import main
from t5x_lite.data import ConllFiles, Data, TaggedWords, TextFiles, WordCharacters, WordPiece, Words
from t5x_lite.errors import InputError
from t5x_lite.models import ElmoConfig
from t5x_lite.objectives import BidirectionalLanguageModel, Tagging
from t5x_lite.training import Evaluation
from t5x_lite.training.initialization import FromModel, FromScratch

# A run comes first; what it trains is tested by itself in models/ and objectives/.
pytestmark = pytest.mark.slow

MODEL = ElmoConfig(
    character_dim=4,
    filters=((1, 4), (2, 4)),
    num_highway_layers=1,
    units=8,
    projection=6,
    max_characters=10,
    num_words=30,
)
HEADS = ("tagging", "classification", "multiple_choice", "question_answering")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("elmo")
    (path / "text.txt").write_text("\n".join(f"Anna saw {n} cats in Rome, and Bert saw none." for n in range(60)))
    sentences = [f"{name} O-\nsaw O-\nRome B-PLACE\n. O-\n".replace("O-", "O") for name in ("Anna", "Bert") * 20]
    (path / "names.conll").write_text("\n".join(sentences))
    return path


@pytest.fixture(scope="module")
def pretrained(tiny, train, folder):
    experiment = replace(
        tiny,
        model=MODEL,
        objective=BidirectionalLanguageModel(6, max_characters=10, num_samples=5),
        data=Data(
            TextFiles((str(folder / "text.txt"),)), Words(30, split="punctuation"), 0.2, cache_dir=str(folder / "cache")
        ),
        steps=2,
        evaluation=Evaluation(every=0, rows=20),
    )
    train(experiment, folder / "words", report=False)
    return experiment


@pytest.fixture(scope="module")
def tagger(pretrained, train, folder):
    source = TaggedWords(ConllFiles((str(folder / "names.conll"),)), ("O", "B-PLACE"))
    experiment = replace(
        pretrained,
        model=replace(MODEL, num_words=0, heads=HEADS, num_classes=2),
        objective=Tagging(32),
        data=Data(source, WordCharacters(), 0.2, cache_dir=str(folder / "cache")),
        start=FromModel(str(folder / "words")),
        steps=2,
    )
    printed = io.StringIO()
    train(experiment, folder / "tags", console=Console(file=printed, width=400))
    return t5x_lite.load(folder / "tags"), printed.getvalue()


def flat(model):
    return traverse_util.flatten_dict(jax.device_get(model.params), sep="/")


def test_it_begins_with_the_pretrained_parameters_and_its_own_tokenizer(tagger, folder):
    model, said = tagger
    before, after = flat(t5x_lite.load(folder / "words")), flat(model)
    taken = before.keys() - {"output/embedding", "output_bias"}
    assert taken == {path for path in after if path.split("/")[0] not in (*HEADS, "mixture")}
    # Two small steps away.
    assert max(np.abs(before[path] - after[path]).max() for path in taken) < 0.1
    assert model.tokenizer.vocabulary.size == 261
    assert "random are" in said
    assert "mixture/*" in said
    assert "not taken are output" in said


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_it_tags_answers_and_gives_vectors(tagger):
    model, _ = tagger
    assert model.abilities == ("encode_words", "classify", "choose", "tag", "answer")
    words = ["Zoë", "saw", "Rome", "."]
    tagged = model.tag([words])[0]
    assert [one.word for one in tagged] == words
    assert {one.tag for one in tagged} <= {"O", "B-PLACE"}
    # The same words by the other way in: the mixture of the layers, and the head on it.
    layers, parts = model.encode_words([words])[0], model.params["mixture"]
    mixed = parts["gamma"] * np.einsum("n,nwe->we", jax.nn.softmax(parts["s"]), layers)
    head = model.params["tagging"]["scores"]
    best = (mixed @ head["kernel"] + head["bias"][None]).argmax(axis=-1)
    assert [one.tag for one in tagged] == [("O", "B-PLACE")[n] for n in best]
    context = "Anna saw Rome, and Bert saw none of it."
    found = model.answer("Who saw Rome?", context)
    assert found.text in context
    assert sum(model.choose("Anna saw", ["Rome", "Bert"])) == pytest.approx(1.0, rel=1e-5)
    assert {label for label, _ in model.classify("Anna saw Rome")} == {"O", "B-PLACE"}


def test_it_is_evaluated(tagger, folder, capsys):
    assert main(["evaluate", str(folder / "tags"), "--json"]) == 0
    assert "entities_f1" in json.loads(capsys.readouterr().out.splitlines()[-1])


def test_another_tokenizer_is_one_sentence(tagger, train, tmp_path):
    experiment = tagger[0].experiment
    data = replace(experiment.data, tokenizer=WordPiece(90))
    with pytest.raises(InputError, match=r"set data.tokenizer to WordCharacters\(\)"):
        train(replace(experiment, start=FromScratch(), data=data), tmp_path / "run")
