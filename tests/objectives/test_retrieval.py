"""Masked names over passages that are looked up: the likelihood, its gradients, the index, and devices."""

import functools
import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite import Experiment
from t5x_lite.data import Bytes, Data, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, GptConfig, RealmConfig
from t5x_lite.objectives import RetrievalMaskedLanguageModel
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.retrieval import Corpus
from t5x_lite.training.step import Program

from ..programs import corrupt, new_state

P, LENGTH, EVERY = 21, 8, 3
BERT = BertConfig(
    vocab_size=50,
    embed_dim=8,
    num_heads=2,
    mlp_dim=12,
    num_layers=1,
    max_length=24,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
MODEL = RealmConfig(BERT, projection_dim=8, reader=replace(BERT, heads=("masked_lm",)))
VOCABULARY = Vocabulary(50, pad_id=0, cls_id=2, sep_id=3, mask_id=4, eos_id=3)
OBJECTIVE = RetrievalMaskedLanguageModel(
    LENGTH, num_retrieved=3, refresh_every=EVERY, input_length=10, span_length=2, vocabulary=VOCABULARY
)
EXPERIMENT = Experiment(
    model=MODEL, objective=OBJECTIVE, data=Data(tokenizer=Bytes()), optimizer=Sgd(Constant(0.1)), steps=9, batch_size=8
)
draw = np.random.default_rng(0)
PASSAGES = draw.integers(10, 50, (P, LENGTH)).astype(np.int32)
PASSAGES[::4, 6:] = 0


def rows(numbers):
    """Of passages by their numbers; the second half is another sentence, and one token or two are a name."""
    spans = np.zeros((len(numbers), LENGTH), np.int32)
    spans[:, 1], spans[:, 4:6] = 1, 2
    sentences = np.where(PASSAGES[numbers] > 0, 1 + (np.arange(LENGTH) > 2), 0).astype(np.int32)
    return {"ids": PASSAGES[numbers], "sentences": sentences, "spans": spans}


BATCHES = [rows(np.arange(start, start + 8) % P) for start in (0, 8, 16, 3)]


def program(shape=None, devices=1, **changes):
    experiment = replace(EXPERIMENT, mesh=shape or MeshShape(), **changes)
    mesh = make_mesh(experiment.mesh, jax.devices()[:devices])
    return Program(experiment, experiment.objective.for_corpus(P), mesh)


def with_corpus(one, state):
    """A state with the corpus and its first index, of parameters that are larger than new ones."""
    leaves, tree = jax.tree.flatten(state.params)
    draw = np.random.default_rng(1)
    params = tree.unflatten([leaf + draw.normal(scale=0.3, size=leaf.shape).astype(np.float32) for leaf in leaves])
    state = state.replace(params=params)
    ids = np.zeros(one.abstract_state.frozen.shape, one.abstract_state.frozen.dtype)
    ids[:P] = PASSAGES
    return one.with_index(state.replace(frozen=jax.device_put(ids, one.state_shardings.frozen)))


@pytest.fixture(scope="module")
def steps():
    """(the states before and after four steps, their figures, the program)."""
    one = program()
    states, figures = [jax.device_get(with_corpus(one, new_state(one)))], []
    for batch in BATCHES:
        state, metrics = one.train_step(jax.device_put(states[-1], one.state_shardings), jax.device_put(batch))
        states.append(jax.device_get(state))
        figures.append(jax.device_get(metrics))
    return states, figures, one


@pytest.fixture(scope="module")
def all_passages(steps):
    """(an objective for which every other passage is found, features, a corpus, parameters)."""
    objective = replace(OBJECTIVE, num_retrieved=P - 1).for_corpus(P)
    state = on_device(steps[0][0])
    features = corrupt(objective, jax.random.key(0), rows(np.array([0, 1, 2])))
    return objective, features, Corpus(state.frozen, state.index.vectors), state.params


def on_device(tree):
    return jax.device_put(tree)


@functools.partial(jax.jit, static_argnames="method")
def embedded(params, ids, method):
    """The vectors of texts without padding."""
    return MODEL.build().apply({"params": params}, ids, method=method)


def framed(ids):
    return [2, *(n for n in np.asarray(ids).tolist() if n), 3]


@pytest.mark.parametrize("marginal", ["span", pytest.param("token", marks=pytest.mark.slow)])
def test_of_all_passages_it_is_what_brute_force_finds(all_passages, marginal):
    objective, features, corpus, params = all_passages
    objective = replace(objective, marginal=marginal)
    total, weight, metrics = jax.jit(
        lambda params: objective.loss(MODEL.build(), params, features, None, frozen=corpus)
    )(params)
    expected = nulls = 0.0
    read = jax.jit(
        lambda ids, segments: MODEL.build().apply(
            {"params": params},
            method=lambda model: model.masked_lm_scores(
                model.reader.hidden_states(ids, segments, inputs_valid=ids > 0)
            ).dense(),
        )
    )
    for row in range(3):
        question = [n for n in features["inputs"][row].tolist() if n]
        used = features["targets"][row] > 0
        others = [*(PASSAGES[n] for n in range(P) if n != row), np.zeros(LENGTH, int)]
        vector = embedded(params, np.array([question]), "embed_questions")[0]
        vectors = [embedded(params, np.array([framed(one)]), "embed_passages")[0] for one in others]
        scores = jnp.stack(vectors) @ vector
        ids = np.zeros((len(others), 24), int)
        segments = np.zeros_like(ids)
        for number, one in enumerate(others):
            both = [*question, *framed(one)[1:]]
            ids[number, : len(both)] = both
            segments[number, len(question) : len(both)] = 1
        logits = jax.nn.log_softmax(read(jnp.asarray(ids), jnp.asarray(segments)))
        tokens = logits[:, features["positions"][row], features["targets"][row]] * used[None]
        passages = jax.nn.log_softmax(scores)
        nulls += float(jnp.exp(passages[-1]))
        if marginal == "span":
            expected -= float(jax.nn.logsumexp(passages + tokens.sum(axis=1)))
        else:
            expected -= float((jax.nn.logsumexp(passages[:, None] + tokens, axis=0) * used).sum())
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["null_probability"].sum, nulls, rtol=1e-5)
    assert weight == (features["targets"] > 0).sum()


