"""What a run begins with: random parameters, another model's, or the state in which another run ended."""

import functools
from abc import ABC
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from t5x_lite.errors import InputError
from t5x_lite.layers.patches import resize_positions
from t5x_lite.models import (
    BertConfig,
    ClipResNetConfig,
    DetrConfig,
    ModelConfig,
    RealmConfig,
    ResNetConfig,
    abstract_params,
)
from t5x_lite.models.base import TASK_HEADS
from t5x_lite.models.image_text import ImageTextConfig
from t5x_lite.models.vit import ImageTransformerConfig
from t5x_lite.optim.masks import groups, listed
from t5x_lite.parallel import logical_axes
from t5x_lite.parallel.mesh import to_devices

_REPLACED_HEADS = (*TASK_HEADS, "distillation", "class_head")
"""Those that stay random where they have another number of classes."""
_WITH_POSITIONS = (ImageTransformerConfig, ClipResNetConfig)


@dataclass(frozen=True)
class Start(ABC):  # noqa: B024 (what a start does needs the program: see `runs.preparation`)
    """Where the first parameters come from."""

    def __post_init__(self) -> None:
        if getattr(self, "folder", None) == "":
            raise InputError("start.folder='' names no folder; give the folder of a run or a Hugging Face folder")


@dataclass(frozen=True)
class FromScratch(Start):
    """Random parameters, drawn from the experiment's seed."""


@dataclass(frozen=True)
class FromModel(Start):
    """The parameters of another model, so far as it has them, with its tokenizer; the rest is random."""

    folder: str
    """A run's folder, one of its checkpoints, a Hugging Face folder or hub name."""
    layers: tuple[int, ...] = ()
    """Which of its layers become this model's, counted from 0, such as every second (Sanh et al. 2019, section 3);
    empty means all."""


@dataclass(frozen=True)
class FromRun(Start):
    """The state in which another run ended: parameters, optimizer and step, which goes on counting from there.

    For pretraining in phases, such as BERT's first nine tenths on rows of 128 tokens and the rest on 512.
    """

    folder: str
    """A run's folder, or one of its checkpoints."""


def part_for(model: ModelConfig, config: ModelConfig, params: Any) -> tuple[Any, str]:
    """(the parameters of a model that another one begins with, which network they are): of ELECTRA's two networks, the
    discriminator for a single encoder (Clark et al. 2020, section 2); a ResNet as the backbone of a DETR; a BERT as
    each network of a REALM, and an encoder that questions and passages share as that of each; of others all."""
    if isinstance(model, DetrConfig) and isinstance(config, ResNetConfig):
        return {"backbone": params}, " (as the backbone)"
    if isinstance(model, RealmConfig) and isinstance(config, BertConfig):
        encoder = {"encoder": params}
        return {"passage_encoder": encoder, "question_encoder": encoder, "reader": params}, " (as each of its networks)"
    if isinstance(model, RealmConfig) and getattr(config, "shared", False) and not model.shared:
        return params | {"question_encoder": params["passage_encoder"]}, " (its encoder twice)"
    if config.networks and not model.networks:
        return config.separate(params, config.networks[0])[1], f" (its {config.networks[0]})"
    return params, ""


def with_resized_positions(source: Any, model: ModelConfig, config: ModelConfig) -> tuple[Any, str]:
    """(the parameters of a model of pictures with its positions interpolated for another one's patches, and what was
    done as the end of a sentence).

    Positions of special tokens that the other model lacks are left out, those that this one lacks are 0. Other models'
    parameters stay as they are.

    Args:
      source: the parameters of `config`.
      model: the architecture that begins with them.
    """
    if isinstance(model, ImageTextConfig) and isinstance(config, ImageTextConfig):
        image, message = with_resized_positions(source["image"], model.image, config.image)
        return {**source, "image": image}, message
    both = any(isinstance(model, kind) and isinstance(config, kind) for kind in _WITH_POSITIONS)
    if not both or (model.grid, model.positioned_tokens) == (config.grid, config.positioned_tokens):
        return source, ""
    flat = flatten_dict(source, sep="/")
    for path in [path for path in flat if path.endswith("position/embedding")]:
        table, theirs, ours = np.asarray(flat[path]), config.positioned_tokens, model.positioned_tokens
        special = dict(zip(theirs, table, strict=False))
        rows = [special.get(name, np.zeros_like(table[0])) for name in ours]
        flat[path] = np.stack([*rows, *resize_positions(table[len(theirs) :], config.grid, model.grid)])
    before, after = (" x ".join(map(str, one.grid)) for one in (config, model))
    message = f"; its positions of {before} patches were interpolated to {after}" if before != after else ""
    return unflatten_dict(flat, sep="/"), message


