"""What a run begins with: random parameters, another model's, or the state in which another run ended."""

from abc import ABC
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig, abstract_params
from t5x_lite.models.task_heads import TASK_HEADS
from t5x_lite.optim.masks import groups, listed
from t5x_lite.parallel import logical_axes
from t5x_lite.parallel.mesh import to_devices


@dataclass(frozen=True)
class Start(ABC):  # noqa: B024 (what a start does needs the program: see `runs.preparation`)
    """Where the first parameters come from."""


@dataclass(frozen=True)
class FromScratch(Start):
    """Random parameters, drawn from the experiment's seed."""


@dataclass(frozen=True)
class FromModel(Start):
    """The parameters of another model, so far as it has them: the tokenizer is its own too, the rest is random."""

    folder: str
    """A run's folder, one of its checkpoints, a Hugging Face folder or hub name."""
    layers: tuple[int, ...] = ()
    """Which of its layers become this model's, counted from 0, such as every second (Sanh et al. 2019, section 3);
    empty means all."""

    def __post_init__(self) -> None:
        _check_folder(self.folder)


@dataclass(frozen=True)
class FromRun(Start):
    """The state in which another run stands: parameters, optimizer and step, which goes on counting from there.

    For pretraining in phases, such as BERT's first nine tenths on rows of 128 tokens and the rest on 512.
    """

    folder: str
    """A run's folder, or one of its checkpoints."""

    def __post_init__(self) -> None:
        _check_folder(self.folder)


def part_for(model: ModelConfig, config: ModelConfig, params: Any) -> tuple[Any, str]:
    """(the parameters of a model that another one begins with, which part they are): of ELECTRA's two networks, the
    discriminator for a single encoder (Clark et al. 2020, section 2); of others all."""
    if config.networks and not model.networks:
        return config.separate(params, config.networks[0])[1], f" (its {config.networks[0]})"
    return params, ""


def overlay(params: Any, source: Any, layers: tuple[int, ...] = ()) -> tuple[Any, list[str]]:
    """(`params` with the values of `source` where both have a parameter, the paths of those that stay as they were).

    A task's head of another shape, which has other classes, stays as a whole: RTE begins with a model of MNLI's three.

    Args:
      params: a tree of arrays or shapes.
      source: another model's parameters.
      layers: of the source's stacks, in the order in which they become the layers of this model; empty means all.

    Raises:
      InputError: parameters have other shapes; or none is common to both, or none of those in layers.
    """
    ours, theirs = (traverse_util.flatten_dict(tree, sep="/") for tree in (params, source))
    result, problems, fresh = dict(ours), {}, []
    for path, leaf in ours.items():
        if path not in theirs:
            fresh.append(path)
            continue
        value = theirs[path]
        if layers and _is_in_layers(path):
            if max(layers) >= len(value) or min(layers) < 0:
                raise InputError(f"start.layers={layers} names layers that it lacks; choose from 0..{len(value) - 1}")
            value = np.asarray(value)[list(layers)]
        if value.shape != leaf.shape:
            problems[path] = value.shape, leaf.shape
        result[path] = value
    heads = {name for name in map(_first_name, problems) if name in TASK_HEADS}
    fresh = [path for path in ours if path in fresh or _first_name(path) in heads]
    result |= {path: ours[path] for path in fresh}
    if problems := {path: shapes for path, shapes in problems.items() if path not in fresh}:
        raise _other_shapes(problems, len(ours) - len(fresh), ours, theirs)
    _check_family(fresh, ours, theirs)
    return traverse_util.unflatten_dict(result, sep="/"), fresh


def describe_overlay(params: Any, source: Any, fresh: list[str]) -> str:
    """What an `overlay` left random, and what of the source it did not take; empty where it is nothing.

    >>> ours, theirs = ({"encoder": {"scale": 1}, head: {"bias": 1}} for head in ("classification", "masked_lm"))
    >>> describe_overlay(ours, theirs, ["classification/bias"])
    '; random are classification/bias; not taken are masked_lm/*'
    """
    ours, theirs = (traverse_util.flatten_dict(tree, sep="/") for tree in (params, source))
    random = ", ".join(fresh)
    if len(fresh) > 8:
        random = f"{len(fresh)} of {len(ours)}: {listed(groups(fresh, of=ours))}"
    message = f"; random are {random}" if fresh else ""
    if inside := [path for path in fresh if _is_in_layers(path)]:
        message += f" ({len(inside)} of them inside layers, which are others there)"
    left = [path for path in theirs if path not in ours or path in fresh]
    return message + (f"; not taken are {listed(groups(left, of=theirs))}" if left else "")


Shape = tuple[int, ...]


def _other_shapes(
    problems: dict[str, tuple[Shape, Shape]], common: int, ours: dict[str, Any], theirs: dict[str, Any]
) -> InputError:
    """`problems`: the shapes there and here of parameters that do not fit, out of `common` ones of the same name."""
    listing = [f"{path} has shape {there} there, {here} here" for path, (there, here) in problems.items()]
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return InputError(
        f"start.folder holds a model that gives this one {common - len(problems)} of its {len(ours)} parameters, and "
        f"{len(problems)} of another shape: {'; '.join(listing[:3])}{more}; choose another one"
        f"{_remedy(problems, theirs)}"
    )