def test_the_retriever_has_gradients_and_they_are_those_of_finite_differences(all_passages):
    objective, features, corpus, params = all_passages

    @jax.jit
    def loss(params):
        return objective.loss(MODEL.build(), params, features, None, frozen=corpus)[0]

    gradients, step = jax.grad(loss)(params), 1e-2
    for name in ("question_encoder", "passage_encoder"):
        length = optax.tree.norm(gradients[name])
        assert length > 1e-3
        there, back = (optax.tree.add_scale(params[name], sign * step / length, gradients[name]) for sign in (1, -1))
        slope = float(loss(params | {name: there}) - loss(params | {name: back})) / (2 * step)
        np.testing.assert_allclose(slope, length, rtol=1e-2)


def test_the_own_passage_is_not_found(steps):
    states, _, one = steps
    objective = one.objective
    features = corrupt(objective, jax.random.key(0), BATCHES[0])
    state = on_device(states[0])

    @jax.jit
    def find(own):
        def compute(model):
            questions = objective.embed_questions(model, features["inputs"], None)
            return objective.retrieve(model, questions, Corpus(state.frozen, state.index.vectors), None, own)

        return MODEL.build().apply({"params": state.params}, method=compute)

    without, everything = find(features["own"]), find(jnp.zeros_like(features["own"]))
    assert without.numbers.shape == (8, 3)
    assert not (np.asarray(without.numbers) == np.arange(8)[:, None]).any()
    # Those that are found are the best of the others, in their order.
    for row, numbers in enumerate(np.asarray(without.numbers).tolist()):
        best = [n for n in np.asarray(everything.numbers[row]).tolist() if n != row]
        assert numbers[: len(best)] == best[:3]


def test_a_row_has_the_sentence_of_a_name():
    keys = jax.random.split(jax.random.key(0), 30)
    row = {name: jnp.asarray(column[1]) for name, column in rows(np.array([0, 1])).items()}
    found = jax.jit(jax.vmap(OBJECTIVE.corrupt, (0, None)))(keys, row)
    seen = {tuple(one) for one in np.asarray(found["inputs"]).tolist()}
    a, b, c, d, e, f, g, h = PASSAGES[1].tolist()
    assert seen == {(2, a, 4, c, 3, 0, 0, 0, 0, 0), (2, d, 4, 4, g, h, 3, 0, 0, 0)}
    targets = {tuple(one) for one in np.asarray(found["targets"]).tolist()}
    assert targets == {(b, 0), (e, f)}


def test_of_a_long_sentence_the_part_around_the_name():
    objective = replace(OBJECTIVE, input_length=8)
    row = {"ids": jnp.arange(10, 18), "sentences": jnp.ones(8, jnp.int32)}
    corrupt_row = jax.jit(objective.corrupt)
    for at, shown in ((0, range(10, 16)), (4, range(11, 17)), (7, range(12, 18))):
        one = corrupt_row(jax.random.key(0), row | {"spans": jnp.zeros(8, jnp.int32).at[at].set(1)})
        ids = [4 if n == 10 + at else n for n in shown]
        assert one["inputs"].tolist() == [2, *ids, 3] and one["targets"].tolist() == [10 + at, 0]
        assert one["inputs"][one["positions"][0]] == 4


