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
from t5x_lite.data.held_out_split import HeldOutSplit, split_documents
from t5x_lite.data.sources import Source
from t5x_lite.data.tfds_source import import_tfds
from t5x_lite.data.tokenizers import SentencePiece, Tokenizer, TokenizerConfig, load_tokenizer, make_tokenizer
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


def prepare(
    source: Source,
    tokenizer_config: TokenizerConfig,
    row_length: int,
    *,
    held_out: float,
    cache_dir: Path,
    tokenizer: Tokenizer | None = None,
    progress: Progress | None = None,
) -> TokenStore:
    """Tokenize a corpus into a store, or open the one that is there.

    Documents are joined in order, an EOS after each, and cut into rows of exactly `row_length` ids; the last partial
    row of each split is dropped. `held_out` of the characters, in whole documents, are kept from training (see
    `held_out_split`). Everything appears at once or not at all: a killed run leaves nothing that a later one reads.

    Args:
      source: the corpus.
      tokenizer_config: how to make the tokenizer; a trained one is kept in `cache_dir`.
      row_length: ids in a row.
      held_out: fraction of the corpus, between 0 and 0.5.
      cache_dir: folder for `tokenizers/` and `stores/`.
      tokenizer: used instead of making one, when a run is resumed.
      progress: is told what is done and how much of it, from 0 to 1, or None when nobody knows.

    Raises:
      InputError: a value out of range, unreadable text, or a corpus that does not fill a row of each split.
      OSError: the disk is full (nothing is left behind).
    """
    if row_length < 1:
        raise InputError(f"row_length={row_length} is no length; choose 1 or more")
    if not 0 < held_out < 0.5:
        raise InputError(f"held_out={held_out} is no share of the corpus to evaluate on; choose one between 0 and 0.5")
    report = progress or (lambda stage, fraction: None)
    cache_dir = Path(cache_dir)
    source_key = source.fingerprint()
    if tokenizer is None:
        tokenizer = _cached_tokenizer(source, source_key, tokenizer_config, cache_dir / "tokenizers", report)
    key = _hash(source_key, tokenizer.fingerprint, row_length, held_out)
    folder = cache_dir / "stores" / key
    if not _is_complete(folder):
        write = functools.partial(_write_store, source, tokenizer, row_length, held_out, report)
        write_folder(folder, write, _is_complete)
    rows = json.loads((folder / _SUMMARY).read_text())["rows"]
    train, held = (Rows(folder, split, rows[split]) for split in _SPLITS)
    return TokenStore(key, folder, tokenizer, train, held)


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps([_FORMAT, *parts]).encode(), digest_size=16).hexdigest()


def _cached_tokenizer(
    source: Source, source_key: str, config: TokenizerConfig, folder: Path, report: Progress
) -> Tokenizer:
    """Training is what takes long; other tokenizers are just made."""
    if not isinstance(config, SentencePiece) or config.model_file:
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
    source: Source, tokenizer: Tokenizer, row_length: int, held_out: float, report: Progress, folder: Path
) -> None:
    report("split documents", None)
    split = split_documents(source.documents(), held_out, lambda characters: report("split documents", None))
    streams = {name: _RowStream(row_length) for name in _SPLITS}
    try:
        with _RowWriter(folder, row_length, _id_dtype(tokenizer)) as writer:
            done = 0
            for texts in _chunks(source.documents()):
                _tokenize(texts, tokenizer, split, streams)
                writer.add({name: stream.take() for name, stream in streams.items()})
                done += sum(map(len, texts))
                report("tokenize", min(done / split.characters, 1.0))
    except RuntimeError as error:
        # ArrayRecord's C++ knows no OSError.
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device", str(folder)) from error
        raise
    _check_filled(streams, row_length, held_out)
    tokenizer.save(folder / "tokenizer")
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()}
    summary = {
        "format": _FORMAT,
        "row_length": row_length,
        "rows": {name: stream.rows for name, stream in streams.items()},
        "tokens": {name: stream.tokens for name, stream in streams.items()},
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


def _tokenize(texts: list[str], tokenizer: Tokenizer, split: HeldOutSplit, streams: "dict[str, _RowStream]") -> None:
    eos = np.array([tokenizer.vocabulary.eos_id], np.int32)
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        streams["held_out" if split.holds_out(text) else "train"].add(ids, eos)


def _check_filled(streams: "dict[str, _RowStream]", row_length: int, held_out: float) -> None:
    for name, stream in streams.items():
        if not stream.rows:
            remedy = "a larger held_out, " if name == "held_out" else ""
            raise InputError(
                f"the corpus is too small: its {name} part (held_out={held_out}) has {stream.tokens} tokens and "
                f"row_length={row_length} needs at least as many; give more text, {remedy}or a shorter row_length"
            )


class _RowStream:
    """Joins arrays of ids and hands out whole rows."""

    def __init__(self, row_length: int) -> None:
        self._row_length = row_length
        self._pieces: list[np.ndarray] = []
        self.tokens = self.rows = 0

    def add(self, *pieces: np.ndarray) -> None:
        self._pieces.extend(pieces)
        self.tokens += sum(map(len, pieces))

    def take(self) -> np.ndarray:
        """The whole rows gathered so far [n, row_length]; the rest stays."""
        ids = np.concatenate([np.empty(0, np.int32), *self._pieces])
        count = len(ids) // self._row_length
        self._pieces = [ids[count * self._row_length :]]
        self.rows += count
        return ids[: count * self._row_length].reshape(count, self._row_length)


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
