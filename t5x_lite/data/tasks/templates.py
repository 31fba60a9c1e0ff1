"""Examples of tasks as text to text (Raffel et al. 2020, section 2.4): every task is put into words and answered in
words, with one loss and one decoding for all. Templates name fields in braces, '{a/b}' for b of the field a.
"""

import math
import re
import string
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from t5x_lite.data.records.base import Record, check_labels, check_template, field_of, fill, text_in
from t5x_lite.data.tasks.base import class_number, number_label, written_label
from t5x_lite.errors import InputError
from t5x_lite.validation import PositiveFloat, Validated

_DETERMINERS = {
    *("a", "an", "few", "her", "his", "each", "every", "many", "much", "my", "our", "some", "that", "the", "their"),
    *("these", "this", "those", "which", "whose", "your"),
}

NO_NUMBER = -1.0
"""The value of a text that is not a number."""
NO_CLASS = -1
"""The class of a text that names no class."""


class EvalExample(NamedTuple):
    """An input to answer, and the right answers."""

    text: str
    right: tuple[str, ...]
    """Every right answer, the one to learn first; empty where none is known."""
    group: str = ""
    """The same for inputs that are scored together, such as the answers to one question."""


@dataclass(frozen=True)
class PromptTemplate(Validated, ABC):
    """An example in words. Options name fields of the record, or are templates of them."""

    source: str
    """The template of the input, such as 'mrpc sentence1: {sentence1} sentence2: {sentence2}'."""
    group: str = field(default="", kw_only=True)
    """The template of a name that examples share which are scored together; empty: each on its own."""
    replacements: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    """Regular expressions and their replacements in the input, applied in order."""

    submissions: ClassVar[tuple[str, ...]] = ("jsonl", "glue", "superglue")
    """The formats of files that can hold its answers, the usual one first (see `evaluation.submissions`)."""
    references_are_texts: ClassVar[bool] = True
    """Whether the first of `right` is a text that is correct to write."""
    answers: ClassVar[tuple[str, ...]] = ()
    """All answers by class, where there are classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.source, "source")
        if self.group:
            check_template(self.group, "group")
        for pattern, _ in self.replacements:
            try:
                re.compile(pattern)
            except re.error as error:
                problem = f"is not a regular expression ({error})"
                raise InputError(f"replacements={pattern!r} {problem}; correct it") from None

    @abstractmethod
    def right(self, example: Record) -> tuple[str, ...]:
        """Every right answer; none where there is nothing to learn or to score."""

    def pairs(self, example: Record) -> Iterator[tuple[str, str]]:
        """What is learnt from an example: by default its first right answer."""
        return ((self.read(example), answer) for answer in self.right(example)[:1])

    def eval_examples(self, example: Record) -> Iterator[EvalExample]:
        """The inputs of an example that are scored."""
        if right := self.right(example):
            yield EvalExample(self.read(example), right, fill(self.group, example, "group"))

    def read(self, example: Record) -> str:
        """What the model reads."""
        text = fill(self.source, example, "source")
        for pattern, replacement in self.replacements:
            text = re.sub(pattern, replacement, text)
        return text.strip()

    def parse(self, text: str, example: Record) -> Any:
        """The answer in a generated text: by default the text itself."""
        return text.strip()


@dataclass(frozen=True)
class TextTemplate(PromptTemplate):
    """Any text for any other, such as a translation or a summary.

    >>> template = TextTemplate("translate English to German: {en}", "{de}")
    >>> list(template.pairs(Record("a.jsonl:1", {"en": "That is good.", "de": "Das ist gut."})))
    [('translate English to German: That is good.', 'Das ist gut.')]
    """

    target: str
    """The template of what to write."""

    submissions = ("jsonl",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.target, "target")

    def right(self, example: Record) -> tuple[str, ...]:
        return (fill(self.target, example, "target"),)


@dataclass(frozen=True)
class LabelTemplate(PromptTemplate):
    """A class is answered by a word; whatever else is written is wrong (Raffel et al. 2020, section 2.4).

    >>> template = LabelTemplate("sst2 sentence: {sentence}", labels=("0", "1"), words=("negative", "positive"))
    >>> list(template.pairs(Record("dev.tsv:2", {"sentence": "a fine film", "label": "1"})))
    [('sst2 sentence: a fine film', 'positive')]
    """

    label: str = "label"
    labels: tuple[str, ...] = ()
    """The classes by number, as they are written in the data."""
    words: tuple[str, ...] = ()
    """What is written for each; empty: the label itself."""
    left_out: tuple[str, ...] = ()
    """Labels whose examples are left out, such as '-' in SNLI."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels, self.left_out)
        if not self.labels:
            raise InputError("labels=() names no classes; name two or more")
        if self.words and not len(set(self.words)) == len(self.words) == len(self.labels):
            raise InputError(f"words={self.words} do not go with labels={self.labels}; give each class its own word")

    def right(self, example: Record) -> tuple[str, ...]:
        if written_label(example, self.label) in self.left_out:
            return ()
        return (self.answers[class_number(example, self.label, self.labels)],)

    def parse(self, text: str, example: Record) -> int:
        return class_of(text, self.answers)

    @property
    def answers(self) -> tuple[str, ...]:
        return self.words or self.labels


