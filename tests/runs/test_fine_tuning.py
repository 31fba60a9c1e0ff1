"""Fine-tuning a pretrained encoder: the head is new, all else begins as it was; the loop is that of every run."""

import io
import json
import random
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import traverse_util
from rich.console import Console

import t5x_lite
from t5x_lite.data import Choices, Data, JsonlFiles, LabeledTexts, Questions, TaggedWords
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.objectives import Classification, MultipleChoice, QuestionAnswering, Tagging
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.runs.records import read_records
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.initialization import FromModel

from ..programs import new_state

pytestmark = pytest.mark.slow  # two runs come first

LABELS = ("no", "yes")


@pytest.fixture(scope="module")
def task(tmp_path_factory, sentences):
    """`task()`: pairs of texts and whether the first one has the word "alal", by name or as a number."""
    folder, source = tmp_path_factory.mktemp("task"), random.Random(0)
    words = ["beta", "gam", "del", "iokap", "ta", "the"]
    records = []
    for _ in range(240):
        text = source.choices(words, k=4)
        label = source.random() < 0.5
        if label:
            text[source.randrange(4)] = "alal"
        records.append({"a": " ".join(text), "b": " ".join(source.choices(words, k=3)), "label": LABELS[label]})

    def write(name, some, numbers):
        path = folder / f"{name}-{numbers}.jsonl"
        values = [record | ({"label": LABELS.index(record["label"]) * 3.0} if numbers else {}) for record in some]
        path.write_text("".join(json.dumps(record) + "\n" for record in values))
        return LabeledTexts(JsonlFiles((str(path),)), ("a", "b"), labels=() if numbers else LABELS)

    def data(*, numbers=False):
        train, dev = write("train", records[:200], numbers), write("dev", records[200:], numbers)
        return Data(train, sentences.tokenizer, held_out_source=dev, cache_dir=sentences.cache_dir)

    return data


@pytest.fixture(scope="module")
def classifier(task, experiment_of, run_of) -> Experiment:
    """From the encoder of a pretraining run."""
    before = experiment_of("teacher")
    return replace(
        before,
        model=replace(before.model, heads=("classification",), num_classes=2, head_dropout_rate=0.1),
        objective=Classification(24),
        data=task(),
        start=FromModel(str(run_of("teacher"))),
        steps=60,
        batch_size=16,
        evaluation=Evaluation(every=30, rows=40),
        checkpoints=Checkpointing(every=30),
        logging=Logging(every=10),
    )


@pytest.fixture(scope="module")
def fine_tuned(classifier, tmp_path_factory, train):
    """(workdir, what it printed) of a whole run."""
    workdir, printed = tmp_path_factory.mktemp("fine_tuned"), io.StringIO()
    train(classifier, workdir, console=Console(file=printed, width=400))
    return workdir, printed.getvalue()


def test_a_run_learns_its_task_and_says_what_was_new(fine_tuned):
    workdir, printed = fine_tuned
    assert "random are classification/scores/bias, classification/scores/kernel" in printed.replace(
        "classification/scores/kernel, classification/scores/bias",
        "classification/scores/bias, classification/scores/kernel",
    )
    figures = json.loads((workdir / "held_out.json").read_text())
    assert set(figures) == {"loss", "accuracy", "examples", "constant_loss"}
    assert figures["examples"] == 40
    assert figures["loss"] < 0.5 * figures["constant_loss"]
    assert figures["accuracy"] > 0.9
    samples = (workdir / "samples.txt").read_text()
    assert samples.count("label:  ") == samples.count("model:  ") == 5
    assert samples.count("text:   ") == 10
    assert "an example (a guess: 0.6" in printed


