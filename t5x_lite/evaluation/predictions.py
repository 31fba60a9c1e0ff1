"""The loss, answers and other functions of held-out rows, the parameters on the devices of the run."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from t5x_lite.data import Tokenizer, TokenStore, Vocabulary, evaluation_batches
from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.data.stored_rows import stack
from t5x_lite.data.tasks.templates import EvalExample
from t5x_lite.decoding import decode
from t5x_lite.objectives import Features, Objective, corrupt_rows
from t5x_lite.parallel import batch_sharding, num_parts, replicated, use_mesh
from t5x_lite.parallel.mesh import BatchRows, to_devices
from t5x_lite.training.experiment import Evaluation
from t5x_lite.training.step import Program

Rows = Any


def evaluate(program: Program, params: Any, rows: Rows, *, max_rows: int) -> dict[str, float]:
    """The loss and the other figures of the objective over the first `max_rows` rows, corrupted the same way each time.

    For tokens with the perplexity and the number of `tokens`, for tasks with that of `examples`.
    """
    batch_size = program.experiment.batch_size // program.experiment.accumulation
    here = BatchRows(batch_sharding(program.mesh), batch_size)
    sums: dict[str, np.ndarray] = {}
    memory, everywhere = program.evaluation_memory(batch_size), replicated(program.mesh)
    in_order, stride = memory is not None, -(-min(max_rows, len(rows)) // batch_size)
    order = evaluation_batches(rows, batch_size, max_rows, local=here.numbers.tolist(), in_order=in_order)
    for index, columns in enumerate(order):
        batch, valid = map(here.to_devices, columns)
        if in_order:
            numbers = to_devices(np.array([index, stride], np.int32), everywhere)
            metrics, memory = program.ordered_eval_step(params, batch, valid, numbers, memory)
        else:
            metrics = program.eval_step(params, batch, valid, to_devices(np.int32(index * batch_size), everywhere))
        for name, mean in jax.device_get(metrics).items():
            sums[name] = sums.get(name, 0.0) + np.array(mean, np.float64)
    means = {name: float(value / max(weight, 1e-9)) for name, (value, weight) in sums.items()}
    counts = {f"{program.objective.unit}s": float(sums["loss"][1])}
    if program.objective.unit == "token":
        counts = {"perplexity": math.exp(min(means["loss"], 700.0))} | counts
    return means | counts


_ROWS = 1024
"""Rows whose features are computed together: those of pictures take megabytes each."""


def held_out_features(
    objective: Objective,
    rows: Rows,
    max_rows: int,
    keep: Callable[[Features], Features] = lambda features: features,
) -> dict[str, np.ndarray]:
    """The features of `evaluate`, row by row; of each batch what `keep` returns."""
    objective, count = objective.for_evaluation(), min(max_rows, len(rows))

    @jax.jit
    def features(batch: Any, first_row: int) -> Features:
        return keep(corrupt_rows(objective, jax.random.key(0), batch, first_row))

    parts = [
        jax.device_get(features(stack([rows[index] for index in range(start, min(start + _ROWS, count))]), start))
        for start in range(0, count, _ROWS)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class MeshFunction:
    """A function of parameters and rows, compiled once, on the devices of a run.

    Args:
      program: the experiment on its mesh.
      function: `function(params, batch)`, from arrays [B ...] to arrays [B ...].
      batch_size: B, a multiple of the devices that share a batch.
    """

    def __init__(self, program: Program, function: Callable[[Any, Any], Any], batch_size: int):
        def traced(params: Any, batch: Any) -> Any:
            with use_mesh(program.mesh):
                return function(params, batch)

        sharding = batch_sharding(program.mesh)
        self._rows, self._batch_size = BatchRows(sharding, batch_size), batch_size
        self.compiled = jax.jit(
            traced, in_shardings=(program.evaluated_shardings, sharding), out_shardings=replicated(program.mesh)
        )

    def __call__(self, params: Any, count: int, read: Callable[[Int[np.ndarray, "b"]], Any]) -> Any:
        """The outputs [count ...] for rows 0 to `count` of `read(numbers)`; the last row fills the last batch up."""
        parts = []
        for start in range(0, count, self._batch_size):
            batch = self._rows.to_devices(read(np.minimum(start + self._rows.numbers, count - 1)))
            parts.append(jax.device_get(self.compiled(params, batch)))
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *parts)


@dataclass(frozen=True)
class EvalPrompt:
    """A question: the input of an example and its correct answers."""

    ids: tuple[int, ...]
    """Of the input, as the model reads it in training, without padding."""
    right: tuple[str, ...] = ()
    """All correct texts; metrics that take one compare with the first. Empty where they are unknown."""
    group: str = ""
    """The same for questions that are scored together."""


def separate(features: dict[str, np.ndarray], vocabulary: Vocabulary) -> list[tuple[list[int], list[int]]]:
    """(inputs, targets) of each pair in rows of features, of which packed rows hold several; without padding.

    >>> packed = {"inputs": np.array([[7, 1, 8, 9, 1, 0]]), "inputs_segments": np.array([[1, 1, 2, 2, 2, 0]])}
    >>> packed |= {"targets": np.array([[5, 1, 6, 1]]), "decoder_segments": np.array([[1, 1, 2, 2]])}
    >>> separate(packed, Vocabulary(10))
    [([7, 1], [5, 1]), ([8, 9, 1], [6, 1])]
    """

    def without_padding(ids: Int[np.ndarray, "L"]) -> list[int]:
        end = int(np.flatnonzero(ids != vocabulary.pad_id).max(initial=-1)) + 1
        # Where padding is EOS too, the first one of them closes the text.
        closing = [vocabulary.eos_id] if vocabulary.pad_id == vocabulary.eos_id and end < len(ids) else []
        return ids[:end].tolist() + closing

    pairs = []
    for row in range(len(features["targets"])):
        sides = [features[name][row] for name in ("inputs", "targets")]
        segments = [features[name][row] for name in ("inputs_segments", "decoder_segments") if name in features]
        if segments:
            for number in range(1, int(segments[0].max(initial=0)) + 1):
                pairs.append(tuple(side[of == number].tolist() for side, of in zip(sides, segments, strict=True)))
        else:
            pairs.append(tuple(map(without_padding, sides)))
    return pairs


def questions_of_rows(
    features: dict[str, np.ndarray], tokenizer: Tokenizer, count: int | None = None
) -> list[EvalPrompt]:
    """The first `count` pairs of rows of features; their references are the targets' ids as text."""
    pairs = separate(features, tokenizer.vocabulary)[:count]
    return [EvalPrompt(tuple(inputs), (tokenizer.target_side.decode(targets),)) for inputs, targets in pairs]


