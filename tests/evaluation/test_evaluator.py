"""Figures by the word, and scores of what is written, in a run and beside it."""

import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from rich.console import Console

import t5x_lite
from t5x_lite.data import ByteLevelBPE, Bytes, Data, SentencePiece, TableFiles, TextToText, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.evaluation import evaluator
from t5x_lite.evaluation.evaluator import Evaluator, count_words
from t5x_lite.metrics.scores import score
from t5x_lite.models import TransformerConfig
from t5x_lite.objectives import CausalLanguageModel, Predictions, SequenceToSequence, SpanCorruption
from t5x_lite.optim.optimizers import AdamW, ParameterAverage
from t5x_lite.optim.schedules import Constant
from t5x_lite.runs import loop
from t5x_lite.runs.records import read_records
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PAIRS = [(f"{a} {b}", f"{b} and {a}") for a in NUMBERS for b in NUMBERS]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    (folder / "dev.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[::7]))
    sizes = {"vocab_size": 264, "embed_dim": 16, "num_heads": 4, "mlp_dim": 24, "max_length": 64}
    return Experiment(
        model=TransformerConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1, dropout_rate=0.0),
        objective=SequenceToSequence(input_length=40, target_length=48),
        data=Data(
            TextToText(TableFiles((str(folder / "train.tsv"),), ("source", "target"))),
            Bytes(),
            held_out_source=TextToText(TableFiles((str(folder / "dev.tsv"),), ("source", "target"))),
            cache_dir=str(folder / "cache"),
        ),
        optimizer=AdamW(Constant(1e-2)),
        steps=80,
        batch_size=8,
        average=ParameterAverage(0.5),
        evaluation=Evaluation(every=40, rows=100, metrics=("bleu", "chrf", "exact_match"), num_texts=6, max_length=16),
        checkpoints=Checkpointing(every=40, keep_last=2, keep_best=0),
        logging=Logging(every=40),
    )


@pytest.fixture(scope="module")
def run(experiment, tmp_path_factory):
    """(folder, what was printed, the compiled decoding) of a run that scores what it writes."""
    folder, evaluators = tmp_path_factory.mktemp("run"), []

    class Kept(Evaluator):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            evaluators.append(self)

    with (folder / "printed.txt").open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "Evaluator", Kept)
        loop.train(experiment, folder / "run", Console(file=file, width=300), jax.devices()[:1])
    (held_out,) = evaluators
    return folder / "run", (folder / "printed.txt").read_text(), held_out


def test_scores_on_the_schedule(run):
    folder, printed, held_out = run
    records = [record for record in read_records(folder / "metrics.jsonl") if record["kind"] == "held_out"]
    assert [record["step"] for record in records] == [40, 80]
    for record in records:
        assert {"loss", "perplexity", "word_perplexity", "bleu", "chrf", "exact_match"} <= set(record)
        assert 0 <= record["bleu"] <= 100
    assert printed.count("BLEU: nrefs:1|case:mixed") == 2, "once on the way, once at the end"
    assert printed.index("BLEU: nrefs:1") < printed.index("step 80/80")
    assert "chrF" in printed
    figures = json.loads((folder / "held_out.json").read_text())
    assert figures["chrf"] == pytest.approx(records[-1]["chrf"])
    assert figures["signatures"].keys() == {"bleu", "chrf"}
    assert held_out._generator._generate.compiled._cache_size() == 1, "decoding is compiled once for all evaluations"


def test_scores_are_those_of_what_a_notebook_gets(run, experiment):
    """Of the first pairs of the held-out rows, by the average of the parameters."""
    folder, _, held_out = run
    references = [question.right[0] for question in held_out.questions]
    assert len(references) == experiment.evaluation.num_texts
    assert set(references) <= {target for _, target in PAIRS}
    sources = [{target: source for source, target in PAIRS}[reference] for reference in references]
    answers = t5x_lite.load(folder).generate(sources, max_length=16)
    expected = score(
        Predictions("texts", answers, [(text,) for text in references]), experiment.evaluation.metrics
    ).figures
    figures = json.loads((folder / "held_out.json").read_text())
    assert expected["chrf"] > 10, "it has learnt enough for the scores to say something"
    assert {name: figures[name] for name in expected} == pytest.approx(expected)


def test_perplexity_by_the_word_and_by_the_token(run):
    """Nats are those of all targets, their EOS included; words those of the file."""
    folder, _, held_out = run
    figures = json.loads((folder / "held_out.json").read_text())
    words = sum(len(target.split()) for _, target in PAIRS[::7])
    tokens = sum(len(target) + 1 for _, target in PAIRS[::7])
    assert figures["tokens"] == tokens
    assert held_out.words == words
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    assert math.log(figures["word_perplexity"]) == pytest.approx(figures["loss"] * tokens / words)


@pytest.mark.parametrize("config", [Bytes(), ByteLevelBPE(vocab_size=300), SentencePiece(vocab_size=25, extra_ids=0)])
def test_words_are_those_between_white_space(config):
    texts = ["one two  three", "four", "five, six! seven\neight"]
    tokenizer = make_tokenizer(config, lambda: iter(texts * 50))
    vocabulary = tokenizer.vocabulary
    ids = [[*encoded.tolist(), vocabulary.eos_id] for encoded in tokenizer.encode_batch(texts)]
    row = ids[0] + ids[1]
    length = max(len(row), len(ids[2])) + 2
    rows = np.array([one + [vocabulary.pad_id] * (length - len(one)) for one in (row, ids[2])])
    assert count_words(rows, tokenizer) == sum(len(text.split()) for text in texts) == 8


def test_only_texts_have_words(tiny, make_program, monkeypatch):
    """Targets of sentinels are no text."""
    rows = tiny.data.prepare(tiny.objective.layout).held_out
    held_out = Evaluator(make_program(tiny), make_tokenizer(Bytes(), None), rows)
    monkeypatch.setattr(held_out, "loss_figures", lambda params: {"loss": 1.0, "tokens": 9.0})
    assert held_out.evaluate({}).figures == {"loss": 1.0, "tokens": 9.0}
    assert SequenceToSequence.targets_are_text
    assert CausalLanguageModel.targets_are_text


def test_what_cannot_be_decoded_is_refused(tiny, experiment):
    scored = replace(tiny.evaluation, metrics=("bleu",))
    assert replace(tiny, evaluation=scored).objective == SpanCorruption(input_length=24)
    for change, message in (
        ({"metrics": ("meteor",)}, "evaluation.metrics has 'meteor', which is not known; choose accuracy"),
        ({"num_beams": 0}, "evaluation.num_beams=0 is too small"),
        ({"num_texts": 0}, "evaluation.num_texts=0 is too small"),
        ({"max_length": -1}, "evaluation.max_length=-1"),
        ({"num_beams": 265}, "evaluation.num_beams=265 is wider than the vocabulary of 264 ids"),
        ({"max_length": 65}, "evaluation.max_length=65 exceeds model.max_length=64"),
        ({"num_beams": 2, "alpha": float("nan")}, "alpha=nan is not"),
    ):
        with pytest.raises(InputError, match=message):
            replace(experiment, evaluation=replace(experiment.evaluation, **change))


def test_an_objective_without_inputs_is_refused(experiment_of, sentences):
    masked = experiment_of("teacher")
    with pytest.raises(InputError, match="metrics has 'bleu', which MaskedLanguageModel has no answers for; leave"):
        replace(masked, evaluation=replace(masked.evaluation, metrics=("bleu",)))
