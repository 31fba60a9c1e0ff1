"""The part of a corpus that a tokenizer is trained on: any corpus in bounded memory, the same part every time."""

import random
from collections.abc import Iterable, Iterator

from t5x_lite.errors import InputError

# The trainers' memory grows with their input (about 20 bytes a character where a language writes no spaces).
_MAX_SENTENCES = 1_000_000
_MAX_CHARACTERS = 64_000_000
# SentencePiece silently drops sentences over 4,192 bytes; 1,000 characters of UTF-8 are at most 4,000.
_LONGEST_SENTENCE = 1_000


def sample_sentences(documents: Iterable[str]) -> list[str]:
    """At most a million sentences and 64 M characters of a corpus, drawn evenly; `InputError` when it is empty."""
    sentences = _sample(_sentences(documents))
    if not sentences:
        raise InputError("the corpus is empty, so no tokenizer can be trained; give a source with text")
    return sentences


def _sentences(documents: Iterable[str]) -> Iterator[str]:
    """Lines, the long ones cut at a blank where there is one."""
    for document in documents:
        for line in document.splitlines():
            line = line.strip()
            while len(line) > _LONGEST_SENTENCE:
                cut = line.rfind(" ", 1, _LONGEST_SENTENCE)
                cut = cut if cut > 0 else _LONGEST_SENTENCE
                yield line[:cut]
                line = line[cut:].strip()
            if line:
                yield line


def _sample(sentences: Iterable[str]) -> list[str]:
    """All sentences when they fit the limits, else an even sample of at least half of what fits, in order.

    Each sentence draws a number once; whenever those kept grow too many, half the range of numbers is given up.
    """
    draw = random.Random(0).random
    kept: list[tuple[float, str]] = []
    limit, characters = 1.0, 0
    for sentence in sentences:
        number = draw()
        if number >= limit:
            continue
        kept.append((number, sentence))
        characters += len(sentence)
        while len(kept) > _MAX_SENTENCES or characters > _MAX_CHARACTERS:
            limit /= 2
            kept = [pair for pair in kept if pair[0] < limit]
            characters = sum(len(sentence) for _, sentence in kept)
    return [sentence for _, sentence in kept]
