"""What a model writes to held-out inputs: whatever they are packed, padded, sorted and sharded with."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Bytes, Data, TextFiles, Vocabulary, make_tokenizer
from t5x_lite.data.stored_rows import stack
from t5x_lite.data.tasks.templates import EvalExample
from t5x_lite.data.tasks.text_to_text import TextPairs
from t5x_lite.decoding import GenerationDefaults, Greedy, decode
from t5x_lite.evaluation.predictions import BatchGenerator, EvalPrompt, questions_of, questions_of_rows, separate
from t5x_lite.models import GptConfig, TransformerConfig
from t5x_lite.objectives import SequenceToSequence, corrupt_rows
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training import Evaluation, Experiment
from t5x_lite.training.step import Program

SIZES = {"vocab_size": 264, "embed_dim": 16, "num_heads": 4, "mlp_dim": 24, "max_length": 48}
TRANSFORMER = TransformerConfig(**SIZES, num_encoder_layers=1, num_decoder_layers=1, dropout_rate=0.0)
GPT = GptConfig(**SIZES, num_layers=1)
TEXTS = ["a", "some words", "c", "other text", "", "b"]
MAX_LENGTH = 7


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(Bytes(), None)


@pytest.fixture(scope="module")
def questions(tokenizer):
    return questions_of([EvalExample(text, (text.upper(),)) for text in TEXTS], tokenizer)


@pytest.fixture(scope="module")
def experiment():
    return Experiment(
        model=TRANSFORMER,
        objective=SequenceToSequence(input_length=24, target_length=24),
        data=Data(TextFiles(("nowhere",)), Bytes()),
        optimizer=AdamW(),
        steps=1,
        batch_size=4,
        evaluation=Evaluation(max_length=MAX_LENGTH),
    )


@pytest.fixture(scope="module")
def make_generator(experiment, questions, tokenizer, make_params):
    """`make_generator(**fields, devices=1)`: (generator, parameters) of an experiment with these fields."""

    def make(devices: int = 1, **fields):
        changed = replace(experiment, **fields)
        program = Program(
            changed,
            changed.objective.for_vocabulary(tokenizer.vocabulary),
            make_mesh(changed.mesh, jax.devices()[:devices]),
        )
        ids = jnp.ones((1, 2), jnp.int32)
        params = jax.device_put(make_params(changed.model.build(), 0, ids, ids), program.state_shardings.params)
        return BatchGenerator(program, questions, tokenizer, changed.evaluation), params

    return make


def alone(model, params, ids, start_id):
    """The answer to one input by itself, no padding anywhere."""
    inputs = jnp.asarray([ids], jnp.int32)
    options = {"start_ids": jnp.array([start_id], jnp.int32), "max_length": MAX_LENGTH, "eos_id": 1, "pad_id": 0}
    return np.asarray(decode(model.build(), params, inputs, method=Greedy(), **options).ids)[0, 0]


def test_packed_rows_come_apart_again():
    random, vocabulary = np.random.default_rng(0), Vocabulary(50)
    pairs = [[random.integers(3, 50, random.integers(1, 9)) for _ in range(2)] for _ in range(30)]
    for packed in (True, False):
        objective = SequenceToSequence(16, 14, packed=packed).for_vocabulary(vocabulary)
        builder = TextPairs(16, 14, packed=packed).start(vocabulary)
        for pair in pairs:
            builder.add([ids.astype(np.int32) for ids in pair])
        builder.finish()
        rows = builder.take()
        assert (len(rows) < 30) == packed
        found = separate(jax.device_get(corrupt_rows(objective, jax.random.key(0), stack(rows))), vocabulary)
        expected = [tuple([*ids.tolist(), 1] for ids in pair) for pair in pairs]
        assert sorted(found) == sorted(expected)


def test_padding_that_is_eos_too():
    """The first one of them closes the text."""
    features = {"inputs": np.array([[5, 6, 2, 2], [5, 6, 7, 2]]), "targets": np.array([[5, 2, 2, 2], [2, 2, 2, 2]])}
    assert separate(features, Vocabulary(10, pad_id=2, eos_id=2)) == [([5, 6, 2], [5, 2]), ([5, 6, 7, 2], [2])]


def test_references(tokenizer):
    """Of rows the ids' text, of pairs the text itself, which a tokenizer may not give back."""
    features = {"inputs": np.array([[100, 1, 0]]), "targets": np.array([[100, 101, 1]])}
    assert questions_of_rows(features, tokenizer) == [EvalPrompt((100, 1), ("ab",))]
    example = EvalExample("a", ("b\N{SOFT HYPHEN} ",))
    assert questions_of([example], tokenizer) == [EvalPrompt((100, 1), example.right)]


