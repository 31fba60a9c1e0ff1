"""A SentencePiece model from a corpus of any size, in bounded memory, the same bytes for the same corpus."""

import io
import random
import re
from collections.abc import Iterable, Iterator

from t5x_lite.errors import InputError

# The trainer's memory grows with its input (about 20 bytes a character where a language writes no spaces).
_MAX_SENTENCES = 1_000_000
_MAX_CHARACTERS = 64_000_000
# SentencePiece silently drops sentences over 4,192 bytes; 1,000 characters of UTF-8 are at most 4,000.
_LONGEST_SENTENCE = 1_000
# The trainer adds up floats per thread, so the model depends on their number: a constant, not the cores of a machine.
_THREADS = 16


def train_sentencepiece(
    documents: Iterable[str], *, vocab_size: int, character_coverage: float, algorithm: str
) -> bytes:
    """Train with T5's conventions: pad 0, eos 1, unk 2, no bos, NFKC, no byte fallback.

    Args:
      documents: the corpus; at most a million sentences and 64 M characters of it are used, drawn evenly.
      vocab_size: pieces, the three special ones included.
      character_coverage: share of characters that get a piece.
      algorithm: "unigram" or "bpe".

    Returns:
      The serialized model.

    Raises:
      InputError: the corpus is empty, or holds too little or too many characters for `vocab_size`.
    """
    from sentencepiece import SentencePieceTrainer

    sentences = _sample(_sentences(documents))
    if not sentences:
        raise InputError("the corpus is empty, so no tokenizer can be trained; give a source with text")
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            model_type=algorithm,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            byte_fallback=False,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(str(error), vocab_size) from error
    return model.getvalue()


def without_dummy_prefix(model: bytes) -> bytes:
    """The same model, but a text does not start with a blank: for text that goes on after a sentinel."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.add_dummy_prefix = False
    return proto.SerializeToString()


def _explained(message: str, vocab_size: int) -> InputError:
    if found := re.search(r"set it to a value <= (\d+)", message):
        return InputError(
            f"vocab_size={vocab_size} is more than this corpus supports; choose at most {found[1]} or give more text"
        )
    if found := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return InputError(
            f"vocab_size={vocab_size} has no room for the corpus's {found[1]} characters and special pieces; choose "
            f"more than {found[1]} or a lower character_coverage"
        )
    return InputError(
        f"vocab_size={vocab_size}: SentencePiece cannot train on this corpus ({message}); give other text"
    )


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
