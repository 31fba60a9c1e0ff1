import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.decoding import Greedy, decode
from t5x_lite.objectives.losses import shift_right

LENGTH = 8
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.integers(3, 384, size=(4, 11)).astype(np.int32)
VALID = np.arange(11)[None, :] < np.array([[11], [4], [1], [7]])
NEVER = 383  # an id that the model does not generate here, so that no row ends


def greedy(model, inputs, *, start_id=0, pad_id=0, **options):
    start_ids = jnp.full(len(inputs), start_id, jnp.int32)
    decoded = decode(*model, jnp.asarray(inputs), method=Greedy(), start_ids=start_ids, pad_id=pad_id, **options)
    return np.asarray(decoded.ids)[:, 0]


@pytest.fixture(scope="module")
def generated(t5):
    ids = greedy(t5, INPUTS, max_length=LENGTH, inputs_valid=jnp.asarray(VALID), eos_id=NEVER)
    assert NEVER not in ids
    assert len(np.unique(ids)) > 6  # the rows differ, and so do the steps
    return ids


def test_equals_argmax_of_the_teacher_forced_model(generated, t5_logits):
    logits = t5_logits(INPUTS, shift_right(jnp.asarray(generated), 0), VALID)
    np.testing.assert_array_equal(logits.argmax(-1), generated)


def test_a_row_ends_with_eos_and_padding(t5, generated):
    # A token that ends some row early, but not at once.
    row, step = next((r, s) for r in range(4) for s in (2, 3, 4) if generated[r, s] not in generated[r, :s])
    eos = int(generated[row, step])
    ids = greedy(t5, INPUTS, max_length=LENGTH, inputs_valid=jnp.asarray(VALID), eos_id=eos, pad_id=2)
    for got, full in zip(ids, generated, strict=True):
        places = np.flatnonzero(full == eos)
        end = places[0] + 1 if len(places) else LENGTH
        np.testing.assert_array_equal(got[:end], full[:end])
        assert (got[end:] == 2).all()
    assert (ids[row] == 2).any()


def test_a_row_is_the_same_alone_and_without_its_padding(t5, generated):
    alone = greedy(t5, INPUTS[1:2, :4], max_length=LENGTH, eos_id=NEVER)
    np.testing.assert_array_equal(alone[0], generated[1])


def test_padding_ids_and_order_of_the_batch_do_not_matter(t5, generated):
    order = [2, 0, 3, 1]
    inputs = np.where(VALID, INPUTS, 0)[order]
    ids = greedy(t5, inputs, max_length=LENGTH, inputs_valid=jnp.asarray(VALID[order]), eos_id=NEVER)
    np.testing.assert_array_equal(ids, generated[order])


def test_start_id_is_what_the_decoder_sees_first(t5, t5_logits, generated):
    first = greedy(t5, INPUTS, max_length=1, inputs_valid=jnp.asarray(VALID), start_id=77, eos_id=NEVER)
    logits = t5_logits(INPUTS, np.full((4, LENGTH), 77, np.int32), VALID)
    np.testing.assert_array_equal(first[:, 0], logits[:, 0].argmax(-1))
