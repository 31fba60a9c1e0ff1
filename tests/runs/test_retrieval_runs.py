"""Whole runs with a corpus: stopped in the middle of a round, one stage after the other, evaluated, asked."""

import json
import re
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import traverse_util

import t5x_lite
from t5x_lite.cli.main import main
from t5x_lite.data import Data, JsonlFiles, OpenQuestions, TextFiles, WordPiece
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, RealmConfig
from t5x_lite.objectives import InverseCloze, MaskedLanguageModel, OpenQuestionAnswering, RetrievalMaskedLanguageModel
from t5x_lite.runs.checkpoints import steps_of_run
from t5x_lite.runs.records import read_records
from t5x_lite.training import Evaluation
from t5x_lite.training.initialization import FromModel, FromRun

# Three runs come first, each of which compiles many programs; what they do is tested by itself in objectives/.
pytestmark = pytest.mark.slow

TOWNS = ("Arlon", "Benno", "Corvo", "Delmo", "Elvas", "Fermo", "Gubbio", "Hilda", "Imola", "Jonas", "Kalmar", "Lugo")
RIVERS = ("Ro", "Sava", "Tano", "Uno", "Vara", "Weser", "Xana", "Yser", "Zaan", "Bode", "Cher", "Dora")
BERT = BertConfig(vocab_size=120, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_length=48)
MODEL = RealmConfig(BERT, projection_dim=8)
LENGTHS = {"passage_length": 24, "input_length": 16}


