"""ELMo's rows, both directions, the sampled softmax, and a step whatever the devices."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite import Experiment
from t5x_lite.data import Data, TextFiles, Vocabulary, Words, batches, make_tokenizer
from t5x_lite.data.layouts.characters import WordStream
from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models import ElmoConfig, GptConfig
from t5x_lite.objectives import BidirectionalLanguageModel, corrupt_rows
from t5x_lite.objectives.vocabulary_loss import log_uniform_ids, sampled_loss, vocabulary_loss
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.tokenizers.characters import word_characters
from t5x_lite.training.step import Program

from ..programs import new_state

MODEL = ElmoConfig(
    character_dim=4,
    filters=((1, 4), (2, 8)),
    num_highway_layers=1,
    units=12,
    projection=8,
    max_characters=8,
    num_words=40,
)
OBJECTIVE = BidirectionalLanguageModel(6, 8, num_samples=16).for_vocabulary(Vocabulary(40, pad_id=0, eos_id=0))
WORDS = [f"w{'x' * (n % 4)}{n}" for n in range(40)]


def rows(count):
    """A stream of words in sentences of seven, the last word of a row first in the next."""
    random = np.random.default_rng(0)
    layout = OBJECTIVE.layout
    builder = layout.start(Vocabulary(40, pad_id=0, eos_id=0))
    ids = random.integers(1, 40, (count, 7)).astype(np.int32)
    builder.add([(sentence, [WORDS[n] for n in sentence]) for sentence in ids])
    return builder.take()[:count]


EXPERIMENT = Experiment(
    model=MODEL,
    objective=OBJECTIVE,
    data=Data(TextFiles(("text.txt",)), Words(40)),
    optimizer=Sgd(Constant(0.5)),
    steps=2,
    batch_size=8,
)


@functools.cache
def program(shape=None, devices=1, **changes):
    experiment = replace(EXPERIMENT, mesh=shape or MeshShape(), **changes)
    return Program(experiment, experiment.objective, make_mesh(experiment.mesh, jax.devices()[:devices]))


@pytest.fixture(scope="module")
def features():
    batch = {name: np.stack([row[name] for row in rows(16)]) for name in ("ids", "characters")}
    return batch, jax.device_get(corrupt_rows(OBJECTIVE, jax.random.key(0), batch))


def test_words_of_text_with_their_characters():
    tokenizer = make_tokenizer(Words(9, split="punctuation"), lambda: iter(["A cat. A dog, a cat."]))
    layout = WordStream(7, max_characters=6)
    (document,) = layout.tokenize(["A zebra. Cats!"], tokenizer, "punctuation")
    assert [words for _, words in document] == [["A", "zebra", "."], ["Cats", "!"]]
    builder = layout.start(tokenizer.vocabulary)
    builder.add(document)
    (row,) = builder.take()
    unknown, known = tokenizer.vocabulary.unk_id, tokenizer.encode("A .")
    assert row["ids"].tolist() == [0, known[0], unknown, known[1], 0, 0, unknown]
    expected = ["<S>", "A", "zebra", ".", "</S>", "<S>", "Cats"]
    assert row["characters"].tolist() == [word_characters(word, 6) for word in expected]
    # No text gives the mark of a sentence.
    builder = WordStream(3, max_characters=6).start(tokenizer.vocabulary)
    builder.add([(np.array([unknown], np.int32), ["<S>"])])
    assert builder.take()[0]["characters"][1].tolist() == [258, *b"<S>", 259, 260]


def test_marks_of_sentences_count_in_one_direction(features):
    batch, made = features
    np.testing.assert_array_equal(made["inputs"], batch["ids"][:, :-1])
    np.testing.assert_array_equal(made["targets"], batch["ids"][:, 1:])
    mark = batch["characters"][:, :, 1]
    np.testing.assert_array_equal(made["forward"] == 0, mark[:, 1:] == 256)
    np.testing.assert_array_equal(made["backward"] == 0, mark[:, :-1] == 257)
    assert 0 < (made["forward"] == 0).sum() < 20


def test_neither_direction_sees_what_it_predicts(features):
    """Scores at a step depend on the words on their side alone."""
    _, made = features
    module = MODEL.build()
    params = new_state(program()).params
    characters = jnp.asarray(made["characters"][:1])

    @jax.jit
    def both(characters):
        forward, backward, _ = module.apply({"params": params}, characters, method="predictions")
        return forward.dense()[0], backward.dense()[0]

    before = both(characters)
    for changed in range(7):
        after = both(characters.at[0, changed, 1].set(97))
        forward, backward = ((np.abs(a - b).max(axis=-1) > 0).tolist() for a, b in zip(before, after, strict=True))
        # Forward step n has read the words 0 .. n, and backward step n the words n + 1 .. 6.
        assert forward == [n >= changed for n in range(6)]
        assert backward == [n + 1 <= changed for n in range(6)]


def scores(vocab_size):
    random = np.random.default_rng(1)
    hidden, table = (jnp.asarray(random.normal(size=size), jnp.float32) for size in ((2, 3, 5), (vocab_size, 5)))
    bias = jnp.asarray(random.normal(size=vocab_size), jnp.float32)
    return LazyLogits(hidden, table, bias, ("vocab", "embed"), jnp.float32)


def test_a_sample_of_all_words_is_the_whole_softmax():
    targets, weights = jnp.array([[0, 5, 3], [1, 2, 4]]), jnp.array([[1.0, 1.0, 0.0], [2.0, 1.0, 1.0]])
    drawn = log_uniform_ids(jax.random.key(0), 4000, 6)
    losses = (
        lambda s: sampled_loss(s, targets, weights, drawn)[:2],
        lambda s: vocabulary_loss(s, targets, weights)[:2],
    )
    sampled, whole = (jax.jit(jax.value_and_grad(loss, has_aux=True))(scores(6)) for loss in losses)
    np.testing.assert_allclose(sampled[0][0], whole[0][0], rtol=1e-5)
    assert float(sampled[0][1]) == float(whole[0][1]) == 6.0
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), sampled[1], whole[1])


def test_words_are_drawn_by_their_rank():
    drawn = np.asarray(log_uniform_ids(jax.random.key(0), 200_000, 50))
    expected = np.log((np.arange(50) + 2) / (np.arange(50) + 1)) / np.log(51)
    np.testing.assert_allclose(np.bincount(drawn, minlength=50) / 200_000, expected, atol=0.004)
    assert (np.diff(drawn) >= 0).all()


def test_a_loss_among_a_few_is_the_posterior_of_the_target():
    """By hand: each candidate's probability divided by that of its being drawn."""
    one, drawn = scores(30), jnp.array([0, 0, 4, 7, 7, 9])
    targets = jnp.array([[0, 5, 4], [9, 29, 7]])
    logits, ids = np.asarray(one.dense(), np.float64), np.arange(30)
    chance = 1 - (1 - np.log((ids + 2) / (ids + 1)) / np.log(31)) ** 6
    expected = 0.0
    for row in range(2):
        for step in range(3):
            target = int(targets[row, step])
            candidates = sorted({0, 4, 7, 9} | {target})
            odds = np.exp(logits[row, step, candidates]) / chance[candidates]
            expected -= np.log(odds[candidates.index(target)] / odds.sum())
    loss = jax.jit(sampled_loss)(one, targets, jnp.ones((2, 3)), drawn)[0]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.fixture(scope="module")