def questions_of(examples: Iterable[EvalExample], tokenizer: Tokenizer, length: int | None = None) -> list[EvalPrompt]:
    """Inputs closed by EOS, with the correct answers; those longer than `length` ids, EOS included, are cut."""
    examples, closing = list(examples), tokenizer.vocabulary.eos_id
    kept = None if length is None else length - 1
    return [
        EvalPrompt((*ids.tolist()[:kept], closing), right, group)
        for ids, (_, right, group) in zip(tokenizer.encode_batch([one.text for one in examples]), examples, strict=True)
    ]


class BatchGenerator:
    """Answers to questions, generated in batches of one shape by the method and lengths of `settings`."""

    def __init__(self, program: Program, questions: Sequence[EvalPrompt], tokenizer: Tokenizer, settings: Evaluation):
        self.questions, self.tokenizer, experiment = questions, tokenizer, program.experiment
        vocabulary, model = tokenizer.vocabulary, experiment.model
        sources = [list(question.ids) for question in questions]
        if model.architecture == "decoder":
            # The EOS that closes the inputs is the first id of the targets that a decoder reads.
            sources = [ids[:-1] if ids[-1:] == [vocabulary.eos_id] else ids for ids in sources]
        # Inputs of similar length share a batch, which ends when its last answer ends.
        self._order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        share = num_parts("activation_batch", program.mesh.shape)
        batch_size = min(experiment.batch_size // experiment.accumulation, -(-len(sources) // share) * share)
        row = abstract_batch(program.objective.layout.spec)
        features = jax.eval_shape(program.objective.corrupt, jax.random.key(0), row)
        input_length, target_length = (features[name].shape[0] for name in ("inputs", "targets"))
        longest = max(map(len, sources))
        length = min(max(-(-longest // 8), 1) * 8, max(input_length, longest))  # a multiple of 8 where that fits
        self._inputs = np.full((len(sources), length), vocabulary.pad_id, np.int32)
        self._valid = np.zeros((len(sources), length), bool)
        for number, index in enumerate(self._order):
            self._inputs[number, : len(sources[index])] = sources[index]
            self._valid[number, : len(sources[index])] = True
        start_id = experiment.generation.start_id
        if start_id is None:
            start_id = model.decoder_start_id(pad_id=vocabulary.pad_id, eos_id=vocabulary.eos_id)
        # Vaswani et al. 2017, section 6.1: no answer is longer than its input and fifty.
        max_length = settings.max_length or min(longest + 50, target_length)

        def generate(params: Any, batch: dict[str, Array]) -> Int[Array, "B L"]:
            decoded = decode(
                program.module,
                params,
                batch["inputs"],
                method=settings.method,
                start_ids=jnp.full(len(batch["inputs"]), start_id, jnp.int32),
                max_length=max_length,
                inputs_valid=batch["valid"],
                **experiment.generation.constraints(vocabulary),
            )
            return decoded.ids[:, 0]

        self._generate = MeshFunction(program, generate, batch_size)

    def answers(self, params: Any) -> list[str]:
        """The answer of the model with these parameters to each question."""
        texts = [""] * len(self._inputs)
        ids = self._generate(
            params, len(texts), lambda rows: {"inputs": self._inputs[rows], "valid": self._valid[rows]}
        )
        for index, answer in zip(self._order, ids.tolist(), strict=True):
            texts[index] = self.tokenizer.target_side.decode(answer)
        return texts


def held_out_samples(
    program: Program, params: Any, store: TokenStore, num_rows: int = 5
) -> list[dict[str, np.ndarray]]:
    """What the objective shows of the first held-out rows: see `Objective.samples`."""
    objective = program.objective
    features = held_out_features(objective, store.held_out, num_rows)
    count, share = len(next(iter(features.values()))), num_parts("activation_batch", program.mesh.shape)
    # On the run's devices, since one of them could not hold the model.
    sample = MeshFunction(program, partial(objective.samples, program.module), -(-count // share) * share)
    samples = sample(params, count, lambda rows: {name: value[rows] for name, value in features.items()})
    return [{column: np.asarray(value[number]) for column, value in samples.items()} for number in range(count)]


def format_samples(program: Program, store: TokenStore, samples: list[dict[str, np.ndarray]]) -> str:
    """Held-out rows as the model reads them, the targets, and its answers: see `Objective.format_sample`."""
    objective, tokenizer = program.objective, store.tokenizer
    name = "row" if tokenizer and objective.unit == "token" else "example"
    labels = store.classes or getattr(program.experiment.data.source, "classes", None)
    blocks = []
    for number, row in enumerate(samples):
        has_text = tokenizer is not None or not objective.reads_text
        text = objective.format_sample(row, tokenizer, labels) if has_text else _format_arrays(row)
        blocks.append(f"--- held-out {name} {number}\n{text}")
    return "\n".join(blocks)


def _format_arrays(row: dict[str, np.ndarray]) -> str:
    """Arrays by shape and range, single numbers as they are."""
    lines = []
    for name, value in row.items():
        ends = [f"{end:g}" for end in (value.min(), value.max())]
        text = f"{value.dtype}{list(value.shape)} from {ends[0]} to {ends[1]}" if value.ndim else ends[0]
        lines.append(f"{name + ':':<8} {text}\n")
    return "".join(lines)