def test_stopped_and_gone_on_with_it_is_the_same_run(fine_tuned, classifier, train, tmp_path):
    train(replace(classifier, steps=30), tmp_path)
    train(classifier, tmp_path)
    ours, expected = (
        traverse_util.flatten_dict(jax.device_get(t5x_lite.load(folder).params), sep="/")
        for folder in (tmp_path, fine_tuned[0])
    )
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    losses = [
        [record["loss"] for record in read_records(folder / "metrics.jsonl") if record["kind"] == "train"]
        for folder in (tmp_path, fine_tuned[0])
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("num_classes", [2, 1])
def test_eight_devices_are_one(classifier, task, share_program, num_classes):
    model = replace(classifier.model, num_classes=num_classes)
    experiment = replace(classifier, model=model, data=task(numbers=num_classes == 1))
    tokenizer = t5x_lite.load(classifier.start.folder).tokenizer
    store = experiment.data.prepare(experiment.objective.layout, tokenizer=tokenizer)
    raw = stack(store.train[:16])

    def figures(mesh, devices):
        objective = experiment.objective.for_vocabulary(tokenizer.vocabulary)
        program = share_program(replace(experiment, mesh=mesh), objective, make_mesh(mesh, jax.devices()[:devices]))
        _, metrics = program.train_step(new_state(program), raw)
        return {name: float(value) for name, value in metrics.items()}

    one, eight = figures(MeshShape(), 1), figures(MeshShape(2, 2, 2), 8)
    assert one.keys() == eight.keys()
    for name, value in one.items():
        assert eight[name] == pytest.approx(value, rel=1e-5), name


def test_classes_that_are_not_those_of_the_model(classifier):
    with pytest.raises(InputError, match="model.num_classes=3 does not go with the data, which has 2 classes"):
        replace(classifier, model=replace(classifier.model, num_classes=3))


def test_text_without_labels_is_refused(classifier, sentences):
    with pytest.raises(InputError, match="learns labels, which the data has not; give LabeledTexts"):
        replace(classifier, data=sentences)


@pytest.fixture(scope="module")
def annotated(tmp_path_factory, sentences):
    """`annotated(kind)`: tags of words, questions on texts, or choices, which the word "alal" decides, as `Data`."""
    folder, source = tmp_path_factory.mktemp("annotated"), random.Random(0)
    words = ["beta", "gam", "del", "iokap", "ta", "the"]

    def tags():
        text = source.choices([*words, "alal"], k=6)
        kinds = {"alal": "B-A", "the": "B-B"}
        return {"tokens": text, "tags": [kinds.get(word, "O") for word in text]}

    def questions(number):
        text = source.choices(words, k=12)
        record = {"id": f"q{number}", "context": " ".join(text), "question": "the alal", "answers": [], "starts": []}
        if number % 4:
            position = source.randrange(12)
            text[position] = "alal"
            start = len(" ".join(text[:position])) + bool(position)
            record |= {"context": " ".join(text), "answers": ["alal"], "starts": [start]}
        return record

    def choices():
        label = source.randrange(3)
        answers = [" ".join(source.choices(words, k=2)) for _ in range(3)]
        answers[label] += " alal"
        return {"context": " ".join(source.choices(words, k=3)), "choices": answers, "label": label}

    def data(kind):
        make = {"tags": lambda _: tags(), "questions": questions, "choices": lambda _: choices()}[kind]
        path = folder / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(make(number)) + "\n" for number in range(240)))
        examples = JsonlFiles((str(path),))
        corpus = {
            "tags": TaggedWords(examples, ("O", "B-A", "B-B")),
            "questions": Questions(examples),
            "choices": Choices(examples),
        }[kind]
        return Data(corpus, sentences.tokenizer, held_out=0.15, cache_dir=sentences.cache_dir)

    return data


TASKS = {
    "tags": (Tagging(24), ("entities", "strict_entities"), "entities_f1", 0.9),
    "questions": (QuestionAnswering(24, 6, 6), ("squad2",), "squad2_best_f1", 90.0),
    "choices": (MultipleChoice(24, 3), ("accuracy", "macro_f1"), "macro_f1", 0.9),
}


@pytest.mark.parametrize("kind", TASKS)
def test_tasks_on_words_texts_and_choices_are_learned(kind, classifier, annotated, train, tmp_path):
    objective, metrics, figure, enough = TASKS[kind]
    experiment = replace(
        classifier,
        model=replace(classifier.model, heads=(objective.head,), num_classes=3),
        objective=objective,
        data=annotated(kind),
        steps=60,
        evaluation=Evaluation(every=0, rows=200, metrics=metrics),
    )
    train(experiment, tmp_path)
    figures = json.loads((tmp_path / "held_out.json").read_text())
    assert figures["loss"] < 0.5 * figures["constant_loss"]
    assert figures[figure] > enough, figures
    samples = (tmp_path / "samples.txt").read_text()
    assert samples.count("--- held-out example ") == 5
    assert "alal" in samples
