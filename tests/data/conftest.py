from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from t5x_lite.data import SentencePiece, Source, Tokenizer, WordPiece, make_tokenizer

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
