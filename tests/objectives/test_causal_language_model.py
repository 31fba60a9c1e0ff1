import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import Embedding
from t5x_lite.models import BartConfig, BertConfig, GptConfig, T5Config, T5DecoderConfig
from t5x_lite.objectives import CausalLanguageModel, corrupt_rows
from t5x_lite.objectives.losses import cross_entropy

from ..slow import mostly_slow

EOS, LENGTH = 1, 10
VOCABULARY = Vocabulary(30)
TINY = {"vocab_size": 30, "embed_dim": 8, "num_heads": 2, "mlp_dim": 12, "num_layers": 1}
MODELS = {
    "GPT": GptConfig(**TINY, max_length=LENGTH),
    "T5": T5DecoderConfig(**TINY, head_dim=4, relative_buckets=8, relative_max_distance=12),
}
ROWS = np.random.default_rng(0).integers(3, 30, (3, LENGTH + 1)).astype(np.int32)
ROWS[0, [0, 3, 4, 8]] = ROWS[1, 6] = EOS


@pytest.fixture(scope="module", params=mostly_slow(MODELS, "GPT"))
def model(request, make_model):
    return make_model(MODELS[request.param])


def losses_of(objective, module, params):
    """Compiled: `(features, change)` to (loss, weight, metrics), `change` [L D] added to the embeddings."""

    def loss(features, change):
        def add(call, args, kwargs, context):
            embedded = call(*args, **kwargs)
            is_token = isinstance(context.module, Embedding) and context.method_name == "__call__"
            return embedded + change if is_token and embedded.shape[1] else embedded

        with nn.intercept_methods(add):
            total, *rest = objective.loss(module, params, features, None)
            return total, rest

    return jax.jit(jax.value_and_grad(loss, argnums=1, has_aux=True))


@pytest.fixture(scope="module")
def whole(model):
    return losses_of(CausalLanguageModel(LENGTH).for_vocabulary(VOCABULARY), *model)


@pytest.fixture(scope="module")
def within(model):
    return losses_of(CausalLanguageModel(LENGTH, within_documents=True).for_vocabulary(VOCABULARY), *model)


@pytest.fixture(scope="module")
def features():
    objective = CausalLanguageModel(LENGTH).for_vocabulary(VOCABULARY)
    return jax.jit(lambda rows: corrupt_rows(objective, jax.random.key(0), {"ids": rows}))(ROWS)


@pytest.fixture(scope="module")
def by_hand(model):
    """The losses of all ids of a text but the first, which is read alone; what stands behind a text changes nothing."""
    module, params = model

    @jax.jit
    def losses(ids):
        logits = module.apply({"params": params}, ids[:, :0], ids[:, :-1])
        return cross_entropy(logits, ids[:, 1:])[0]

    def read(text):
        padded = np.pad(text, (0, LENGTH + 1 - len(text)), constant_values=9)
        return np.asarray(losses(padded[None]), np.float64)[: len(text) - 1]

    return read


def no_change(model):
    return jnp.zeros((1, LENGTH, model[0].config.embed_dim))


def test_every_id_from_those_before_it(model, whole, by_hand, features):
    np.testing.assert_array_equal(features["inputs"], ROWS[:, :-1])
    np.testing.assert_array_equal(features["targets"], ROWS[:, 1:])
    (total, (weight, metrics)), _ = whole(features | {"valid": jnp.array([True, False, True])}, no_change(model))
    assert weight == 2 * LENGTH
    assert total == metrics["loss"]
    assert total == pytest.approx(sum(by_hand(ROWS[row]).sum() for row in (0, 2)), rel=1e-5)
    objective = CausalLanguageModel(LENGTH).for_vocabulary(VOCABULARY)
    said = jax.jit(lambda features: objective.predict(*model, features))(features)
    assert metrics["accuracy"] == (said == features["targets"])[jnp.array([0, 2])].sum()


def test_within_documents_each_is_read_alone_from_the_eos_before_it(model, within, by_hand, features):
    (total, (weight, _)), _ = within(features, no_change(model))
    expected = 0.0
    for row in ROWS:
        starts = [0, *(np.flatnonzero(row[:-1] == EOS)).tolist()]
        for start, end in zip(starts, [*starts[1:], LENGTH], strict=True):
            expected += by_hand(row[start : end + 1]).sum() if end > start else 0.0
    assert weight == 3 * LENGTH
    assert total == pytest.approx(expected, rel=1e-5)


def test_no_gradient_from_a_later_token_to_an_earlier_loss(model, whole, features):
    """What is asked before a token has no part in its gradient."""
    one = {name: value[1:2] for name, value in features.items()}
    for place in (1, 5, 9):
        other = one | {"targets": jnp.where(jnp.arange(LENGTH) < place, 7, one["targets"])}
        gradient, changed = (np.abs(np.asarray(whole(f, no_change(model))[1][0])) for f in (one, other))
        np.testing.assert_array_equal(gradient[place:], changed[place:])
        assert (gradient[:place] != changed[:place]).any(-1).all()


def test_no_gradient_crosses_the_end_of_a_document(model, within, features):
    one = {name: value[1:2] for name, value in features.items()}
    assert np.flatnonzero(ROWS[1] == EOS).tolist() == [6]
    other = one | {"targets": jnp.where(jnp.arange(LENGTH) >= 6, 7, one["targets"])}
    gradient, changed = (np.asarray(within(f, no_change(model))[1][0]) for f in (one, other))
    np.testing.assert_array_equal(gradient[:6], changed[:6])
    assert (gradient[6:] != changed[6:]).any(-1).all()


def test_samples_go_on_from_the_first_half(model, features):
    objective = CausalLanguageModel(LENGTH).for_vocabulary(VOCABULARY)
    module, params = model
    samples = objective.samples(module, params, features)
    np.testing.assert_array_equal(samples["inputs"], ROWS[:, :5])
    np.testing.assert_array_equal(samples["targets"], ROWS[:, 5:-1])
    likely = jax.jit(lambda ids: module.apply({"params": params}, ids[:, :0], ids).argmax(-1)[0])
    for row, written in enumerate(np.asarray(samples["answers"]).tolist()):
        text = np.array([[*ROWS[row, :5], *written]], np.int32)
        end = written.index(EOS) + 1 if EOS in written else len(written)
        assert written[:end] == likely(text)[4 : 4 + end].tolist()
        assert written[end:] == [0] * (len(written) - end)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (BertConfig(), "model is a BertConfig; CausalLanguageModel trains a decoder, such as GptConfig"),
        (BartConfig(), "model is a BartConfig; CausalLanguageModel"),
        (T5Config(), "model is a T5Config; CausalLanguageModel"),
        (T5DecoderConfig(full_prefix=True), "full_prefix=True reads its inputs whole.*PrefixLanguageModel"),
        (GptConfig(max_length=31), "objective.input_length=32 exceeds model.max_length=31; choose shorter rows"),
    ],
)
def test_models_that_do_not_fit(model, message):
    with pytest.raises(InputError, match=message):
        CausalLanguageModel(32).check_model(model)


def test_what_fits_and_what_does_not():
    CausalLanguageModel(32).check_model(GptConfig(max_length=32))
    CausalLanguageModel(32).check_model(T5DecoderConfig())
    with pytest.raises(InputError, match="input_length=1 is too small; choose 2 or more"):
        CausalLanguageModel(1)
    with pytest.raises(ValueError, match=r"CausalLanguageModel takes \{'ids': \(9,\)\}"):
        CausalLanguageModel(8).corrupt(jax.random.key(0), {"ids": jnp.arange(8)})