@dataclass(frozen=True)
class NumberTemplate(PromptTemplate):
    """A number is learnt as the nearest multiple of a step, and scored as it is (ibid., on STS-B).

    >>> template, example = NumberTemplate("{text}"), Record("dev.tsv:2", {"text": "stsb ...", "label": "3.25"})
    >>> list(template.pairs(example)), list(template.eval_examples(example))
    ([('stsb ...', '3.2')], [EvalExample(text='stsb ...', right=('3.25',), group='')])
    """

    label: str = "label"
    step: PositiveFloat = 0.2
    """It is rounded to multiples of this, and written with as many decimals."""

    def pairs(self, example: Record) -> Iterator[tuple[str, str]]:
        decimals = len(f"{self.step:.10f}".rstrip("0").partition(".")[2])
        # In float32, as T5's own code: where a number lies between two steps, the same one is taken.
        steps = np.float32(1 / self.step)
        number = float(np.round(np.float32(self.right(example)[0]) * steps) / steps) + 0.0
        yield self.read(example), f"{number:.{decimals}f}"

    def right(self, example: Record) -> tuple[str, ...]:
        return (number_label(example, self.label, "correct it or remove the record"),)

    def parse(self, text: str, example: Record) -> float:
        return number_of(text)


@dataclass(frozen=True)
class AnswerTemplate(PromptTemplate):
    """A question is answered by a text; any of several answers is right.

    >>> example = Record("a.json", {"question": "Who?", "context": "He and she.", "answers": ["he", "she"]})
    >>> list(AnswerTemplate("question: {question} context: {context}").eval_examples(example))
    [EvalExample(text='question: Who? context: He and she.', right=('he', 'she'), group='')]
    """

    given: str = "answers"
    """A list of answers."""
    each: bool = False
    """Whether every answer is learnt, as a pair of its own, or the first one."""
    no_answer: str = ""
    """What to write where the list is empty; empty: such examples are refused."""

    submissions = ("jsonl", "squad", "superglue")

    def right(self, example: Record) -> tuple[str, ...]:
        answers = _list_in(example, self.given, "given", "answers")
        if not answers and not self.no_answer:
            raise InputError(f"given={self.given!r} is empty in {example.location}; set no_answer to a text for that")
        return tuple(dict.fromkeys(answer.strip() for answer in answers)) or (self.no_answer,)

    def pairs(self, example: Record) -> Iterator[tuple[str, str]]:
        right = self.right(example) if self.each else self.right(example)[:1]
        return ((self.read(example), answer) for answer in right)

    def parse(self, text: str, example: Record) -> str:
        return "" if self.no_answer and text.strip() == self.no_answer else text.strip()


@dataclass(frozen=True)
class TagTemplate(PromptTemplate):
    """The words of a sentence with blanks between them are the input, and their tags the output (not in the paper).

    >>> example = Record("a.conll:1", {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]})
    >>> list(TagTemplate("ner sentence: {tokens}").pairs(example))
    [('ner sentence: EU rejects', 'B-ORG O')]
    """

    tokens: str = "tokens"
    """A list of words."""
    tags: str = "tags"
    """A list of their tags."""

    submissions = ("jsonl", "conll")

    def read(self, example: Record) -> str:
        words = _list_in(example, self.tokens, "tokens", "words")
        return super().read(example._replace(fields=example.fields | {self.tokens: " ".join(words)}))

    def right(self, example: Record) -> tuple[str, ...]:
        words = _list_in(example, self.tokens, "tokens", "words")
        tags = _list_in(example, self.tags, "tags", "words")
        if len(words) != len(tags) or not words:
            raise InputError(f"{example.location} has {len(words)} words and {len(tags)} tags; give each word its tag")
        return (" ".join(tags),)

    def parse(self, text: str, example: Record) -> list[str]:
        return tags_of(text, len(field_of(example, self.tokens, "tokens")))


