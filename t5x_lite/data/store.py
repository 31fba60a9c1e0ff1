"""The token store: a corpus tokenized once, cut into rows, on disk for random access."""

import contextlib
import errno
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from t5x_lite.checksums import find_damage, is_checked, write_checksums
from t5x_lite.data.layouts.base import Example, Layout, Row, RowBuilder, UnfitDocumentError
from t5x_lite.data.records.base import Source, digest
from t5x_lite.data.splits import Corpus, Overlap, OverlapCounter, Progress, format_overlap
from t5x_lite.data.stored_rows import SPLITS, Rows, RowWriter
from t5x_lite.errors import InputError
from t5x_lite.files import write_folder
from t5x_lite.tokenizers.config import Tokenizer, TokenizerConfig, is_trained, load_tokenizer, make_tokenizer

_FORMAT = 3
_SUMMARY = "store.json"


@dataclass(frozen=True)
class SplitFigures:
    """The documents and rows of one split of a store."""

    documents: int
    skipped_documents: int
    """Documents that began no row (see `RowBuilder.skipped`)."""
    tokens: int
    rows: int
    padding: float
    """Share of the ids in its rows that is padding."""
    too_long: int
    """Documents that were left out or cut, being longer than a row."""
    first_too_long: str
    """The location and the lengths of the first of them, else empty."""
    in_training: int = 0
    """Held-out examples, from a source of their own, whose texts are trained on too."""
    same_in_training: int = 0
    """Those that are trained on with the same answer."""
    first_in_training: str = ""
    """The location of the first of them, else empty."""


@dataclass(frozen=True, eq=False)
class TokenStore(contextlib.AbstractContextManager):
    """A tokenized corpus: the rows of two splits and the tokenizer that made them. As a context it closes the rows."""

    key: str
    """Hash of everything that determines the rows."""
    path: Path
    tokenizer: Tokenizer | None
    """None in data without text."""
    train: Rows
    held_out: Rows
    layout: Layout
    figures: dict[str, SplitFigures]
    """By split, "train" and "held_out"."""
    corpus: Corpus | None
    """The documents of the rows; None in a store of several."""

    def __exit__(self, *error: Any) -> None:
        self.train.close()
        self.held_out.close()

    def held_out_documents(self) -> Iterator[Example]:
        """The documents of the held-out rows, in order, read from the source again."""
        return self.corpus.documents_of("held_out")

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


def open_store(
    corpus: Corpus, source_key: str, held_out_key: Any, tokenizer: Tokenizer | None, cache_dir: Path, report: Progress
) -> TokenStore:
    """The store of a corpus, which is written where it is not in `cache_dir`; the two keys stand for its documents and
    for what is held out. It appears at once or not at all: a killed run leaves nothing that a later one reads."""
    documents, layout = corpus.documents, corpus.documents.layout
    of_rows = [layout, layout.spec, documents.sentences if layout.reads_sentences else ""]
    if tokenizer and tokenizer.vocabulary.separators > 1:
        of_rows.append(tokenizer.vocabulary.separators)  # stores of before had one
    key = digest(_FORMAT, source_key, tokenizer.fingerprint if tokenizer else "", of_rows, held_out_key)
    folder = cache_dir / "stores" / key
    if not _is_complete(folder):
        write_folder(folder, functools.partial(_write_store, corpus, tokenizer, report), _is_complete)
    summary = json.loads((folder / _SUMMARY).read_text())
    figures = {split: SplitFigures(**summary["splits"][split]) for split in SPLITS}
    train, held = (Rows(folder, split, figures[split].rows, layout.spec) for split in SPLITS)
    return TokenStore(key, folder, tokenizer, train, held, layout, figures, corpus)


def cached_tokenizer(
    source: Source, source_key: str, config: TokenizerConfig, cache_dir: Path, report: Progress
) -> Tokenizer:
    """The tokenizer of a corpus, kept in `cache_dir` if it is trained."""
    if not is_trained(config):
        return make_tokenizer(config, source.documents)
    target = cache_dir / "tokenizers" / digest(_FORMAT, source_key, config)
    if not _is_tokenizer(target):
        report("train tokenizer", None)
        write_folder(target, make_tokenizer(config, source.documents).save, _is_tokenizer)
    return load_tokenizer(target)


