import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.layers.big_bird import BigBird
from t5x_lite.models import BertConfig

from ..programs import like_new

FIRST = [7, 3, 8, 1, 1, 0, 8, 4, 6]
"""What the first seed draws, by any release of NumPy."""


def test_random_blocks_are_none_of_those_around_a_block_and_all_different():
    table = np.asarray(BigBird(4, 3, 3).random_blocks(2, 3, 64))
    assert table.shape == (2, 3, 14, 3)
    assert table.min() == 0 and table.max() == 13
    blocks = np.arange(14)[None, None, :, None]
    assert (np.abs(table - blocks) > 1).all()
    assert all(len(set(row)) == 3 for row in table.reshape(-1, 3).tolist())
    # Of 11 or 12 blocks, by each of six heads: no two heads have the same.
    assert len({one.tobytes() for one in table.reshape(6, 14, 3)}) == 6


def test_the_seed_alone_draws_them():
    table = BigBird(4, 1).random_blocks(1, 1, 44)
    assert table.tolist() == BigBird(4, 1).random_blocks(1, 1, 41).tolist()
    assert table.tolist() != BigBird(4, 1, seed=1).random_blocks(1, 1, 44).tolist()
    assert BigBird(4, 1, seed=2**40).random_blocks(1, 1, 44).tolist() != table.tolist()
    assert table[0, 0, :, 0].tolist() == FIRST


def test_short_rows_attend_to_all_tokens():
    assert BigBird().random_blocks(1, 1, 11 * 64) is None
    assert BigBird().random_blocks(1, 2, 11 * 64 + 1).shape == (1, 2, 10, 3)


def test_bad_sizes_are_refused():
    with pytest.raises(InputError, match="num_window_blocks=2 is not odd, .*; choose 3"):
        BigBird(num_window_blocks=2)
    with pytest.raises(InputError, match="num_global_tokens=65 are not whole blocks of block_size=64; choose 128"):
        BigBird(num_global_tokens=65)


def test_extended_global_tokens():
    """They stand in front of the row, see all of it and are seen by all; no block of the row itself is global."""
    attention = BigBird(2, 1, 3, num_global_tokens=4)
    config = BertConfig(20, 2, 8, 8, 1, 40, attention=attention, pooler=False)
    module, params = config.build(), like_new(config)
    assert params["global_tokens"].shape == (4, 8)
    ids = jnp.arange(30).reshape(1, 30) % 20
    hidden, sown = module.apply({"params": params}, ids, mutable=["intermediates"], method="hidden_states")
    assert hidden.shape == (1, 30, 8)
    (weights,) = sown["intermediates"]["encoder"]["layers"]["self_attention"]["weights"]
    seen = np.asarray(weights[0, 0] > 0)
    assert seen.shape == (2, 34, 34) and seen[:, :4].all() and seen[:, :, :4].all()
    # Of 15 blocks three or, at the ends, two around each, and a random one.
    own = seen[:, 4::2, 4::2]
    assert (own.sum(axis=-1) == np.where(np.isin(np.arange(15), (0, 14)), 3, 4)).all()
    longer = jnp.zeros((1, 30), bool).at[:, :25].set(True)
    padded = module.apply({"params": params}, ids, inputs_valid=longer, method="hidden_states")
    assert np.isfinite(padded).all() and not np.allclose(padded[:, :25], hidden[:, :25])
