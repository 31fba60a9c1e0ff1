"""Rows of named columns: what a layout makes of examples, and what builds its rows.

A row is a mapping from column names to arrays, the same shapes and types in every row. The store keeps rows, a batch is
the same mapping with a leading dimension, and an objective's `corrupt` takes one row.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Source
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Range, Validated

RowLength = Annotated[int, Range(ge=8)]
"""Ids of a row that holds two texts and special ids."""

Row = Mapping[str, np.ndarray]
"""One row by column, as a layout's `spec` describes it."""

Example = Any
"""What a source yields to a layout: a text, a pair of texts, or an example of a task."""


class Column(NamedTuple):
    """What a column holds in every row.

    >>> Column((512,), is_ids=True).size, Column((224, 224, 3), np.uint8, encoding="image").dtype
    (512, <class 'numpy.uint8'>)
    """

    shape: tuple[int, ...]
    dtype: Any = np.int32
    is_ids: bool = False
    """Ids of the vocabulary: a run counts them as tokens, and they are stored in 16 bits where they fit."""
    encoding: Literal["array", "image"] = "array"
    """How it is stored: as an array, or as the bytes of a picture file, which is decoded onto the canvas `shape`,
    [H, W, 1 or 3], when a batch is read (see `images.decode_image`)."""

    @property
    def size(self) -> int:
        """Numbers in a row."""
        return int(np.prod(self.shape))


RowSpec = dict[str, Column]
"""The columns of a layout's rows by name."""


def abstract_batch(spec: RowSpec, *batch: int, sharding: Any = None) -> dict[str, Any]:
    """Shapes and types of a batch with these leading dimensions, or of one row without any; nothing is allocated."""
    import jax

    return {
        name: jax.ShapeDtypeStruct((*batch, *column.shape), column.dtype, sharding=sharding)
        for name, column in spec.items()
    }


class SpecialIds(NamedTuple):
    """The special ids around the texts of a row."""

    cls_id: int | None
    """None: texts begin with their first token, as T5's."""
    sep_id: int
    pad_id: int
    delimiter_id: int | None = None
    """Between two texts; None is `sep_id`."""
    separators: int = 1
    """How many of them stand there."""
    cls_last: bool = False
    """`cls_id` comes last, after the separator that ends the last text."""

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "SpecialIds":
        """Those of a vocabulary; `InputError` where it lacks one."""
        ids = {"[CLS]": vocabulary.cls_id, "[SEP]": vocabulary.sep_id}
        if missing := [name for name, special_id in ids.items() if special_id is None]:
            raise InputError(
                f"the tokenizer has no {' and no '.join(missing)} token; use WordPiece, ByteLevelBPE or SentencePiece "
                "with layout='albert', 'xlm-roberta', 'xlnet' or 'big-bird'"
            )
        options = {"separators": vocabulary.separators, "cls_last": vocabulary.cls_last}
        return cls(*ids.values(), vocabulary.pad_id, **options)

    def count(self, num_texts: int) -> int:
        """How many ids stand around so many texts."""
        return (self.cls_id is not None) + self.separators * (num_texts - 1) + 1

    def join(self, length: int, *texts: np.ndarray) -> np.ndarray:
        """`[CLS] text [SEP] text [SEP] pad ...`, int32 [length], which the texts must fit.

        >>> SpecialIds(2, 3, 0).join(8, np.array([10, 11]), np.array([12])).tolist()
        [2, 10, 11, 3, 12, 3, 0, 0]
        >>> SpecialIds(0, 2, 1, separators=2).join(8, np.array([10, 11]), np.array([12])).tolist()
        [0, 10, 11, 2, 2, 12, 2, 1]
        >>> SpecialIds(3, 4, 5, cls_last=True).join(8, np.array([10, 11]), np.array([12])).tolist()
        [10, 11, 4, 12, 4, 3, 5, 5]
        """
        between = [self.sep_id if self.delimiter_id is None else self.delimiter_id] * self.separators
        mark = [] if self.cls_id is None else [self.cls_id]
        parts = [[] if self.cls_last else mark, texts[0]]
        for text in texts[1:]:
            parts += [between, text]
        joined = np.concatenate([*parts, [self.sep_id], mark if self.cls_last else []]).astype(np.int32)
        ids = np.full(length, self.pad_id, np.int32)
        ids[: len(joined)] = joined
        return ids

    def start(self, *before: int) -> int:
        """The position of a text's first id in a row, after texts of these lengths.

        >>> SpecialIds(2, 3, 0).start(), SpecialIds(2, 3, 0).start(4), SpecialIds(2, 3, 0, cls_last=True).start(4)
        (1, 6, 5)
        """
        first = int(self.cls_id is not None and not self.cls_last)
        return first + sum(before) + self.separators * len(before)

    def segments(self, *lengths: int) -> list[int]:
        """The segment of each id of a row of texts of these lengths: 0, 1 of a second text and its separator, 2 of a
        [CLS] that comes last.

        >>> SpecialIds(2, 3, 0).segments(2, 1), SpecialIds(2, 3, 0, cls_last=True).segments(2, 1)
        ([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 2])
        """
        last = [2] * self.cls_last
        second = [1] * (lengths[1] + 1) if len(lengths) > 1 else []
        return [0] * (self.count(len(lengths)) + sum(lengths) - len(second) - len(last)) + second + last