def steps():
    one, data = program(), batches(rows(32), **EXPERIMENT.batch_order)
    states, figures = [jax.device_get(new_state(one))], []
    for step in range(2):
        state, metrics = one.train_step(jax.device_put(states[-1], one.state_shardings), data[step])
        states.append(jax.device_get(state))
        figures.append(jax.device_get(metrics))
    return data, states, figures


def test_states_go_on_with_the_rows(steps):
    """Two rows with the state between them are one row of twice the length, forward."""
    data, states, _ = steps
    module, params = MODEL.build(), jax.device_put(states[0].params)
    np.testing.assert_array_equal(data[0]["ids"][:, -1], data[1]["ids"][:, 0])

    @jax.jit
    def forward(characters, state=None):
        scores, _, state = module.apply({"params": params}, characters, state, method="predictions")
        return scores.hidden, state

    first, second = (data[step]["characters"].astype(np.int32) for step in range(2))
    whole, _ = forward(np.concatenate([first, second[:, 1:]], axis=1))
    one, state = forward(first)
    other, _ = forward(second, state)
    np.testing.assert_allclose(np.concatenate([one, other], axis=1), whole, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), states[1].memory, jax.device_get(state))


@pytest.mark.slow
def test_devices_do_not_matter(steps):
    data, states, figures = steps
    other = program(MeshShape(2, 2, tensor=2), 8)
    state, metrics = other.train_step(jax.device_put(states[1], other.state_shardings), jax.device_put(data[1]))
    for name, value in figures[1].items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)
    for found, expected in ((state.params, states[2].params), (state.memory, states[2].memory)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_without_states_rows_are_shuffled():
    objective = replace(OBJECTIVE, carries_state=False)
    assert not objective.layout.in_order and objective.memory(MODEL, 8, jnp.float32) is None
    assert "continues" not in objective.layout.batch_spec


def test_what_does_not_go_together():
    for change, message in (
        ({"model": GptConfig(vocab_size=40)}, "GptConfig, which does not read characters"),
        ({"model": replace(MODEL, num_words=0)}, "model.num_words=0 is no output to train"),
        ({"objective": replace(OBJECTIVE, max_characters=9)}, "max_characters=9 is not model.max_characters=8"),
        ({"objective": replace(OBJECTIVE, num_samples=40)}, "num_samples=40 is not below model.num_words=40"),
    ):
        with pytest.raises(InputError, match=message):
            replace(EXPERIMENT, **change)
