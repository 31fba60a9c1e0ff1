from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from t5x_lite.data import SentencePiece, Source, Tokenizer, make_tokenizer

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
