"""The token store: a corpus tokenized once, cut into rows, on a disk or in a bucket for random access."""

import contextlib
import errno
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from t5x_lite.checksums import find_damage
from t5x_lite.data.layouts.base import Example, Layout, Row
from t5x_lite.data.records.base import digest
from t5x_lite.data.splits import Corpus, Overlap, Progress, format_overlap
from t5x_lite.data.stored_rows import SPLITS, RowFile, RowFormat, Rows
from t5x_lite.data.workers import Workers
from t5x_lite.data.write_store import FORMAT, SUMMARY, TOKENIZER, SplitFigures, format_broken, is_begun, write_store
from t5x_lite.errors import InputError
from t5x_lite.files import file_sizes, read_json, write_folder
from t5x_lite.tokenizers.config import Tokenizer, load_tokenizer

_KEY_FORMAT = 3
"""Of what a key stands for; the rows of a key never change."""


@dataclass(frozen=True, eq=False)
class TokenStore(contextlib.AbstractContextManager):
    """A tokenized corpus: the rows of two splits and the tokenizer that made them. As a context it closes the rows."""

    key: str
    """Hash of everything that determines the rows."""
    path: epath.Path
    tokenizer: Tokenizer | None
    """None in data without text."""
    train: Rows
    held_out: Rows
    layout: Layout
    figures: dict[str, SplitFigures]
    """By split, "train" and "held_out"."""
    corpus: Corpus | None
    """The documents of the rows; None in a store of several."""
    threshold: int | None
    """The largest hash of a held-out document, where a share of the corpus is held out."""
    classes: tuple[str, ...]
    """The names of the classes that labels in the rows are numbers of: see `Layout.classes_of`."""

    def __exit__(self, *error: Any) -> None:
        self.train.close()
        self.held_out.close()

    def held_out_documents(self) -> Iterator[Example]:
        """The documents of the held-out rows, in order, read from the source again."""
        for shard in self.corpus.shards():
            if shard.split != "train":
                documents = (document for chunk in shard.chunks() for document in chunk)
                documents = (one for one in documents if shard.split_of(one, self.threshold) == "held_out")
                has_broken = "broken" in self.figures["held_out"].counts
                yield from filter(self.layout.is_readable, documents) if has_broken else documents

    @property
    def num_examples(self) -> int:
        """Examples to train on: pairs and labelled texts, else rows."""
        train = self.figures["train"]
        return train.documents - train.skipped_documents if self.layout.has_examples else len(self.train)

    @property
    def rows_to_show(self) -> Sequence[Row]:
        """Rows to train on, in an order to look at."""
        return self.train

    @property
    def remarks(self) -> list[str]:
        """`too_long`, and a sentence on held-out examples that are in the training data too."""
        remarks = self.too_long
        for split, figures in self.figures.items():
            if figures.in_training:
                overlap = Overlap(figures.in_training, figures.same_in_training, figures.documents)
                sentence = format_overlap(overlap, self.layout.unit_name, figures.first_in_training)
                remarks.append(f"{split.replace('_', '-')}: {sentence}")
            if broken := format_broken([figures], self.layout):
                remarks.append(f"{split.replace('_', '-')}: {broken}; they are left out")
        return remarks

    @property
    def too_long(self) -> list[str]:
        """A sentence for each split with documents that were left out or cut, being longer than a row."""
        left_out = "left out, longer than a row"
        return [
            f"{split.replace('_', '-')}: {figures.too_long:,} of {figures.documents:,} {self.layout.unit_name} "
            f"{left_out if figures.skipped_documents else self.layout.too_long_means}; the first at "
            f"{figures.first_too_long}"
            for split, figures in self.figures.items()
            if figures.too_long
        ]


