"""Recurrent layers: a loop over time whose weights' gradients are one product for all of time.

Dimension letters as elsewhere, and: U units, G gates times U, P outputs of a layer (U, or the size of its projection).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float

from t5x_lite.kernels.cpu import multiply_few_rows
from t5x_lite.layers.dense import Dropout, multiply
from t5x_lite.layers.parameters import parameter
from t5x_lite.parallel.partitioning import constrain_sharding

Product = Callable[[str, Array], Array]
"""`product(name, x)`: x times the weights of that name, once a step, and what is added to it."""
TimeStep = Callable[[Product, Any, Any, Any], tuple[Any, Any]]
"""(product, shared, state, x) to (state, y)."""
CellName = Literal["lstm", "gru"]
KEPT = "product"
"""The name of what a loop keeps for its gradients."""


def scan_time(
    step: TimeStep,
    weights: Mapping[str, Float[Array, "_ _"]],
    shared: Any,
    state: Any,
    xs: Any,
    *,
    added: Mapping[str, Float[Array, "L *B _"]] | None = None,
    reverse: bool,
) -> tuple[Any, Any]:
    """`jax.lax.scan` of a step with weights: (the last state, the outputs of all steps, time in front).

    The gradient of a matrix is the product of what it was multiplied with at all steps and of the gradients of these
    products. `jax.lax.scan` by itself has a product, and reads and writes a sum as large as the matrix, at each step.

    Args:
      step: multiplies with `product` alone; what else it reads of arrays is in its arguments.
      weights: matrices in the type that they are multiplied in.
      shared: arrays that are the same at all steps.
      state: those that one step hands to the next.
      xs: those of each step, time in front.
      added: to the products of these names. As a part of `xs` it would be kept beside the product, and its gradient,
        which is the product's, written twice.
      reverse: from the last step to the first.
    """

    @jax.custom_vjp
    def scan(weights: Any, shared: Any, state: Any, xs: Any, added: Any) -> tuple[Any, Any]:
        def body(state: Any, x: Any) -> tuple[Any, Any]:
            x, added = x

            def product(name: str, vector: Array) -> Array:
                y = vector @ weights[name]
                return y + added[name] if name in added else y

            return step(product, shared, state, x)

        return jax.lax.scan(body, state, (xs, added), reverse=reverse)

    def forward(weights: Any, shared: Any, state: Any, xs: Any, added: Any) -> tuple[Any, Any]:
        def probed(probes: Any, shared: Any, state: Any, xs: Any) -> tuple[Any, Any]:
            """The gradients of what is added to the products, zeros at least, are those of the products."""

            def body(state: Any, x: Any) -> tuple[Any, Any]:
                (x, probes), factors = x, {}

                def product(name: str, vector: Array) -> Array:
                    factors[name] = vector
                    return checkpoint_name(multiply_few_rows(vector, weights[name]) + probes[name], KEPT)

                state, y = step(product, shared, state, x)
                return state, (y, factors)

            # What a step computes element by element from its products costs less than to keep it.
            policy = jax.checkpoint_policies.save_only_these_names(KEPT)
            body = jax.checkpoint(body, policy=policy, prevent_cse=False)
            state, (ys, factors) = jax.lax.scan(body, state, (xs, probes), reverse=reverse)
            return (state, ys), factors

        shapes = _shapes_of_products(step, weights, shared, state, jax.tree.map(lambda x: x[0], xs))
        length = len(jax.tree.leaves((xs, added))[0])
        probes = added | {
            name: jnp.zeros((length, *shape.shape), shape.dtype) for name, shape in shapes.items() if name not in added
        }
        outputs, backward, factors = jax.vjp(probed, probes, shared, state, xs, has_aux=True)
        return outputs, (backward, factors)

    def backward(kept: tuple[Any, Any], gradients: Any) -> tuple[Any, ...]:
        of_products, *others = kept[0](gradients)
        of_weights = {
            name: jnp.einsum("...I,...O->IO", kept[1][name], gradient) for name, gradient in of_products.items()
        }
        return of_weights, *others, {name: of_products[name] for name in added}

    added = dict(added or {})
    scan.defvjp(forward, backward)
    return scan(dict(weights), shared, state, xs, added)


def _shapes_of_products(step: TimeStep, weights: Any, *arguments: Any) -> dict[str, jax.ShapeDtypeStruct]:
    def products(weights: Any, *arguments: Any) -> dict[str, Array]:
        made = {}

        def product(name: str, vector: Array) -> Array:
            if name in made:
                raise ValueError(f"a step multiplies by {name!r} twice; give the second product a name of its own")
            made[name] = vector @ weights[name]
            return made[name]

        step(product, *arguments)
        return made

    return jax.eval_shape(products, weights, *arguments)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CellState:
    """What a layer hands from one step to the next; the leaves may also be what transformations of jax put there."""

    output: Any
    """[*B P]."""
    memory: Any = None
    """[*B U] of an LSTM."""


@dataclass(frozen=True)
class Cell:
    """One recurrent layer's equations, and the sizes of its weights."""

    kind: CellName
    units: int
    """U."""
    projection: int | None = None
    """P of an LSTM whose output is multiplied by a matrix (Sak et al. 2014); None: there is none, and P is U."""
    memory_clip: float | None = None
    """An LSTM's memory stays within this bound on either side."""
    output_clip: float | None = None
    """Likewise the projected output."""
    reset: Literal["after", "before"] = "after"
    """Whether a GRU's reset gate multiplies what the matrix gives, as in cuDNN and PyTorch, or what it reads (Cho et
    al. 2014, equation 8)."""

    @property
    def num_gates(self) -> int:
        return 4 if self.kind == "lstm" else 3

    @property
    def output_size(self) -> int:
        """P."""
        return self.projection or self.units

    def bias_init(self, key: Any, shape: tuple[int], dtype: Any = jnp.float32) -> Float[Array, "G"]:
        """Zeros, and ones for the forget gate of an LSTM, which would lose half of its memory at each step otherwise
        (Jozefowicz et al. 2015, section 2.1)."""
        forgets = (self.kind == "lstm") & (jnp.arange(shape[0]) // self.units == 1)
        return forgets.astype(dtype)

    def weight_shapes(self) -> dict[str, tuple[int, int]]:
        """What multiplies a layer's own output."""
        if self.kind == "lstm":
            projection = {"projection": (self.units, self.projection)} if self.projection else {}
            return {"recurrent": (self.output_size, 4 * self.units)} | projection
        if self.reset == "after":
            return {"recurrent": (self.units, 3 * self.units)}
        return {"recurrent": (self.units, 2 * self.units), "candidate": (self.units, self.units)}

    def zeros(self, batch: tuple[int, ...], dtype: Any) -> CellState:
        """The state before the first step."""
        memory = jnp.zeros((*batch, self.units), jnp.float32) if self.kind == "lstm" else None
        return CellState(jnp.zeros((*batch, self.output_size), dtype), memory)

    def step(
        self, product: Product, bias: Float[Array, "_"] | None, state: CellState, gates: Float[Array, "*B G"] | None
    ) -> CellState:
        """The next state. Gates are input, forget, candidate, output of an LSTM (Hochreiter and Schmidhuber 1997; Gers
        et al. 2000), reset, update, candidate of a GRU (Cho et al. 2014).

        Args:
          product: knows the `weight_shapes`.
          bias: of a GRU that resets after, [3 U], added to what the matrix gives.
          gates: the layer's input times its matrix, with a bias; None: `product` adds it, an LSTM's.
        """
        if self.kind == "gru":
            return CellState(self._gru(product, bias, state.output, gates))
        own = product("recurrent", state.output)
        gates = (own if gates is None else gates + own).astype(jnp.float32)
        # One tanh for all: a sigmoid is 0.5 tanh(x / 2) + 0.5.
        slope = jnp.repeat(jnp.array([0.5, 0.5, 1.0, 0.5]), self.units)
        i, f, candidate, o = jnp.split(jnp.tanh(gates * slope.reshape((1,) * (gates.ndim - 1) + (-1,))), 4, axis=-1)
        i, f, o = 0.5 * i + 0.5, 0.5 * f + 0.5, 0.5 * o + 0.5
        memory = _clipped(f * state.memory + i * candidate, self.memory_clip)
        output = (o * jnp.tanh(memory)).astype(state.output.dtype)
        if self.projection:
            output = _clipped(product("projection", output), self.output_clip)
        return CellState(output, memory)

    def _gru(
        self, product: Product, bias: Float[Array, "_"] | None, output: Float[Array, "*B U"], gates: Array
    ) -> Float[Array, "*B U"]:
        units = self.units
        own = product("recurrent", output)
        if bias is not None:
            own += bias.reshape((1,) * (own.ndim - 1) + (-1,))
        gates, own = gates.astype(jnp.float32), own.astype(jnp.float32)
        reset, update = jnp.split(jax.nn.sigmoid(gates[..., : 2 * units] + own[..., : 2 * units]), 2, axis=-1)
        if self.reset == "after":
            candidate = reset * own[..., 2 * units :]
        else:
            candidate = product("candidate", (reset * output).astype(output.dtype))
        candidate = jnp.tanh(gates[..., 2 * units :] + candidate)
        return ((1.0 - update) * candidate + update * output).astype(output.dtype)


def _clipped(x: Array, bound: float | None) -> Array:
    return x if bound is None else jnp.clip(x, -bound, bound)


def uniform(scale: float) -> nn.initializers.Initializer:
    """Numbers between -scale and scale, as the papers' matrices begin."""
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -scale, scale)