@dataclass(frozen=True)
class CoreferenceTemplate(PromptTemplate):
    """Which noun phrase a pronoun stands for: the pronoun is read between stars, and the noun phrase is written.

    Raffel et al. 2020, section 2.4, on WNLI, WSC and DPR: only examples whose candidate is right are learnt. `right` is
    the candidate and the label, which the metric `referent` compares.

    >>> fields = {"text": "It fits if it is small.", "span1_text": "the box", "span2_text": "it", "span2_index": 3}
    >>> template = CoreferenceTemplate("wsc: {text}")
    >>> list(template.pairs(Record("train:0", fields | {"label": "True"})))
    [('wsc: It fits if *it* is small.', 'the box')]
    >>> list(template.pairs(Record("train:1", fields | {"label": "False"})))
    []
    """

    text: str = "text"
    pronoun: str = "span2_text"
    index: str = "span2_index"
    """The position of the pronoun among the words of the text, from 0."""
    candidate: str = "span1_text"
    """The noun phrase that may be meant."""
    label: str = "label"
    """'True' where the noun phrase is meant, else 'False'."""

    references_are_texts = False
    answers = ("False", "True")

    def read(self, example: Record) -> str:
        words, pronoun = text_in(example, self.text, "text").split(), text_in(example, self.pronoun, "pronoun")
        index, bare = int(field_of(example, self.index, "index")), _bare(pronoun)
        candidates = [i for i, word in enumerate(words) if _bare(word) == bare]
        if not candidates:
            raise InputError(f"pronoun={pronoun!r} is not a word of the text in {example.location}; correct it")
        nearest = min(candidates, key=lambda i: abs(i - index))  # a few of WSC's indices are a word off
        word = words[nearest]
        start = word.lower().index(bare)
        end = start + len(bare)
        words[nearest] = f"{word[:start]}*{word[start:end]}*{word[end:]}"
        return super().read(example._replace(fields=example.fields | {self.text: " ".join(words)}))

    def right(self, example: Record) -> tuple[str, ...]:
        label = self.answers[class_number(example, self.label, self.answers)]
        return text_in(example, self.candidate, "candidate"), label

    def pairs(self, example: Record) -> Iterator[tuple[str, str]]:
        candidate, label = self.right(example)
        if label == "True":
            yield self.read(example), candidate

    def parse(self, text: str, example: Record) -> int:
        return int(names_referent(text, text_in(example, self.candidate, "candidate")))


def _list_in(record: Record, name: str, option: str, items: str) -> list[str]:
    value = field_of(record, name, option)
    if not isinstance(value, list):
        raise InputError(f"{option}={name!r} is not a list of {items} in {record.location}; name one that is")
    return list(map(str, value))


def _bare(word: str) -> str:
    return word.strip(string.punctuation).lower()


def class_of(text: str, answers: Sequence[str]) -> int:
    """The number of the class that the text names, else `NO_CLASS`.

    >>> class_of(" positive ", ("negative", "positive")), class_of("positively", ("negative", "positive"))
    (1, -1)
    """
    text = text.strip()
    return answers.index(text) if text in answers else NO_CLASS


def number_of(text: str) -> float:
    """The text as a number, `NO_NUMBER` where it is not a finite one.

    >>> number_of("3.8 "), number_of("nan"), number_of("3,8")
    (3.8, -1.0, -1.0)
    """
    try:
        number = float(text)
    except ValueError:
        return NO_NUMBER
    return number if math.isfinite(number) else NO_NUMBER


def tags_of(text: str, count: int) -> list[str]:
    """The tags of `count` words: cut where there are more, filled up with 'O' where there are fewer.

    >>> tags_of("B-PER O", 3), tags_of("DET NOUN VERB", 2)
    (['B-PER', 'O', 'O'], ['DET', 'NOUN'])
    """
    tags = text.split()[:count]
    return tags + ["O"] * (count - len(tags))


def names_referent(text: str, candidate: str) -> bool:
    """Whether a text names a candidate: the words of one are among those of the other, but for determiners and upper
    case, and both are possessive or neither is.

    >>> names_referent("stable", "The stable"), names_referent("Bob", "Bob's hat"), names_referent("", "Bob")
    (True, False, False)
    """
    predicted, meant = ({word for word in one.lower().split() if word not in _DETERMINERS} for one in (text, candidate))
    possessive = ["'" in " ".join(words) for words in (predicted, meant)]
    return bool(predicted) and possessive[0] == possessive[1] and (predicted <= meant or meant <= predicted)