@pytest.fixture(scope="module")
def experiments(tiny, tmp_path_factory):
    """The three stages of an open book, without where they begin."""
    folder = tmp_path_factory.mktemp("book")
    pairs = list(zip(TOWNS, RIVERS, strict=True))
    texts = [{"text": f"The river of {town} is the {river}. People in {town} drink it."} for town, river in pairs]
    asked = [{"question": f"Which river flows through {town}?", "answers": [river]} for town, river in pairs]
    for name, records in (("texts", texts), ("asked", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    source = TextFiles((str(folder / "texts.jsonl"),))
    data = Data(source=source, tokenizer=WordPiece(vocab_size=120), held_out=0.2, cache_dir=tiny.data.cache_dir)
    base = replace(tiny, data=data, evaluation=Evaluation(every=3, rows=50), batch_size=8, steps=6)
    questions = replace(data, source=OpenQuestions(JsonlFiles((str(folder / "asked.jsonl"),))), corpus=source)
    return {
        "inverse cloze": replace(base, model=replace(MODEL, shared=True), objective=InverseCloze(16, 24)),
        "masked": replace(
            base,
            model=replace(MODEL, reader=replace(BERT, heads=("masked_lm",))),
            objective=RetrievalMaskedLanguageModel(**LENGTHS, num_retrieved=2, refresh_every=4, span_length=4),
        ),
        "questions": replace(
            base,
            model=replace(MODEL, reader=BERT, answer_dim=8),
            objective=OpenQuestionAnswering(**LENGTHS, num_retrieved=3, num_scored=10, answer_length=4),
            data=questions,
        ),
    }


@pytest.fixture(scope="module")
def folders(experiments, train, tmp_path_factory):
    """The folders of the three runs, each of which begins with the one before."""
    root, before, found = tmp_path_factory.mktemp("runs"), None, {}
    for name, experiment in experiments.items():
        started = experiment if before is None else replace(experiment, start=FromModel(str(before)))
        before = found[name] = root / name
        train(started, before, report=name == "questions")
    return found


def losses(folder, kind="train"):
    return [record["loss"] for record in read_records(folder / "metrics.jsonl") if record["kind"] == kind]


def params_of(folder):
    return traverse_util.flatten_dict(jax.device_get(t5x_lite.load(folder).params), sep="/")


def test_stopped_in_the_middle_of_a_round_and_gone_on_with_it_is_the_same_run(
    experiments, folders, train, tmp_path, stopped_after
):
    """A round has four steps; the run is stopped after three and has six."""
    experiment = replace(experiments["masked"], start=FromModel(str(folders["inverse cloze"])))
    with stopped_after(3):
        train(experiment, tmp_path, report=False)
    assert 0 < len(losses(tmp_path)) < experiment.steps
    train(experiment, tmp_path, report=False)
    assert losses(tmp_path) == losses(folders["masked"])
    assert losses(tmp_path, "held_out") == losses(folders["masked"], "held_out")
    one, other = params_of(folders["masked"]), params_of(tmp_path)
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)
    versions = [r["index_version"] for r in read_records(tmp_path / "metrics.jsonl") if r["kind"] == "train"]
    assert versions == [0, 0, 0, 1, 1, 1]


def test_each_stage_begins_with_what_the_one_before_has_learned(folders, capsys, experiments, train, tmp_path):
    train(
        replace(experiments["masked"], start=FromModel(str(folders["inverse cloze"])), steps=1), tmp_path, report=False
    )
    shared, apart = params_of(folders["inverse cloze"]), params_of(tmp_path)
    for name, value in shared.items():
        for network in ("passage_encoder", "question_encoder"):
            # One step of Adam away.
            np.testing.assert_allclose(apart[name.replace("passage_encoder", network)], value, atol=0.1)


def test_a_bert_becomes_each_network(experiments, folders, train, tmp_path):
    bert = replace(BERT, heads=("masked_lm",))
    first = replace(experiments["inverse cloze"], model=bert, objective=MaskedLanguageModel(24), steps=1)
    train(first, tmp_path / "bert", report=False)
    second = replace(experiments["masked"], start=FromModel(str(tmp_path / "bert")), steps=1)
    train(second, tmp_path / "realm", report=False)
    before, after = params_of(tmp_path / "bert"), params_of(tmp_path / "realm")
    for name, value in before.items():
        networks = ["reader"] if name.startswith("masked_lm") else ["reader", "passage_encoder/encoder"]
        for network in networks:
            np.testing.assert_allclose(after[f"{network}/{name}"], value, atol=0.1, err_msg=name)


@pytest.fixture(scope="module")
def asked(folders):
    return t5x_lite.load(folders["questions"])


def test_it_finds_passages_and_answers_from_them(asked):
    found = asked.retrieve("Which river flows through Elvas?", 12)
    assert len(found) == asked.num_passages == 12 and sorted(one.number for one in found) == list(range(12))
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    question = asked.embed_texts("Which river flows through Elvas?", questions=True)
    passages = asked.embed_texts([one.text for one in found])
    np.testing.assert_allclose(passages @ question, [one.score for one in found], rtol=1e-3, atol=1e-4)
    answer = asked.answer("Which river flows through Elvas?")
    assert [one.text for one in answer.passages] == [one.text for one in found[:3]]
    # Another program, whose sums may be rounded otherwise.
    np.testing.assert_allclose([one.score for one in answer.passages], [one.score for one in found[:3]], rtol=1e-6)
    assert answer.text.replace(" ", "") in answer.passage.text.replace(" ", "")
    assert 0 < answer.probability < 1
    assert len(asked.answer("Which river flows through Elvas?", k=1).passages) == 1
    # 23 ids are what a passage leaves of the reader's row.
    assert asked.answer("w " * 21).probability > 0


def test_a_notebook_shows_the_passages_with_the_answer_marked(asked):
    answer = asked.answer("Which river flows through Elvas?")
    page = answer._repr_html_()
    assert page.count("<tr>") == 4 and f"<mark>{answer.text}</mark>" in page
    assert repr(answer).startswith("OpenAnswer to 'Which river flows through Elvas?'")
    assert (
        re.search(r"\d", repr(asked.retrieve("a <b>", 2))) and "a &lt;b&gt;" in asked.retrieve("a <b>", 2)._repr_html_()
    )


def test_other_texts_take_the_place_of_the_corpus(asked):
    model = asked.with_texts(["Nobody lives in Roma. The moon is far.", "People drink."], passage_length=10)
    texts = [one.text.replace(" ", "") for one in model.retrieve("Who lives there?", 2)]
    assert model.num_passages == 3
    assert len(model.retrieve("Who?", 1)) == 1 and any("drink" in text for text in texts)
    with pytest.raises(InputError, match="k=9 is out of range"):
        model.retrieve("Who?", 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.retrieve(""), "question='' holds no word; write some"),
        (lambda model: model.retrieve("Who?", 13), "k=13 is out of range; choose 1 to 12, the number of passages"),
        (lambda model: model.retrieve("who " * 60), "the model takes 48; shorten it"),
        (lambda model: model.answer("Who?", 0), "k=0 is out of range"),
        (lambda model: model.answer("w " * 22), "question has 24 tokens, .* and the model takes 23; shorten it"),
        (lambda model: model.with_texts([]), r"texts=\[\] is empty"),
        (lambda model: model.with_texts(["a"], passage_length=47), "passage_length=47 is out of range"),
        (lambda model: model.with_texts([" "]), "texts hold no word"),
        (lambda model: model.generate("Who?"), "a RealmConfig has no generate; use retrieve, answer"),
        (lambda model: model.neighbours("who"), "a RealmConfig has no neighbours; use retrieve, answer"),
        (lambda model: model.plot_positions(), "a RealmConfig has no vectors of positions"),
        (lambda model: model.export("folder"), "RealmConfig"),
    ],
)
def test_what_cannot_be_asked(asked, call, message):
    with pytest.raises(InputError, match=message):
        call(asked)


