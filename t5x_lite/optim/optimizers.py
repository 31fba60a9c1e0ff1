"""Optimizers of the literature, put together from Optax."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.optim.masks import TrainableMask, check_pattern, with_rates
from t5x_lite.optim.schedules import Constant, CosineDecay, InverseSqrt, LinearDecay, Schedule, T5InverseSqrt
from t5x_lite.parallel import logical_axes
from t5x_lite.validation import NonNegative, Positive, PositiveFloat, Range, Validated, check_fields

_UNCHANGED = "(unchanged)"
Axes = Any
"""A tree like the parameters, with a tuple of logical axes at each leaf."""

MomentType = Literal["float32", "bfloat16"]
Decay = Annotated[float, Range(ge=0, lt=1, remedy="choose e.g. 0.9")]


@dataclass(frozen=True)
class Optimizer(Validated, ABC):
    """The transformation of gradients into updates, their schedule, and the parameters that are frozen."""

    schedule: Schedule
    """The learning rate."""
    clip_norm: Annotated[float, Range(ge=0, remedy="choose e.g. 1.0, or 0 to turn it off")] = 0.0
    """Gradients with a larger global norm are scaled down to it; 0 turns it off."""
    frozen: tuple[str, ...] = field(default=(), kw_only=True)
    """Parameters that are not trained, by patterns over their paths, which `inspect` lists: `embeddings/*`,
    `encoder/layers/*`. They have no moments, and the gradient's norm excludes them."""
    frozen_layers: NonNegative = field(default=0, kw_only=True)
    """The lowest layers of each stack, encoder or decoder, that are frozen too."""
    layerwise_decay: Annotated[float, Range(gt=0, le=1, remedy="choose e.g. 0.8, or 1 for none")] = field(
        default=1.0, kw_only=True
    )
    """The learning rate of a layer as a share of that of the layer above it, down to the embeddings; ELECTRA was
    fine-tuned with 0.8 and, large, 0.9 (Clark et al. 2020, appendix B); 1 is the same rate for all. See
    `rate_factors`."""
    layerwise_offset: Positive = field(default=2, kw_only=True)
    """How many such steps the last layer is below the head: 2 in ELECTRA's code, 1 in BEiT's and MAE's."""

    rates: tuple[tuple[str, float], ...] = field(default=(), kw_only=True)
    """Factors of the learning rate of some parameters, by patterns as in `frozen`, of which the first that matches
    counts: (("backbone/*", 0.1),) is DETR's (Carion et al. 2020, section 4)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for pattern, rate in self.rates:
            if not 0 < rate < float("inf"):
                raise InputError(f"optimizer.rates has {rate} for {pattern!r}; choose e.g. 0.1, or freeze it")

    def check_model(self, model: ModelConfig) -> None:
        """Raises `InputError` where a model lacks what is to be frozen or has a rate, or has nothing to train."""
        if self.frozen or self.frozen_layers or self.rates:
            boxed = abstract_params(model)
            self.trained(logical_axes(boxed)).check(nn.unbox(boxed))
            for pattern, _ in self.rates:
                check_pattern(pattern, flatten_dict(nn.unbox(boxed), sep="/"), f"optimizer.rates with {pattern!r}")

    def freezing(self, patterns: tuple[str, ...]) -> Self:
        """This optimizer with these parameters frozen too.

        >>> Adam(frozen=("embeddings/*",)).freezing(("embeddings/*", "pooler/*")).frozen
        ('embeddings/*', 'pooler/*')
        """
        return replace(self, frozen=tuple(dict.fromkeys(self.frozen + patterns))) if patterns else self

    def trained(self, axes: Axes) -> TrainableMask:
        """The mask of the parameters that are not frozen, for parameters with these logical axes."""
        return TrainableMask(axes, self.frozen, self.frozen_layers)

    def build(self, axes: Axes, below_layers: tuple[str, ...] = ()) -> optax.GradientTransformation:
        """The transformation for parameters with these logical axes; `below_layers` is the model's."""
        trained = self.trained(axes)
        clip = [optax.clip_by_global_norm(self.clip_norm)] if self.clip_norm else []
        # Optax counts the updates already done, schedules the current one.
        rate = optax.scale_by_learning_rate(lambda count: self.schedule.learning_rate(count + 1))
        transformation = optax.chain(*clip, *self.scaling(trained.axes(axes)), rate)
        decay, offset = self.layerwise_decay, self.layerwise_offset
        return with_rates(trained.only(transformation), axes, decay, below_layers, offset, self.rates)

    @abstractmethod
    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        """The transformations between clipping and the learning rate."""


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) with the constants of Vaswani et al. 2017, section 5.3."""

    schedule: Schedule = InverseSqrt()
    b1: Decay = 0.9
    """Decay of the mean of gradients."""
    b2: Decay = 0.98
    """Decay of the mean of squared gradients."""
    eps: float = 1e-9
    """Added to the root of the second moment."""
    first_moment: MomentType = "float32"
    """Type that the mean of gradients is kept in; bfloat16 saves 2 bytes a parameter (Optax has none of 8 bits)."""

    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        return [optax.scale_by_adam(self.b1, self.b2, self.eps, mu_dtype=self.first_moment)]


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); norms and biases do not decay."""

    schedule: Schedule = LinearDecay()
    b2: Decay = 0.999
    eps: float = 1e-6
    weight_decay: Annotated[float, Range(ge=0, remedy="choose e.g. 0.01")] = 0.01
    """Times the learning rate: the share of a weight that is lost at each step."""

    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        return [*super().scaling(axes), optax.add_decayed_weights(self.weight_decay, mask=decays(axes))]