def store_key(corpus: Corpus, source_key: str, held_out_key: Any, tokenizer: Tokenizer | None) -> str:
    """Hash of everything that determines the rows: the first two keys stand for its documents, and what is held out."""
    documents, layout = corpus.documents, corpus.documents.layout
    of_rows = [layout, layout.spec, documents.sentences if layout.reads_sentences else ""]
    # What stores of before did not have is left out where it is as it was then.
    if tokenizer and tokenizer.vocabulary.separators > 1:
        of_rows.append(tokenizer.vocabulary.separators)
    if tokenizer and tokenizer.vocabulary.cls_last:
        of_rows.append("cls last")
    sides, shards = 1 + bool(corpus.held_out_documents), corpus.shards()
    if len(shards) > sides:
        of_rows.append(("shards", len(shards)))
    return digest(_KEY_FORMAT, source_key, tokenizer.fingerprint if tokenizer else "", of_rows, held_out_key)


def make_store(
    corpus: Corpus, key: str, tokenizer: Tokenizer | None, cache: epath.Path, report: Progress, workers: Workers
) -> TokenStore:
    """The store of a corpus in the folder `stores` of `cache`, which is written where it is not there. It is read when
    it is complete alone; what a killed process leaves of it is gone on with."""
    folder = cache / "stores" / key
    if not is_complete(folder):
        write = functools.partial(write_store, corpus, tokenizer, report, workers)
        try:
            write_folder(folder, write, is_complete, is_begun)
        except ValueError as error:
            # TensorStore's C++ knows no OSError.
            if "No space left" in str(error):
                raise OSError(errno.ENOSPC, "No space left on device", str(folder)) from error
            raise
    store = read_store(folder, corpus, tokenizer)
    # What is left out is a matter of whether the store is opened, not of its rows: none has to be made again.
    sources = [corpus.documents.source, (corpus.held_out_documents or corpus.documents).source]
    refusing = [getattr(source, "broken", "refuse") == "refuse" for source in sources]
    refused = [store.figures[split] for split, refuses in zip(SPLITS, refusing, strict=True) if refuses]
    # The same pictures on both sides are those of `evaluate --images`, which is no place for that option.
    is_evaluation = corpus.held_out_documents is not None and sources[0] == sources[1]
    if broken := format_broken(refused[is_evaluation:], layout := corpus.documents.layout):
        skip = f", or leave such {layout.unit_name} out by data.source.broken='skip'"
        raise InputError(f"{broken}; replace or remove them{'' if is_evaluation else skip}")
    return store


def read_store(folder: epath.Path, corpus: Corpus, tokenizer: Tokenizer | None = None) -> TokenStore:
    """The complete store in a folder; its tokenizer is read where none is given."""
    summary = _read_summary(folder)
    if tokenizer is None and summary["tokenizer"]:
        tokenizer = load_tokenizer(folder / TOKENIZER)
    layout, num_ids = corpus.documents.layout, summary["num_ids"]
    row_format = RowFormat(layout.spec, num_ids)
    figures = {split: SplitFigures(**summary["splits"][split]) for split in SPLITS}
    classes = tuple(summary.get("classes", ()))
    train, held = (Rows(folder, _files(summary, split), row_format) for split in SPLITS)
    known = figures, corpus, summary["threshold"], classes
    return TokenStore(folder.name, folder, tokenizer, train, held, layout, *known)


def is_complete(folder: epath.Path) -> bool:
    """Whether every file of a store is as it was written; of the rows, which hold checksums of their own, the size."""
    try:
        sizes = file_sizes(folder)
        if "checksums.0.json" not in sizes or find_damage(folder):
            return False
        files = [file for split in SPLITS for file in _files(_read_summary(folder), split)]
        return all(sizes.get(file.name) == file.num_bytes for file in files)
    except (OSError, InputError):
        return False


def _read_summary(folder: epath.Path) -> dict[str, Any]:
    summary = read_json(folder / SUMMARY)
    try:
        if summary["format"] == FORMAT:
            return summary | {"splits": {split: dict(summary["splits"][split]) for split in SPLITS}}
        problem = f"has format {summary['format']!r}"
    except (KeyError, TypeError, ValueError) as error:
        problem = f"lacks {error}"
    raise InputError(f"the token store {folder} {problem}; prepare it anew with this version of t5x_lite")


def _files(summary: dict[str, Any], split: str) -> list[RowFile]:
    return [RowFile(*file) for file in summary["files"][split]]