def test_passages_are_found_without_the_questions(experiments, folders, tmp_path):
    """The corpus of a run is all that it needs."""
    asked = experiments["questions"].data.source.examples.paths[0]
    moved = shutil.move(asked, tmp_path)
    try:
        assert len(t5x_lite.load(folders["questions"]).retrieve("Which river flows through Elvas?", 2)) == 2
    finally:
        shutil.move(moved, asked)


def test_a_retriever_alone_has_no_answers(folders):
    model = t5x_lite.load(folders["inverse cloze"])
    assert len(model.retrieve("Which river flows through Elvas?")) == 5
    with pytest.raises(InputError, match="a RealmConfig has no answer; use retrieve"):
        model.answer("Who?")


def test_evaluate_scores_answers(folders, capsys):
    assert main(["evaluate", str(folders["questions"]), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    held_out = json.loads((folders["questions"] / "held_out.json").read_text())
    for name in ("loss", "recall", "exact_match"):
        assert figures[name] == pytest.approx(held_out[name], abs=1e-5), name
    assert 0 <= figures["squad_exact_match"] <= figures["squad_f1"] <= 100


def test_an_encoder_whose_vectors_are_kept_keeps_its_parameters(experiments, folders):
    """Whose gradient is 0, and which AdamW's weight decay would move."""
    assert experiments["questions"].optimizer.weight_decay > 0
    before, after = params_of(folders["masked"]), params_of(folders["questions"])
    changed = {name.split("/")[0] for name, value in after.items() if not np.array_equal(value, before.get(name))}
    assert changed == {"question_encoder", "reader", "answers"}


def test_a_corpus_is_needed_and_stays_the_same(experiments, folders, train, tmp_path):
    questions = experiments["questions"]
    with pytest.raises(InputError, match="data.corpus=None leaves nothing to look passages up in"):
        train(replace(questions, data=replace(questions.data, corpus=None)), tmp_path / "none", report=False)
    with pytest.raises(InputError, match="has 12 passages of 24 ids, and objective.num_retrieved=40 needs 40"):
        train(
            replace(questions, objective=replace(questions.objective, num_retrieved=40)), tmp_path / "few", report=False
        )
    slower = replace(experiments["masked"].objective, refresh_every=5)
    started = replace(experiments["masked"], objective=slower, start=FromRun(str(folders["masked"])), steps=8)
    with pytest.raises(InputError, match="one that is refreshed at another pace"):
        train(started, tmp_path / "slower", report=False)


def test_corpus_and_rows_are_prepared_once(experiments, folders, train, tmp_path):
    """As `t5x-lite prepare` does, for runs that read them alone."""
    experiment = experiments["questions"]
    data, objective = experiment.data, experiment.objective
    store = data.prepare_in(tmp_path / "prepared", objective.layout)
    data.of_corpus.prepare_in(tmp_path / "prepared", objective.corpus_layout, tokenizer=store.tokenizer)
    prepared = replace(data, prepared=str(tmp_path / "prepared"))
    layouts, tokenizer = (objective.corpus_layout, objective.layout), prepared.prepare(objective.layout).tokenizer
    passages = prepared.prepare_corpus(*layouts, tokenizer=tokenizer)
    ids = np.zeros((len(passages), 24), np.int32)
    passages.fill(ids)
    assert len(passages) == 12 and (ids > 0).any(axis=1).all()
    shorter = replace(objective, passage_length=20).corpus_layout
    with pytest.raises(InputError, match="has no rows of this data"):
        prepared.prepare_corpus(shorter, objective.layout, tokenizer=tokenizer)


def test_another_run_goes_on_from_it(experiments, folders, train, tmp_path):
    train(replace(experiments["masked"], start=FromRun(str(folders["masked"])), steps=8), tmp_path, report=False)
    assert len(losses(tmp_path)) == 2
    assert steps_of_run(tmp_path)