def overlay(params: Any, source: Any, layers: tuple[int, ...] = ()) -> tuple[Any, list[str]]:
    """(`params` with the values of `source` where both have a parameter, the paths of those that stay as they were).

    A task's head of another shape, for other classes, stays as a whole: RTE begins with a model of MNLI's three.

    Args:
      params: a tree of arrays or shapes.
      source: another model's parameters.
      layers: of the source's stacks, in the order in which they become the layers of this model; empty means all.

    Raises:
      InputError: parameters have other shapes; or none is common to both, or none of those in layers.
    """
    ours, theirs = flatten_dict(params, sep="/"), flatten_dict(source, sep="/")
    result, problems = dict(ours), {}
    for path in ours.keys() & theirs:
        result[path] = theirs[path]
        if layers and _is_in_layers(path):
            depth = len(theirs[path])
            if max(layers) >= depth or min(layers) < 0:
                raise InputError(f"start.layers={layers} names layers that it lacks; choose from 0..{depth - 1}")
            result[path] = np.asarray(theirs[path])[list(layers)]
    shapes = {path: (result[path].shape, leaf.shape) for path, leaf in ours.items()}
    problems = {path: pair for path, pair in shapes.items() if len(set(pair)) > 1}
    heads = {path.split("/")[0] for path in problems}.intersection(_REPLACED_HEADS)
    fresh = [path for path in ours if path not in theirs or path.split("/")[0] in heads]
    if problems := {path: pair for path, pair in problems.items() if path not in fresh}:
        raise _shape_error(problems, len(ours) - len(fresh), ours, theirs)
    _check_family(fresh, ours, theirs)
    return unflatten_dict(result | {path: ours[path] for path in fresh}, sep="/"), fresh


def describe_overlay(params: Any, source: Any, fresh: list[str]) -> str:
    """What an `overlay` left random, and what of the source it did not take; empty where it is nothing.

    >>> ours, theirs = ({"encoder": {"scale": 1}, head: {"bias": 1}} for head in ("classification", "masked_lm"))
    >>> describe_overlay(ours, theirs, ["classification/bias"])
    '; random are classification/bias; not taken are masked_lm/*'
    """
    ours, theirs = flatten_dict(params, sep="/"), flatten_dict(source, sep="/")
    random = ", ".join(fresh)
    if len(fresh) > 8:
        random = f"{len(fresh)} of {len(ours)}: {listed(groups(fresh, of=ours))}"
    message = f"; random are {random}" if fresh else ""
    if inside := [path for path in fresh if _is_in_layers(path)]:
        message += f" ({len(inside)} of them inside layers, which are others there)"
    left = [path for path in theirs if path not in ours or path in fresh]
    return message + (f"; not taken are {listed(groups(left, of=theirs))}" if left else "")


Shapes = tuple[tuple[int, ...], tuple[int, ...]]
"""Those of the source's parameter and of this model's."""