def _is_tokenizer(folder: Path) -> bool:
    with contextlib.suppress(InputError):
        return load_tokenizer(folder) is not None
    return False


def _is_complete(folder: Path) -> bool:
    """Whether every file of a store is as it was written; of the rows, which hold checksums of their own, the size."""
    try:
        damage = find_damage(folder, sizes_alone=True) or find_damage(folder, lambda name: ".array_record" not in name)
        return is_checked(folder) and not damage
    except (OSError, InputError):
        return False


def _write_store(corpus: Corpus, tokenizer: Tokenizer | None, report: Progress, folder: Path) -> None:
    layout = corpus.documents.layout
    try:
        figures = _write_rows(corpus, tokenizer, report, folder)
    except RuntimeError as error:
        # ArrayRecord's C++ knows no OSError.
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device", str(folder)) from error
        raise
    if tokenizer:
        tokenizer.save(folder / "tokenizer")
    summary = {
        "format": _FORMAT,
        "layout": {"class": type(layout).__name__, **asdict(layout)},
        "columns": {name: [*column.shape] for name, column in layout.spec.items()},
        "splits": {split: asdict(one) for split, one in figures.items()},
    }
    (folder / _SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    write_checksums(folder)


def _write_rows(corpus: Corpus, tokenizer: Tokenizer | None, report: Progress, folder: Path) -> dict[str, SplitFigures]:
    layout, vocabulary = corpus.documents.layout, tokenizer.vocabulary if tokenizer else None
    builders = {split: layout.start(vocabulary) for split in SPLITS}
    parts = corpus.parts(report)
    counter = OverlapCounter(layout) if corpus.held_out_documents and layout.has_examples else None
    too_long = dict.fromkeys(SPLITS, "")
    num_ids = vocabulary.size + len(layout.added_ids) if vocabulary else 1 << 31
    with RowWriter(folder, layout.spec, num_ids) as writer:
        for documents, split_of, characters in parts:
            number = done = 0
            for chunk in documents.chunks():
                for document, ids in zip(chunk, layout.tokenize(chunk, tokenizer, documents.sentences), strict=True):
                    number, split = number + 1, split_of(document)
                    if counter:
                        counter.add(document, split)
                    try:
                        builders[split].add(ids)
                    except UnfitDocumentError as error:
                        raise InputError(f"{documents.source.location(number)}: {error}") from None
                    if not too_long[split] and (first := builders[split].first_too_long):
                        too_long[split] = f"{documents.source.location(number)}: {first[1]}"
                writer.add({split: builder.take() for split, builder in builders.items()})
                done += sum(len(layout.content(document)) for document in chunk)
                report("tokenize", min(done / characters, 1.0) if characters else None)
        for builder in builders.values():
            builder.finish()
        writer.add({split: builder.take() for split, builder in builders.items()})
    _check_filled(builders, corpus)
    overlaps: dict[str, dict] = {split: {} for split in SPLITS}
    if counter and (overlap := counter.count()).in_training:
        overlaps["held_out"] = {
            "in_training": overlap.in_training,
            "same_in_training": overlap.same_answer,
            "first_in_training": corpus.held_out_documents.source.location(overlap.first),
        }
    return {
        split: SplitFigures(
            documents=builder.documents,
            skipped_documents=builder.skipped,
            tokens=builder.tokens,
            rows=builder.rows,
            padding=builder.padding / max(builder.rows * layout.num_ids, 1),
            too_long=builder.too_long,
            first_too_long=too_long[split],
            **overlaps[split],
        )
        for split, builder in builders.items()
    }


def _check_filled(builders: dict[str, RowBuilder], corpus: Corpus) -> None:
    for split, builder in builders.items():
        if not builder.rows:
            needs, remedy = builder.shortage
            share = "" if corpus.held_out_documents else f" (held_out={corpus.held_out})"
            larger = "a larger held_out, " if share and split == "held_out" else ""
            problem = f"the corpus is too small: its {split} part{share} has {needs}"
            raise InputError(f"{problem}; give more text, {larger}or {remedy}")
