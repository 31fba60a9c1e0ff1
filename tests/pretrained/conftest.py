"""A T5 as a run; encoders with random parameters and a small tokenizer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from t5x_lite.data import Bytes, Data, Tokenizer, make_tokenizer
from t5x_lite.models import BertConfig, ElectraConfig, ElectraPairConfig
from t5x_lite.objectives import SpanCorruption
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained import PretrainedEncoder, PretrainedEncoderDecoder, load
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import WordPiece
from t5x_lite.training.experiment import Experiment

MAX_LENGTH = 70
SIZES = {"vocab_size": 150, "num_heads": 3, "mlp_dim": 17, "num_layers": 4, "max_length": MAX_LENGTH}


@pytest.fixture(scope="session")
def write_step(t5) -> Callable[..., Experiment]:
    """`write_step(folder, step, params, **model)`: a checkpoint of the tiny T5, with these fields of its config."""

    def write(folder: Path, step: int, params: Any, **model: Any) -> Experiment:
        tokenizer = make_tokenizer(Bytes(), lambda: iter(()))
        tokenizer.save(folder / "tokenizer")
        experiment = Experiment(
            model=replace(t5[0].config, **model),
            objective=SpanCorruption(input_length=16),
            data=Data(tokenizer=Bytes()),
            optimizer=Adafactor(),
            steps=5,
            batch_size=8,
        )
        write_checkpoint(folder / "checkpoints", step, experiment, tokenizer_files(folder / "tokenizer"), params)
        return experiment

    return write


@pytest.fixture(scope="session")
def run(t5, write_step, tmp_path_factory) -> Path:
    """A run with checkpoints at steps 9 and 10; every parameter of the first is half of the second's."""
    folder = tmp_path_factory.mktemp("run")
    write_step(folder, 9, jax.tree.map(lambda leaf: leaf / 2, t5[1]))
    write_step(folder, 10, t5[1])
    return folder


@pytest.fixture(scope="session")
def model(run) -> PretrainedEncoderDecoder:
    return load(run)


@pytest.fixture(scope="session")
def wordpiece() -> Tokenizer:
    """Fewer ids than the models have rows."""
    texts = [f"{number} green bottles are hanging on the wall and {number} fall" for number in range(50)]
    return make_tokenizer(WordPiece(vocab_size=120), lambda: iter(texts))


@pytest.fixture(scope="session")
def make_encoder(make_params, wordpiece) -> Callable[..., PretrainedEncoder]:
    def make(config: Any, tokenizer: Tokenizer | None = wordpiece) -> PretrainedEncoder:
        ids = jnp.ones((1, 2), jnp.int32)
        return PretrainedEncoder(config, config.build(), make_params(config.build(), 0, ids, ids), tokenizer)

    return make


@pytest.fixture(scope="session")
def bert(make_encoder) -> PretrainedEncoder:
    return make_encoder(BertConfig(embed_dim=12, heads=("masked_lm", "sentence_pair"), **SIZES))


@pytest.fixture(scope="session")
def electra(make_encoder) -> PretrainedEncoder:
    """The two networks together."""
    discriminator = ElectraConfig(embed_dim=12, token_embed_dim=7, heads=("replaced_token",), **SIZES)
    generator = replace(discriminator, embed_dim=6, num_layers=2, mlp_dim=11, heads=("masked_lm",))
    return make_encoder(ElectraPairConfig(generator, discriminator))
