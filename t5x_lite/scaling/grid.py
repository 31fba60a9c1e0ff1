"""The runs of a study of scaling: one experiment in other sizes, for other numbers of tokens."""

import dataclasses
import re
from dataclasses import dataclass, replace
from typing import Any

from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.optim.schedules import Schedule
from t5x_lite.scaling.measure import training_flops
from t5x_lite.training.experiment import Experiment, flat_fields

DEPTHS = ("num_layers", "num_encoder_layers", "num_decoder_layers")
_SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}


@dataclass(frozen=True)
class Size:
    """A model's width and depth."""

    embed_dim: int
    num_layers: int

    def __str__(self) -> str:
        return f"{self.embed_dim}x{self.num_layers}"

    @staticmethod
    def parse(text: str) -> "Size":
        """From WIDTHxDEPTH.

        >>> Size.parse("512x6")
        Size(embed_dim=512, num_layers=6)
        """
        match = re.fullmatch(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,3})", text)
        if not match:
            raise InputError(f"--sizes has {text!r}, which is not WIDTHxDEPTH; write sizes such as 64x2 128x4")
        return Size(int(match[1]), int(match[2]))


def parse_amount(option: str, text: str) -> float:
    """A number, perhaps with k, M, B or G (10^9), T (10^12), P or E behind it.

    >>> parse_amount("tokens", "2.5M"), parse_amount("flops", "1e15")
    (2500000.0, 1000000000000000.0)
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)([kKmMgGbBtTpP]?|E)", text)
    value = float(match[1]) * _SUFFIXES[match[2].lower()] if match else 0.0
    if not 0 < value < 1e30:
        raise InputError(f"--{option} has {text!r}, which is not a positive number; write numbers such as 2.5M or 1e15")
    return value


def resized(model: ModelConfig, size: Size) -> ModelConfig:
    """The architecture in another size: heads as wide as they are, the feed-forward layer in the same proportion.

    Raises:
      InputError: the architecture has no single width and depth, or its heads do not fit the width.
    """
    names = {field.name for field in dataclasses.fields(model)}
    depths = [name for name in DEPTHS if name in names]
    if not depths or not {"embed_dim", "num_heads", "mlp_dim"} <= names:
        raise InputError(
            f"--sizes are of models with a width and a depth, and {type(model).__name__} has others; train several "
            "sizes of it by t5x-lite sweep, and fit those runs"
        )
    head_dim = getattr(model, "head_dim", None) or model.embed_dim // model.num_heads
    per_width = model.num_heads * head_dim / model.embed_dim
    num_heads = round(size.embed_dim * per_width / head_dim)
    if num_heads < 1 or abs(num_heads * head_dim - size.embed_dim * per_width) > 1e-6:
        raise InputError(
            f"--sizes has {size}, and heads of {head_dim} do not fit that width; choose multiples of "
            f"{round(head_dim / per_width)}, or override model.num-heads to give the config narrower heads"
        )
    mlp_dim = max(1, round(size.embed_dim * model.mlp_dim / model.embed_dim))
    widths = {"embed_dim": size.embed_dim, "num_heads": num_heads, "mlp_dim": mlp_dim}
    return replace(model, **widths, **dict.fromkeys(depths, size.num_layers))


def scaled(
    experiment: Experiment, size: Size, *, tokens: float | None = None, flops: float | None = None
) -> Experiment:
    """The experiment with a model of another size, trained on so many tokens or by so many operations.

    Schedules that decay towards an end reach it in proportion (Hoffmann et al. 2022, section 3.1: a schedule that ends
    later than the run costs loss), and ten evaluations give a learning curve.
    """
    model = resized(experiment.model, size)
    new = replace(experiment, model=model)
    _, per_step = experiment.objective.layout.throughput(experiment.batch_size)
    wanted = tokens / per_step if tokens is not None else flops / training_flops(new)
    steps = max(1, round(wanted))
    if not 0.5 <= wanted / steps <= 2 or steps >= 1 << 31:
        raise InputError(f"{size} would train {wanted:.3g} steps of {per_step} tokens; choose an amount of one or more")
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(experiment.optimizer):
        value = getattr(experiment.optimizer, field.name)
        if isinstance(value, Schedule):
            value = value.stretched(steps / experiment.steps)
            if getattr(value, "embed_dim", None) == experiment.model.embed_dim:
                value = replace(value, embed_dim=size.embed_dim)
            changed[field.name] = value
    return replace(
        new,
        steps=steps,
        optimizer=replace(experiment.optimizer, **changed),
        evaluation=replace(experiment.evaluation, every=max(1, steps // 10)),
    )


def overrides(old: Experiment, new: Experiment) -> list[str]:
    """The options of `train` that make the one experiment of the other."""
    before, after = dict(flat_fields(old)), dict(flat_fields(new))
    options: list[str] = []
    for path, value in after.items():
        if before[path] != value:
            options += [f"--{path.replace('_', '-')}", str(value)]
    return options