def _remedy(problems: dict[str, tuple[Shape, Shape]], theirs: dict[str, Any]) -> str:
    """What else can be done, by how the shapes there and here differ."""
    if any(len(there) != len(here) for there, here in problems.values()):
        return ", of this family: its layers share their parameters, or this one's do"
    different = {
        tuple((axis, *pair) for axis, pair in enumerate(zip(there, here, strict=True)) if len(set(pair)) > 1)
        for there, here in problems.values()
    }
    if all(map(_is_in_layers, problems)) and len(different) == 1:
        (((axis, _, here), *others),) = different
        if axis == 0 and not others:
            depth = len(theirs[next(iter(problems))])
            return f", {here} of its {depth} layers by start.layers, or {depth} layers for this one"
    rows = [shapes for path, shapes in problems.items() if path.endswith(_TOKENS) and shapes[0][1:] == shapes[1][1:]]
    if rows and all(len(axes) == 1 for axes in different):
        return f", or model.vocab_size={rows[0][0][0]}"
    return ", or give this one its sizes"


_TOKENS = ("token/embedding", "token_embedding/embedding")


def _check_family(fresh: list[str], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    has = f"{listed(groups(theirs))} there, {listed(groups(ours))} here"
    if len(fresh) == len(ours):
        raise InputError(
            f"start.folder holds a model that shares no parameter with this one; choose its family (there are {has})"
        )
    inside = [path for path in ours if _is_in_layers(path)]
    if inside and not set(inside) - set(fresh):
        common = [path for path in ours if path in theirs]
        raise InputError(
            f"start.folder holds a model of another family: {len(common)} of this one's {len(ours)} parameters fit "
            f"({listed(common, 3)}), and none of the {len(inside)} in its layers; choose its family, or FromScratch "
            f"(there are {has})"
        )


def _first_name(path: str) -> str:
    return path.split("/")[0]


def _is_in_layers(path: str) -> bool:
    return "/layers/" in f"/{path}"


def _check_folder(folder: str) -> None:
    if not folder:
        raise InputError("start.folder='' names no folder; give the folder of a run or a Hugging Face folder")


@dataclass(frozen=True)
class NewIds:
    """Where a model's parameters have their ids, and which of these are new."""

    vocab_dimensions: dict[str, int]
    """The dimension of ids, by the path of each parameter that has one."""
    added: range
    """Ids that mean nothing to the other model, whether or not it has room for them."""

    @classmethod
    def of(cls, model: ModelConfig, vocabulary_size: int, added_ids: tuple[str, ...]) -> "NewIds":
        """Those of a model whose rows have `added_ids` behind the vocabulary's."""
        axes = traverse_util.flatten_dict(logical_axes(abstract_params(model)), sep="/")
        vocab_dimensions = {path: names.index("vocab") for path, names in axes.items() if "vocab" in names}
        return cls(vocab_dimensions, range(vocabulary_size, vocabulary_size + len(added_ids)))

    def filled_in(self, source: Any, params: Any) -> tuple[Any, str]:
        """(`source`, another model's parameters, with the values of `params` for ids that are new, and for all that it
        has no room for; what that were, as the end of a sentence). Without added ids it is as it was."""
        if not self.added:
            return source, ""
        theirs, ours = (traverse_util.flatten_dict(tree, sep="/") for tree in (source, params))
        counts = {}
        for path, dimension in self.vocab_dimensions.items():
            if path in theirs and _differ_only_in(dimension, ours[path].shape, theirs[path].shape):
                theirs[path], counts[path] = self._filled_in(theirs[path], ours[path], dimension)
        message = ", ".join(f"{count} ids of {path}" for path, count in counts.items())
        return traverse_util.unflatten_dict(theirs, sep="/"), f"; random too are {message}" if counts else ""

    def _filled_in(self, theirs: Any, ours: Float[Array, "*_"], dimension: int) -> tuple[Float[Array, "*_"], int]:
        number = np.arange(ours.shape[dimension])
        new = (number >= theirs.shape[dimension]) | np.isin(number, self.added)
        room = [(0, more - there) for more, there in zip(ours.shape, theirs.shape, strict=True)]
        padded = to_devices(np.pad(np.asarray(theirs), room), ours.sharding)
        along = new.reshape([-1 if axis == dimension else 1 for axis in range(ours.ndim)])

        def merge(ours: Float[Array, "*_"], theirs: Float[Array, "*_"]) -> Float[Array, "*_"]:
            return jnp.where(along, ours, theirs)

        return jax.jit(merge, out_shardings=ours.sharding)(ours, padded), int(new.sum())


def _differ_only_in(dimension: int, ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    """Whether the two shapes are the same, or ours is longer in that dimension alone."""
    others = [np.delete(shape, dimension).tolist() if len(shape) > dimension else None for shape in (ours, theirs)]
    return others[0] is not None and others[0] == others[1] and ours[dimension] >= theirs[dimension]
