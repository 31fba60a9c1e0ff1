import numpy as np
from scipy.stats import binomtest, chisquare

from t5x_lite.objectives import BertStyleDenoising

EOS, TOP = 1, 299


def test_masks_and_random_tokens(corrupted):
    objective = BertStyleDenoising(41, noise_density=0.15)
    raw, inputs, targets = corrupted(objective)
    assert (targets == np.pad(raw, ((0, 0), (0, 1)), constant_values=EOS)).all()
    assert (inputs[:, -1] == EOS).all()
    changed = inputs[:, :-1] != raw
    is_mask = inputs[:, :-1] == TOP
    count = 6 * 2000
    others = inputs[:, :-1][changed & ~is_mask]
    # A random token is now and then the one that it stands for.
    assert changed.sum(1).max() == 6
    assert count - 20 < changed.sum() <= count
    assert binomtest(int(is_mask.sum()), count, 0.9).pvalue > 1e-3
    # Random tokens are neither special nor sentinels.
    assert others.min() >= 3
    assert others.max() <= TOP - 100
    counts, shares = np.histogram(others, bins=[3, 50, 100, 150, 200])[0], np.array([47, 50, 50, 50]) / 197
    assert chisquare(counts, shares * len(others)).pvalue > 1e-3
    # Each position is noise as often as another.
    assert chisquare(changed.sum(0)).pvalue > 1e-3
