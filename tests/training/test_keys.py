"""No random key is used twice, in what any config computes in a step."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from jax.experimental.key_reuse._core import check_key_reuse  # the switch jax.debug_key_reuse checks what runs

from t5x_lite.cli.arguments import load_config
from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.models import abstract_params
from t5x_lite.objectives.base import corrupt_rows, with_memory
from t5x_lite.planning.plan import objective_without_text
from t5x_lite.retrieval import Corpus

from ..slow import mostly_slow

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))
TINY = [path for path in CONFIGS if "tiny" in path.stem]
KEY = jax.eval_shape(lambda: jax.random.key(0))


def twice(key):
    return jax.random.normal(key) + jax.random.normal(key)


@pytest.mark.parametrize(
    "draw",
    [
        twice,
        lambda key: jax.vmap(twice)(jax.random.split(key)),
        lambda key: jax.lax.map(twice, jax.random.split(key)),
        lambda key: jax.jit(jax.checkpoint(twice))(key),
    ],
    ids=["plainly", "in rows", "in a loop", "rematerialised"],
)
def test_the_check_finds_a_key_that_is_used_twice(draw):
    with pytest.raises(jax.errors.KeyReuseError):
        check_key_reuse(draw, KEY)


def pair_of(experiment):
    """The model and the objective: configs differ in size else."""
    return type(experiment.model), type(experiment.objective)


@functools.cache
def of_tiny_configs():
    return {pair_of(load_config(str(path))) for path in TINY}


@pytest.fixture(scope="module")
def checked() -> set[tuple[type, type]]:
    """The pairs that have been checked."""
    return set()


@pytest.mark.parametrize("path", mostly_slow(CONFIGS, *TINY), ids=lambda path: path.stem)
def test_corruption_augmentation_and_dropout_use_each_key_once(path, checked):
    experiment = load_config(str(path))
    pair = pair_of(experiment)
    if experiment.objective.teacher or pair in checked or (path not in TINY and pair in of_tiny_configs()):
        return  # a teacher is a run that has not been made
    checked.add(pair)
    objective, module, corpus = objective_without_text(experiment), experiment.model.build(), None
    params = nn.unbox(abstract_params(experiment.model))
    if objective.corpus_layout is not None:
        objective = objective.for_corpus(8)
        index = nn.unbox(jax.eval_shape(functools.partial(objective.first_index, experiment.model), params))
        corpus = Corpus(nn.unbox(objective.abstract_frozen(experiment.model)), index.vectors)

    def loss(params, corpus, batch, corrupt_key, dropout_key):
        features = corrupt_rows(objective, corrupt_key, batch)
        features = with_memory(features, batch, objective.memory(experiment.model, 4, jnp.float32))
        return objective.loss(module, params, features, dropout_key, frozen=corpus)

    check_key_reuse(loss, params, corpus, abstract_batch(objective.layout.batch_spec, 4), KEY, KEY)
