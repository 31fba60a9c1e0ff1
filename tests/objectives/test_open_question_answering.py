"""Answers that are spans of passages: which spans count, the likelihood beside brute force, and devices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite import Experiment
from t5x_lite.data import Bytes, Data, Vocabulary, make_tokenizer
from t5x_lite.data.tasks.open_questions import OpenQuestion
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, RealmConfig, abstract_params
from t5x_lite.objectives import OpenQuestionAnswering, corrupt_rows
from t5x_lite.objectives.open_question_answering import spans_that_read
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, logical_axes, make_mesh
from t5x_lite.retrieval import Corpus, ParamsAndCorpus
from t5x_lite.training.step import Program

from ..programs import like_new, new_state

P, LENGTH = 11, 7
BERT = BertConfig(
    vocab_size=50,
    embed_dim=8,
    num_heads=2,
    mlp_dim=12,
    num_layers=1,
    max_length=20,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
MODEL = RealmConfig(BERT, projection_dim=4, reader=BERT, answer_dim=6)
VOCABULARY = Vocabulary(50, pad_id=0, cls_id=2, sep_id=3, eos_id=3)
OBJECTIVE = OpenQuestionAnswering(
    LENGTH, num_retrieved=3, input_length=8, num_answers=2, answer_length=3, num_scored=5, vocabulary=VOCABULARY
)
AXES = logical_axes(abstract_params(MODEL))
draw = np.random.default_rng(0)
PASSAGES = draw.integers(10, 50, (P, LENGTH)).astype(np.int32)
PASSAGES[3, 4:] = 0
ROWS = {
    "ids": np.array([[2, 11, 12, 13, 3, 0, 0, 0]] * 8, np.int32),
    "answers": np.zeros((8, 2, 3), np.int32),
}
ROWS["ids"][:, 1] = np.arange(20, 28)
for row in range(8):
    ROWS["answers"][row, 0, :2] = PASSAGES[row, 1:3]
    ROWS["answers"][row, 1, :1] = PASSAGES[(row + 5) % P, 0]


@pytest.fixture(scope="module")
def all_passages():
    """(an objective that finds every passage, parameters larger than new ones, features, the corpus)."""
    objective = replace(OBJECTIVE, num_retrieved=P, num_scored=P).for_corpus(P)
    leaves, tree = jax.tree.flatten(like_new(MODEL))
    params = tree.unflatten([leaf + 0.3 * draw.normal(size=leaf.shape).astype(np.float32) for leaf in leaves])
    ids = jnp.zeros((objective.num_rows, LENGTH), jnp.int32).at[:P].set(PASSAGES)
    corpus = Corpus(ids, jax.jit(lambda ids: objective.encode_corpus(MODEL.build(), params, ids))(ids))
    return objective, params, corrupt_rows(objective, jax.random.key(0), ROWS), corpus


@pytest.fixture(scope="module")
def loss(all_passages):
    objective, _, _, corpus = all_passages
    return jax.jit(lambda params, features: objective.loss(MODEL.build(), params, features, None, frozen=corpus))


def test_over_all_passages_it_is_what_brute_force_finds(all_passages, loss):
    objective, params, features, corpus = all_passages
    total, weight, metrics = loss(params, features)
    read = jax.jit(lambda inputs: objective.read(MODEL.build(), params, inputs, corpus))(features["inputs"])
    vectors = np.asarray(corpus.vectors)
    embed = jax.jit(
        lambda ids: MODEL.build().apply({"params": params}, ids, inputs_valid=ids > 0, method="embed_questions")
    )
    questions = np.asarray(embed(features["inputs"]))
    expected, found = 0.0, 0
    for row in range(8):
        answers = [tuple(n for n in one if n) for one in ROWS["answers"][row].tolist()]
        numbers = np.asarray(read.found.numbers[row]).tolist()
        assert sorted(numbers) == list(range(P))
        inner = vectors[numbers] @ questions[row]
        np.testing.assert_allclose(read.found.scores[row], inner, rtol=1e-4)
        every, correct = [], []
        for place, number in enumerate(numbers):
            passage = [n for n in PASSAGES[number].tolist() if n]
            for start in range(len(passage)):
                for size in range(1, min(3, len(passage) - start) + 1):
                    score = float(read.scores[row, place, 5 + start, size - 1])
                    every.append(score)
                    if tuple(passage[start : start + size]) in answers:
                        correct.append(score)
        assert (np.asarray(read.scores[row]) > -1e8).sum() == len(every)
        expected += float(jax.nn.logsumexp(jnp.array(every)) - jax.nn.logsumexp(jnp.array(correct)))
        of_all = vectors[:P] @ questions[row]
        hold = [any(tuple(one) in spans(PASSAGES[n]) for one in answers) for n in range(P)]
        expected += float(jax.nn.logsumexp(jnp.asarray(of_all)) - jax.nn.logsumexp(jnp.asarray(of_all[hold])))
        found += max(every) in correct
    np.testing.assert_allclose(total, expected, rtol=1e-4)
    assert (weight, metrics["recall"], metrics[f"recall_at_{P}"]) == (8, 8, 8)
    assert metrics["exact_match"] == found


def spans(passage):
    ids = [n for n in passage.tolist() if n]
    return {tuple(ids[start : start + size]) for start in range(len(ids)) for size in (1, 2, 3)}


@pytest.mark.slow
def test_only_the_questions_encoder_and_the_reader_learn(all_passages):
    objective, params, features, corpus = all_passages
    gradients = jax.jit(
        jax.grad(lambda params: objective.loss(MODEL.build(), params, features, None, frozen=corpus)[0])
    )(params)
    largest = {
        name: max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree)) for name, tree in gradients.items()
    }
    assert largest["passage_encoder"] == 0
    assert min(largest[name] for name in ("question_encoder", "reader", "answers")) > 1e-3


@pytest.mark.parametrize(
    ("refresh_every", "networks"), [(0, {"question_encoder", "reader", "answers"}), (3, set(AXES))]
)
def test_the_passages_encoder_has_no_moments_where_its_vectors_are_kept(refresh_every, networks):
    """Nor are those of other networks that a run freezes itself."""
    objective = replace(OBJECTIVE, refresh_every=refresh_every)
    for frozen in ((), ("reader/*",)):
        optimizer = Sgd(Constant(0.1), frozen=frozen)
        experiment = Experiment(
            model=MODEL, objective=objective, data=Data(tokenizer=Bytes()), optimizer=optimizer, steps=2, batch_size=8
        )
        trained = experiment.effective_optimizer.trained(AXES).axes(AXES)
        assert set(trained) == networks - {pattern[:-2] for pattern in frozen}
        assert experiment.optimizer == optimizer


def test_a_question_without_an_answer_in_the_passages_has_no_part(all_passages, loss):
    _, params, features, _ = all_passages
    none = features | {"answers": jnp.full_like(features["answers"], 9)}
    total, weight, metrics = loss(params, none)
    assert (total, weight, metrics["recall"], metrics["exact_match"]) == (0, 8, 0, 0)


def test_predictions_are_the_likeliest_spans_as_text(all_passages):
    objective, params, features, corpus = all_passages
    predict = jax.jit(lambda features: objective.predict(MODEL.build(), ParamsAndCorpus(params, corpus), features))
    predicted = np.asarray(predict(features))
    every = {span for passage in PASSAGES for span in spans(passage)}
    assert all(tuple(n for n in row if n) in every for row in predicted.tolist())
    documents = [OpenQuestion("who?", ("a", "b")), OpenQuestion("where?", (), "name")]
    letters, pad_id = make_tokenizer(Bytes(extra_ids=0), None), 0
    outputs = np.array([[*letters.encode("no"), pad_id], [*letters.encode("x"), pad_id, pad_id]])
    found = objective.predictions(outputs, {}, documents, letters, None)
    assert (found.predicted, found.references, found.names) == (["no", "x"], [["a", "b"], []], ["0", "name"])


def test_spans_do_not_go_round_the_end_of_a_row():
    assert not spans_that_read(jnp.array([[8, 9, 7]]), jnp.array([[7, 8]]), 0).any()


@pytest.mark.slow
def test_eight_devices_are_one():
    experiment = Experiment(
        model=MODEL,
        objective=OBJECTIVE,
        data=Data(tokenizer=Bytes()),
        optimizer=Sgd(Constant(0.1)),
        steps=2,
        batch_size=8,
    )
    states, figures = [], []
    for shape, devices in ((MeshShape(), 1), (MeshShape(2, 2, tensor=2), 8)):
        mesh = make_mesh(shape, jax.devices()[:devices])
        one = Program(replace(experiment, mesh=shape), OBJECTIVE.for_corpus(P), mesh)
        ids = np.zeros(one.abstract_state.frozen.shape, np.uint16)
        ids[:P] = PASSAGES
        state = new_state(one).replace(frozen=jax.device_put(ids, one.state_shardings.frozen))
        if devices == 1:
            start = jax.device_get(state.params)
        state = state.replace(params=jax.device_put(start, one.state_shardings.params))
        state, metrics = one.train_step(one.with_index(state), ROWS)
        states.append(jax.device_get(state))
        figures.append(jax.device_get(metrics))
    assert figures[0].keys() == figures[1].keys()
    for name, value in figures[0].items():
        np.testing.assert_allclose(figures[1][name], value, rtol=1e-4, err_msg=name)
    for name in ("params", "index"):
        one, eight = (getattr(state, name) for state in states)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), eight, one)


def test_a_model_without_scores_of_answers_is_refused():
    with pytest.raises(InputError, match="model.answer_dim=0 scores no answers"):
        OBJECTIVE.check_model(replace(MODEL, answer_dim=0))
