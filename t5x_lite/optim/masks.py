"""Groups of parameters by their paths, and what an optimizer does to some: freezing, layerwise learning rates."""

import fnmatch
from collections.abc import Container, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Float

from t5x_lite.errors import InputError
from t5x_lite.parallel.mesh import STATISTICS


def group(path: str, networks: Container[str] = ()) -> str:
    """A pattern for the component of the model that a parameter belongs to: a stack of layers, or a name beside it.

    `networks` are the first names in a model of several networks (ELECTRA).

    >>> [group(path) for path in ("encoder/layers/wi/kernel", "pooler/dense/bias", "bias")]
    ['encoder/layers/*', 'pooler/*', 'bias']
    >>> group("generator/masked_lm/bias", networks=("generator",))
    'generator/masked_lm/*'
    """
    if "layers/" in path:
        return path[: path.index("layers/")] + "layers/*"
    names = path.split("/")
    depth = 2 if names[0] in networks else 1
    return "/".join(names[:depth]) + ("/*" if len(names) > depth else "")


def groups(paths: Iterable[str], of: Iterable[str] = ()) -> list[str]:
    """The components that some paths make up, and, of components with other paths among `of`, the paths.

    >>> groups(["a/b", "a/c", "d/e"], of=["a/b", "a/c", "d/e", "d/f"])
    ['a/*', 'd/e']
    """
    paths, of = list(paths), set(of)
    # A name before that of a stack is a network's.
    networks = {path.split("/")[0] for path in of.union(paths) if "layers" in path.split("/")[2:]}
    split = {group(path, networks) for path in of - set(paths)}
    return list(dict.fromkeys(path if (whole := group(path, networks)) in split else whole for path in paths))


