import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.decoding import BeamSearch, Greedy, decode
from t5x_lite.errors import InputError

from ..slow import mostly_slow

EOS, PAD = 1, 0
INPUTS = np.array([[3], [40], [77], [12], [60], [91]], np.int32)


def run(model, method, inputs=INPUTS, *, length=4, **options):
    start = jnp.full(len(inputs), PAD, jnp.int32)
    options = {"eos_id": EOS, "pad_id": PAD} | options
    decoded = decode(*model, jnp.asarray(inputs), method=method, start_ids=start, max_length=length, **options)
    return np.asarray(decoded.ids), np.asarray(decoded.scores)


def cut(ids, eos=EOS):
    """The ids of a row up to its EOS."""
    row = ids.tolist()
    return tuple(row[: row.index(eos) + 1] if eos in row else row)


def penalised(texts, alpha):
    """(score, text), best first: Wu et al. 2016, equation 14, without the coverage term."""
    scores = [(value / ((5 + len(text)) / 6) ** alpha, text) for text, value in texts.items()]
    return sorted(scores, reverse=True)


@pytest.mark.parametrize("alpha", mostly_slow([0.0, 0.6, 1.5, -0.5], 0.6))
def test_a_search_as_wide_as_needed_finds_the_best_of_all_texts(model, every_text, alpha):
    """Of 6 tokens there are 125 beginnings of length 3 without EOS."""
    method = BeamSearch(num_beams=125, alpha=alpha, num_results=4, exhaustive_eos=True)
    ids, scores = run(model, method)
    for row, state in enumerate(INPUTS[:, 0]):
        expected = penalised(every_text(int(state), 4), alpha)[:4]
        assert [cut(one) for one in ids[row]] == [text for _, text in expected]
        np.testing.assert_allclose(scores[row], [score for score, _ in expected], atol=1e-5)


@pytest.mark.parametrize("alpha", mostly_slow([0.0, 2.0], 2.0))
def test_a_beam_of_one_is_greedy(model, alpha):
    """Which is stopped by its first EOS, though a longer text might do better."""
    greedy, score = run(model, Greedy(), length=9)
    method = BeamSearch(num_beams=1, alpha=alpha)
    ids, scores = run(model, method, length=9)
    np.testing.assert_array_equal(ids, greedy)
    lengths = [len(cut(row[0])) for row in ids]
    assert len(set(lengths)) > 2, "texts end at several lengths"
    np.testing.assert_allclose(scores[:, 0], score[:, 0] / [method.length_penalty(n) for n in lengths], atol=1e-5)


def reference(log_probabilities, state, method, length):
    """Beam search in plain Python, a list of (log-probability, text) at a time."""
    beams, running, ended = method.num_beams, [(0.0, ())], []
    for n in range(1, length + 1):
        longer = [
            (log_probabilities(state, [*text, token]).sum(), (*text, token))
            for _, text in running
            for token in range(6)
        ]
        best = sorted(longer, reverse=True)[: 2 * beams]
        ends = [n == length or text[-1] == EOS for _, text in best]
        ended += [(v / method.length_penalty(n), t) for (v, t), end in zip(best[:beams], ends, strict=False) if end]
        ended = sorted(ended, reverse=True)[:beams]
        running = [one for one, end in zip(best, ends, strict=True) if not end][:beams]
        penalty = max(method.length_penalty(n + 1), method.length_penalty(length))
        cannot = not running or running[0][0] / penalty <= ended[-1][0] if len(ended) == beams else False
        if len(ended) == beams and (method.early_stopping or cannot):
            break
    return ended


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_narrow_beams_and_n_best_against_plain_python(model, log_probabilities, alpha, early_stopping):
    method = BeamSearch(num_beams=3, alpha=alpha, early_stopping=early_stopping, num_results=3)
    ids, scores = run(model, method, length=12)
    assert (np.diff(scores, axis=1) <= 0).all()
    for row, state in enumerate(INPUTS[:, 0]):
        expected = reference(log_probabilities, int(state), method, 12)
        assert [cut(one) for one in ids[row]] == [text for _, text in expected]
        np.testing.assert_allclose(scores[row], [score for score, _ in expected], atol=1e-5)


def test_early_stopping_and_penalties_make_a_difference(model):
    results = [
        run(model, BeamSearch(num_beams=3, **options), length=12)[0]
        for options in ({"alpha": 0.0}, {"alpha": 2.0}, {"alpha": 2.0, "early_stopping": True}, {"length_power": 2.0})
    ]
    for index, one in enumerate(results):
        for other in results[:index]:
            assert (one != other).any()


def test_padding_stands_behind_eos_and_nowhere_else(model):
    ids, _ = run(model, BeamSearch(num_beams=3, num_results=3), length=12, pad_id=5)
    for row in ids.reshape(-1, 12):
        end = len(cut(row))
        assert (row[end:] == 5).all()
    assert any(EOS in row for row in ids[:, 0])


def test_maximum_length(model):
    """Texts that have not ended count as ended there, and compete with those that have."""
    ids, scores = run(model, BeamSearch(num_beams=4, num_results=4), length=2)
    assert np.isfinite(scores).all()
    assert {len(cut(row)) for row in ids.reshape(-1, 2)} == {1, 2}
    assert any(EOS not in row for row in ids.reshape(-1, 2))
    never = run(model, BeamSearch(num_beams=4), length=9, eos_id=None)[0]
    assert (EOS in never) or (never >= 0).all()
    assert never.shape == (6, 1, 9)


@pytest.mark.parametrize("exhaustive_eos", [False, True])
def test_forced_and_suppressed_ids(model, log_probabilities, exhaustive_eos):
    """Forced tokens cost nothing, and what is suppressed is not shared out among the others."""
    method = BeamSearch(num_beams=3, alpha=0.0, num_results=3, exhaustive_eos=exhaustive_eos)
    limits = {"forced_first_id": 4, "forced_last_id": EOS, "suppressed_ids": (PAD, 3)}
    ids, scores = run(model, method, length=3, **limits)
    for row, state in enumerate(INPUTS[:, 0]):
        for text, score in zip(map(cut, ids[row]), scores[row], strict=True):
            assert text[0] == 4
            assert text[-1] == EOS
            assert not {PAD, 3} & set(text)
            asked = log_probabilities(int(state), list(text))[1 : 2 if len(text) == 3 else None]
            assert score == pytest.approx(asked.sum(), abs=1e-5)
    assert {len(cut(row)) for row in ids.reshape(-1, 3)} == {2, 3}


def test_rows_do_not_depend_on_each_other(model):
    method = BeamSearch(num_beams=3, num_results=2)
    ids, scores = run(model, method, length=12)
    order = [4, 1, 5]
    some, their_scores = run(model, method, INPUTS[order], length=12)
    np.testing.assert_array_equal(some, ids[order])
    np.testing.assert_array_equal(their_scores, scores[order])


def test_fewer_texts_than_asked_for(model):
    ids, scores = run(model, BeamSearch(num_beams=6, num_results=6), length=1, suppressed_ids=(2, 3, 4))
    assert (scores[:, :3] > -np.inf).all()
    assert (scores[:, 3:] == -np.inf).all()
    assert (ids[:, 3:] == PAD).all()


def test_a_beam_wider_than_the_vocabulary(model):
    with pytest.raises(InputError, match="num_beams=7 is wider than the vocabulary of 6 ids; choose 6 or fewer"):
        run(model, BeamSearch(num_beams=7))
