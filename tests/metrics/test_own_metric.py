"""A metric of one's own, in one file outside the package."""

import json
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from rich.console import Console

from t5x_lite.cli.commands.evaluate import evaluate
from t5x_lite.data import Bytes, Data, TableFiles, TextToText
from t5x_lite.errors import InputError
from t5x_lite.evaluation.figures import format_figure
from t5x_lite.metrics import Metric
from t5x_lite.metrics.scores import score, score_intervals
from t5x_lite.models import BertConfig, TransformerConfig
from t5x_lite.objectives import MaskedLanguageModel, Predictions, SequenceToSequence
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.runs import loop
from t5x_lite.runs.records import read_records
from t5x_lite.training import Evaluation, Experiment


@dataclass(frozen=True)
class FirstLetter(Metric):
    """Per cent of texts that begin as a correct one does."""

    name = "first_letter"
    compares = ("texts",)
    scale = "percent"
    letters: int = 1

    def compute(self, predictions: Predictions) -> float:
        same = [
            said[: self.letters] in {text[: self.letters] for text in texts}
            for said, texts in zip(predictions.predicted, predictions.references, strict=True)
        ]
        return 100 * sum(same) / len(same)


@dataclass(frozen=True)
class Distance(Metric):
    name = "distance"
    compares = ("classes", "numbers")

    def compute(self, predictions: Predictions) -> float:
        return float(np.abs(np.subtract(predictions.predicted, predictions.references)).mean())


def test_texts_have_its_figure_and_interval_beside_those_of_others():
    said, right = ["apple", "bear", "car", "dog"] * 10, [("ant", "x"), ("b",), ("d", "e"), ("dot",)] * 10
    texts = Predictions("texts", said, right)
    scores = score(texts, ("exact_match", FirstLetter()))
    assert scores.figures == {"exact_match": 0.0, "first_letter": 75.0}
    assert score(texts, (FirstLetter(2),)).figures == {"first_letter": 25.0}
    low, high = score_intervals(texts, ("exact_match", FirstLetter()))["first_letter"]
    assert low < 75.0 < high
    assert format_figure("first_letter", 75.0, scores.metrics["first_letter"]) == "first letter 75.0"


def test_predictions_of_a_head_have_its_figure_and_interval():
    predictions = Predictions("classes", [0, 1, 2, 2], [0, 1, 1, 0])
    assert score(predictions, ("accuracy", Distance())).figures == {"accuracy": 0.5, "distance": 0.75}
    ends = score_intervals(predictions, ("accuracy", Distance()))
    assert ends["distance"][0] < 0.75 < ends["distance"][1]


def test_texts_are_read_as_what_it_compares():
    """As those of the package: words as classes."""
    texts = Predictions("texts", ["b", "c ", "a"], [("a",), ("c",), ("c",)], words=("a", "b", "c"))
    assert score(texts, (Distance(),)).figures == {"distance": 1.0}


def test_an_experiment_with_it_is_written_and_read(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n")
    sizes = {"vocab_size": 264, "embed_dim": 16, "num_heads": 4, "mlp_dim": 24, "max_length": 64}
    experiment = Experiment(
        TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, **sizes),
        SequenceToSequence(16, 16),
        Data(TextToText(TableFiles((str(tmp_path / "train.tsv"),), ("source", "target"))), Bytes()),
        AdamW(Constant(1e-3)),
        steps=1,
        batch_size=2,
        evaluation=Evaluation(metrics=("bleu", FirstLetter(2))),
    )
    assert Experiment.from_json(experiment.to_json()) == experiment
    masked = {"model": BertConfig(**sizes, num_layers=1, heads=("masked_lm",)), "objective": MaskedLanguageModel(16)}
    with pytest.raises(InputError, match="metrics has 'first_letter', which MaskedLanguageModel .* leave it out"):
        replace(experiment, **masked, evaluation=Evaluation(metrics=(FirstLetter(),)))


@pytest.mark.slow
def test_training_records_it_and_evaluate_gives_its_interval(tmp_path, capsys):
    (tmp_path / "train.tsv").write_text("".join(f"{n}\t{n} {n}\n" for n in range(40)))
    sizes = {"vocab_size": 264, "embed_dim": 16, "num_heads": 4, "mlp_dim": 24, "max_length": 32}
    experiment = Experiment(
        TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, **sizes),
        SequenceToSequence(16, 16),
        Data(
            TextToText(TableFiles((str(tmp_path / "train.tsv"),), ("source", "target"))),
            Bytes(),
            held_out=0.2,
            cache_dir=str(tmp_path / "cache"),
        ),
        AdamW(Constant(1e-3)),
        steps=2,
        batch_size=4,
        evaluation=Evaluation(every=1, metrics=(FirstLetter(),), max_length=4, num_texts=4),
    )
    with open(tmp_path / "console.txt", "w") as file:
        loop.train(experiment, tmp_path / "run", Console(file=file), jax.devices()[:1])
    records = [record for record in read_records(tmp_path / "run/metrics.jsonl") if record["kind"] == "held_out"]
    assert records and all(0.0 <= record["first_letter"] <= 100.0 for record in records)
    evaluate([str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--json"])
    assert "first_letter" in json.loads(capsys.readouterr().out.splitlines()[-1])["intervals"]
