import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.decoding import BeamSearch, Greedy, Sampling, decode
from t5x_lite.errors import InputError

EOS, PAD = 1, 0
INPUTS = jnp.array([[3], [40], [77], [12], [60], [91]], jnp.int32)


def run(model, method=Greedy(), *, start_ids=None, length=9, **options):  # noqa: B008 (a value)
    start_ids = jnp.zeros(len(INPUTS), jnp.int32) if start_ids is None else start_ids
    options = {"eos_id": EOS, "pad_id": PAD} | options
    decoded = decode(*model, INPUTS, method=method, start_ids=start_ids, max_length=length, **options)
    return np.asarray(decoded.ids)[:, 0], np.asarray(decoded.scores)[:, 0]


def cut(ids):
    row = ids.tolist()
    return row[: row.index(EOS) + 1] if EOS in row else row


def test_greedy_takes_the_best_and_scores_it(model, log_probabilities):
    ids, scores = run(model, pad_id=4)
    for state, row, score in zip(INPUTS[:, 0].tolist(), ids, scores, strict=True):
        text = cut(row)
        assert (row[len(text) :] == 4).all()
        assert score == pytest.approx(log_probabilities(state, text).sum(), abs=1e-5)
        for place, token in enumerate(text):
            others = [log_probabilities(state, [*text[:place], other])[-1] for other in range(6)]
            assert int(np.argmax(others)) == token
    assert len({len(cut(row)) for row in ids}) > 1


def test_what_comes_first_and_last_and_never(model):
    plain, _ = run(model)
    ids, _ = run(model, forced_first_id=2, forced_last_id=EOS, suppressed_ids=(3, 5))
    assert (ids[:, 0] == 2).all()
    assert (plain[:, 0] != 2).any()
    assert not np.isin(ids, [3, 5]).any()
    assert all(cut(row)[-1] == EOS for row in ids)
    never, _ = run(model, eos_id=None)
    assert never.shape == (6, 9)
    np.testing.assert_array_equal(never[:, 0], plain[:, 0])
    assert any(EOS in row[:-1].tolist() and len(row) > len(cut(row)) and row[-1] != PAD for row in never)


def test_other_ids_that_end_a_text(model):
    plain, _ = run(model)
    ids, _ = run(model, stop_ids=(3, 4))
    for row, whole in zip(ids.tolist(), plain.tolist(), strict=True):
        end = min([whole.index(one) + 1 for one in (EOS, 3, 4) if one in whole], default=len(whole))
        assert row[:end] == whole[:end] and not any(row[end:])
    assert np.isin(ids, [3, 4]).any() and (ids != plain).any()


def test_each_row_has_its_own_start(model):
    plain, _ = run(model)
    ids, _ = run(model, start_ids=jnp.array([0, 5, 0, 2, 0, 4], jnp.int32))
    np.testing.assert_array_equal(ids[::2], plain[::2])
    assert (ids[1::2] != plain[1::2]).any()


@pytest.mark.parametrize("method", [Greedy(), Sampling(), BeamSearch(2, early_stopping=True)], ids=str)
def test_it_stops_when_all_rows_have_ended(model, method):
    module, steps = type(model[0]), []

    class Counting(module):
        def decode_step(self, tokens, cache, index):
            jax.debug.callback(lambda: steps.append(1))
            return super().decode_step(tokens, cache, index)

    ids, _ = run((Counting(), model[1]), method, length=500, key=jax.random.key(0))
    jax.effects_barrier()
    longest = max(len(cut(row)) for row in ids)
    assert longest <= len(steps) < 500
    if method == Greedy():
        assert len(steps) == longest


def test_no_length_at_all(model):
    with pytest.raises(InputError, match="max_length=0 is too small; choose 1 or more"):
        run(model, length=0)
