"""The train step and the evaluation step: pure functions of the state and a batch, compiled once."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from t5x_lite.kernels.platform import train_step_options
from t5x_lite.kernels.random_bits import hash_key
from t5x_lite.models.base import abstract_params
from t5x_lite.objectives import Features, Mean, Metrics, Objective, Row, corrupt_rows
from t5x_lite.objectives.base import MEMORY, with_memory
from t5x_lite.parallel import batch_sharding, logical_axes, replicated, shardings, use_mesh
from t5x_lite.parallel.mesh import STATISTICS
from t5x_lite.retrieval.index import Corpus, ParamsAndCorpus
from t5x_lite.training.experiment import Experiment

TrainStep = Callable[["TrainState", Row], tuple["TrainState", Metrics]]
EvalStep = Callable[[Any, Row, Bool[Array, "B"], Int[Array, ""]], Metrics]
OrderedEvalStep = Callable[[Any, Row, Bool[Array, "B"], Int[Array, "2"], Any], tuple[Metrics, Any]]


class TrainState(struct.PyTreeNode):
    """What changes from step to step; the leaves are arrays, shapes or shardings."""

    step: Any
    """Updates done so far, which is the position in the data: int32, no dimensions."""
    params: Any
    opt_state: optax.OptState
    finite: Any
    """Boolean: false from the first non-finite step on, before which all else is kept."""
    average: Any = None
    """The moving average of the parameters; None in a run without one."""
    memory: Any = None
    """What rows in order leave to the next batch, the rows first: see `Objective.memory`."""
    frozen: Any = None
    """What the loss reads and no step changes, a teacher's parameters or the passages of a corpus; not in a
    checkpoint."""
    index: Any = None
    """The vectors of a corpus's passages, a `retrieval.Index`; None in a run without one."""

    @property
    def params_to_use(self) -> Any:
        """The parameters for evaluation and use: their average where there is one."""
        return self.params if self.average is None else self.average

    @property
    def evaluated(self) -> Any:
        """`params_to_use`, with a corpus as `ParamsAndCorpus`."""
        if self.index is None:
            return self.params_to_use
        return ParamsAndCorpus(self.params_to_use, Corpus(self.frozen, self.index.vectors))


