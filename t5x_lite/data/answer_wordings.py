"""Wordings of tasks whose answers are more than one of a few words: texts, tags, noun phrases (see `wordings`)."""

import string
from collections.abc import Iterator
from dataclasses import dataclass

from t5x_lite.data.examples import Example, field_of, text_in
from t5x_lite.data.wordings import Pair, UnknownLabelError, Wording
from t5x_lite.errors import InputError


@dataclass(frozen=True)
class AnswerWording(Wording):
    """A question is answered by a text; any of several answers is right.

    >>> example = Example("a.json", {"question": "Who?", "context": "He and she.", "answers": ["he", "she"]})
    >>> list(AnswerWording("question: {question} context: {context}").asked(example))
    [Asked(text='question: Who? context: He and she.', right=('he', 'she'), group='')]
    """

    given: str = "answers"
    """The field of the answers, a list."""
    each: bool = False
    """Every answer is learnt, as a pair of its own; else the first one."""
    no_answer: str = ""
    """What is written where the list is empty; empty: such examples are refused."""

    def right(self, example: Example) -> tuple[str, ...]:
        answers = field_of(example, self.given, "given")
        if not isinstance(answers, list):
            raise InputError(f"given={self.given!r} is no list of answers in {example.place}; name one that is")
        if not answers and not self.no_answer:
            raise InputError(
                f"given={self.given!r} is empty in {example.place}; set no_answer to what is to be written"
            )
        return tuple(dict.fromkeys(str(answer).strip() for answer in answers)) or (self.no_answer,)

    def pairs(self, example: Example) -> Iterator[Pair]:
        right, source = self.right(example), self.read(example)
        return ((source, answer) for answer in (right if self.each else right[:1]))


@dataclass(frozen=True)
class TagWording(Wording):
    """The words of a sentence are read with blanks between them, and their tags written in the same way. It is ours:
    the paper has no tagging.

    >>> example = Example("a.conll:1", {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]})
    >>> list(TagWording("ner sentence: {tokens}").pairs(example))
    [('ner sentence: EU rejects', 'B-ORG O')]
    """

    tokens: str = "tokens"
    """The field of the words, a list."""
    tags: str = "tags"
    """The field of their tags, a list of the same length."""

    def read(self, example: Example) -> str:
        words = self._words(example, self.tokens, "tokens")
        return super().read(example._replace(fields=example.fields | {self.tokens: " ".join(words)}))

    def right(self, example: Example) -> tuple[str, ...]:
        words, tags = self._words(example, self.tokens, "tokens"), self._words(example, self.tags, "tags")
        if len(words) != len(tags) or not words:
            raise InputError(f"{example.place} has {len(words)} words and {len(tags)} tags; give each word its tag")
        return (" ".join(tags),)

    def _words(self, example: Example, name: str, option: str) -> list[str]:
        words = field_of(example, name, option)
        if not isinstance(words, list):
            raise InputError(f"{option}={name!r} is no list of words in {example.place}; name one that is")
        return list(map(str, words))


@dataclass(frozen=True)
class ReferentWording(Wording):
    """Which noun phrase a pronoun stands for: the pronoun is read between stars, and the noun phrase is written.

    Raffel et al. 2020, section 2.4, on WNLI, WSC and DPR: learnt are the examples whose candidate is right. What is
    right to answer is the candidate and, behind it, the label; the metric `referent` compares the two.

    >>> fields = {"text": "It fits if it is small.", "span1_text": "the box", "span2_text": "it", "span2_index": 3}
    >>> wording = ReferentWording("wsc: {text}")
    >>> list(wording.pairs(Example("train:0", fields | {"label": "True"})))
    [('wsc: It fits if *it* is small.', 'the box')]
    >>> list(wording.pairs(Example("train:1", fields | {"label": "False"})))
    []
    """

    text: str = "text"
    """The field of the text, whose pronoun is marked."""
    pronoun: str = "span2_text"
    """The field of the pronoun."""
    index: str = "span2_index"
    """The field of its place among the words of the text, counted from 0."""
    candidate: str = "span1_text"
    """The field of the noun phrase that may be meant."""
    label: str = "label"
    """The field of the label: 'True' where the noun phrase is meant, else 'False'."""

    def read(self, example: Example) -> str:
        words, pronoun = text_in(example, self.text, "text").split(), text_in(example, self.pronoun, "pronoun")
        index = int(field_of(example, self.index, "index"))
        places = [i for i, word in enumerate(words) if _bare(word) == _bare(pronoun)]
        if not places:
            raise InputError(f"pronoun={pronoun!r} is no word of the text in {example.place}; correct it")
        place = min(places, key=lambda i: abs(i - index))  # a few of WSC's places are a word off
        word = words[place]
        start = word.lower().index(_bare(pronoun))
        end = start + len(_bare(pronoun))
        words[place] = f"{word[:start]}*{word[start:end]}*{word[end:]}"
        return super().read(example._replace(fields=example.fields | {self.text: " ".join(words)}))

    def right(self, example: Example) -> tuple[str, ...]:
        label = str(field_of(example, self.label, "label")).strip()
        if label not in self.answers:
            raise UnknownLabelError(label)
        return text_in(example, self.candidate, "candidate"), label

    def pairs(self, example: Example) -> Iterator[Pair]:
        candidate, label = self.right(example)
        if label == "True":
            yield self.read(example), candidate

    @property
    def answers(self) -> tuple[str, ...]:
        return ("False", "True")


def _bare(word: str) -> str:
    return word.strip(string.punctuation).lower()
