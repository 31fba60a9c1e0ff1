"""What all models in a notebook that generate text share: prompts, decoding methods, answers and scores."""

import difflib
import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding import BeamSearch, Decoded, Greedy, Method, Sampling, decode
from t5x_lite.errors import InputError
from t5x_lite.pictures.attention import AttentionMaps
from t5x_lite.pretrained.batches import Batch, Row, apply_model, check_ids, map_rows, named_texts, pad_rows, power
from t5x_lite.pretrained.task_heads import TaskHeads

Examples = Iterable[tuple[str, str]]
"""(input, output) of solved tasks."""

_SHORTEST = 32  # Decoding is compiled for answers of this length, twice it, four times it, ...

DEFAULT_TEMPLATE = "{input}\n{output}\n\n"


OF_TRANSFORMERS = {
    "max_new_tokens": "the tokens of an answer are max_length",
    "min_new_tokens": "an answer ends where the model writes EOS; leave it out",
    "do_sample": "temperature, top_k or top_p mean sampling, and num_beams beam search",
    "num_return_sequences": "the answers for a text are num_results",
    "length_penalty": "the exponent of the length penalty is alpha, and of a plain power of the length length_power",
    "repetition_penalty": "probabilities are the model's; leave it out",
    "no_repeat_ngram_size": "probabilities are the model's; leave it out",
    "output_scores": "scores=True gives them",
    "return_dict_in_generate": "scores=True gives text and score of each answer",
    "penalty_alpha": "contrastive search is not here; write a t5x_lite.decoding.Method",
}
"""What to give here instead of an option of Transformers' `generate`."""


class Prompt(NamedTuple):
    """A text to continue, and what ends the answer beside the model's own end."""

    text: str
    before: str = ""
    """A blank before the answer: in most vocabularies it belongs to the answer's first token."""
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
    before, _, after = template.partition("{output}")
    if template.count("{output}") != 1 or before.count("{input}") != 1 or "{input}" in after:
        raise InputError(
            f"template={template!r} is not a template; write {{input}} once and after it {{output}} once, as in "
            f"{DEFAULT_TEMPLATE!r}"
        )
    for example in examples:
        if not (isinstance(example, tuple | list) and len(example) == 2 and all(isinstance(x, str) for x in example)):
            raise InputError(f"examples hold {example!r}, which is not a pair of texts; give (input, output)")
    shown = "".join(before.replace("{input}", x) + y + after for x, y in examples)
    task = before.replace("{input}", text)
    blank = " " if task.endswith(" ") else ""
    return Prompt(shown + task.removesuffix(" "), blank, after)


def choose_method(
    *,
    method: Method | None = None,
    num_beams: int = 1,
    alpha: float = 0.6,
    early_stopping: bool = False,
    length_power: float | None = None,
    exhaustive_eos: bool = False,
    num_results: int = 1,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    **unknown: Any,
) -> Method:
    """Beam search for several beams, sampling for a temperature, a top_k or a top_p, greedy otherwise.

    Args:
      method: such as `t5x_lite.decoding.Sampling()`, or one of your own; the other options then have no effect.
      num_beams: with 2 or more, beam search with the length penalty ``((5 + n) / 6) ** alpha`` and, if wanted, early
        stopping: see `t5x_lite.decoding.BeamSearch`, which has `length_power` and `exhaustive_eos` too.
      num_results: answers for each text.
      temperature, top_k, top_p: any of them means sampling, from the `top_k` likeliest tokens and of these from the
        likeliest that hold `top_p` of the probability; a temperature of 0 is greedy.

    Raises `InputError` for numbers out of range, and for options that exclude each other or that there are none of.
    """
    for name, value in unknown.items():
        remedy = OF_TRANSFORMERS.get(name)
        if remedy is None:
            *known, _ = inspect.signature(choose_method).parameters
            near = difflib.get_close_matches(name, [*known, "max_length", "seed", "scores", "batch_size"], 1)
            remedy = f"perhaps you meant {near[0]}" if near else f"choose among {', '.join(known)}"
        raise InputError(f"{name}={value!r:.60} is not an option; {remedy}")
    if method is not None:
        return method
    sampled = {"temperature": (temperature, None), "top_p": (top_p, 1.0), "top_k": (top_k, 0)}
    given = [f"{name}={value}" for name, (value, default) in sampled.items() if value != default]
    if given and num_beams != 1:
        raise InputError(f"num_beams={num_beams} and {given[0]} exclude each other; search beams or sample")
    if num_beams != 1:
        return BeamSearch(num_beams, alpha, early_stopping, num_results, exhaustive_eos, length_power)
    if given and temperature != 0:
        return Sampling(1.0 if temperature is None else temperature, top_k, top_p, num_results)
    if num_results != 1:
        raise InputError(
            f"num_results={num_results} needs several beams or sampling; choose num_beams={max(num_results, 2)}, or a "
            "temperature above 0"
        )
    return Greedy()


