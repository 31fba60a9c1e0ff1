"""What all models in a notebook that write text have in common: prompts, decoding methods, answers and scores."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding import BeamSearch, Greedy, Method, Sampling
from t5x_lite.errors import InputError
from t5x_lite.pretrained.attention import AttentionMaps
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.batches import Row, named_texts, score_answers, write_rows

Examples = Iterable[tuple[str, str]]
"""(input, output) of tasks that are done already."""

DEFAULT_TEMPLATE = "{input}\n{output}\n\n"


class Prompt(NamedTuple):
    """A text to go on from, and what ends the answer beside the model's own end."""

    text: str
    before: str = ""
    """A blank that stands before the answer: in most vocabularies it belongs to the answer's first token."""
    stop: str = ""
    """What follows an answer in the examples; empty where there are none."""


def make_prompt(text: str, examples: Examples, template: str | None) -> Prompt:
    """The examples and then the task, each as the template has it; without both the text as it is.

    >>> make_prompt("dog", [("cat", "Katze")], "{input} = {output}\\n")
    Prompt(text='cat = Katze\\ndog =', before=' ', stop='\\n')
    """
    examples = list(examples)
    if template is None and not examples:
        return Prompt(text)
    template = DEFAULT_TEMPLATE if template is None else template
    before, _, behind = template.partition("{output}")
    if template.count("{output}") != 1 or before.count("{input}") != 1 or "{input}" in behind:
        raise InputError(
            f"template={template!r} is not a template; write {{input}} once and behind it {{output}} once, as in "
            f"{DEFAULT_TEMPLATE!r}"
        )
    for example in examples:
        if not (isinstance(example, tuple | list) and len(example) == 2 and all(isinstance(x, str) for x in example)):
            raise InputError(f"examples hold {example!r}, which is not a pair of texts; give (input, output)")
    shown = "".join(before.replace("{input}", x) + y + behind for x, y in examples)
    task = before.replace("{input}", text)
    blank = " " if task.endswith(" ") else ""
    return Prompt(shown + task.removesuffix(" "), blank, behind)


def with_answers(texts: Any, answers: Any) -> list[tuple[str, str, str | None]]:
    """(name, text, answer) of each text; the answers are None where none are given.

    >>> with_answers("a text", "an answer"), with_answers(["a"], None)
    ([('the text', 'a text', 'an answer')], [('texts[0]', 'a', None)])
    """
    named = named_texts(texts)
    if answers is None:
        return [(name, text, None) for name, text in named.items()]
    if isinstance(answers, str) != isinstance(texts, str):
        raise InputError("texts and answers are not both a text or both a list; give one answer for each text")
    given = named_texts(answers).values()
    if len(given) != len(named):
        raise InputError(f"there are {len(named)} texts and {len(given)} answers; give one answer for each text")
    return [(name, text, answer) for (name, text), answer in zip(named.items(), given, strict=True)]


def choose_method(
    *,
    num_beams: int = 1,
    alpha: float = 0.6,
    early_stopping: bool = False,
    length_power: float | None = None,
    exhaustive_eos: bool = False,
    num_results: int = 1,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
) -> Method:
    """Beam search for several beams, sampling for a temperature, a top_k or a top_p, greedy otherwise.

    A temperature of 0 is greedy too. Raises `InputError` for numbers out of range, and for what excludes each other.
    """
    sampled = temperature is not None or top_k != 0 or top_p != 1.0
    if sampled and num_beams != 1:
        name, value = ("top_p", top_p) if top_p != 1.0 else ("top_k", top_k)
        if temperature is not None:
            name, value = "temperature", temperature
        raise InputError(f"num_beams={num_beams} and {name}={value} exclude each other; search beams or sample")
    if num_beams != 1:
        return BeamSearch(num_beams, alpha, early_stopping, num_results, exhaustive_eos, length_power)
    if sampled and temperature != 0:
        return Sampling(1.0 if temperature is None else temperature, top_k, top_p, num_results)
    if num_results != 1:
        raise InputError(
            f"num_results={num_results} needs several beams or sampling; choose num_beams={max(num_results, 2)}, or a "
            "temperature above 0"
        )
    return Greedy()


class Answer(NamedTuple):
    """A text that the model wrote."""

    text: str
    score: float
    """Its log-probability, divided by the length penalty if it was searched for."""


class Score(NamedTuple):
    """What the model thinks of an answer that was given to it."""

    answer: str
    log_probability: float
    """Of all its tokens together, in nats."""
    per_token: float
    """The same divided by the number of its tokens."""
    normalised: float | None
    """The log-probability less that of the same answer behind `answer_context` (Brown et al. 2020, section 2.4); None
    where none was given."""


