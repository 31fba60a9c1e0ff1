import numpy as np
from scipy.stats import chisquare

from t5x_lite.objectives import PrefixLanguageModel

EOS = 1


def test_every_place_to_cut_is_equally_likely(corrupted):
    raw, inputs, targets = corrupted(PrefixLanguageModel(20))
    assert inputs.shape == targets.shape == raw.shape == (2000, 20)
    prefixes = []
    for row, source, target in zip(raw.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        prefixes.append(source.index(EOS))
        assert source[: prefixes[-1]] + target[: target.index(EOS)] == row
    counts = np.bincount(prefixes)
    assert counts[0] == 0
    assert len(counts) == 20
    assert chisquare(counts[1:]).pvalue > 1e-3
