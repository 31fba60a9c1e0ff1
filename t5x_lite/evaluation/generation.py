"""What a model writes to held-out inputs, its parameters lying on the devices of the run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.data.tasks.templates import EvalExample
from t5x_lite.decoding import decode
from t5x_lite.parallel import batch_sharding, num_parts, replicated, use_mesh
from t5x_lite.parallel.mesh import BatchRows
from t5x_lite.training.experiment import Evaluation
from t5x_lite.training.step import Program

_LENGTH_STEP = 8
_LONGER_THAN_INPUT = 50


@dataclass(frozen=True)
class EvalPrompt:
    """An input, and the text that is expected."""

    ids: tuple[int, ...]
    """Of the input, as the model reads it in training, padding left out."""
    right: tuple[str, ...] = ()
    """All texts that are right, the first of which is compared with where one is; none where nobody knows."""
    group: str = ""
    """The same for questions that are scored together."""


def separate(features: dict[str, np.ndarray], vocabulary: Vocabulary) -> list[tuple[list[int], list[int]]]:
    """(inputs, targets) of each pair in rows of features: packed rows hold several. Padding is left out.

    >>> packed = {"inputs": np.array([[7, 1, 8, 9, 1, 0]]), "inputs_segments": np.array([[1, 1, 2, 2, 2, 0]])}
    >>> packed |= {"targets": np.array([[5, 1, 6, 1]]), "decoder_segments": np.array([[1, 1, 2, 2]])}
    >>> separate(packed, Vocabulary(10))
    [([7, 1], [5, 1]), ([8, 9, 1], [6, 1])]
    """
    pairs = []
    for row in range(len(features["targets"])):
        sides = [features[name][row] for name in ("inputs", "targets")]
        segments = [features[name][row] for name in ("inputs_segments", "decoder_segments") if name in features]
        if segments:
            for number in range(1, int(segments[0].max(initial=0)) + 1):
                pairs.append(tuple(side[of == number].tolist() for side, of in zip(sides, segments, strict=True)))
        else:
            pairs.append(tuple(_without_padding(side, vocabulary) for side in sides))
    return pairs


def _without_padding(ids: Int[np.ndarray, "L"], vocabulary: Vocabulary) -> list[int]:
    end = int(np.flatnonzero(ids != vocabulary.pad_id).max(initial=-1)) + 1
    # Where padding is EOS too, the first one of them closes the text.
    closing = [vocabulary.eos_id] if vocabulary.pad_id == vocabulary.eos_id and end < len(ids) else []
    return ids[:end].tolist() + closing


def questions_of_rows(
    features: dict[str, np.ndarray], tokenizer: Tokenizer, count: int | None = None
) -> list[EvalPrompt]:
    """The first `count` pairs of rows of features; their references are the targets' ids as text."""
    pairs = separate(features, tokenizer.vocabulary)[:count]
    return [EvalPrompt(tuple(inputs), (tokenizer.target_side.decode(targets),)) for inputs, targets in pairs]


def questions_of_pairs(pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> list[EvalPrompt]:
    """Pairs of texts, every input closed by EOS; the references are the texts themselves."""
    return questions_of((EvalExample(source, (target,)) for source, target in pairs), tokenizer)


def questions_of(examples: Iterable[EvalExample], tokenizer: Tokenizer, length: int | None = None) -> list[EvalPrompt]:
    """Inputs closed by EOS, with what is right; of those longer than `length` ids, EOS included, the ends are cut."""
    examples, closing = list(examples), tokenizer.vocabulary.eos_id
    kept = None if length is None else length - 1
    return [
        EvalPrompt((*ids.tolist()[:kept], closing), right, group)
        for ids, (_, right, group) in zip(tokenizer.encode_batch([one.text for one in examples]), examples, strict=True)
    ]


class BatchGenerator:
    """Questions of one run, decoded in batches of one shape.

    Args:
      program: the experiment on its mesh.
      questions: in any order; answers come in the same one.
      tokenizer: turns answers into text.
      settings: the beams and the lengths.
    """

    def __init__(self, program: Program, questions: Sequence[EvalPrompt], tokenizer: Tokenizer, settings: Evaluation):
        self._program, self.questions, self.tokenizer = program, questions, tokenizer
        experiment, mesh = program.experiment, program.mesh
        vocabulary, model = tokenizer.vocabulary, experiment.model
        sources = [list(question.ids) for question in questions]
        if model.architecture == "decoder":
            # The EOS that closes the inputs is the first thing that a decoder reads of the targets' side.
            sources = [ids[:-1] if ids[-1:] == [vocabulary.eos_id] else ids for ids in sources]
        # Inputs of like length share a batch, which ends when its last answer ends.
        self._order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        share = num_parts("activation_batch", mesh.shape)
        self._batch_size = min(experiment.batch_size // experiment.accumulation, -(-len(sources) // share) * share)
        longest, (input_length, target_length) = max(map(len, sources)), _lengths(program)
        length = min(max(-(-longest // _LENGTH_STEP), 1) * _LENGTH_STEP, max(input_length, longest))
        self._inputs = np.full((len(sources), length), vocabulary.pad_id, np.int32)
        self._valid = np.zeros((len(sources), length), bool)
        for row, index in enumerate(self._order):
            self._inputs[row, : len(sources[index])] = sources[index]
            self._valid[row, : len(sources[index])] = True
        start_id = experiment.generation.start_id
        if start_id is None:
            start_id = model.decoder_start_id(pad_id=vocabulary.pad_id, eos_id=vocabulary.eos_id)
        # Vaswani et al. 2017, section 6.1: no answer is longer than its input and fifty.
        max_length = settings.max_length or min(longest + _LONGER_THAN_INPUT, target_length)

        def write(params: Any, inputs: Int[Array, "B M"], valid: Bool[Array, "B M"]) -> Int[Array, "B L"]:
            with use_mesh(mesh):
                return decode(
                    program.module,
                    params,
                    inputs,
                    method=settings.method,
                    start_ids=jnp.full(len(inputs), start_id, jnp.int32),
                    max_length=max_length,
                    inputs_valid=valid,
                    **experiment.generation.constraints(vocabulary),
                ).ids[:, 0]

        batch = batch_sharding(mesh)
        in_shardings = (program.state_shardings.params, batch, batch)
        self._write = jax.jit(write, in_shardings=in_shardings, out_shardings=replicated(mesh))

    def answers(self, params: Any) -> list[str]:
        """What the model with these parameters writes to each question."""
        size, texts = self._batch_size, [""] * len(self._inputs)
        here = BatchRows(batch_sharding(self._program.mesh), size)
        for start in range(0, len(self._inputs), size):
            inputs, valid = (part[start : start + size] for part in (self._inputs, self._valid))
            # The last batch is filled up with its last row.
            rows = np.minimum(here.numbers, len(inputs) - 1)
            ids = self._write(params, here.to_devices(inputs[rows]), here.to_devices(valid[rows]))
            for index, answer in zip(self._order[start : start + size], jax.device_get(ids), strict=False):
                texts[index] = self.tokenizer.target_side.decode(answer.tolist())
        return texts


def _lengths(program: Program) -> tuple[int, int]:
    """Of the inputs and the targets in a row."""
    row = abstract_batch(program.objective.row_spec)
    features = jax.eval_shape(program.objective.corrupt, jax.random.key(0), row)
    return features["inputs"].shape[0], features["targets"].shape[0]
