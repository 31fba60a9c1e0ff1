from itertools import groupby, pairwise, zip_longest

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives import ReplaceSpans
from t5x_lite.objectives.span_corruption import replace_spans

EOS, TOP = 1, 299


def test_every_token_is_on_one_side_and_neighbours_share_a_sentinel(corrupted):
    """Either side has a sentinel for each span of the other one: merged in turns they give the raw row."""
    objective = ReplaceSpans(41, noise_density=0.3)
    raw, inputs, targets = corrupted(objective)
    assert (raw.shape[1], objective.num_noise_tokens) == (40, 12)
    numbers = []
    for row, *sides in zip(raw.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        spans = []
        for side in sides:
            side = side[: side.index(EOS)]
            assert [token for token in side if token > 200] == [TOP - n for n in range(sum(t > 200 for t in side))]
            assert not any(a > 200 and b > 200 for a, b in pairwise(side))
            spans.append([[*run] for hidden, run in groupby(side, lambda token: token > 200) if not hidden])
        kept, noise = spans
        assert sum(map(len, noise)) == 12
        first, second = (kept, noise) if sides[0][0] <= 200 else (noise, kept)
        assert sides[1][0] == (TOP if first is kept else noise[0][0])  # a target begins as its row does
        merged = [span for pair in zip_longest(first, second, fillvalue=[]) for span in pair]
        assert [token for span in merged for token in span] == row
        numbers.append(sum(token > 200 for token in sides[0]))
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
    assert max(sum(token > 200 for token in side.tolist()) for side in (inputs, targets)) == objective.most_sentinels


def test_more_spans_than_sentinels():
    assert ReplaceSpans(512).most_sentinels == 78
    ReplaceSpans(512).for_vocabulary(Vocabulary(2000, first_sentinel_id=1999, num_sentinels=78))
    with pytest.raises(InputError, match="input_length=512 .* up to 78 sentinels .* has 77; raise tokenizer.extra_ids"):
        ReplaceSpans(512).for_vocabulary(Vocabulary(2000, first_sentinel_id=1999, num_sentinels=77))
