"""The token store: a corpus tokenized once, cut into rows, on disk for random access."""

import errno
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t5x_lite.data.atomic_folder import write_folder
from t5x_lite.data.formats import RowFormat, Stream
from t5x_lite.data.held_out_split import split_documents
from t5x_lite.data.row_builders import RowBuilder
from t5x_lite.data.sentences import SentenceRule, check_rule, split_sentences
from t5x_lite.data.sources import Source
from t5x_lite.data.tfds_source import import_tfds
from t5x_lite.data.tokenizers import Tokenizer, TokenizerConfig, is_trained, load_tokenizer, make_tokenizer
from t5x_lite.errors import InputError

Progress = Callable[[str, float | None], None]

_FORMAT = 1
_SUMMARY = "store.json"
_SPLITS = ("train", "held_out")
_CHUNK_CHARACTERS = 2 << 20
_SHARD_BYTES = 256 << 20


class Rows(Sequence[np.ndarray]):
    """One split as a sequence of int32 arrays [row_length]; opened at the first read, safe to read from threads."""

    def __init__(self, folder: Path, split: str, length: int) -> None:
        self._folder, self._split, self._length = folder, split, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        return self._records[int(index) % self._length]["ids"].astype(np.int32)

    def __getitems__(self, indices: Iterable[int]) -> list[np.ndarray]:
        """Many rows in one read, which is faster than one by one."""
        indices = [int(index) for index in indices]
        return [row["ids"].astype(np.int32) for row in self._records.__getitems__(indices)]

    @functools.cached_property
    def _records(self) -> Any:
        return import_tfds().builder_from_directory(str(self._folder)).as_data_source(self._split)


@dataclass(frozen=True, eq=False)
class TokenStore:
    """A tokenized corpus: two sequences of rows and the tokenizer that made them."""

    key: str
    """Hash of everything that determines the rows."""
    path: Path
    tokenizer: Tokenizer
    train: Rows
    held_out: Rows
    format: RowFormat


def prepare(
    source: Source,
    tokenizer_config: TokenizerConfig,
    row_format: RowFormat,
    *,
    held_out: float,
    cache_dir: Path,
    sentences: SentenceRule = "punctuation",
    tokenizer: Tokenizer | None = None,
    progress: Progress | None = None,
) -> TokenStore:
    """Tokenize a corpus into a store, or open the one that is there.

    `held_out` of the characters, in whole documents, are kept from training (see `held_out_split`); the documents of
    each split become rows on their own. Everything appears at once or not at all: a killed run leaves nothing that a
    later one reads.

    Args:
      source: the corpus.
      tokenizer_config: how to make the tokenizer; a trained one is kept in `cache_dir`.
      row_format: how documents become rows: Stream, Sentences or Pairs.
      held_out: fraction of the corpus, between 0 and 0.5.
      cache_dir: folder for `tokenizers/` and `stores/`.
      sentences: where sentences end, for formats that read them (see `split_sentences`).
      tokenizer: used instead of making one, when a run is resumed.
      progress: is told what is done and how much of it, from 0 to 1, or None when nobody knows.

    Raises:
      InputError: a value out of range, unreadable text, a tokenizer without the special ids of the rows, or a corpus
        that does not fill a row of each split.
      OSError: the disk is full (nothing is left behind).
    """
    check_rule(sentences)
    if not 0 < held_out < 0.5:
        raise InputError(f"held_out={held_out} is no share of the corpus to evaluate on; choose one between 0 and 0.5")
    report = progress or (lambda stage, fraction: None)
    cache_dir = Path(cache_dir)
    source_key = source.fingerprint()
    if tokenizer is None:
        tokenizer = _cached_tokenizer(source, source_key, tokenizer_config, cache_dir / "tokenizers", report)
    key = _hash(source_key, tokenizer.fingerprint, _format_key(row_format, sentences), held_out)
    folder = cache_dir / "stores" / key
    if not _is_complete(folder):
        write = functools.partial(_write_store, source, tokenizer, row_format, sentences, held_out, report)
        write_folder(folder, write, _is_complete)
    rows = json.loads((folder / _SUMMARY).read_text())["rows"]
    train, held = (Rows(folder, split, rows[split]) for split in _SPLITS)
    return TokenStore(key, folder, tokenizer, train, held, row_format)


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps([_FORMAT, *parts]).encode(), digest_size=16).hexdigest()


def _format_key(row_format: RowFormat, sentences: SentenceRule) -> Any:
    """What the rows follow, of a format. A stream's is its length alone: runs that began when there was no other format
    go on with their store."""
    if isinstance(row_format, Stream):
        return row_format.length
    return [type(row_format).__name__, asdict(row_format), *([sentences] if row_format.reads_sentences else [])]


def _cached_tokenizer(
    source: Source, source_key: str, config: TokenizerConfig, folder: Path, report: Progress
) -> Tokenizer:
    """Training is what takes long; other tokenizers are just made."""
    if not is_trained(config):
        return make_tokenizer(config, source.documents)
    target = folder / _hash(source_key, type(config).__name__, asdict(config))
    if not _is_tokenizer(target):
        report("train tokenizer", None)
        trained = make_tokenizer(config, source.documents)
        write_folder(target, trained.save, _is_tokenizer)
    return load_tokenizer(target)