TextPooling = Literal["mean", "last", "tokens"]
"""The mean of a text's tokens, the vector of the last one, or one for each token."""


class Answer(NamedTuple):
    """A text that the model generated."""

    text: str
    score: float
    """Its log-probability, divided by the length penalty of beam search."""


class Score(NamedTuple):
    """How likely a given answer is to the model."""

    answer: str
    log_probability: float
    """Of all its tokens together, in nats."""
    per_token: float
    """The same divided by the number of its tokens."""
    normalised: float | None
    """The log-probability less that of the same answer after `answer_context` (Brown et al. 2020, section 2.4); None
    without one."""


@dataclass(frozen=True, repr=False)
class PretrainedTextModel(TaskHeads):
    """`generate` for text, `generate_ids` for ids, `score` for answers to choose from; with heads of tasks `classify`,
    `choose`, `tag` and `answer`."""

    @property
    def abilities(self) -> tuple[str, ...]:
        return *self.task_methods, "generate", "generate_ids", "score", "encode"

    def generate(
        self,
        texts: str | list[str],
        *,
        max_length: int = 128,
        seed: int = 0,
        examples: Examples = (),
        template: str | None = None,
        scores: bool = False,
        batch_size: int = 32,
        progress: Callable[[int], Any] | None = None,
        **options: Any,
    ) -> Any:
        """What the model writes for each text: greedily, by beam search, or by sampling.

        One text gives one answer, a list of texts a list of answers; with `num_results` above 1 an answer is itself a
        list, best first for beam search. With `scores` each text of an answer comes as an `Answer`, with its score. An
        answer does not depend on the other texts.

        Args:
          texts: inputs of an encoder-decoder; prompts that a decoder continues.
          max_length: tokens of an answer, EOS included.
          seed: of the sampling: the sample for a text depends on it and on the text's index in the list alone.
          examples: (input, output) of solved tasks, which a decoder reads before each text.
          template: how tasks are written, `{input}` and after it `{output}` once each. A prompt is the template of
            each example and then that of the text up to its output; answers end where the next example would begin.
            Without it examples have ``"{input}\\n{output}\\n\\n"``, and a text without examples stays as it is.
          batch_size: texts that are decoded together.
          progress: is called with the number of texts finished since its last call.
          options: `method`, or `num_beams`, `alpha`, `early_stopping`, `length_power`, `exhaustive_eos`, `num_results`,
            `temperature`, `top_k`, `top_p`, which choose one: see `choose_method`.

        Raises:
          InputError: no texts, numbers out of range, a prompt and answer longer than the model has positions for.
        """
        method, examples, named = choose_method(**options), list(examples), named_texts(texts)
        prompts = [self._prompt(text, examples, template) for text in named.values()]
        prompt_ids = [self._prompt_ids(prompt.text) for prompt in prompts]
        rows = [self._row(name, ids, max_length) for name, ids in zip(named, prompt_ids, strict=True)]
        answers: list[Any] = []
        decoded = self._decode(rows, method, max_length, seed, batch_size, progress)
        for before, prompt, (ids, values) in zip(prompt_ids, prompts, decoded, strict=True):
            results = [self._answer(before, one.tolist(), prompt) for one in ids]
            if scores:
                results = [Answer(text, float(value)) for text, value in zip(results, values, strict=True)]
            answers.append(results if method.num_results > 1 else results[0])
        return answers[0] if isinstance(texts, str) else answers

    def generate_ids(
        self,
        inputs: Int[Array, "B M"] | Sequence[Sequence[int]],
        *,
        inputs_valid: Bool[Array, "B M"] | None = None,
        max_length: int = 128,
        seed: int = 0,
        scores: bool = False,
        batch_size: int = 32,
        **options: Any,
    ) -> Any:
        """The same for ids: [B L], or [B N L] where `num_results` is above 1; with `scores` (ids, scores [B] or [B N]).

        The model reads the ids of `inputs` alone: an encoder-decoder's closing EOS is among them. A decoder continues a
        row's last id, and EOS where the row is empty. EOS ends an answer, padding follows it.

        Args:
          inputs: a row for each input, padded, or a list of rows of any lengths.
          inputs_valid: false where there is padding; without it, where the padding id stands at a row's ends.
          options: those of `generate` that choose the method.
        """
        method, given = choose_method(**options), [np.asarray(row) for row in inputs]
        if not given or any(row.ndim != 1 or (row.size and row.dtype.kind not in "iu") for row in given):
            raise InputError("inputs are not rows of ids; give integers [B, M], or a list of lists of them")
        for index, row in enumerate(given):
            check_ids(row.astype(np.int64)[None], self.config.vocab_size, name=f"inputs[{index}]")
        rows = []
        for index, row in enumerate(given):
            valid = row != self._vocabulary.pad_id if inputs_valid is None else np.asarray(inputs_valid[index])
            inside = np.flatnonzero(valid)
            span = slice(inside[0], inside[-1] + 1) if len(inside) else slice(0)
            if inputs_valid is None:
                valid = np.ones_like(valid)  # between the first and the last id a padding id is one like others
            rows.append(self._row(f"inputs[{index}]", row[span].tolist(), max_length, valid[span].tolist()))
        ids, values = map(np.stack, zip(*self._decode(rows, method, max_length, seed, batch_size), strict=True))
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
        """How likely each answer is after the prompt, to choose among them as GPT-3 was evaluated (section 2.4).

        The answer's closing EOS counts where the model was trained to write it (see `PretrainedDecoder`).

        Args:
          prompt, examples, template: as in `generate`.
          answers: texts, in any number.
          answer_context: a prompt without content, such as "Answer:"; `normalised` is then how much more likely an
            answer is after the prompt than after this.
        """
        if not isinstance(prompt, str):
            raise InputError(f"prompt={prompt!r} is not a text; give a string")
        names = named_texts(answers if isinstance(answers, list | tuple) else [answers])
        question = self._prompt(prompt, examples, template)
        answer_ids = [self._answer_ids(question.before + answer) for answer in names.values()]
        if empty := [name for name, ids in zip(names, answer_ids, strict=True) if not ids]:
            raise InputError(f"answers{empty[0].removeprefix('texts')} holds no token; give it some text")
        totals = self._log_probabilities("prompt", question.text, answer_ids, batch_size)
        bare: list[float | None] = [None] * len(answer_ids)
        if answer_context is not None:
            bare = self._log_probabilities("answer_context", answer_context, answer_ids, batch_size)
        return [
            Score(answer, total, total / len(ids), None if alone is None else total - alone)
            for answer, total, ids, alone in zip(names.values(), totals, answer_ids, bare, strict=True)
        ]

    def encode(
        self, texts: str | list[str], *, pooling: TextPooling = "mean"
    ) -> Float[np.ndarray, "..."] | list[Float[np.ndarray, "L D"]]:
        """Vectors of texts, [B D] for a list and [D] for one: the last layer's output for a text's tokens, that of the
        encoder where there is one. They are the same whatever texts stand beside them.

        Args:
          pooling: mean over a text's tokens; last, the vector of the last one, which in a decoder alone has seen the
            whole text; tokens, a list of [L D] (one text: [L D]).

        Raises `InputError` for no texts, and one without tokens or longer than the model has positions for.
        """
        if pooling not in get_args(TextPooling):
            raise InputError(f"pooling={pooling!r} is unknown; choose one of {', '.join(get_args(TextPooling))}")
        named_texts(texts)  # pairs are not
        rows = self._rows_to_encode(texts)
        vectors = [one[: len(row.ids)] for one, row in zip(self._apply(_last_layer, rows), rows, strict=True)]
        if pooling == "tokens":
            return vectors[0] if isinstance(texts, str) else vectors
        pooled = np.stack([one.mean(axis=0) if pooling == "mean" else one[-1] for one in vectors])
        return pooled[0] if isinstance(texts, str) else pooled

    @abstractmethod
    def _rows_to_encode(self, texts: str | list[str]) -> list[Row]:
        """What the model reads of texts."""

    def attention(
        self, texts: str | list[str], answers: str | list[str] | None = None, *, max_length: int = 128
    ) -> Any:
        """The attention of the tokens of each text: an `AttentionMaps`, or a list of them for a list.

        A decoder has one map, `causal`, or `prefix` where the tokens of the text see each other whole; an
        encoder-decoder has `encoder`, `decoder` and `cross`. The decoder's tokens are those that it reads.

        Args:
          answers: the text after each of `texts`. Without them a decoder reads the text alone, and an encoder-decoder
            the answer that it generates greedily.
          max_length: tokens of that answer.
        """
        named = named_texts(texts)
        if answers is not None and isinstance(answers, str) != isinstance(texts, str):
            raise InputError("texts and answers are not both a text or both a list; give one answer for each text")
        given = [None] * len(named) if answers is None else list(named_texts(answers).values())
        if len(given) != len(named):
            raise InputError(f"there are {len(named)} texts and {len(given)} answers; give one answer for each text")
        answer_ids = [None if answer is None else self._answer_ids(answer) for answer in given]
        maps = [
            replace(
                self._attention(name, self._prompt_ids(text), ids, max_length),
                model=self.title,
                text=text if answer is None else f"{text} | {answer}",
            )
            for (name, text), answer, ids in zip(named.items(), given, answer_ids, strict=True)
        ]
        return maps[0] if isinstance(texts, str) else maps

    @abstractmethod
    def _attention(self, name: str, ids: list[int], answer: list[int] | None, max_length: int) -> AttentionMaps:
        """The attention over one text and an answer to it."""

    def _prompt(self, text: str, examples: Examples, template: str | None) -> Prompt:
        return make_prompt(text, examples, template)

    @abstractmethod
    def _prompt_ids(self, text: str) -> list[int]:
        """What the model reads of a text before it answers."""

    @abstractmethod
    def _answer_ids(self, text: str) -> list[int]:
        """What the model should write to give this text."""

    @abstractmethod
    def _row(self, name: str, ids: list[int], max_length: int, valid: list[bool] | None = None) -> Row:
        """How ids, false in `valid` for the padding among them, go to encoder and decoder.

        Raises `InputError` where the model has too few positions for them and `max_length` tokens after them.
        """

    @abstractmethod
    def _room(self, length: int) -> int | None:
        """The most inputs before `length` tokens, and the most tokens after so many inputs; None: any number."""

    def _answer(self, prompt_ids: list[int], ids: list[int], prompt: Prompt) -> str:
        """The text of ids generated after a prompt, up to where an example would end."""
        text = self._tokenizer().target_side.decode(ids)
        return text.partition(prompt.stop)[0].strip() if prompt.stop else text

    def _decode(
        self,
        rows: list[Row],
        method: Method,
        max_length: int,
        seed: int,
        batch_size: int,
        progress: Callable[[int], Any] | None = None,
        stop_ids: tuple[int, ...] = (),
        suppressed_ids: tuple[int, ...] = (),
    ) -> list[Decoded]:
        """The ids [N L] and scores [N] of the answers to each row, which EOS ends or one of `stop_ids`.

        Besides what the model never writes, `suppressed_ids` are not.
        """
        limits = self.generation.constraints(self._vocabulary)
        limits["suppressed_ids"] += suppressed_ids

        def decode_batch(indices: list[int], batch: Batch) -> Decoded:
            most, room = self._room(batch.ids.shape[1]), power(max_length, _SHORTEST)
            decoded = decode(
                self.module,
                self.params,
                jnp.asarray(batch.ids),
                method=method,
                start_ids=jnp.array([rows[index].start_id for index in indices], jnp.int32),
                max_length=max_length,
                inputs_valid=jnp.asarray(batch.valid),
                key=jax.random.key(seed),
                rows=jnp.array(indices, jnp.int32),
                room=room if most is None else min(room, most),
                stop_ids=stop_ids,
                **limits,
            )
            decoded = jax.device_get(decoded)
            decoded = decoded._replace(ids=decoded.ids[..., :max_length])
            if progress:
                progress(len(set(indices)))
            return decoded

        longest = self._room(max_length)
        return map_rows(decode_batch, rows, pad_id=self._vocabulary.pad_id, longest=longest, most_rows=batch_size)

    def _log_probabilities(self, name: str, prompt: str, answers: list[list[int]], batch_size: int) -> list[float]:
        """That of each answer after the prompt, which messages call `name`."""
        longest, pad_id = max(map(len, answers)), self._vocabulary.pad_id
        row = self._row(name, self._prompt_ids(prompt), longest)
        length, room = power(longest, 8), self._room(len(row.ids))
        length = length if room is None else min(length, room)

        def score_batch(indices: list[int], batch: Batch) -> Float[Array, "B"]:
            targets, _, weights = pad_rows([Row(answers[index]) for index in indices], pad_id, length)
            decoder_inputs = np.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=row.start_id)
            return _sum_log_probabilities(self.module, self.params, batch, decoder_inputs, targets, weights)

        rows = [row] * len(answers)
        totals = map_rows(score_batch, rows, pad_id=pad_id, longest=self._room(length), most_rows=batch_size)
        return list(map(float, totals))


def _last_layer(module: nn.Module, batch: Batch) -> Float[Array, "B L D"]:
    """The encoder's output, or the decoder's where there is none; a function for `_apply`."""
    encode = module.encode if module.config.architecture == "encoder-decoder" else module.hidden_states
    return encode(batch.ids, inputs_valid=batch.valid)


@partial(jax.jit, static_argnums=0)
def _sum_log_probabilities(
    module: nn.Module,
    params: Any,
    batch: Batch,
    decoder_inputs: Int[Array, "B L"],
    targets: Int[Array, "B L"],
    weights: Bool[Array, "B L"],
) -> Float[Array, "B"]:
    logits = apply_model(module, params, batch.ids, decoder_inputs, inputs_valid=batch.valid)
    of_targets = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), targets[..., None], axis=-1)[..., 0]
    return jnp.where(weights, of_targets, 0.0).sum(axis=1)
