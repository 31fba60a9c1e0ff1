from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives import ReplaceSpans
from t5x_lite.objectives.span_corruption import replace_spans

EOS, TOP = 1, 299


def test_every_token_is_on_one_side_and_neighbours_share_a_sentinel(corrupted):
    """Putting the spans of the target in place of the sentinels gives the raw row; only neighbours share one."""
    objective = ReplaceSpans(41, noise_density=0.3)
    raw, inputs, targets = corrupted(objective)
    assert (raw.shape[1], objective.num_noise_tokens) == (40, 12)
    numbers = []
    for row, source, target in zip(raw.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        source, target = source[: source.index(EOS)], target[: target.index(EOS)]
        spans = {}
        for token in target:
            if token > 200:
                current = spans.setdefault(token, [])
            else:
                current.append(token)
        names = list(spans)
        assert names == [TOP - number for number in range(len(names))]
        assert sum(map(len, spans.values())) == 12
        numbers.append(sum(token > 200 for token in source))
        # One more closes the target unless the row ends with noise.
        assert len(names) == numbers[-1] + (source[-1] <= 200)
        assert not any(a > 200 and b > 200 for a, b in pairwise(source))
        restored = []
        for token in source:
            restored += spans[token] if token > 200 else [token]
        assert restored == row
    assert max(numbers) <= 12
    # A token is the first of a span if it is noise and the one before it is not.
    expected = 12 / 40 + 39 * (12 / 40) * (28 / 39)
    assert np.mean(numbers) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("noise_density", "noise"),
    [(0.15, ".n.n......."), (0.5, "n.n.n.n.n.n"), (0.45, ".n.n.n.n.n."), (0.7, "n.n.n.nnnnn")],
)
def test_the_most_spans_that_there_can_be_fit(t5_vocabulary, noise_density, noise):
    objective = ReplaceSpans(12, noise_density=noise_density)
    assert noise.count("n") == objective.num_noise_tokens
    mask = jnp.array([letter == "n" for letter in noise])
    lengths = objective.input_length, objective.target_length
    inputs, targets = replace_spans(jnp.arange(10, 21), mask, t5_vocabulary, *lengths)
    assert targets[-1] == EOS
    assert inputs.tolist().count(EOS) == targets.tolist().count(EOS) == 1
    assert len({token for token in targets.tolist() if token > 200}) == objective.most_sentinels


def test_more_spans_than_sentinels():
    assert ReplaceSpans(512).most_sentinels == 78
    ReplaceSpans(512).for_vocabulary(Vocabulary(2000, first_sentinel_id=1999, num_sentinels=78))
    with pytest.raises(InputError, match="input_length=512 .* up to 78 sentinels .* has 77; raise tokenizer.extra_ids"):
        ReplaceSpans(512).for_vocabulary(Vocabulary(2000, first_sentinel_id=1999, num_sentinels=77))