def _is_tokenizer(folder: Path) -> bool:
    try:
        load_tokenizer(folder)
    except InputError:
        return False
    return True


def _is_complete(folder: Path) -> bool:
    """Whether every file of a store is there with the size it was written with."""
    try:
        sizes = json.loads((folder / _SUMMARY).read_text())["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _write_store(
    source: Source,
    tokenizer: Tokenizer,
    row_format: RowFormat,
    sentences: SentenceRule,
    held_out: float,
    report: Progress,
    folder: Path,
) -> None:
    builders = {name: row_format.start(tokenizer.vocabulary) for name in _SPLITS}
    report("split documents", None)
    split = split_documents(source.documents(), held_out, lambda characters: report("split documents", None))
    try:
        with _RowWriter(folder, row_format.row_length, _id_dtype(tokenizer)) as writer:
            done = 0
            for texts in _chunks(source.documents()):
                documents = _tokenize(texts, tokenizer, sentences if row_format.reads_sentences else None)
                for text, document in zip(texts, documents, strict=True):
                    builders["held_out" if split.holds_out(text) else "train"].add(document)
                writer.add({name: builder.take() for name, builder in builders.items()})
                done += sum(map(len, texts))
                report("tokenize", min(done / split.characters, 1.0))
            for builder in builders.values():
                builder.finish()
            writer.add({name: builder.take() for name, builder in builders.items()})
    except RuntimeError as error:
        # ArrayRecord's C++ knows no OSError.
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device", str(folder)) from error
        raise
    _check_filled(builders, held_out)
    tokenizer.save(folder / "tokenizer")
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()}
    summary = {
        "format": _FORMAT,
        "row_format": {"class": type(row_format).__name__, **asdict(row_format)},
        "row_length": row_format.row_length,
        "rows": {name: builder.rows for name, builder in builders.items()},
        "tokens": {name: builder.tokens for name, builder in builders.items()},
        "skipped_documents": {name: builder.skipped for name, builder in builders.items()},
        "documents": split.documents,
        "characters": split.characters,
        "sizes": sizes,
    }
    (folder / _SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")


def _id_dtype(tokenizer: Tokenizer) -> type[np.generic]:
    return np.uint16 if tokenizer.vocabulary.size <= 1 << 16 else np.int32


def _chunks(documents: Iterable[str]) -> Iterator[list[str]]:
    """Documents in lists of about two million characters, so that memory is bounded and encoding runs in batches."""
    chunk: list[str] = []
    characters = 0
    for text in documents:
        chunk.append(text)
        characters += len(text)
        if characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _tokenize(texts: list[str], tokenizer: Tokenizer, sentences: SentenceRule | None) -> Iterator[list[np.ndarray]]:
    """Each text's ids, sentence by sentence or, without a rule, in one piece."""
    if sentences is None:
        yield from ([ids] for ids in tokenizer.encode_batch(texts))
        return
    documents = [_with_blanks(split_sentences(text, sentences)) for text in texts]
    ids = iter(tokenizer.encode_batch([sentence for document in documents for sentence in document]))
    yield from ([next(ids) for _ in document] for document in documents)


def _with_blanks(sentences: list[str]) -> list[str]:
    """Sentences as they stand in running text, for tokenizers to which " The" and "The" are two."""
    return [*sentences[:1], *(f" {sentence}" for sentence in sentences[1:])]


def _check_filled(builders: dict[str, RowBuilder], held_out: float) -> None:
    for name, builder in builders.items():
        if not builder.rows:
            needs, remedy = builder.shortage
            larger = "a larger held_out, " if name == "held_out" else ""
            raise InputError(
                f"the corpus is too small: its {name} part (held_out={held_out}) has {needs}; give more text, "
                f"{larger}or {remedy}"
            )


class _RowWriter:
    """Writes rows of the splits as a TFDS dataset of ArrayRecord shards.

    TFDS's `GeneratorBasedBuilder` would gather a gigabyte of rows in memory and then spill them through TensorFlow's
    file system; its `SequentialWriter` streams to the shards and needs no TensorFlow.
    """

    def __init__(self, folder: Path, row_length: int, dtype: type[np.generic]) -> None:
        tfds = import_tfds()
        encoding = tfds.features.Encoding.BYTES
        ids = tfds.features.Tensor(shape=(row_length,), dtype=dtype, encoding=encoding)
        identity = tfds.core.DatasetIdentity(
            name="rows", version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name=""
        )
        info = tfds.core.DatasetInfo(
            builder=identity, features=tfds.features.FeaturesDict({"ids": ids}), disable_shuffling=True
        )
        per_shard = max(1, _SHARD_BYTES // (row_length * np.dtype(dtype).itemsize))
        self._dtype = dtype
        self._writer = tfds.core.SequentialWriter(info, max_examples_per_shard=per_shard, file_format="array_record")
        self._writer.initialize_splits(list(_SPLITS))

    def __enter__(self) -> "_RowWriter":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._writer.close_all()

    def add(self, rows: dict[str, np.ndarray]) -> None:
        """Append rows [n, row_length] to each split."""
        self._writer.add_examples({name: [{"ids": r} for r in part.astype(self._dtype)] for name, part in rows.items()})
