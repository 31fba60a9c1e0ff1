"""Text to text: pairs such as translations, and the examples of any task in words, several in each row."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from t5x_lite.data.layouts.base import Column, Layout, Row, RowBuilder, RowSpec, UnfitDocumentError
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Record, map_records
from t5x_lite.data.tasks.base import TaskLayout, TaskSource
from t5x_lite.data.tasks.templates import EvalExample, PromptTemplate, TextTemplate
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Range

TooLong = Literal["error", "skip", "cut"]

# Of 58,600 sentence pairs in rows of 64 + 64 ids 12.6 % is padding with one open row, 5.7 % with 32 and with 128.
_OPEN_ROWS = 32


@dataclass(frozen=True)
class TextToText(TaskSource):
    """Texts and what is to be written for each, made of the fields of records.

    `TextToText(TableFiles(("pairs.tsv",), columns=("source", "target")))` are the pairs of a table,
    `TextToText(Tfds("wmt14_translate/de-en"), TextTemplate("{de}", "{en}"))` those of a dataset. As running text, for a
    tokenizer or an objective on text, each side is a document.
    """

    prompt: PromptTemplate = TextTemplate("{source}", "{target}")
    """TextTemplate, LabelTemplate, NumberTemplate, AnswerTemplate, TagTemplate or CoreferenceTemplate."""
    prefix: str = field(default="", kw_only=True)
    """Put before each source, as T5 names its tasks: 'translate German to English: ', blank included."""
    empty: Literal["error", "skip"] = field(default="error", kw_only=True)
    """For a pair with an empty side: 'error' refuses the corpus, 'skip' leaves the pair out."""

    unit = "pairs"

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
        """The answers by class; None where there are no classes."""
        return self.prompt.answers or None

    def _is_filled(self, record: Record, source: str, target: str) -> bool:
        if source and target:
            return True
        if self.empty == "skip":
            return False
        side = "target" if source else "source"
        raise InputError(f"{record.location} has an empty {side}; fill it, remove the pair, or set empty='skip'")


@dataclass(eq=False)
class _OpenRow:
    """The pairs of a row, and how many ids have room on either side."""

    room: list[int]
    pairs: list[list[np.ndarray]] = field(default_factory=list)


class TextPairRows(RowBuilder):
    """See `TextPairs`. A pair goes into the oldest open row that has room for both of its sides; where none has, the
    fullest row is closed for a new one."""

    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        if layout.packed and vocabulary.pad_id == vocabulary.eos_id:
            raise InputError(
                f"the tokenizer pads with its EOS (id {vocabulary.eos_id}), which ends the pairs of a packed row; set "
                "packed=False, or use a tokenizer with a padding token"
            )
        self._lengths = layout.length, layout.target_length
        self._eos = np.array([vocabulary.eos_id], np.int32)
        self._max_open = _OPEN_ROWS if layout.packed else 0
        self._open: list[_OpenRow] = []

    def add(self, document: list[np.ndarray]) -> None:
        self.documents += 1
        problems = []
        names = f"length={self._lengths[0]} (the objective's input_length)", f"target_length={self._lengths[1]}"
        for side, ids, length, name in zip(("source", "target"), document, self._lengths, names, strict=True):
            for token, special_id in (("EOS", self._vocabulary.eos_id), ("PAD", self._vocabulary.pad_id)):
                if (ids == special_id).any():
                    raise UnfitDocumentError(
                        f"the {side} has the id {special_id}, which is {token} and closes or fills rows; remove that "
                        "token from the text or from the tokenizer"
                    )
            if len(ids) >= length:
                problems.append(f"the {side} has {len(ids) + 1} ids, its EOS included, which is over {name}")
        if problems:
            problem = " and ".join(problems)
            if self._layout.too_long == "error":
                raise UnfitDocumentError(f"{problem}; raise it, or set too_long='skip' or 'cut'")
            self._count_too_long(problem)
            if self._layout.too_long == "skip":
                self.skipped += 1
                return
            document = [ids[: length - 1] for ids, length in zip(document, self._lengths, strict=True)]
        self.tokens += sum(map(len, document)) + 2
        with_room = (
            row for row in self._open if all(len(ids) < room for ids, room in zip(document, row.room, strict=True))
        )
        row = next(with_room, None)
        if row is None:
            if self._open and len(self._open) >= self._max_open:
                self._close(min(self._open, key=lambda row: min(row.room)))
            row = _OpenRow(list(self._lengths))
            self._open.append(row)
        row.pairs.append(document)
        row.room = [room - len(ids) - 1 for ids, room in zip(document, row.room, strict=True)]
        # A side of a pair has an id and EOS.
        if not self._max_open or min(row.room) < 2:
            self._close(row)

    def _close(self, row: _OpenRow) -> None:
        self._open.remove(row)
        columns = {}
        for name, sides, room in zip(("inputs", "targets"), zip(*row.pairs, strict=True), row.room, strict=True):
            ids = np.concatenate([part for side in sides for part in (side, self._eos)])
            columns[name] = np.pad(ids, (0, room), constant_values=self._vocabulary.pad_id)
        self._emit(sum(row.room), **columns)

    def finish(self) -> None:
        for row in list(self._open):
            self._close(row)

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.documents} pairs, {self.skipped} of them longer than a row", "longer rows"


@dataclass(frozen=True)
class TextPairs(TaskLayout):
    """Rows of text to text: `inputs` are `source EOS source EOS ... pad ...`, and so are `targets` of the targets.

    Packed rows hold whole pairs in order, with little padding: a few dozen rows are open at a time, and a pair goes
    into the first that has room. Else each pair has a row. Since no text holds EOS, segment n of either side ends with
    its n-th EOS, and pair n of a row is segment n of both sides.

    >>> import numpy as np
    >>> rows = TextPairs(6, 5).start(Vocabulary(size=100, pad_id=0, eos_id=1))
    >>> for source, target in ([10, 11], [20]), ([12, 13, 14], [21, 22]), ([15], [23]):
    ...     rows.add([np.array(source, np.int32), np.array(target, np.int32)])
    >>> rows.finish()
    >>> [(row["inputs"].tolist(), row["targets"].tolist()) for row in rows.take()]
    [([10, 11, 1, 15, 1, 0], [20, 1, 23, 1, 0]), ([12, 13, 14, 1, 0, 0], [21, 22, 1, 0, 0])]
    """

    length: Annotated[int, Range(ge=2)]
    """Ids of the source side of a row, EOS included."""
    target_length: Annotated[int, Range(ge=2)]
    """Ids of the target side of a row, EOS included."""
    packed: bool = True
    """As many pairs in a row as fit; else one."""
    too_long: TooLong = "error"
    """What becomes of a pair with a side over its length: 'error' refuses the corpus, 'skip' leaves the pair out, 'cut'
    drops the end of that side. The store counts them."""

    source_type = TextToText
    source_option = "--pairs"
    builder = TextPairRows
    unit_name = "pairs"

    @property
    def spec(self) -> RowSpec:
        lengths = {"inputs": self.length, "targets": self.target_length}
        return {name: Column((length,), is_ids=True) for name, length in lengths.items()}

    def content(self, example: tuple[str, str]) -> str:
        return "\0".join(example)

    def answer(self, example: tuple[str, str]) -> tuple[str, str]:
        return example

    def tokenize(self, examples: list[Any], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        sources, targets = map(list, zip(*examples, strict=True))
        sides = tokenizer.encode_batch(sources), tokenizer.target_side.encode_batch(targets)
        return map(list, zip(*sides, strict=True))

    def pairs_of(self, row: Row, vocabulary: Vocabulary) -> list[tuple[np.ndarray, np.ndarray]]:
        """(source, target) ids of each pair in a row, without EOS.

        >>> row = {"inputs": np.array([10, 11, 1, 15, 1, 0]), "targets": np.array([20, 1, 23, 1, 0])}
        >>> TextPairs(6, 5).pairs_of(row, Vocabulary(size=100, pad_id=0, eos_id=1))
        [(array([10, 11]), array([20])), (array([15]), array([23]))]
        """
        segments = []
        for side in (row["inputs"], row["targets"]):
            ends = np.flatnonzero(side == vocabulary.eos_id)[: None if self.packed else 1]
            segments.append([segment[:-1] for segment in np.split(side, ends + 1)[:-1]])
        return list(zip(*segments, strict=True))