class Program:
    """An experiment on a mesh: the sharding of its state, its first state, and its compiled steps.

    Args:
      experiment: the run.
      objective: its objective, knowing the vocabulary.
      mesh: the devices.
    """

    def __init__(self, experiment: Experiment, objective: Objective, mesh: Mesh):
        self.experiment, self.objective, self.mesh = experiment, objective, mesh
        self._dtype = jnp.dtype(experiment.precision.compute)
        self.module: nn.Module = experiment.model.build(dtype=self._dtype, remat=experiment.remat)
        params = abstract_params(experiment.model)
        axes = logical_axes(params)
        optimizer = experiment.effective_optimizer
        self.trained = optimizer.trained(axes)
        self.optimizer = optimizer.build(axes, experiment.model.below_layers)
        frozen = objective.abstract_frozen(experiment.model)
        boxed = jax.eval_shape(self._first_state, params).replace(frozen=frozen)
        over = ("fsdp", "data") if experiment.zero1 else ("fsdp",)
        batch, everywhere = batch_sharding(mesh), replicated(mesh)
        self.state_shardings = shardings(mesh, boxed).replace(
            opt_state=shardings(mesh, boxed.opt_state, over), memory=jax.tree.map(lambda leaf: batch, boxed.memory)
        )
        self._update_shardings = shardings(mesh, boxed.params, over)
        self.abstract_state = jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            nn.unbox(boxed),
            self.state_shardings,
        )
        self._sharded_init = jax.jit(self._init, out_shardings=self.state_shardings.replace(frozen=None))
        self.train_step: TrainStep = jax.jit(
            use_mesh(mesh)(self._train_step),
            in_shardings=(self.state_shardings, batch),
            out_shardings=(self.state_shardings, everywhere),
            donate_argnums=0,
            compiler_options=train_step_options(mesh.devices.flat[0]),
        )
        self.eval_step: EvalStep = jax.jit(
            use_mesh(mesh)(self._eval_step),
            in_shardings=(self.evaluated_shardings, batch, batch, everywhere),
            out_shardings=everywhere,
        )
        self.ordered_eval_step: OrderedEvalStep = jax.jit(
            use_mesh(mesh)(self._ordered_eval_step),
            in_shardings=(self.evaluated_shardings, batch, batch, everywhere, batch),
            out_shardings=(everywhere, batch),
        )

    def init(self) -> TrainState:
        """The state before the first step, created sharded, without `frozen` and with an index of zeros."""
        return self._sharded_init(jax.random.key(self.experiment.seed))

    @property
    def evaluated_shardings(self) -> Any:
        """Of what is evaluated: see `TrainState.evaluated`."""
        return self.state_shardings.replace(average=None).evaluated

    def encode_corpus(self, params: Any, ids: Integer[Array, "P L"]) -> Float[Array, "P E"]:
        """The vectors of the corpus's passages by the encoder of these parameters."""
        encode = jax.jit(
            use_mesh(self.mesh)(functools.partial(self.objective.encode_corpus, self.module)),
            in_shardings=(self.state_shardings.params, self.state_shardings.frozen),
            out_shardings=self.state_shardings.index.vectors,
        )
        return encode(params, ids)

    def with_index(self, state: TrainState) -> TrainState:
        """A state that has its corpus, with the index that its parameters make of it; a round that is under way goes on
        with these parameters too."""
        index = state.index.replace(vectors=self.encode_corpus(state.params, state.frozen))
        if index.encoder is not None:
            encoder = jax.tree.map(jnp.copy, state.params["passage_encoder"])
            index = index.replace(following=jnp.copy(index.vectors), encoder=encoder)
        return state.replace(index=index)

    def _init(self, key: Key[Array, ""]) -> TrainState:
        inputs = [jnp.zeros(array.shape, array.dtype) for array in self.experiment.model.abstract_inputs()]
        return nn.unbox(self._first_state(self.module.init(key, *inputs)["params"]))

    def _first_state(self, params: Any) -> TrainState:
        """With parameters in boxes that name their axes, as are what is made of them."""
        opt_state, average = self.optimizer.init(params), self.experiment.average.start(params)
        memory = self.objective.memory(self.experiment.model, self.experiment.batch_size, self._dtype)
        index = self.objective.first_index(self.experiment.model, params)
        return TrainState(jnp.int32(0), params, opt_state, jnp.bool_(True), average, memory, index=index)

    def evaluation_memory(self, batch_size: int) -> Any:
        """The memory before the first batch of an evaluation; None where rows stand for themselves."""
        objective = self.objective.for_evaluation()
        start = functools.partial(objective.memory, self.experiment.model, batch_size, self._dtype)
        return None if jax.eval_shape(start) is None else jax.jit(start, out_shardings=batch_sharding(self.mesh))()

    def _train_step(self, state: TrainState, batch: Row) -> tuple[TrainState, Metrics]:
        corrupt_key, dropout_key = jax.random.split(
            jax.random.fold_in(jax.random.key(self.experiment.seed), state.step)
        )
        if self.experiment.dropout_prng == "hash":
            dropout_key = hash_key(dropout_key)
        features = with_memory(corrupt_rows(self.objective, corrupt_key, batch), batch, state.memory)
        frozen = state.frozen if state.index is None else Corpus(state.frozen, state.index.vectors)
        (loss_sum, weight, sums), grads = self.gradients(state.params, features, dropout_key, frozen)
        if self.experiment.zero1:
            # Each device updates the parameters whose moments it holds; the compiler gathers them at the end. First all
            # of the gradients, or it would take the products that they come from apart, to send pieces meanwhile.
            grads = jax.lax.with_sharding_constraint(grads, self.state_shardings.params)
            grads, params = jax.lax.with_sharding_constraint((grads, state.params), 2 * (self._update_shardings,))
            state = state.replace(params=params)
        weight = jnp.maximum(weight, 1.0)  # a batch may have no targets
        # Every microbatch counts by its tokens, as if all were one batch. XLA computes a product where it is used; a
        # quotient would be kept.
        gradient_norm, one_over_weight = optax.tree.norm(self.trained.select(grads)) / weight, 1.0 / weight
        grads = jax.tree.map(lambda g: g * one_over_weight, grads)
        updates, opt_state = self.optimizer.update(grads, state.opt_state, state.params)
        params = bounded(optax.apply_updates(state.params, updates), self.experiment.model.upper_bounds)
        average = self.experiment.average.update(state.average, params, state.step + 1)
        if average is not None:
            # Frozen parameters keep their average to the bit; the mean of equal numbers is rounded.
            average = self.trained.merge(self.trained.select(average), state.average)
        if statistics := sums.pop(STATISTICS, None):
            means = jax.tree.map(lambda total: total / statistics.weight, statistics.sum)
            params, average = (tree and with_leaves(tree, means) for tree in (params, average))
        memory = sums.pop(MEMORY, None)
        index = state.index
        if index is not None:
            index = self.objective.next_index(self.module, index, params, state.frozen, state.step)
        new = state.replace(
            step=state.step + 1, params=params, opt_state=opt_state, average=average, memory=memory, index=index
        )

        metrics = {name: value / jnp.maximum(of, 1.0) for name, (value, of) in with_weights(sums, weight).items()}
        if index is not None:
            metrics["index_version"] = index.version
        metrics["objective"] = loss_sum / weight
        metrics["gradient_norm"] = gradient_norm
        metrics["learning_rate"] = self.experiment.optimizer.schedule.learning_rate(state.step + 1)
        finite = state.finite & jnp.isfinite(metrics["objective"]) & jnp.isfinite(metrics["gradient_norm"])
        before, after = state.replace(frozen=None), new.replace(frozen=None)
        after = jax.tree.map(lambda before, after: jnp.where(finite, after, before), before, after)
        return after.replace(finite=finite, frozen=state.frozen), metrics | {"finite": finite}

    def gradients(
        self, params: Any, features: Features, key: Key[Array, ""], frozen: Any = None
    ) -> tuple[tuple[Float[Array, ""], Float[Array, ""], Metrics], Any]:
        """(sums over the whole batch of (loss, weight, metrics), the gradient of the first, 0 where frozen)."""
        count, whole = self.experiment.accumulation, features

        def loss(params: Any, features: Features, key: Key[Array, ""]) -> tuple[Array, tuple[Array, Array, Metrics]]:
            params = self.trained.stop_gradient(params)
            sums = self.objective.loss(self.module, params, features, key, whole=whole, frozen=frozen)
            return sums[0], sums

        def microbatch(features: Features, key: Key[Array, ""]) -> tuple[Any, Any]:
            grads, sums = jax.grad(loss, has_aux=True)(params, features, key)
            return sums, grads

        if count == 1:
            return microbatch(features, key)

        # Row r goes to microbatch r % count, so that each device splits its rows and sends none.
        batches = jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[1:]).swapaxes(0, 1), features)
        keys = jax.random.split(key, count)
        microbatch = jax.jit(microbatch, inline=True)  # traced once, for its shapes and for the loop
        shapes = jax.eval_shape(microbatch, jax.tree.map(lambda x: x[0], batches), keys[0])
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def add(total: Any, batch: tuple[Features, Key[Array, ""]]) -> tuple[Any, Any]:
            (sums, grads), memory = without_memory(*microbatch(*batch))
            return jax.tree.map(jnp.add, total, (sums, grads)), memory

        zeros, _ = without_memory(*zeros)
        ((loss_sum, weight, metrics), grads), memory = jax.lax.scan(add, zeros, (batches, keys))
        if memory is not None:
            memory = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), memory)
            metrics[MEMORY] = memory
        return (loss_sum, weight, metrics), grads

    def _eval_step(self, params: Any, batch: Row, valid: Bool[Array, "B"], first_row: Int[Array, ""]) -> Metrics:
        return self._ordered_eval_step(params, batch, valid, (first_row, 1), None)[0]

    def _ordered_eval_step(
        self, params: Any, batch: Row, valid: Bool[Array, "B"], rows: Any, memory: Any
    ) -> tuple[Metrics, Any]:
        """`rows`: the number of the first one, and how much more the next one's is."""
        # One key for all runs and steps, so that held-out figures can be compared.
        objective = self.objective.for_evaluation()
        features = with_memory(corrupt_rows(objective, jax.random.key(0), batch, *rows), batch, memory)
        params, corpus = params if isinstance(params, ParamsAndCorpus) else (params, None)
        _, weight, metrics = objective.loss(self.module, params, features | {"valid": valid}, None, frozen=corpus)
        memory = metrics.pop(MEMORY, None)
        return with_weights(metrics, weight), memory


def without_memory(sums: Any, grads: Any) -> tuple[Any, Any]:
    """((sums, grads), the memory that is among the metrics of the sums, or None)."""
    loss_sum, weight, metrics = sums
    rest = {name: value for name, value in metrics.items() if name != MEMORY}
    return ((loss_sum, weight, rest), grads), metrics.get(MEMORY)


def bounded(params: Any, bounds: Mapping[str, float]) -> Any:
    """Parameters, some of them at most at a bound, by their names joined by /."""
    leaves = flatten_dict(params, sep="/")
    return with_leaves(
        params, unflatten_dict({name: jnp.minimum(leaves[name], bounds[name]) for name in bounds}, sep="/")
    )


def with_leaves(tree: Any, others: Any) -> Any:
    """A tree of dictionaries with some of its leaves replaced by those of another one."""
    return unflatten_dict(flatten_dict(tree) | flatten_dict(others))


def with_weights(metrics: Metrics, weight: Float[Array, ""]) -> dict[str, Mean]:
    """Every metric as a mean with its weight."""
    return {name: value if isinstance(value, Mean) else Mean(value, weight) for name, value in metrics.items()}