@pytest.fixture(scope="module")
def answers(make_generator):
    one, params = make_generator()
    found = one.answers(params)
    assert one._generate.compiled._cache_size() == 1, "two batches, the second filled up: one shape, one compilation"
    return found


def test_an_answer_is_what_the_input_alone_gets(answers, make_generator, questions, tokenizer):
    _, params = make_generator()
    expected = [tokenizer.decode(alone(TRANSFORMER, params, question.ids, start_id=0)) for question in questions]
    assert len(set(expected)) >= 4, "answers depend on the input"
    assert answers == expected


@pytest.mark.slow
def test_what_is_forced_and_suppressed_holds_here_too(make_generator, questions, tokenizer):
    first, *others = tokenizer.encode("QRST")
    never = tuple(i for i in range(TRANSFORMER.vocab_size) if i not in others)
    defaults = GenerationDefaults(start_id=40, forced_first_id=first, suppressed_ids=never, ends=False)
    one, params = make_generator(generation=defaults)
    limits = {"eos_id": None, "pad_id": 0, "forced_first_id": first, "suppressed_ids": never}
    for question, answer in zip(questions[:2], one.answers(params), strict=False):
        inputs, start_ids = jnp.asarray([question.ids], jnp.int32), jnp.array([40], jnp.int32)
        options = {"method": Greedy(), "start_ids": start_ids, "max_length": MAX_LENGTH} | limits
        expected = decode(TRANSFORMER.build(), params, inputs, **options).ids[0, 0]
        assert answer == tokenizer.decode(np.asarray(expected).tolist())
        assert answer[0] == "Q"
        assert set(answer[1:]) <= set("RST")


def test_eight_devices_write_what_one_does(answers, make_generator):
    """With beams, which are gathered from each other at every token."""
    settings = Evaluation(max_length=MAX_LENGTH, num_beams=3)
    one, params = make_generator(evaluation=settings)
    found = one.answers(params)
    assert found != answers
    eight, params = make_generator(devices=8, mesh=MeshShape(1, 2, 2, 2), evaluation=settings)
    assert eight.answers(params) == found


def test_a_decoder_reads_the_eos_of_the_input_as_its_first_token(make_generator, questions, tokenizer):
    objective = SequenceToSequence(input_length=24, target_length=24, packed=False)
    one, params = make_generator(model=GPT, objective=objective)
    found = one.answers(params)
    # The input and all of the answer before it, in one row; what is behind it is not seen.
    logits = jax.jit(lambda ids: GPT.build().apply({"params": params}, ids))
    for question, answer in zip(questions, found, strict=True):
        ids = list(question.ids)
        for _ in range(MAX_LENGTH):
            row = jnp.asarray([ids + [0] * (24 - len(ids))])
            ids.append(int(logits(row)[0, len(ids) - 1].argmax()))
            if ids[-1] == 1:
                break
        assert answer == tokenizer.decode(ids[len(question.ids) :])


def test_the_longest_answer(experiment, make_generator):
    """Fifty more than the longest input, but no more than a row of targets, for which there are positions."""
    sizes = []
    for settings in (Evaluation(), Evaluation(max_length=5)):
        one, params = make_generator(evaluation=settings)
        shape = (4, one._inputs.shape[1])
        batch = {name: jax.ShapeDtypeStruct(shape, dtype) for name, dtype in (("inputs", "int32"), ("valid", "bool"))}
        sizes.append(jax.eval_shape(one._generate.compiled, params, batch).shape[1])
    assert sizes == [24, 5]
