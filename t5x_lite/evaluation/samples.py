"""Held-out rows with a model's answers, for people to look at."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from t5x_lite.data import TokenStore
from t5x_lite.evaluation.predictions import held_out_features
from t5x_lite.objectives import Classification, MultipleChoice, QuestionAnswering, Tagging
from t5x_lite.parallel import batch_sharding, replicated, use_mesh
from t5x_lite.parallel.mesh import BatchRows
from t5x_lite.training.step import Program

Decode = Callable[[Any], str]
Row = dict[str, np.ndarray]
"""The features of one row, and the model's `answers`."""


def fill_ins(program: Program, params: Any, store: TokenStore, num_rows: int = 5) -> str:
    """Held-out rows as the model sees them, what was there, and what it says.

    Where single tokens are asked for, they stand between commas, in the order of their places; of some of them the
    model sees the token itself, or another one, and no mask.
    """
    features = held_out_features(program.objective, store.held_out, num_rows)
    features = {name: value[:num_rows] for name, value in _samples(program, params, features).items()}
    if store.tokenizer is None:
        return _by_row(features, _ranges)
    decode, pad_id = store.tokenizer.decode, store.tokenizer.vocabulary.pad_id
    match program.objective:
        case Classification():
            return _by_row(features, lambda row: _labeled(row, decode, program.experiment.data.source.classes))
        case MultipleChoice():
            return _by_row(features, lambda row: _chosen(row, decode))
        case Tagging():
            return _by_row(features, lambda row: _tagged(row, decode, program.experiment.data.source.classes, pad_id))
        case QuestionAnswering():
            return _by_row(features, lambda row: _answered(row, decode))

    def formatted(ids: Int[np.ndarray, "T"], targets: Int[np.ndarray, "T"]) -> str:
        if "positions" not in features:
            return decode(ids)
        return ", ".join(decode([token]).strip() or "(none)" for token in ids[targets != pad_id])

    return "\n".join(
        f"--- held-out row {row}\n"
        f"input:  {decode(features['inputs'][row])}\n"
        f"target: {formatted(targets, targets)}\n"
        f"model:  {formatted(features['answers'][row], targets)}\n"
        for row, targets in enumerate(features["targets"])
    )


def _ranges(row: Row) -> str:
    """Arrays by shape and range, single numbers as they are."""

    def one(value: np.ndarray) -> str:
        return (
            f"{value.dtype}{list(value.shape)} from {value.min():g} to {value.max():g}" if value.ndim else f"{value:g}"
        )

    return "".join(f"{name + ':':<8}{one(value)}\n" for name, value in row.items())


def _by_row(features: dict[str, np.ndarray], formatted: Callable[[Row], str]) -> str:
    count = len(next(iter(features.values())))
    rows = [{name: value[row] for name, value in features.items()} for row in range(count)]
    return "\n".join(f"--- held-out example {number}\n{formatted(row)}" for number, row in enumerate(rows))


def _labeled(row: Row, decode: Decode, labels: tuple[str, ...]) -> str:
    """Texts, their label and the model's, by name where they have names."""

    def name(label: float) -> str:
        return labels[int(label)] if labels else f"{label:.3f}"

    ids, segments = row["inputs"], row["segments"]
    texts = "".join(f"text:   {decode(ids[segments == number])}\n" for number in range(int(segments.max()) + 1))
    return f"{texts}label:  {name(row['label'])}\nmodel:  {name(row['answers'])}\n"


def _chosen(row: Row, decode: Decode) -> str:
    """The text, and every answer with whether it is right and whether the model takes it."""
    ids, segments = row["inputs"], row["segments"]
    lines = [f"text:   {decode(ids[0][segments[0] == 0])}"]
    for number in range(len(ids)):
        marks = [name for name, one in (("right", row["label"]), ("model", row["answers"])) if number == one]
        lines.append(f"{', '.join(marks):13} {decode(ids[number][segments[number] == 1])}")
    return "\n".join(lines) + "\n"


def _tagged(row: Row, decode: Decode, labels: tuple[str, ...], pad_id: int) -> str:
    """Words with their tags, and the model's where it has another one."""
    ids, tags, said = row["inputs"], row["tags"], row["answers"]
    (firsts,) = np.nonzero(tags >= 0)
    # SEP, which is not written, closes the last word.
    ends = [*firsts[1:], int((ids != pad_id).sum())]
    words = []
    for first, end in zip(firsts, ends, strict=True):
        other = f" (model: {labels[said[first]]})" if said[first] != tags[first] else ""
        words.append(f"{decode(ids[first:end]).strip()}/{labels[tags[first]]}{other}")
    return "  ".join(words) + "\n"


def _answered(row: Row, decode: Decode) -> str:
    """A question, its answer in this window of the text, and the likeliest of the model's."""
    ids, segments = row["inputs"], row["segments"]

    def answer(begin: int, end: int) -> str:
        return decode(ids[begin : end + 1]).strip() if 0 < begin <= end else "(none)"

    return (
        f"text:     {decode(ids[segments == 1])}\nquestion: {decode(ids[segments == 0])}\n"
        f"answer:   {answer(*row['ends'])}\nmodel:    {answer(*row['answers'])}\n"
    )


def _samples(program: Program, params: Any, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the model says to features, and some rows more: on the run's own devices, one of which could not hold it."""
    batch = batch_sharding(program.mesh)
    share = program.mesh.shape["data"] * program.mesh.shape["fsdp"]
    count = len(next(iter(features.values())))
    rows = BatchRows(batch, -(-count // share) * share)

    def samples(params: Any, features: Any) -> Any:
        with use_mesh(program.mesh):
            return program.objective.samples(program.module, params, features)

    run = jax.jit(samples, in_shardings=(program.state_shardings.params, batch), out_shardings=replicated(program.mesh))
    # Filled up with the last row.
    asked = rows.to_devices({name: value[np.minimum(rows.numbers, count - 1)] for name, value in features.items()})
    return jax.device_get(run(params, asked))
