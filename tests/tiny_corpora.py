"""Corpora held in memory, tokenizers trained on them, and rows built of numbered ids."""

import bisect
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from t5x_lite.data import SentencePiece, Source, Tokenizer, Vocabulary, WordPiece, make_tokenizer
from t5x_lite.data.layouts.base import Layout, Row, RowBuilder
from t5x_lite.data.layouts.text import Stream
from t5x_lite.data.splits import document_hash, hash_documents, held_out_threshold
from t5x_lite.data.tasks.text_to_text import TextPairs

WORDS = [
    *("the", "model", "reads", "a", "row", "of", "ids", "and", "writes", "another", "one", "while", "we", "wait"),
    *("for", "loss", "to", "fall", "sentences", "under", "training", "embedding", "quickly", "through", "vocabulary"),
    *("私は", "東京", "に", "行きました", "日本語", "猫"),
]


@dataclass(frozen=True)
class Texts(Source):
    """Documents held in memory."""

    texts: tuple[str, ...]

    def documents(self) -> Iterator[str]:
        return iter(self.texts)

    def fingerprint(self) -> str:
        return "\0".join(self.texts)


def make_texts(count: int) -> tuple[str, ...]:
    """Distinct documents of one to sixteen words, English and Japanese."""
    return tuple(
        f"{i} " + " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(1 + i % 16)) for i in range(count)
    )


def is_held_out(documents: Iterable[str], held_out: float) -> Callable[[str], bool]:
    """Whether a document is among those that this share holds out."""
    threshold = held_out_threshold(hash_documents(documents), held_out)
    return lambda content: document_hash(content) <= threshold


@pytest.fixture(scope="session")
def corpus() -> Texts:
    return Texts(make_texts(400))


@pytest.fixture(scope="session")
def spiece(corpus: Texts) -> Tokenizer:
    config = SentencePiece(vocab_size=100, extra_ids=10, character_coverage=1.0)
    return make_tokenizer(config, corpus.documents)


@pytest.fixture(scope="session")
def prose() -> Texts:
    """Distinct documents of one to nine sentences and of one to three lines."""
    texts = []
    for number, words in enumerate(make_texts(120)):
        sentences = [f"Number {number} of {count}: {words}." for count in range(1 + number * 7 % 9)]
        lines = [" ".join(sentences[start : start + 4]) for start in range(0, len(sentences), 4)]
        texts.append("\n".join(lines))
    return Texts(tuple(texts))


@pytest.fixture(scope="session")
def word_piece(prose: Texts) -> Tokenizer:
    return make_tokenizer(WordPiece(vocab_size=200), prose.documents)


PAD, CLS, SEP, UNK, FIRST = 0, 1, 2, 3, 10
VOCABULARY = Vocabulary(size=1 << 20, pad_id=PAD, eos_id=SEP, unk_id=UNK, cls_id=CLS, sep_id=SEP)


@dataclass
class NumberedCorpus:
    """Documents of sentences, and where every id is from."""

    documents: list[list[np.ndarray]]

    def __post_init__(self):
        self.starts = [FIRST]
        self.document_of = []
        for number, document in enumerate(self.documents):
            for sentence in document:
                self.starts.append(self.starts[-1] + len(sentence))
                self.document_of.append(number)

    def sentence(self, token) -> int:
        """Number of the sentence in the corpus."""
        return bisect.bisect_right(self.starts, int(token)) - 1

    def document(self, token) -> int:
        return self.document_of[self.sentence(token)]

    def is_start(self, token) -> bool:
        return int(token) in self.starts

    def is_end(self, token) -> bool:
        return int(token) + 1 in self.starts


def _make_corpus(lengths) -> NumberedCorpus:
    """Documents of sentences of these lengths."""
    ids = iter(range(FIRST, VOCABULARY.size))
    return NumberedCorpus(
        [[np.array([next(ids) for _ in range(n)], np.int32) for n in document] for document in lengths]
    )


def _random_corpus(seed, documents=60) -> NumberedCorpus:
    """Most sentences are short, a few long, some empty; documents have none to a dozen."""
    random = np.random.default_rng(seed)

    def length():
        return int(random.choice([0, random.integers(1, 9), random.integers(9, 60)], p=[0.05, 0.8, 0.15]))

    return _make_corpus([[length() for _ in range(random.integers(0, 13))] for _ in range(documents)])


def join_columns(layout: Layout, rows: list[Row]) -> np.ndarray:
    """The columns of rows side by side, in the order of the spec: int32 [rows, size of all columns]."""
    joined = [np.concatenate([np.ravel(row[name]) for name in layout.spec]) for row in rows]
    return np.array(joined, np.int32).reshape(len(rows), row_size(layout))


def row_size(layout: Layout) -> int:
    """Numbers in all columns of a row."""
    return sum(column.size for column in layout.spec.values())


def _build(layout, documents, calls=()):
    """All rows and the builder; rows are taken after the documents numbered in `calls` too. A pair is the first
    sentence of a document and the others."""
    builder, parts = layout.start(VOCABULARY), []
    for number, document in enumerate(documents):
        is_pair, in_sentences = isinstance(layout, TextPairs), range(1, len(document))
        cuts = () if isinstance(layout, Stream) else (1,) if is_pair else in_sentences
        bounds = itertools.pairwise((0, *cuts, len(document)))
        builder.add([np.concatenate([np.empty(0, np.int32), *document[a:b]]) for a, b in bounds])
        if number in calls:
            parts += builder.take()
    builder.finish()
    rows = join_columns(layout, [*parts, *builder.take()])
    assert builder.rows == len(rows) and builder.documents == len(documents)
    return rows, builder


@pytest.fixture(scope="session")
def make_corpus() -> Callable[..., NumberedCorpus]:
    """`make_corpus([[3, 2], [4]])`: a document of sentences of three and two ids, and one of a sentence of four."""
    return _make_corpus


@pytest.fixture(scope="session")
def random_corpus() -> Callable[..., NumberedCorpus]:
    """`random_corpus(seed)`: sixty documents."""
    return _random_corpus


@pytest.fixture(scope="session")
def build() -> Callable[..., tuple[np.ndarray, RowBuilder]]:
    """`build(layout, documents, calls)`: all rows, their columns side by side, and the builder."""
    return _build


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess]:
    """`run_python(code, *arguments, path="")`: code in a process of its own, which finds modules in `path` first."""

    def run(code: str, *arguments: object, path: str = "") -> subprocess.CompletedProcess:
        paths = os.pathsep.join(filter(None, [path, str(Path(__file__).parents[1])]))
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)

    return run