MOST_NAMED = 5
"""Broken documents that messages name."""

DELIMITER_IDS = ("start", "delimiter", "extract")
"""They begin, divide and end the texts of a decoder's rows (Radford et al. 2018, section 3.3): the three ids after the
vocabulary's, which no pretraining has seen."""


def truncated_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of one text or two are kept: the longer one loses a token at a time, of equal ones the second.

    >>> truncated_lengths([2, 9], 6), truncated_lengths([9, 2], 6), truncated_lengths([9, 9], 5)
    ([2, 4], [4, 2], [3, 2])
    >>> truncated_lengths([9], 6)
    [6]
    """
    if len(lengths) == 1 or sum(lengths) <= room:
        return [min(length, room) for length in lengths]
    first, second = lengths
    # Where either fits beside half of the room for the other one, that one alone is cut.
    first = min(first, max(room - second, room - room // 2))
    return [first, room - first]


class UnfitDocumentError(InputError):
    """A document that no row can hold: what is wrong and the remedy, without its location."""


class RowBuilder:
    """Makes the rows of a layout from documents; by default each is a list of one row. Raises `InputError` where the
    vocabulary lacks ids that the rows need."""

    def __init__(self, layout: "Layout", vocabulary: Vocabulary | None) -> None:
        self._layout, self._vocabulary = layout, vocabulary
        self.documents = 0
        self.skipped = 0
        """Documents that begin no row; one may still be the other document beside a pair."""
        self.tokens = 0
        """Ids of the documents; a stream counts the EOS after each."""
        self.rows = self.padding = 0
        """Rows, and ids in them that are padding."""
        self.too_long = 0
        """Documents that were left out or lost ids since no row can hold them."""
        self.first_too_long: tuple[int, str] | None = None
        """(number from 1, what is wrong with it) of the first of them."""
        self.counts: dict[str, Counter[str]] = {}
        """Tables of other counts by their names; a store keeps their sums."""
        self.broken: list[str] = []
        """The first documents that are broken: their locations, and what is wrong."""
        self._ready: list[Row] = []

    def add(self, document: list[Any]) -> None:
        """The next document, as `Layout.tokenize` gives it; `UnfitDocumentError` for one that no row can hold."""
        self.documents += 1
        self._emit(**document[0])

    def take(self) -> list[Row]:
        """The rows that are complete since the last call."""
        rows, self._ready = self._ready, []
        return rows

    def finish(self) -> None:
        """Completes the last rows, for there are no more documents."""

    @property
    def shortage(self) -> tuple[str, str]:
        """(what there is and what a row needs, remedy): why there is no row."""
        return f"{self.documents} examples and a row needs one", "more examples"

    def _emit(self, padding: int = 0, **columns: Any) -> None:
        self._ready.append(columns)
        self.rows += 1
        self.padding += padding

    def _count_too_long(self, problem: str) -> None:
        self.too_long += 1
        self.first_too_long = self.first_too_long or (self.documents, problem)


class EncoderRows(RowBuilder):
    """Base of builders of rows with special ids."""

    def __init__(self, layout: "Layout", vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._special = layout.special_ids(vocabulary)


@dataclass(frozen=True)
class Layout(Validated, ABC):
    """How the examples of a source become rows. The same examples in the same order give the same rows.

    An objective names its layout. A new one needs `tokenize`; `spec` where its rows hold more than ids; `examples`,
    `content`, `answer` where it reads other than running text; and `builder` where an example is not one row.
    """

    source_type: ClassVar[type] = Source
    source_option: ClassVar[str] = ""
    """The option of the command line that gives such a source."""
    builder: ClassVar[type[RowBuilder]] = RowBuilder
    unit_name: ClassVar[str] = "documents"
    """What messages call its examples."""
    too_long_means: ClassVar[str] = "cut, longer than a row"
    """What became of the examples that `RowBuilder.too_long` counts."""
    added_ids: ClassVar[tuple[str, ...]] = ()
    """Names of the ids that its rows have beyond the vocabulary's, which they follow in this order."""
    has_examples: ClassVar[bool] = False
    """Whether the source holds examples with answers rather than running text."""
    reads_sentences: ClassVar[bool] = False
    """Whether rows depend on where sentences end."""
    # Without annotations, under which fields of these names would be the first of all.
    in_order = False
    """Whether rows go on from each other, so that batches take them in order: see `batches`."""
    both_ways = False
    """Whether half of the rows of a batch in order go from the end of their part to its beginning."""

    @property
    def spec(self) -> RowSpec:
        """The columns of its rows: `length` ids, unless a layout says otherwise."""
        return {"ids": Column((self.length,), is_ids=True)}

    @property
    def batch_spec(self) -> RowSpec:
        """The columns of a batch: those of its rows, and what `batches` adds where they are in order."""
        added = ["continues"] * self.in_order + ["backward"] * self.both_ways
        return self.spec | {name: Column((), np.bool_) for name in added}

    @abstractmethod
    def tokenize(
        self, examples: list[Example], tokenizer: Tokenizer | None, sentences: SentenceRule
    ) -> Iterator[list[Any]]:
        """Each example as the row builder takes it. `tokenizer` is None in data without text."""

    def examples(self, source: Any) -> Iterator[Example]:
        """The examples of a source, in order."""
        return source.documents()

    def content(self, example: Example) -> str | bytes:
        """What identifies an example, whatever its label: copies stay on one side of the held-out split."""
        return example

    def answer(self, example: Example) -> tuple[str, str] | None:
        """(input, answer) as texts; None in running text."""
        return None

    def is_readable(self, example: Example) -> bool:
        """False for an example that is broken, which has no row."""
        return True

    def classes_of(self, source: Any) -> tuple[str, ...]:
        """The names of the classes that labels in the rows are numbers of, read from the source where it does not
        name them; none where rows have no such labels. `InputError` for a source without them."""
        return ()

    def start(self, vocabulary: Vocabulary | None) -> RowBuilder:
        """A builder for the rows of one split; `InputError` where the vocabulary lacks ids that the rows need."""
        return self.builder(self, vocabulary)

    def special_ids(self, vocabulary: Vocabulary) -> SpecialIds:
        """The ids around the texts of a row: [CLS] and [SEP], or `DELIMITER_IDS` where the layout adds those."""
        if not self.added_ids:
            return SpecialIds.of(vocabulary)
        start, delimiter, extract = range(vocabulary.size, vocabulary.size + len(DELIMITER_IDS))
        return SpecialIds(start, extract, vocabulary.pad_id, delimiter)

    @property
    def num_ids(self) -> int:
        """Ids of the vocabulary in a row: what a run counts as tokens."""
        return sum(column.size for column in self.spec.values() if column.is_ids)

    def throughput(self, batch_size: int) -> tuple[str, int]:
        """(unit, number in a batch) of a run's speed: tokens, or rows where they hold no ids."""
        return ("tokens", batch_size * self.num_ids) if self.num_ids else ("rows", batch_size)


def encode_each(documents: Sequence[Sequence[str]], tokenizer: Tokenizer) -> Iterator[list[np.ndarray]]:
    """The ids of every text of each document."""
    ids = iter(tokenizer.encode_batch([text for document in documents for text in document]))
    return ([next(ids) for _ in document] for document in documents)


def with_blanks(texts: Sequence[str]) -> tuple[str, ...]:
    """Sentences or words as they stand in running text, for tokenizers to which " The" and "The" are two."""
    return (*texts[:1], *(f" {text}" for text in texts[1:]))
