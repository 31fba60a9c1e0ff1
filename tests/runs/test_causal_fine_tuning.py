"""Fine-tuning BART and GPT: loop, start and mesh are those of every run; GPT's rows have ids of their own."""

import io
import json
import random
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from rich.console import Console

import t5x_lite
from t5x_lite.data import Data, JsonlFiles, LabeledTexts
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, GptConfig, abstract_params
from t5x_lite.objectives import CausalClassification, CausalLanguageModel, Classification
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.preparation import first_state, prepare
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.initialization import FromModel

from ..programs import new_state

GPT = GptConfig(
    vocab_size=104,
    embed_dim=16,
    num_heads=4,
    mlp_dim=24,
    num_layers=1,
    max_length=24,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    embedding_dropout_rate=0.0,
    heads=("classification",),
)
BART = BartConfig(
    104, 4, 16, 24, 1, 1, max_length=24, dropout_rate=0.0, attention_dropout_rate=0.0, heads=("classification",)
)


@pytest.fixture(scope="module")
def data(tmp_path_factory, sentences) -> Data:
    """Pairs of texts, and whether either one has the word "alal"."""
    source, path = random.Random(0), tmp_path_factory.mktemp("task") / "pairs.jsonl"
    words = ["beta", "gam", "del", "iokap", "ta", "the"]
    records = []
    for number in range(240):
        texts = [source.choices(words, k=4), source.choices(words, k=3)]
        if number % 2:
            text = source.choice(texts)
            text[source.randrange(3)] = "alal"
        records.append({"a": " ".join(texts[0]), "b": " ".join(texts[1]), "label": str(number % 2)})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    examples = LabeledTexts(JsonlFiles((str(path),)), ("a", "b"), labels=("0", "1"))
    return Data(examples, sentences.tokenizer, held_out=0.2, cache_dir=sentences.cache_dir)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, sentences, tiny) -> str:
    """A folder with a GPT that has a row for each id of its tokenizer, and none more."""
    folder = tmp_path_factory.mktemp("pretrained")
    tokenizer = sentences.prepare(CausalLanguageModel(23).layout).tokenizer
    tokenizer.save(folder / "tokenizer")
    model = replace(GPT, heads=(), vocab_size=tokenizer.vocabulary.size)
    experiment = replace(tiny, model=model, objective=CausalLanguageModel(23), data=sentences)
    shapes = nn.unbox(abstract_params(model))
    params = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.0, np.float32), shapes)
    params["token_embedding"]["embedding"] += 7.0
    write_checkpoint(folder / "checkpoints", 0, experiment, tokenizer_files(folder / "tokenizer"), params)
    return str(folder)


@pytest.fixture(scope="module")
def experiment(tiny, data) -> Experiment:
    objective = CausalClassification(24, both_orders=True)
    evaluation = Evaluation(every=0, rows=40)
    changes = {"steps": 80, "batch_size": 16, "checkpoints": Checkpointing(every=0), "logging": Logging(every=20)}
    return replace(tiny, model=GPT, objective=objective, data=data, evaluation=evaluation, **changes)


@pytest.mark.slow
def test_a_gpt_learns_its_task_beside_its_language(experiment, train, tmp_path):
    train(experiment, tmp_path)
    figures = json.loads((tmp_path / "held_out.json").read_text())
    assert set(figures) == {"loss", "accuracy", "language_model_loss", "examples", "constant_loss"}
    assert figures["accuracy"] > 0.9
    # A guess among the tokenizer's ids costs 4.4.
    assert figures["language_model_loss"] < 2.5
    samples = (tmp_path / "samples.txt").read_text()
    assert samples.count("label:  ") == samples.count("model:  ") == 5
    assert samples.count("text:   ") == 10
    model = t5x_lite.load(tmp_path)
    assert model.config == experiment.model
    assert isinstance(model.generate("beta gam", max_length=3), str)


@pytest.mark.slow
def test_a_start_from_a_model_without_the_marks(experiment, pretrained, share_program):
    """The rows of the tokenizer's ids are that model's; those after them, which it lacks, are new."""
    printed = io.StringIO()
    console = Console(file=printed, width=400)
    start = replace(experiment, start=FromModel(pretrained))
    prepared = prepare(start, console)
    program = share_program(start, prepared.objective, make_mesh(MeshShape(), jax.devices()[:1]))
    state = first_state(program, prepared, console)
    size = prepared.store.tokenizer.vocabulary.size
    assert t5x_lite.load(pretrained).config.vocab_size == size < 101
    message = f"random are classification/scores/kernel; random too are {104 - size} ids of token_embedding/embedding"
    assert message in printed.getvalue()
    table = np.asarray(state.params["token_embedding"]["embedding"])
    np.testing.assert_array_equal(table[:size], 7.0)
    assert np.abs(table[size:]).max() < 0.2
    assert np.unique(table[size:]).size > 16


def test_a_model_without_room_for_the_marks(experiment, pretrained):
    size = t5x_lite.load(pretrained).config.vocab_size
    with pytest.raises(InputError, match=rf"the tokenizer's {size} ids and the objective's 3 new ones .*{size + 3} or"):
        prepare(
            replace(experiment, model=replace(GPT, vocab_size=size + 2), start=FromModel(pretrained)),
            Console(file=io.StringIO()),
        )


CASES = {
    "GPT": (GPT, CausalClassification(24, both_orders=True)),
    "BART": (BART, Classification(24)),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["GPT", "BART"])
def test_eight_devices_are_one(experiment, data, share_program, family):
    model, objective = CASES[family]
    store = data.prepare(objective.layout)
    objective = objective.for_vocabulary(store.tokenizer.vocabulary)
    raw = stack(store.train[:16])
    changed = replace(experiment, model=model, objective=objective)

    def figures(mesh, devices):
        program = share_program(replace(changed, mesh=mesh), objective, make_mesh(mesh, jax.devices()[:devices]))
        _, metrics = program.train_step(new_state(program), raw)
        return {name: float(value) for name, value in metrics.items()}

    one, eight = figures(MeshShape(), 1), figures(MeshShape(2, 2, 2), 8)
    assert one.keys() == eight.keys()
    for name, value in one.items():
        assert eight[name] == pytest.approx(value, rel=2e-5), name