def test_the_index_is_that_of_the_parameters_a_round_began_with(steps):
    """After three steps it is made by the parameters of the beginning; the round that begins then has those."""
    states, _, one = steps
    assert [int(state.index.version) for state in states] == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(states[3].index.vectors, states[0].index.vectors, atol=1e-6)
    # The compiler computes an update twice, rounding it differently.
    expected = states[3].params["passage_encoder"]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), states[4].index.encoder, expected)
    state = jax.device_put(states[4], one.state_shardings)
    for batch in BATCHES[1:3]:
        state, _ = one.train_step(state, jax.device_put(batch))
    assert int(state.index.version) == 2
    expected = one.encode_corpus(on_device(states[3].params), state.frozen)
    np.testing.assert_allclose(state.index.vectors, expected, atol=1e-6)
    assert np.abs(state.index.vectors - states[0].index.vectors).max() > 1e-2


def test_a_refreshed_index_changes_what_is_retrieved(steps):
    states, _, one = steps
    state = on_device(states[4])
    fresh = one.encode_corpus(state.params, state.frozen)
    features = corrupt(one.objective, jax.random.key(0), BATCHES[0])

    @jax.jit
    def found(vectors):
        def compute(model):
            questions = one.objective.embed_questions(model, features["inputs"], None)
            return one.objective.retrieve(model, questions, Corpus(state.frozen, vectors), None).numbers

        return MODEL.build().apply({"params": state.params}, method=compute)

    assert (found(state.index.vectors) != found(fresh)).any()


def test_going_on_from_the_middle_of_a_round_is_exact(steps):
    states, _, one = steps
    for first, last in itertools.pairwise(range(1, 5)):
        state, _ = one.train_step(jax.device_put(states[first], one.state_shardings), jax.device_put(BATCHES[first]))
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), states[last])


@pytest.mark.slow
def test_an_index_that_is_made_in_the_middle_of_a_round_has_one_encoder(steps):
    """As a run that goes on from another one's state makes it."""
    states, _, one = steps
    state = one.with_index(jax.device_put(states[1], one.state_shardings))
    expected = np.asarray(state.index.vectors)
    assert np.abs(expected - states[0].index.vectors).max() > 1e-3
    for batch in BATCHES[1:3]:
        state, _ = one.train_step(state, jax.device_put(batch))
    assert int(state.index.version) == 1
    np.testing.assert_allclose(state.index.vectors, expected, atol=1e-6)


@pytest.mark.slow
def test_on_eight_devices_and_in_parts_it_is_what_it_is_on_one_at_once(steps):
    states, figures, _ = steps
    other = program(MeshShape(2, 2, tensor=2), 8, accumulation=2)
    state = jax.device_put(states[2], other.state_shardings)
    state, metrics = other.train_step(state, jax.device_put(BATCHES[2]))
    for name, value in figures[2].items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, err_msg=name)
    assert int(state.index.version) == 1
    for found, expected in ((state.params, states[3].params), (state.index, states[3].index)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), found, expected)


@pytest.mark.parametrize(
    ("fields", "model", "message"),
    [
        ({}, GptConfig(vocab_size=50), "GptConfig, which retrieves nothing"),
        ({}, replace(MODEL, reader=None), "model.reader=None reads no passages"),
        ({}, replace(MODEL, reader=BERT), r"lacks masked_lm, which RetrievalMaskedLanguageModel trains"),
        ({"passage_length": 23}, MODEL, "passage_length=23 and two special ids exceed model.encoder.max_length=24"),
        ({"input_length": 20}, MODEL, "input_length=20 and objective.passage_length=8 do not fit"),
        ({"input_length": 25}, MODEL, "input_length=25 exceeds model.encoder.max_length=24"),
        (
            {"refresh_every": 0},
            replace(MODEL, shared=True),
            "refresh_every=0 keeps the passages' vectors, whose encoder",
        ),
    ],
)
def test_models_that_do_not_fit(fields, model, message):
    with pytest.raises(InputError, match=message):
        replace(OBJECTIVE, **fields).check_model(model)


def test_corpora_that_do_not_fit():
    with pytest.raises(InputError, match="has 3 passages of 8 ids, and objective.num_retrieved=3 needs 4"):
        OBJECTIVE.for_corpus(3)
    with pytest.raises(InputError, match="index_size=20 has no room for the 21 passages of the corpus"):
        replace(OBJECTIVE, index_size=20).for_corpus(21)
    assert replace(OBJECTIVE, index_size=100).for_corpus(21).num_rows == 120
    with pytest.raises(InputError, match="index_size=0 leaves the index to the size of the corpus"):
        Program(EXPERIMENT, OBJECTIVE, make_mesh(MeshShape(), jax.devices()[:1]))
