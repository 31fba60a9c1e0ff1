"""A run small enough to be made many times, and its compiled program, shared."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from t5x_lite.data import Bytes, Data, TextFiles, Vocabulary
from t5x_lite.models import T5Config
from t5x_lite.objectives import SpanCorruption
from t5x_lite.parallel import make_mesh
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.optimizers import AdamW
from t5x_lite.training.schedules import Constant
from t5x_lite.training.step import Program

VOCABULARY = Vocabulary(size=259, first_sentinel_id=258, num_sentinels=100)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> str:
    """A text file of distinct sentences."""
    rng = np.random.default_rng(0)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    lines = [f"{index}: " + " ".join(rng.choice(words, 12)) for index in range(400)]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(scope="session")
def tiny(corpus, tmp_path_factory) -> Experiment:
    """Two layers over bytes; dropout on, so that keys matter."""
    return Experiment(
        model=T5Config(
            vocab_size=264,
            embed_dim=16,
            num_heads=4,
            head_dim=4,
            mlp_dim=24,
            num_encoder_layers=1,
            num_decoder_layers=2,
            gated=True,
            tied=False,
            dropout_rate=0.1,
        ),
        objective=SpanCorruption(input_length=24),
        data=Data(TextFiles((corpus,)), Bytes(), held_out=0.1, cache_dir=str(tmp_path_factory.mktemp("cache"))),
        optimizer=AdamW(Constant(3e-3), clip_norm=1.0),
        steps=6,
        batch_size=8,
        evaluation=Evaluation(every=3, rows=10),
        checkpoints=Checkpointing(every=2, keep_last=10, keep_best=0),
        logging=Logging(every=1),
    )


@pytest.fixture(scope="session")
def make_program():
    """Programs by experiment and number of devices, each compiled once a session."""
    programs: dict = {}

    def make(experiment: Experiment, devices: int = 1) -> Program:
        if (experiment, devices) not in programs:
            mesh = make_mesh(experiment.mesh, jax.devices()[:devices])
            objective = experiment.objective.for_vocabulary(VOCABULARY)
            programs[experiment, devices] = Program(experiment, objective, mesh)
        return programs[experiment, devices]

    return make


@pytest.fixture(scope="session")
def raw(tiny) -> np.ndarray:
    """A batch of raw ids."""
    shape = (tiny.batch_size, tiny.objective.raw_length)
    return np.random.default_rng(1).integers(3, 200, shape).astype(np.int32)


@pytest.fixture(scope="session")
def without_dropout(tiny) -> Experiment:
    return replace(tiny, model=replace(tiny.model, dropout_rate=0.0))
