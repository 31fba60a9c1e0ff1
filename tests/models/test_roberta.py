import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.models import BertConfig, RobertaConfig

SIZES = {"vocab_size": 30, "embed_dim": 12, "num_heads": 3, "mlp_dim": 17, "num_layers": 2, "max_length": 9}
ROW = np.array([[5, 9, 4, 21, 7, 16]])


@pytest.fixture(params=[RobertaConfig, BertConfig])
def hidden(request, make_params):
    module = request.param(**SIZES).build()
    params = make_params(module, 0, jnp.zeros((1, 2), jnp.int32))

    @jax.jit
    def encode(ids):
        return module.apply({"params": params}, ids, inputs_valid=ids != 1, method="hidden_states")

    return request.param, jax.tree_util.Partial(lambda ids: np.asarray(encode(jnp.asarray(ids))))


def test_padding_inside_a_row_takes_no_position(hidden):
    """Positions count what is no padding, so that the ids behind it stand where they stood; in BERT they move on."""
    family, encode = hidden
    alone = encode(ROW)
    padded = encode(np.array([[1, 5, 9, 1, 4, 21, 7, 16, 1]]))[:, [1, 2, 4, 5, 6, 7]]
    assert (np.abs(padded - alone).max() < 1e-5) == (family is RobertaConfig)


def test_all_positions_of_max_length_have_a_row(make_params):
    config = RobertaConfig(**SIZES, pad_id=3)
    params = make_params(config.build(), 0, jnp.zeros((1, 2), jnp.int32))
    assert params["embeddings"]["position"]["embedding"].shape == (9 + 4, 12)
    assert params["embeddings"]["segment"]["embedding"].shape == (1, 12)
    encode = jax.jit(lambda params, ids: config.build().apply({"params": params}, ids, method="hidden_states"))
    full = encode(params, jnp.arange(4, 13)[None])
    assert np.isfinite(np.asarray(full)).all()
