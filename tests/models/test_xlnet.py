"""XLNet's two streams, its memory and its directions; Transformers is the oracle in tests/convert/test_xlnet.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, RobertaConfig, XLNetConfig
from t5x_lite.objectives.permutation_language_model import factorization_order

from ..programs import apply, like_new

TINY = XLNetConfig(
    vocab_size=40, num_heads=3, embed_dim=12, mlp_dim=17, num_layers=3, dropout_rate=0.0, heads=("permutation_lm",)
)
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 40, (2, 12)), jnp.int32)
SEGMENTS = jnp.asarray(np.repeat([[0, 1]], 2, axis=0).repeat(6, axis=1), jnp.int32)
POSITIONS = jnp.array([[2, 3, 7, 11], [0, 5, 8, 9]])
GIVEN = jnp.ones((2, 12), bool).at[jnp.arange(2)[:, None], POSITIONS].set(False)
ORDER = jax.vmap(factorization_order, (0, 0, None))(jax.random.split(jax.random.key(1), 2), GIVEN, 6)


@pytest.fixture(scope="module")
def model():
    params, random = like_new(TINY), np.random.default_rng(1)
    moved = jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.2, x.shape), jnp.float32), params)
    return TINY.build(), moved


@jax.jit(static_argnums=0, static_argnames="remembered_length")
def predict(module, params, *arguments, **options):
    scores, memory = module.apply({"params": params}, *arguments, **options, method="predictions")
    return scores.dense(), memory


def test_what_is_at_a_position_never_reaches_its_own_query(model):
    """Nor what comes later in the order; all that comes before does."""
    _, params = model
    table = params["token_embedding"]["embedding"]

    def logit(embedded, row, number):
        """The logits at a position, by the embeddings of its row, which are rows of a table of their own."""
        own = {**params, "token_embedding": {"embedding": jnp.concatenate([table, embedded])}}
        own["output_bias"] = jnp.zeros(52)
        ids, wide = 40 + jnp.arange(12)[None], TINY.__class__(**vars(TINY) | {"vocab_size": 52}).build()
        arguments = (ids, *(x[row : row + 1] for x in (SEGMENTS, ORDER, POSITIONS)))
        scores, _ = wide.apply({"params": own}, *arguments, method="predictions")
        return (scores.hidden[0, number] * jnp.arange(1.0, 13.0)).sum()

    for row in range(2):
        gradients = jax.jit(jax.vmap(jax.grad(logit), (None, None, 0)), static_argnums=1)(
            table[IDS[row]], row, jnp.arange(4)
        )
        reached = np.asarray(jnp.abs(gradients).max(axis=-1) > 0)
        for number, position in enumerate(POSITIONS[row].tolist()):
            assert (reached[number] == np.asarray(ORDER[row] < ORDER[row, position])).all()
            assert not reached[number, position]


def test_the_reused_part_does_not_see_the_rest(model):
    module, params = model
    before, _ = predict(module, params, IDS, SEGMENTS, ORDER, POSITIONS)
    other = IDS.at[:, 6:].set((IDS[:, 6:] + 1) % 40)
    after, _ = predict(module, params, other, SEGMENTS, ORDER, POSITIONS)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert (jnp.abs(after - before)[:, 2:] > 1e-6).any(axis=-1).all()


def test_a_segment_with_a_memory_is_the_end_of_a_longer_row(model):
    """The memory is of the first segment, as in their code; so are all of these ids."""
    module, params = model
    positions, zeros = POSITIONS[:, 2:], jnp.zeros_like(IDS)
    order = jnp.where(jnp.arange(12) < 6, 0, ORDER)  # all of the first part is given
    whole, _ = predict(module, params, IDS, zeros, order, positions)
    first = jnp.zeros((2, 1), jnp.int32)
    empty = module.empty_memory(2, 8)
    _, memory = predict(module, params, IDS[:, :6], zeros[:, :6], order[:, :6], first, memory=empty)
    assert memory["length"].tolist() == [6, 6]
    rest, _ = predict(module, params, IDS[:, 6:], zeros[:, 6:], order[:, 6:], positions - 6, memory=memory)
    np.testing.assert_allclose(rest, whole, atol=1e-5)


def test_the_beginning_of_a_row_is_remembered_alone(model):
    module, params = model
    empty = module.empty_memory(2, 4)
    _, memory = predict(module, params, IDS, SEGMENTS, ORDER, POSITIONS, memory=empty, remembered_length=6)
    embedded = params["token_embedding"]["embedding"][IDS]
    np.testing.assert_array_equal(memory["hidden"][:, 0], embedded[:, 2:6])


def test_a_row_that_is_read_backward_is_its_mirror_image(model):
    module, params = model
    forward, _ = predict(module, params, IDS, SEGMENTS, ORDER, POSITIONS)
    flipped = (jnp.flip(x, axis=1) for x in (IDS, SEGMENTS, ORDER))
    backward = jnp.array([True, False])
    mirrored, _ = predict(module, params, *flipped, 11 - POSITIONS, backward=backward)
    np.testing.assert_allclose(mirrored[0], forward[0], atol=1e-5)
    assert np.abs(mirrored[1] - forward[1]).max() > 1e-2


def test_padding_does_not_matter(model):
    module, params = model
    whole = apply(module, params, IDS[:, :7], SEGMENTS[:, :7])
    for start in (0, 5):
        ids, segments = (jnp.zeros_like(IDS).at[:, start : start + 7].set(x[:, :7]) for x in (IDS, SEGMENTS))
        valid = (jnp.arange(12) >= start) & (jnp.arange(12) < start + 7)
        padded = apply(module, params, ids, segments, inputs_valid=jnp.broadcast_to(valid, (2, 12)))
        np.testing.assert_allclose(padded["hidden"][:, start : start + 7], whole["hidden"], atol=1e-5)


def test_layers_end_with_the_hidden_states(model):
    module, params = model
    layers = module.apply({"params": params}, IDS, method="encode_layers")
    assert layers.shape == (4, 2, 12, 12)
    np.testing.assert_array_equal(layers[-1], module.apply({"params": params}, IDS, method="hidden_states"))


def test_a_tokenizer_that_puts_cls_elsewhere_is_refused():
    first = Vocabulary(40, pad_id=1, cls_id=2, sep_id=3, eos_id=3)
    last = Vocabulary(40, pad_id=1, cls_id=2, sep_id=3, eos_id=3, cls_last=True)
    TINY.check_vocabulary(last)
    TINY.check_vocabulary(Vocabulary(40))
    BertConfig().check_vocabulary(first)
    with pytest.raises(InputError, match="read a .CLS. that ends a row, and the tokenizer's begins it"):
        TINY.check_vocabulary(first)
    for other in (BertConfig(), RobertaConfig()):
        with pytest.raises(InputError, match="read a .CLS. that begins a row, and the tokenizer's ends it"):
            other.check_vocabulary(last)