def listed(names: Sequence[str], most: int = 8) -> str:
    """The names, of many the first.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def check_pattern(pattern: str, paths: Iterable[str], option: str) -> None:
    """Raises `InputError` for a pattern that matches none of the paths; `option` is what gave it."""
    if not fnmatch.filter(paths := list(paths), pattern):
        raise InputError(
            f"{option} matches no parameter; choose among {listed(groups(paths))}, or one of those that `inspect` lists"
        )


class TrainableMask:
    """The trainable parameters: those whose path no pattern matches, and of stacks all but the lowest layers.

    `select` takes the trainable leaves of a tree like the parameters, `merge` puts them back. Running statistics, which
    have their logical axis, are never trainable.

    >>> axes = {"embeddings": {"token": ("vocab", "embed")}, "encoder": {"layers": {"bias": ("layers", "mlp")}}}
    >>> params = {"embeddings": {"token": jnp.ones((3, 2))}, "encoder": {"layers": {"bias": jnp.ones((12, 5))}}}
    >>> selected = TrainableMask(axes, ("embeddings/*",), frozen_layers=9).select(params)
    >>> selected.keys(), selected["encoder"]["layers"]["bias"].shape
    (dict_keys(['encoder']), (3, 5))

    Args:
      axes: the logical axes of the parameters.
      frozen: patterns as of file names, over paths such as `encoder/layers/feed_forward/wi/kernel`; `*` matches slashes
        too.
      frozen_layers: how many layers of each stack are frozen, from the lowest.

    Raises `InputError` for a pattern that matches nothing, for layers of a model without stacks, and where nothing is
    left to train.
    """

    def __init__(self, axes: Any, frozen: tuple[str, ...] = (), frozen_layers: int = 0) -> None:
        flat = flatten_dict(axes, sep="/")
        self._statistics = {path for path, names in flat.items() if names == (STATISTICS,)}
        self.is_whole = not frozen and not frozen_layers and not self._statistics
        for pattern in frozen:
            check_pattern(pattern, flat, f"frozen={pattern!r}")
        # The number of frozen layers by the path of each trainable parameter.
        self._first = {
            path: frozen_layers if "layers" in names else 0
            for path, names in flat.items()
            if not any(fnmatch.fnmatchcase(path, pattern) for pattern in frozen) and path not in self._statistics
        }
        if not self._first:
            raise InputError(f"frozen={frozen} freezes every parameter; leave some to train, such as those of the head")
        if frozen_layers and not any(self._first.values()):
            raise InputError(
                f"frozen_layers={frozen_layers} counts layers of a stack, and there is none to train: the layers share "
                "one set of parameters or are frozen already; leave it at 0"
            )

    def frozen_layers_of(self, path: str) -> int | None:
        """How many layers of a parameter are frozen; None where all of it is."""
        return self._first.get(path)

    def check(self, params: Any) -> None:
        """Raises `InputError` where a stack has no more layers than are frozen."""
        flat = flatten_dict(params, sep="/")
        for path, first in self._first.items():
            if first and (depth := flat[path].shape[0]) <= first:
                raise InputError(
                    f"frozen_layers={first} leaves none of the {depth} {group(path)[:-2]} to train; choose at most "
                    f"{depth - 1}, or freeze them by the pattern {group(path)!r}"
                )

    def axes(self, axes: Any) -> Any:
        """The logical axes of the trainable parameters, from those of all."""
        flat = flatten_dict(axes, sep="/")
        return axes if self.is_whole else unflatten_dict({path: flat[path] for path in self._first}, sep="/")

    def select(self, tree: Any) -> Any:
        """The trainable leaves of a tree like the parameters, boxed or not."""
        if self.is_whole:
            return tree
        flat = flatten_dict(tree, sep="/")
        selected = {
            path: jax.tree.map(lambda leaf, first=first: leaf[first:], flat[path]) if first else flat[path]
            for path, first in self._first.items()
        }
        return unflatten_dict(selected, sep="/")

    def merge(self, selected: Any, tree: Any) -> Any:
        """`tree` with its trainable leaves replaced by `selected`."""
        if self.is_whole:
            return selected
        flat, trained = flatten_dict(tree, sep="/"), flatten_dict(selected, sep="/")
        for path, first in self._first.items():
            flat[path] = jnp.concatenate([flat[path][:first], trained[path]]) if first else trained[path]
        return unflatten_dict(flat, sep="/")

    def stop_gradient(self, params: Any) -> Any:
        """The same values, without a gradient (and its backward pass) to parameters that are frozen as a whole."""
        if self.is_whole:
            return params
        flat = flatten_dict(params, sep="/")
        stopped = {path: leaf if path in self._first else jax.lax.stop_gradient(leaf) for path, leaf in flat.items()}
        return unflatten_dict(stopped, sep="/")

    def only(self, transformation: optax.GradientTransformation) -> optax.GradientTransformation:
        """The transformation of the trainable parameters alone, which are all that it has a state for.

        It takes and returns trees of all parameters; the updates of frozen ones are -0.0, which added to a number keeps
        every bit of it (0.0 would turn -0.0 into 0.0).
        """
        if self.is_whole:
            return transformation

        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
            selected = self.select(updates)
            params = None if params is None else self.select(params)
            trained, state = transformation.update(selected, state, params)
            return self.merge(trained, jax.tree.map(lambda leaf: jnp.full_like(leaf, -0.0), updates)), state

        return optax.GradientTransformation(lambda params: transformation.init(self.select(params)), update)

    def describe(self, params: Any) -> str:
        """How much is frozen, as a sentence.

        >>> axes = {"embeddings": {"token": ("vocab", "embed")}, "head": {"bias": ("classes",)}}
        >>> shapes = {"embeddings": {"token": jnp.ones((30, 2))}, "head": {"bias": jnp.ones(3)}}
        >>> TrainableMask(axes, ("embeddings/*",)).describe(shapes)
        'frozen are 60 of 63 parameters: embeddings/*'
        """
        every = flatten_dict(nn.unbox(params), sep="/")
        flat = {path: leaf for path, leaf in every.items() if path not in self._statistics}
        whole = [path for path in flat if path not in self._first]
        layers = {path: first for path, first in self._first.items() if first}
        stacks = {group(path)[:-2]: (first, flat[path].shape[0]) for path, first in layers.items()}
        names = [f"the lowest {first} of {depth} {stack}" for stack, (first, depth) in stacks.items()]
        frozen = sum(flat[path].size for path in whole)
        frozen += sum(flat[path].size // flat[path].shape[0] * first for path, first in layers.items())
        total = sum(leaf.size for leaf in flat.values())
        return f"frozen are {frozen:,} of {total:,} parameters: {listed(names + groups(whole, of=flat))}"


Rates = tuple[tuple[str, float], ...]
"""Factors of the learning rate by patterns over paths, of which the first that matches counts."""


def rate_factors(
    axes: Any, params: Any, decay: float, below_layers: tuple[str, ...] = (), offset: int = 2, rates: Rates = ()
) -> Any:
    """The factors of the learning rate of each parameter (Clark et al. 2020, appendix B, as in their code).

    A head has 1, layer i of N, counted from 1, decay^(N + offset - i), embeddings decay^(N + offset): the last layer is
    `offset` steps below the head. Each stack counts separately, for every layer of a decoder reads the encoder's
    output, and embeddings are below the deepest. Layers that share their parameters (ALBERT) are one layer.

    >>> axes = {"encoder": {"layers": {"scale": ("layers", "norm")}}, "embeddings": {"token": ("vocab", "embed")}}
    >>> params = {"encoder": {"layers": {"scale": np.ones((3, 5))}}, "embeddings": {"token": np.ones((9, 5))}}
    >>> factors = rate_factors(axes, params, 0.5, below_layers=("embeddings",))
    >>> factors["encoder"]["layers"]["scale"].tolist(), factors["embeddings"]["token"].tolist()
    ([0.0625, 0.125, 0.25], 0.03125)

    Args:
      axes: the logical axes of the parameters.
      params: arrays or shapes.
      decay: in (0, 1].
      below_layers: the model's first names of parameters below its layers.
      offset: 1 or more.
      rates: what the factors of some are multiplied by, too.

    Returns:
      A tree like the parameters: a number, or for the parameters of a stack [N] of them.
    """
    names, leaves = flatten_dict(axes, sep="/"), flatten_dict(params, sep="/")
    depths = {
        path: leaves[path].shape[0] if "layers" in names[path] else 1 for path in names if "layers" in path.split("/")
    }
    deepest = max(depths.values(), default=0)

    def factor(path: str) -> Float[np.ndarray, "*N"]:
        rate = next((rate for pattern, rate in rates if fnmatch.fnmatchcase(path, pattern)), 1.0)
        if path in depths:
            steps = np.arange(depths[path] - 1, -1, -1) + offset
            return np.asarray(rate * decay ** (steps if "layers" in names[path] else steps[0]), np.float32)
        is_below = any(f"{path}/".startswith(f"{name}/") for name in below_layers)
        return np.asarray(rate * decay ** (deepest + offset) if is_below else rate, np.float32)

    return unflatten_dict({path: factor(path) for path in names}, sep="/")


def with_rates(
    transformation: optax.GradientTransformation,
    axes: Any,
    decay: float,
    below_layers: tuple[str, ...] = (),
    offset: int = 2,
    rates: Rates = (),
) -> optax.GradientTransformation:
    """The transformation with its updates multiplied by `rate_factors`; its state is the same."""
    if decay == 1.0 and not rates:
        return transformation

    def scale(update: Any, factor: Float[np.ndarray, "*N"]) -> Any:
        along_layers = jnp.reshape(factor, factor.shape + (1,) * (update.ndim - factor.ndim))
        return update * along_layers.astype(update.dtype)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = transformation.update(updates, state, params)
        return jax.tree.map(scale, updates, rate_factors(axes, updates, decay, below_layers, offset, rates)), state

    return optax.GradientTransformation(transformation.init, update)