def _shape_error(problems: dict[str, Shapes], common: int, ours: dict[str, Any], theirs: dict[str, Any]) -> InputError:
    """The error for parameters with other shapes, out of `common` ones of the same name."""
    # The axes in which a parameter's shapes differ, with both sizes.
    different = {
        tuple((axis, *sizes) for axis, sizes in enumerate(zip(there, here, strict=False)) if len(set(sizes)) > 1)
        for there, here in problems.values()
    }
    (axes, *others) = different
    tokens = ("token/embedding", "token_embedding/embedding")
    rows = [there[0] for path, (there, here) in problems.items() if path.endswith(tokens) and there[1:] == here[1:]]
    if any(len(there) != len(here) for there, here in problems.values()):
        remedy = ", of this family: its layers share their parameters, or this one's do"
    elif all(map(_is_in_layers, problems)) and not others and [axis for axis, _, _ in axes] == [0]:
        depth = len(theirs[next(iter(problems))])
        remedy = f", {axes[0][2]} of its {depth} layers by start.layers, or {depth} layers for this one"
    elif rows and all(len(axes) == 1 for axes in different):
        remedy = f", or model.vocab_size={rows[0]}"
    else:
        remedy = ", or give this one its sizes"
    listing = [f"{path} has shape {there} there, {here} here" for path, (there, here) in problems.items()]
    more = f"; and {len(listing) - 3} more" if len(listing) > 3 else ""
    return InputError(
        f"start.folder holds a model that gives this one {common - len(problems)} of its {len(ours)} parameters, and "
        f"{len(problems)} of another shape: {'; '.join(listing[:3])}{more}; choose another one{remedy}"
    )


def _check_family(fresh: list[str], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    components = f"(there are {listed(groups(theirs))} there, {listed(groups(ours))} here)"
    if len(fresh) == len(ours):
        raise InputError(
            f"start.folder holds a model that shares no parameter with this one; choose its family {components}"
        )
    inside = set(filter(_is_in_layers, ours))
    if inside and inside <= set(fresh) and any(map(_is_in_layers, theirs)):
        common = [path for path in ours if path in theirs]
        raise InputError(
            f"start.folder holds a model of another family: {len(common)} of this one's {len(ours)} parameters fit "
            f"({listed(common, 3)}), and none of the {len(inside)} in its layers; choose its family, or FromScratch "
            f"{components}"
        )


def _is_in_layers(path: str) -> bool:
    return "/layers/" in f"/{path}"


def with_new_ids(
    source: Any, params: Any, model: ModelConfig, vocabulary_size: int, added_ids: tuple[str, ...]
) -> tuple[Any, str]:
    """(`source` with the values of `params` for new ids, and which these are as the end of a sentence).

    New ids are those beyond the rows of `source`, and `added_ids`, which follow the vocabulary and mean nothing to the
    other model even where it has rows for them. Parameters whose shapes differ in more than ids stay as they are, and
    without `added_ids` all do.

    Args:
      source: another model's parameters.
      params: those of `model`.
    """
    if not added_ids:
        return source, ""
    theirs, ours = flatten_dict(source, sep="/"), flatten_dict(params, sep="/")
    axes = flatten_dict(logical_axes(abstract_params(model)), sep="/")
    counts = {}
    for path in [path for path in ours if path in theirs and "vocab" in axes[path]]:
        new, old, dimension = ours[path], theirs[path], axes[path].index("vocab")
        others = [axis for axis in range(new.ndim) if axis != dimension]
        if old.ndim != new.ndim or any(old.shape[axis] != new.shape[axis] for axis in others):
            continue
        number, missing = np.arange(new.shape[dimension]), new.shape[dimension] - old.shape[dimension]
        if missing < 0:
            continue
        added = (vocabulary_size <= number) & (number < vocabulary_size + len(added_ids))
        is_new = added | (number >= old.shape[dimension])
        room = [(0, missing if axis == dimension else 0) for axis in range(new.ndim)]
        padded = to_devices(np.pad(np.asarray(old), room), new.sharding)
        merge = jax.jit(functools.partial(jnp.where, np.expand_dims(is_new, others)), out_shardings=new.sharding)
        theirs[path], counts[path] = merge(new, padded), int(is_new.sum())
    message = ", ".join(f"{count} ids of {path}" for path, count in counts.items())
    return unflatten_dict(theirs, sep="/"), f"; random too are {message}" if counts else ""