@dataclass(frozen=True)
class Lamb(AdamW):
    """LAMB (You et al. 2020): AdamW's update, scaled for each matrix to the length of the matrix; for large batches.

    A matrix is that of one layer, also where a stack keeps all layers in one array. Norms and biases take AdamW's
    update as it is, as in the authors' and ALBERT's code.
    """

    schedule: Schedule = LinearDecay(peak=1.76e-3, warmup_steps=3125, total_steps=125_000)

    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        return [*super().scaling(axes), each_layer(optax.scale_by_trust_ratio(), axes, only=decays(axes))]


@dataclass(frozen=True)
class Sgd(Optimizer):
    """Stochastic gradient descent with momentum, by which residual networks are trained (He et al. 2016, section 3.4)
    and ViTs fine-tuned (Dosovitskiy et al. 2021, section 4.1); as torch has it, without dampening."""

    schedule: Schedule = CosineDecay(peak=0.1, warmup_steps=0, floor=0.0)
    momentum: Decay = 0.9
    """The share of the last update's direction that is kept, to which the gradient is added."""
    nesterov: bool = False
    """Whether the update looks one step of momentum ahead (Sutskever et al. 2013, section 2.1)."""
    weight_decay: Annotated[float, Range(ge=0, remedy="choose e.g. 1e-4, or 0 for none")] = 0.0
    """That share of a weight is added to its gradient, after clipping and before momentum; norms and biases do not
    decay (Goyal et al. 2017, section 5.1)."""

    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        decay = [optax.add_decayed_weights(self.weight_decay, mask=decays(axes))] if self.weight_decay else []
        return [*decay, optax.trace(self.momentum, self.nesterov)]


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011), by which ELMo was trained, as TensorFlow has it: the sum of squared gradients begins
    above 0."""

    schedule: Schedule = Constant(0.2)
    initial_sum: Annotated[float, Range(ge=0, remedy="choose e.g. 1.0")] = 1.0
    """What the sum of squared gradients begins with."""

    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        return [optax.scale_by_rss(self.initial_sum, eps=0.0)]


@dataclass(frozen=True)
class Lars(Sgd):
    """LARS (You et al. 2017): `Sgd` whose gradient of each matrix is scaled to a share of the matrix's length, before
    momentum; for large batches.

    A matrix is that of one layer, also where a stack keeps all layers in one array. Norms and biases are not scaled.
    """

    trust_coefficient: PositiveFloat = 1e-3
    """That share."""

    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        trust = optax.scale_by_trust_ratio(trust_coefficient=self.trust_coefficient)
        *decay, momentum = super().scaling(axes)
        return [*decay, each_layer(trust, axes, only=decays(axes)), momentum]


@dataclass(frozen=True)
class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern 2018) as T5 was trained with it: no momentum, steps relative to parameter scale."""

    schedule: Schedule = T5InverseSqrt()
    decay_rate: Decay = 0.8
    """Second moments decay by 1 - step ** -decay_rate."""
    clipping_threshold: PositiveFloat = 1.0
    """Updates of a matrix with a larger root mean square are scaled down to it."""
    min_scale: PositiveFloat = 1e-3
    """Lower bound of a parameter's scale, so that zeros can leave zero."""
    min_dim_size_to_factor: Positive = 128
    """Matrices with both dimensions at least this large keep factored second moments."""

    def scaling(self, axes: Axes) -> list[optax.GradientTransformation]:
        one_matrix = optax.chain(
            optax.scale_by_factored_rms(decay_rate=self.decay_rate, min_dim_size_to_factor=self.min_dim_size_to_factor),
            optax.clip_by_block_rms(self.clipping_threshold),
            optax.scale_by_param_block_rms(self.min_scale),
        )
        return [_with_axes_of_factors(each_layer(one_matrix, axes), self.min_dim_size_to_factor)]