@dataclass(frozen=True)
class PretrainedTextModel(Pretrained):
    """`generate` for text, `generate_ids` for ids, `score` for answers to choose from."""

    @property
    def abilities(self) -> tuple[str, ...]:
        return "generate", "generate_ids", "score"

    def generate(
        self,
        texts: str | list[str],
        *,
        max_length: int = 128,
        method: Method | None = None,
        num_beams: int = 1,
        alpha: float = 0.6,
        early_stopping: bool = False,
        num_results: int = 1,
        temperature: float | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        examples: Examples = (),
        template: str | None = None,
        scores: bool = False,
        batch_size: int = 32,
        progress: Callable[[int], Any] | None = None,
        length_power: float | None = None,
        exhaustive_eos: bool = False,
    ) -> Any:
        """What the model writes for each text: greedily, by beam search, or by sampling.

        One text gives one answer, a list of texts a list of answers; with `num_results` above 1 an answer is itself a
        list, best first where it was searched for. With `scores` each text of an answer comes as an `Answer`, with its
        score. An answer does not depend on the other texts.

        Args:
          texts: inputs of an encoder-decoder; prompts that a decoder goes on from.
          max_length: tokens of an answer, EOS included.
          method: how to choose tokens, such as `t5x_lite.decoding.Sampling()` or a method of one's own; None: as the
            next options say, which otherwise have no effect.
          num_beams: with 2 or more, beam search with the length penalty ``((5 + n) / 6) ** alpha`` and, if asked for,
            early stopping: see `t5x_lite.decoding.BeamSearch`, which has `length_power` and `exhaustive_eos` too.
          num_results: answers for each text.
          temperature, top_k, top_p: any of them means sampling, from the `top_k` likeliest tokens and of these from the
            likeliest that hold `top_p` of the probability; a temperature of 0 is greedy.
          seed: of the sampling: what is drawn for a text depends on it and on the text's index in the list alone.
          examples: (input, output) of tasks that are done already, which are shown to the model before each text.
          template: how tasks are written, `{input}` and behind it `{output}` once each. A prompt is the template of
            each example and then that of the text up to its output; answers end where the next example would begin.
            Without it examples have ``"{input}\\n{output}\\n\\n"``, and a text without examples stays as it is.
          batch_size: texts that are decoded together.
          progress: is called with the number of texts finished since it was called last.

        Raises:
          InputError: no texts, numbers out of range, a prompt and answer longer than the model has positions for.
        """
        method = method or choose_method(
            num_beams=num_beams,
            alpha=alpha,
            early_stopping=early_stopping,
            length_power=length_power,
            exhaustive_eos=exhaustive_eos,
            num_results=num_results,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
        )
        examples, named = list(examples), named_texts(texts)
        prompts = [make_prompt(text, examples, template) for text in named.values()]
        prompt_ids = [self._prompt_ids(prompt.text) for prompt in prompts]
        rows = [self._row(name, ids) for name, ids in zip(named, prompt_ids, strict=True)]
        ids, values = self._write(rows, method, max_length, seed, batch_size, progress)
        answers: list[Any] = []
        for before, prompt, some, their_values in zip(prompt_ids, prompts, ids, values, strict=True):
            written = [self._answer(before, one.tolist(), prompt) for one in some]
            if scores:
                written = [Answer(text, float(value)) for text, value in zip(written, their_values, strict=True)]
            answers.append(written if method.num_results > 1 else written[0])
        return answers[0] if isinstance(texts, str) else answers

    def generate_ids(
        self,
        inputs: Int[Array, "B M"] | Sequence[Sequence[int]],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        max_length: int = 128,
        method: Method | None = None,
        seed: int = 0,
        scores: bool = False,
        batch_size: int = 32,
        **options: Any,
    ) -> Any:
        """The same for ids: [B L], or [B N L] where `num_results` is above 1; with `scores` (ids, scores [B] or [B N]).

        What stands in `inputs` is all the model reads: an encoder-decoder's closing EOS is among it. A decoder goes on
        from a row's last id, and from EOS where the row is empty. EOS ends what is written, padding is behind it.

        Args:
          inputs: a row for each input, padded, or a list of rows of any lengths.
          inputs_valid: false where there is padding; without it, where the padding id stands at a row's ends.
          options: `num_beams`, `alpha`, `temperature` and the others of `generate` that choose the method.
        """
        method = method or choose_method(**options)
        rows = self._given_rows(inputs, inputs_valid)
        ids, values = self._write(rows, method, max_length, seed, batch_size, None)
        if method.num_results == 1:
            ids, values = ids[:, 0], values[:, 0]
        return (jnp.asarray(ids), jnp.asarray(values)) if scores else jnp.asarray(ids)

    def score(
        self,
        prompt: str,
        answers: list[str],
        *,
        examples: Examples = (),
        template: str | None = None,
        answer_context: str | None = None,
        batch_size: int = 32,
    ) -> list[Score]:
        """How likely each answer is behind the prompt, to choose among them as GPT-3 was evaluated (section 2.4).

        The answer's closing EOS counts where the model was trained to write it (see `generate` of the kind of model).

        Args:
          prompt, examples, template: as in `generate`.
          answers: texts, in any number.
          answer_context: a prompt that says nothing, such as "Answer:"; `normalised` is then how much more likely an
            answer is behind the prompt than behind this.
        """
        if not isinstance(prompt, str):
            raise InputError(f"prompt={prompt!r} is not a text; give a string")
        names = named_texts(answers if isinstance(answers, list | tuple) else [answers])
        question = make_prompt(prompt, examples, template)
        answer_ids = [self._answer_ids(question.before + answer) for answer in names.values()]
        if empty := [name for name, ids in zip(names, answer_ids, strict=True) if not ids]:
            raise InputError(f"answers{empty[0].removeprefix('texts')} holds no token; give it some text")
        totals = self._scores(self._row("prompt", self._prompt_ids(question.text)), answer_ids, batch_size)
        bare: list[float | None] = [None] * len(answer_ids)
        if answer_context is not None:
            bare = self._scores(self._row("answer_context", self._prompt_ids(answer_context)), answer_ids, batch_size)
        return [
            Score(answer, total, total / len(ids), None if alone is None else total - alone)
            for answer, total, ids, alone in zip(names.values(), totals, answer_ids, bare, strict=True)
        ]

    def attention(
        self, texts: str | list[str], answers: str | list[str] | None = None, *, max_length: int = 128
    ) -> Any:
        """Where the tokens of each text look: an `AttentionMaps`, or a list of them for a list.

        Of a decoder there is one map, `causal`, or `prefix` where the tokens of the text see each other whole; of an
        encoder-decoder there are `encoder`, `decoder` and `cross`. The decoder's tokens are those that it reads.

        Args:
          answers: what stands behind each text. Without them a decoder reads the text alone, and an encoder-decoder
            what it writes itself, greedily.
          max_length: tokens of what it writes itself.
        """
        maps = [
            self._attention(
                name, self._prompt_ids(text), None if answer is None else self._answer_ids(answer), max_length
            )
            for name, text, answer in with_answers(texts, answers)
        ]
        return maps[0] if isinstance(texts, str) else maps

    @abstractmethod
    def _attention(self, name: str, ids: list[int], answer: list[int] | None, max_length: int) -> AttentionMaps:
        """The attention over one text and an answer to it."""

    @abstractmethod
    def _prompt_ids(self, text: str) -> list[int]:
        """What the model reads of a text before it answers."""

    @abstractmethod
    def _answer_ids(self, text: str) -> list[int]:
        """What the model should write to give this text."""

    @abstractmethod
    def _row(self, name: str, ids: list[int], valid: list[bool] | None = None) -> Row:
        """How some ids, the padding among them marked, go to encoder and decoder."""

    @abstractmethod
    def _check_room(self, row: Row, max_length: int) -> None:
        """Raises `InputError` where the model has too few positions for a row and as many tokens behind it."""

    @abstractmethod
    def _room(self, num_inputs: int) -> int | None:
        """How many tokens may stand behind so many inputs; None: as many as one likes."""

    @abstractmethod
    def _longest_inputs(self, max_length: int) -> int | None:
        """How many inputs may stand before so many tokens; None: as many as one likes."""

    def _answer(self, prompt_ids: list[int], ids: list[int], prompt: Prompt) -> str:
        """The text of what was written behind a prompt, up to where an example would end."""
        text = self._tokenizer().target_side.decode(ids)
        return text.partition(prompt.stop)[0].strip() if prompt.stop else text

    def _given_rows(self, inputs: Any, inputs_valid: Any) -> list[Row]:
        pad_id = self._vocabulary.pad_id
        rows = [np.asarray(row) for row in inputs]
        if not rows or any(row.ndim != 1 or (row.size and row.dtype.kind not in "iu") for row in rows):
            raise InputError("inputs are not rows of ids; give integers [B, M], or a list of lists of them")
        given: list[Row] = []
        for index, row in enumerate(rows):
            valid = row != pad_id if inputs_valid is None else np.asarray(inputs_valid[index])
            inside = np.flatnonzero(valid)
            first, end = (inside[0], inside[-1] + 1) if len(inside) else (0, 0)
            if inputs_valid is None:
                valid = np.ones_like(valid)  # between the first and the last id a padding id is one like others
            given.append(self._row(f"inputs[{index}]", row[first:end].tolist(), valid[first:end].tolist()))
        return given

    def _write(
        self,
        rows: list[Row],
        method: Method,
        max_length: int,
        seed: int,
        batch_size: int,
        progress: Callable[[int], Any] | None,
    ) -> tuple[Int[np.ndarray, "B N L"], Float[np.ndarray, "B N"]]:
        if max_length < 1:
            raise InputError(f"max_length={max_length} is too small; choose 1 or more")
        for row in rows:
            self._check_room(row, max_length)
        return write_rows(
            self.module,
            self.params,
            rows,
            method=method,
            max_length=max_length,
            seed=seed,
            batch_size=batch_size,
            longest=self._longest_inputs(max_length),
            progress=progress,
            **self.generation.constraints(self._vocabulary),
        )

    def _scores(self, row: Row, answers: list[list[int]], batch_size: int) -> list[float]:
        self._check_room(row, max(map(len, answers)))
        return score_answers(
            self.module,
            self.params,
            row,
            answers,
            pad_id=self._vocabulary.pad_id,
            batch_size=batch_size,
            room=self._room(len(row.ids)),
            longest=self._longest_inputs,
        )
