import numpy as np
from scipy.stats import chisquare

from t5x_lite.objectives import MassStyleDenoising

EOS, TOP = 1, 299


def test_masks(corrupted):
    raw, inputs, targets = corrupted(MassStyleDenoising(41, noise_density=0.15))
    assert (targets == np.pad(raw, ((0, 0), (0, 1)), constant_values=EOS)).all()
    changed = inputs[:, :-1] != raw
    assert (changed.sum(1) == 6).all()
    assert (inputs[:, :-1][changed] == TOP).all()
    assert chisquare(changed.sum(0)).pvalue > 1e-3