def decays(axes: Axes) -> Any:
    """True for the weights that decay: kernels and embeddings, no norms, no biases (of layers or of positions), and of
    models of pictures neither special tokens nor positions, which may be sines that are not trained; nor single
    numbers.

    The parameter's name decides; its rank cannot, for the norms of a scanned stack are matrices.
    """

    def decays(path: Any, axes: tuple[str | None, ...]) -> bool:
        name = path[-1].key
        return not (name in ("scale", "bias") or name.endswith("_token") or "patch_positions" in axes or not axes)

    return jax.tree.map_with_path(decays, axes, is_leaf=_is_axes)


def each_layer(
    transformation: optax.GradientTransformation, axes: Axes, only: Any = None
) -> optax.GradientTransformation:
    """Applies a transformation of whole matrices to each layer of a scanned stack separately.

    Factored moments, clipping by root mean square and parameter scale belong to the matrix of one layer, while the
    parameters of all layers are one array. `only` is a tree like `axes`, false for parameters that stay as they are.
    """
    # Stacks differ in depth, and one vmap has one length: the stack is the first name of the path.
    labels = jax.tree.map_with_path(
        lambda path, names: path[0].key if "layers" in names else "", axes, is_leaf=_is_axes
    )
    if only is not None:
        labels = jax.tree.map(lambda label, included: label if included else _UNCHANGED, labels, only)
    over_layers = optax.GradientTransformation(
        jax.vmap(transformation.init),
        lambda updates, state, params=None: jax.vmap(transformation.update)(updates, state, params),
    )
    names = sorted(set(jax.tree.leaves(labels)))  # in one order in all processes, which compile one program
    others = {"": transformation, _UNCHANGED: optax.identity()}
    return optax.partition({name: others.get(name, over_layers) for name in names}, labels)


def _with_axes_of_factors(
    transformation: optax.GradientTransformation, min_dim_size_to_factor: int
) -> optax.GradientTransformation:
    """The transformation, whose `init` gives factored moments of boxed parameters their logical axes.

    A factor lacks one of the two largest dimensions of its matrix, and the placeholder of a parameter without factors
    has none of its axes; Optax leaves both with those of the whole parameter.
    """

    def rename(lost: int, param: Any, factor: Any) -> Any:
        """`lost` counts dimensions by size, -1 being the largest."""
        if not _is_box(param) or not _is_box(factor):
            return factor
        stack = tuple(axis for axis in param.names if axis == "layers")
        axes, shape = param.names[len(stack) :], np.array(param.value.shape[len(stack) :])
        order = np.argsort(shape)
        if len(shape) < 2 or shape[order[-2]] < min_dim_size_to_factor:
            return factor.replace(names=(None,) * factor.value.ndim)
        return factor.replace(names=stack + tuple(axis for index, axis in enumerate(axes) if index != order[lost]))

    def init(params: Any) -> optax.OptState:
        def name(node: Any) -> Any:
            if not isinstance(node, optax.FactoredState):
                return node
            rows, columns = (
                jax.tree.map(functools.partial(rename, lost), params, factors, is_leaf=_is_box)
                for lost, factors in ((-1, node.v_row), (-2, node.v_col))
            )
            return node._replace(v_row=rows, v_col=columns)

        state = transformation.init(params)
        return jax.tree.map(name, state, is_leaf=lambda node: isinstance(node, optax.FactoredState))

    return optax.GradientTransformation(init, transformation.update)


def _is_box(node: Any) -> bool:
    return isinstance(node, nn.LogicallyPartitioned)


def _is_axes(node: Any) -> bool:
    return isinstance(node, tuple)


@dataclass(frozen=True)
class ParameterAverage:
    """An exponential moving average of the parameters (Polyak and Juditsky 1992): the gradients are those of the
    parameters, everything else that uses the model takes the average."""

    decay: Annotated[float, Range(ge=0, lt=1, remedy="choose e.g. 0.999, or 0 to turn it off")] = 0.0
    """The weight of the old average in each step, the rest being the new parameters: e.g. 0.999; 0 keeps no average."""
    warmup: bool = True
    """Step n, from 1, has a decay of (1 + n) / (10 + n) at most: the first parameters soon lose their weight."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="average.")

    def start(self, params: Any) -> Any:
        """The average before the first step: a copy of the parameters; None without an average."""
        return jax.tree.map(jnp.copy, params) if self.decay else None

    def update(self, average: Any, params: Any, step: Int[Array, ""]) -> Any:
        """The average after update number `step`, the first being 1, whose result is `params`."""
        if not self.decay:
            return None
        return optax.incremental_update(params, average, 1.0 - self.decay_at(step))

    def decay_at(self, step: Int[Array, ""] | int) -> Float[Array, ""]:
        """The decay at update number `step`.

        >>> average = ParameterAverage(decay=0.5)
        >>> [round(float(average.decay_at(step)), 4) for step in (1, 2, 8, 1000)]
        [0.1818, 0.25, 0.5, 0.5]
        """
        step = jnp.asarray(step, jnp.float32)
        return jnp.minimum(self.decay, (1 + step) / (10 + step)) if self.warmup else jnp.full_like(step, self.decay)