@dataclass(frozen=True)
class LayerWeights:
    """Those of one layer. A device has its own ones whole: a loop over time would gather them at each step."""

    input: Float[Array, "D G"]
    """As it is stored."""
    bias: Float[Array, "G"]
    own: dict[str, Float[Array, "_ _"]]
    """What multiplies the layer's output."""
    own_bias: Float[Array, "G"] | None
    """Of a GRU that resets after."""
    dtype: Any

    def gates(self, x: Float[Array, "B L D"]) -> Float[Array, "L B G"]:
        """What the inputs of all steps add to the gates."""
        gates = multiply(x.swapaxes(0, 1), self.input, ("embed", "mlp"), self.dtype) + self.bias[None, None]
        return constrain_sharding(gates, None, "activation_batch", None)


class CellWeights(nn.Module):
    """Makes the weights of a layer whose input has a given size."""

    cell: Cell
    kernel_init: Callable[..., Array] = uniform(0.08)
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, input_size: int) -> LayerWeights:
        cell = self.cell
        size = cell.num_gates * cell.units

        def whole(x: Array) -> Array:
            return constrain_sharding(x.astype(self.dtype), *(None,) * x.ndim)

        def bias(name: str) -> Float[Array, "G"]:
            return whole(parameter(self, name, cell.bias_init, ("mlp",), (size,)))

        def matrix(name: str, shape: tuple[int, int]) -> Float[Array, "_ _"]:
            return parameter(self, name, self.kernel_init, ("embed", "mlp"), shape)

        return LayerWeights(
            matrix("input", (input_size, size)),
            bias("bias"),
            {name: whole(matrix(name, shape)) for name, shape in cell.weight_shapes().items()},
            bias("own_bias") if cell.kind == "gru" and cell.reset == "after" else None,
            self.dtype,
        )


