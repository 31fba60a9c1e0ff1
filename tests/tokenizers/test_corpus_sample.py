import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.tokenizers import training


def test_long_lines_are_cut_not_dropped():
    cut = list(training._sentences(["猫" * 2500, "word " * 900]))
    assert "".join(cut[:3]) == "猫" * 2500
    assert " ".join(cut[3:]).split() == ["word"] * 900
    assert max(map(len, cut)) <= 1000


def test_a_large_corpus_is_sampled_evenly(monkeypatch):
    monkeypatch.setattr(training, "_MAX_SENTENCES", 1000)
    numbers = [int(text) for text in training.sample_sentences(map(str, range(20_000)))]
    assert 500 <= len(numbers) <= 1000
    assert numbers == sorted(numbers)
    assert 8_000 < np.mean(numbers) < 12_000
    monkeypatch.setattr(training, "_MAX_CHARACTERS", 900)
    assert sum(map(len, training.sample_sentences(map(str, range(20_000))))) <= 900


@pytest.mark.parametrize("texts", [[], ["  ", "\n"]])
def test_an_empty_corpus(texts):
    with pytest.raises(InputError, match="corpus is empty"):
        training.sample_sentences(texts)
