"""Recall of a search, against a search by hand."""

import numpy as np
import pytest

from t5x_lite.metrics.scores import score, score_intervals
from t5x_lite.objectives import ContrastiveLanguageImage


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def predictions(images, texts):
    return ContrastiveLanguageImage().predictions(np.stack([images, texts], axis=1), {}, (), None, None)


def test_recall_is_that_of_sorting_all():
    random = np.random.default_rng(0)
    images = random.normal(size=(40, 6))
    images, texts = unit(images), unit(images + random.normal(size=(40, 6)))
    figures = score(predictions(images, texts), ("retrieval",)).figures
    cosines = images @ texts.T
    for name, table in (("text", cosines), ("image", cosines.T)):
        order = np.argsort(-table, axis=1)
        for k in (1, 5, 10):
            found = [number in order[number, :k] for number in range(40)]
            assert figures[f"{name}_recall_{k}"] == pytest.approx(np.mean(found))
    assert 0 < figures["text_recall_1"] < figures["text_recall_10"] < 1, "the case is neither trivial nor hopeless"


def test_a_model_that_gives_all_the_same_vector_finds_nothing():
    same = unit(np.ones((30, 4)))
    figures = score(predictions(same, same), ("retrieval",)).figures
    assert set(figures.values()) == {0.0}


def test_blocks_of_queries_do_not_matter(monkeypatch):
    random = np.random.default_rng(1)
    images, texts = unit(random.normal(size=(2, 11, 3)))
    whole = predictions(images, texts).predicted
    monkeypatch.setattr("t5x_lite.objectives.contrastive._QUERIES", 4)
    assert predictions(images, texts).predicted == whole


def test_intervals_hold_the_figures():
    random = np.random.default_rng(2)
    images = random.normal(size=(60, 5))
    made = predictions(unit(images), unit(images + random.normal(size=(60, 5))))
    figures, ends = score(made, ("retrieval",)).figures, score_intervals(made, ("retrieval",))
    assert ends.keys() == figures.keys()
    for name, (low, high) in ends.items():
        assert low <= figures[name] <= high
        assert high - low < 0.3