class Recurrent(nn.Module):
    """One layer in one direction. Padding changes no state, and has outputs of 0."""

    cell: Cell
    kernel_init: Callable[..., Array] = uniform(0.08)
    dtype: Any = jnp.float32
    reverse: bool = False
    """From the last token to the first."""

    @nn.compact
    def __call__(
        self, x: Float[Array, "B L D"], valid: Bool[Array, "B L"] | None = None, state: CellState | None = None
    ) -> tuple[Float[Array, "B L P"], CellState]:
        """(the outputs, the state after the last token in its direction); `valid` is false at padding, on any side."""
        cell = self.cell

        def step(product: Product, bias: Any, state: CellState, x: Any) -> tuple[CellState, Array]:
            gates, valid = x
            new = cell.step(product, bias, state, gates)
            if valid is None:
                return new, new.output
            kept = jax.tree.map(lambda new, old: jnp.where(valid[:, None], new, old), new, state)
            return kept, jnp.where(valid[:, None], new.output, 0)

        weights = CellWeights(cell, self.kernel_init, self.dtype, name="weights")(x.shape[-1])
        state = cell.zeros(x.shape[:1], self.dtype) if state is None else state
        state = jax.tree.map(lambda one: constrain_sharding(one, "activation_batch", None), state)
        gates, valid = weights.gates(x), None if valid is None else valid.swapaxes(0, 1)
        gates, added = (None, {"recurrent": gates}) if cell.kind == "lstm" else (gates, {})
        state, outputs = scan_time(
            step, weights.own, weights.own_bias, state, (gates, valid), added=added, reverse=self.reverse
        )
        return constrain_sharding(outputs.swapaxes(0, 1), "activation_batch", "activation_length", None), state


class RecurrentStack(nn.Module):
    """Layers over one another, each in one direction or in both, whose outputs stand side by side.

    Dropout is between the layers (Zaremba et al. 2014).
    """

    cells: tuple[Cell, ...]
    bidirectional: tuple[bool, ...]
    """Of each layer."""
    dropout_rate: float = 0.0
    residual_from: int | None = None
    """The first layer, from 0, whose input is added to its output (Wu et al. 2016, section 3.1); None: none is."""
    kernel_init: Callable[..., Array] = uniform(0.08)
    dtype: Any = jnp.float32

    def setup(self) -> None:
        def layers(reverse: bool, made: tuple[bool, ...]) -> list[Recurrent | None]:
            return [
                Recurrent(cell, self.kernel_init, self.dtype, reverse) if one else None
                for cell, one in zip(self.cells, made, strict=True)
            ]

        self.forward = layers(False, (True,) * len(self.cells))
        self.backward = layers(True, self.bidirectional)
        self.dropout = Dropout(self.dropout_rate)

    def __call__(
        self, x: Float[Array, "B L D"], valid: Bool[Array, "B L"] | None = None, *, deterministic: bool = True
    ) -> tuple[Float[Array, "B L P"], list[tuple[CellState, ...]]]:
        """(the last layer's outputs, of each layer the last state of each direction)."""
        states = []
        for index, both in enumerate(self.bidirectional):
            below = self.dropout(x, deterministic=deterministic) if index else x
            x, state = self.forward[index](below, valid)
            of_layer = (state,)
            if both:
                backward, state = self.backward[index](below, valid)
                x, of_layer = jnp.concatenate([x, backward], axis=-1), (*of_layer, state)
            if self.residual_from is not None and index >= self.residual_from:
                x += below
            states.append(of_layer)
        return x, states
