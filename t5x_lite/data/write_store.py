"""Writing a token store: the documents of each shard of a corpus to rows, shards one by one or side by side."""

import functools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from t5x_lite.checksums import file_names, write_checksums
from t5x_lite.data.layouts.base import MOST_NAMED, Layout, UnfitDocumentError
from t5x_lite.data.splits import (
    Corpus,
    Hashes,
    Progress,
    Shard,
    TextHashes,
    count_overlap,
    hash_documents,
    hash_example,
    held_out_threshold,
)
from t5x_lite.data.stored_rows import SPLITS, RowFormat, RowWriter
from t5x_lite.data.workers import Report, Result, Workers
from t5x_lite.errors import InputError
from t5x_lite.files import write_atomically
from t5x_lite.tokenizers.config import Tokenizer, save_tokenizer

SUMMARY = "store.json"
TOKENIZER = "tokenizer"
FORMAT = 4
"""Of the files of a store."""


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
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Tables of other counts: see `RowBuilder.counts`."""
    broken: Sequence[str] = ()
    """The first documents that are broken: their locations, and what is wrong."""


@dataclass(frozen=True)
class _Task:
    """What is the same for all shards."""

    shards: tuple[Shard, ...]
    folder: str
    tokenizer: Tokenizer | None = None
    threshold: int | None = None
    characters: int | None = None
    """Of all documents, where they are counted."""

    @property
    def layout(self) -> Layout:
        return self.shards[0].documents.layout

    @property
    def num_ids(self) -> int:
        """Ids that a row may have."""
        return self.tokenizer.vocabulary.size + len(self.layout.added_ids) if self.tokenizer else 1 << 31

    @property
    def row_format(self) -> RowFormat:
        return RowFormat(self.layout.spec, self.num_ids)

    @property
    def counts_overlap(self) -> bool:
        """Whether held-out examples are compared with those trained on."""
        return bool(self.shards[0].split) and self.layout.has_examples

    def location(self, number: int, position: int) -> str:
        """That of a document, by the numbers of its shard, from 0, and in it, from 1."""
        source = self.shards[number].documents.source
        of_shard = (
            f" of {', '.join(paths[:1])}" if len(self.shards) > 1 and (paths := getattr(source, "paths", ())) else ""
        )
        return f"{source.location(position)}{of_shard}"


def write_store(
    corpus: Corpus, tokenizer: Tokenizer | None, report: Progress, workers: Workers, folder: epath.PathLike
) -> None:
    """Writes the store of a corpus, its checksums last; goes on with what there is of it in the folder.

    Raises `InputError` for a corpus that gives no rows of a split, and OSError where the disk is full.
    """
    folder = epath.Path(folder)
    task = _Task(corpus.shards(), str(folder), tokenizer)
    if corpus.held_out_documents is None:
        report("split documents", None)
        progress = functools.partial(report, "split documents")
        of_shards = list(workers.map(_hash_shard, task, len(task.shards), folder, "hashes", progress))
        hashes = Hashes(*(np.concatenate([one[name] for one in of_shards]) for name in Hashes._fields))
        first = next(iter(corpus.documents), None)  # raises what is wrong with the corpus
        layout = corpus.documents.layout
        if first is not None and (hashes.hashes == hashes.hashes[0]).all() and not layout.is_readable(first):
            threshold = 0  # all are broken in the same way, such as empty, and counted by name when they are written
        else:
            threshold = held_out_threshold(hashes, corpus.held_out, layout.unit_name)
        task = replace(task, threshold=threshold, characters=int(hashes.lengths.sum()))
    if tokenizer:
        save_tokenizer(tokenizer, folder / TOKENIZER)
    progress = functools.partial(report, "tokenize" if tokenizer else "write rows")
    results = list(workers.map(_write_shard, task, len(task.shards), folder, "shard", progress))
    write_atomically(folder / SUMMARY, json.dumps(_summary(corpus, task, results), indent=1) + "\n")
    names = [name for name in file_names(folder) if name == SUMMARY or name.startswith(f"{TOKENIZER}/")]
    write_checksums(folder, names)
    for name in file_names(folder):
        if name.endswith(".npz"):
            (folder / name).unlink(missing_ok=True)


def is_begun(folder: Path) -> bool:
    """Whether `write_store` can go on from what a folder holds: the results of shards."""
    return any(folder.glob("*.npz"))


def _hash_shard(task: _Task, number: int, report: Report) -> Result:
    return hash_documents(task.shards[number].contents(), lambda: report(None))._asdict()


def _write_shard(task: _Task, number: int, report: Report) -> Result:
    """The rows of a shard, in files; its figures, and the hashes of its examples where they are compared."""
    shard, layout, tokenizer = task.shards[number], task.layout, task.tokenizer
    builders = {split: layout.start(tokenizer.vocabulary if tokenizer else None) for split in SPLITS}
    first_too_long, hashes, position, characters = dict.fromkeys(SPLITS, ""), [], 0, 0
    with RowWriter(task.folder, task.row_format, number) as writer:
        for chunk in shard.chunks():
            tokenized = layout.tokenize(chunk, tokenizer, shard.documents.sentences)
            for document, ids in zip(chunk, tokenized, strict=True):
                position, split = position + 1, shard.split_of(document, task.threshold)
                if task.counts_overlap:
                    hashes.append(hash_example(layout, document))
                try:
                    builders[split].add(ids)
                except UnfitDocumentError as error:
                    raise InputError(f"{task.location(number, position)}: {error}") from None
                if not first_too_long[split] and (first := builders[split].first_too_long):
                    first_too_long[split] = f"{task.location(number, position)}: {first[1]}"
            writer.add({split: builder.take() for split, builder in builders.items()})
            characters += sum(len(layout.content(document)) for document in chunk)
            if len(task.shards) == 1:
                report(min(characters / task.characters, 1.0) if task.characters else None)
        for builder in builders.values():
            builder.finish()
        writer.add({split: builder.take() for split, builder in builders.items()})
    splits = {
        split: {
            "documents": builder.documents,
            "skipped_documents": builder.skipped,
            "tokens": builder.tokens,
            "rows": builder.rows,
            "padding": builder.padding,
            "too_long": builder.too_long,
            "first_too_long": first_too_long[split],
            "shortage": [] if builder.rows else builder.shortage,
            "files": writer.files[split],
            "counts": builder.counts,
            "broken": builder.broken,
        }
        for split, builder in builders.items()
    }
    return {"splits": np.array(json.dumps(splits)), "hashes": np.array(hashes, np.uint64).reshape(-1, 2)}


def _summary(corpus: Corpus, task: _Task, results: list[Result]) -> dict[str, Any]:
    """What is kept of a store beside its rows; `InputError` where a split has none."""
    of_shards = [json.loads(str(result["splits"])) for result in results]
    figures, files, lacking = {}, {}, []
    for split in SPLITS:
        each = [of_shard[split] for of_shard in of_shards]
        total = {name: sum(one[name] for one in each) for name in ("documents", "skipped_documents", "tokens", "rows")}
        if not total["rows"]:
            lacking.append((split, next((one["shortage"] for one in each if one["documents"]), each[0]["shortage"])))
        figures[split] = SplitFigures(
            **total,
            padding=sum(one["padding"] for one in each) / max(total["rows"] * task.layout.num_ids, 1),
            too_long=sum(one["too_long"] for one in each),
            first_too_long=next(filter(None, (one["first_too_long"] for one in each)), ""),
            counts=_sum_tables([one.get("counts", {}) for one in each]),
            broken=tuple(first for one in each for first in one.get("broken", ()))[:MOST_NAMED],
        )
        files[split] = [file for one in each for file in one["files"]]
    if lacking:
        if broken := format_broken(figures.values(), task.layout):
            raise InputError(f"{broken}; replace them, and give more that can be read")
        raise _too_small(*lacking[0], corpus)
    if task.counts_overlap:
        sides = [
            TextHashes(
                *np.concatenate(
                    [one["hashes"] for shard, one in zip(task.shards, results, strict=True) if shard.split == split]
                ).T
            )
            for split in SPLITS
        ]
        if (overlap := count_overlap(*sides)).in_training:
            figures["held_out"] = replace(
                figures["held_out"],
                in_training=overlap.in_training,
                same_in_training=overlap.same_answer,
                first_in_training=corpus.held_out_documents.source.location(overlap.first),
            )
    return {
        "format": FORMAT,
        "layout": {"class": type(task.layout).__name__, **asdict(task.layout)},
        "columns": {name: [*column.shape] for name, column in task.layout.spec.items()},
        "num_ids": task.num_ids,
        "tokenizer": task.tokenizer.fingerprint if task.tokenizer else "",
        "threshold": task.threshold,
        "classes": corpus.classes,
        "splits": {split: asdict(one) for split, one in figures.items()},
        "files": files,
    }


def _too_small(split: str, shortage: list[str], corpus: Corpus) -> InputError:
    needs, remedy = shortage
    share = "" if corpus.held_out_documents else f" (held_out={corpus.held_out})"
    larger = "a larger held_out, " if share and split == "held_out" else ""
    problem = f"the corpus is too small: its {split} part{share} has {needs}"
    what = "text" if corpus.documents.layout.num_ids else corpus.documents.layout.unit_name
    return InputError(f"{problem}; give more {what}, {larger}or {remedy}")


def _sum_tables(tables: list[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    sums: dict[str, Counter[str]] = {}
    for one in tables:
        for name, counts in one.items():
            sums.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in sums.items()}


def format_broken(figures: Iterable[SplitFigures], layout: Layout) -> str:
    """The documents that are broken as a sentence without its end; empty where none is.

    >>> figures = SplitFigures(1200, 10, 0, 1190, 0.0, 0, "", broken=("a/1.jpg (truncated)",))
    >>> figures = replace(figures, counts={"broken": {"empty": 3, "truncated": 7}})
    >>> class Pictures:
    ...     unit_name = "images"
    >>> format_broken([figures], Pictures())
    '10 of 1,200 images cannot be read (7 truncated, 3 empty): a/1.jpg (truncated), and 9 others'
    """
    figures = list(figures)
    counts = Counter(_sum_tables([one.counts for one in figures]).get("broken", {}))
    if not counts:
        return ""
    first = [name for one in figures for name in one.broken][:MOST_NAMED]
    kinds = ", ".join(f"{count:,} {problem}" for problem, count in counts.most_common())
    left = counts.total() - len(first)
    others = f", and {left:,} other{'s' if left > 1 else ''}" if left else ""
    of = f"{sum(one.documents for one in figures):,} {layout.unit_name}"
    return f"{counts.total():,} of {of} cannot be read ({kinds}): {', '.join(first)}{others}"
