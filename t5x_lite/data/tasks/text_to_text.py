"""Text to text: pairs such as translations, and the examples of any task in words."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from t5x_lite.data.records.base import Record
from t5x_lite.data.tasks.base import TaskSource, map_records
from t5x_lite.data.tasks.templates import EvalExample, PromptTemplate, TextTemplate
from t5x_lite.errors import InputError

Empty = Literal["error", "skip"]


@dataclass(frozen=True)
class TextToText(TaskSource):
    """Texts and what is to be written for each, made of the fields of records.

    `TextToText(TableFiles(("pairs.tsv",), columns=("source", "target")))` are the pairs of a table,
    `TextToText(Tfds("wmt14_translate/de-en"), TextTemplate("{de}", "{en}"))` those of a dataset. As running text, for a
    tokenizer or an objective on text, each side is a document.
    """

    prompt: PromptTemplate = TextTemplate("{source}", "{target}")
    """How a record becomes source and target: TextTemplate, LabelTemplate, NumberTemplate, AnswerTemplate, TagTemplate
    or CoreferenceTemplate."""
    prefix: str = field(default="", kw_only=True)
    """Put before each source, as T5 names its tasks: 'translate German to English: ', blank included."""
    empty: Empty = field(default="error", kw_only=True)
    """What becomes of a pair with an empty side: 'error' refuses the corpus, 'skip' leaves the pair out."""

    unit: ClassVar[str] = "pairs"

    def convert(self, record: Record) -> Iterator[tuple[str, str]]:
        """(source, target) of each pair to learn, both stripped, the source after the prefix."""
        pairs = self.prompt.pairs(record)
        return ((self.prefix + source, target) for source, target in pairs if self._is_filled(record, source, target))

    def documents(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.read())

    def eval_examples(self) -> Iterator[EvalExample]:
        """What is scored; `InputError` as `read`."""
        return (example for _, example in self.eval_records())

    def eval_records(self, *, unlabeled: bool = False) -> Iterator[tuple[Record, EvalExample]]:
        """The same with its record; of unlabeled records, which have no right answers, all."""
        if unlabeled:
            yield from ((one, EvalExample(self.prefix + self.prompt.read(one), ())) for one in self.examples)
            return
        for record, examples in map_records(self.examples, self.prompt.eval_examples):
            for one in examples:
                if self._is_filled(record, one.text, one.right[0]):
                    yield record, one._replace(text=self.prefix + one.text)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The words that answer, by class; None where there are no classes."""
        return self.prompt.answers or None

    def _is_filled(self, record: Record, source: str, target: str) -> bool:
        if not (source and target) and self.empty == "error":
            side = "target" if source else "source"
            raise InputError(
                f"{record.location} has an empty {side}; fill it, remove the pair, or set empty='skip' to leave such "
                "pairs out"
            )
        return bool(source and target)
