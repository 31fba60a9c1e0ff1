"""The part of a corpus that a tokenizer is trained on: any corpus in bounded memory, the same part every time."""

import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.subword import (
    BYTE_LEVEL_SPECIAL,
    GPT2_SPECIAL,
    WORDPIECE_SPECIAL,
    SubwordTokenizer,
    byte_level_description,
    wordpiece_description,
)

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


Layout = Literal["t5", "albert", "xlm-roberta"]

# The trainer adds up floats per thread, so the model depends on their number: a constant, not the cores of a machine.
_THREADS = 16
_NUMBER_COMMA = re.compile(r"\d,$")
# More than any two log probabilities of pieces differ.
_IMPROBABLE = 100
# Which special pieces a model begins with, and how it normalizes text.
_CONVENTIONS: dict[Layout, dict[str, Any]] = {
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "albert": {
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        # Control symbols: no text ever gives their ids.
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "normalization_rule_name": "nmt_nfkc_cf",
    },
    "xlm-roberta": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
}


def train_sentencepiece(
    documents: Iterable[str], *, vocab_size: int, character_coverage: float, algorithm: str, layout: Layout = "t5"
) -> bytes:
    """Train with the conventions of a layout: its special pieces first, NFKC, no byte fallback.

    Args:
      documents: the corpus; at most a million sentences and 64 M characters of it are used, drawn evenly.
      vocab_size: pieces, the layout's special ones included.
      character_coverage: share of characters that get a piece.
      algorithm: "unigram" or "bpe".
      layout: "t5" begins with pad, eos, unk; "albert" with pad, unk, cls, sep, mask and folds case; "xlm-roberta" with
        unk, bos, eos, as its authors' model does, to which the tokenizer adds pad and mask.

    Returns:
      The serialized model.

    Raises:
      InputError: the corpus is empty, or holds too little or too many characters for `vocab_size`.
    """
    from sentencepiece import SentencePieceTrainer

    sentences = sample_sentences(documents)
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            model_type=algorithm,
            byte_fallback=False,
            num_threads=_THREADS,
            minloglevel=2,
            **_CONVENTIONS[layout],
        )
    except RuntimeError as error:
        raise _explained(str(error), vocab_size) from error
    return model.getvalue()


def without_dummy_prefix(model: bytes) -> bytes:
    """The same model, but a text does not start with a blank: for text that goes on after a sentinel."""
    proto = _parsed(model)
    proto.normalizer_spec.add_dummy_prefix = False
    return proto.SerializeToString()


def is_unigram(model: bytes) -> bool:
    """Whether a model chooses pieces by their probabilities (Kudo 2018)."""
    spec = _parsed(model).trainer_spec
    return spec.model_type == spec.UNIGRAM


def with_albert_pieces(model: bytes) -> bytes:
    """The same model as ALBERT uses it; a model that was treated before comes back byte for byte.

    A comma behind a digit is a piece of its own there, so pieces that hold both become too improbable to be chosen; and
    special tokens written in a text are plain text whatever the model makes of them.
    """
    proto = _parsed(model)
    for piece in proto.pieces:
        if _NUMBER_COMMA.search(piece.piece) and piece.score > -_IMPROBABLE:
            piece.score -= _IMPROBABLE
        if piece.piece in ("[CLS]", "[SEP]", "[MASK]", "<pad>") and piece.type == piece.USER_DEFINED:
            piece.type = piece.CONTROL
    return proto.SerializeToString() if proto != _parsed(model) else model


def _parsed(model: bytes) -> Any:
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(model)


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


# A pair of pieces that occurs once is chance.
_LEAST_COUNT = 2
_BATCH = 1_000
ByteLevelLayout = Literal["roberta", "gpt2"]
"""Whose special tokens a byte-level BPE has."""
SMALLEST_BYTE_LEVEL = {
    "roberta": 256 + len(set(BYTE_LEVEL_SPECIAL.values())),
    "gpt2": 256 + len(set(GPT2_SPECIAL.values())),
}
"""Ids that a byte-level BPE of a layout has at least."""


def train_wordpiece(
    documents: Iterable[str], *, vocab_size: int, lowercase: bool, character_coverage: float
) -> SubwordTokenizer:
    """BERT's tokenizer: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, the characters, then what merging them gives.

    Pieces are merged by their count (Sennrich et al. 2016), as the library `tokenizers` does it; a corpus that does not
    fill the vocabulary leaves it smaller.

    Args:
      documents: the corpus; at most a million sentences and 64 M characters of it are used, drawn evenly.
      vocab_size: ids, the special ones included.
      lowercase: whether capitals and accents are dropped.
      character_coverage: share of the corpus's characters that get a piece, the others are unk.

    Raises:
      InputError: the corpus is empty, or `vocab_size` has no room for its characters.
    """
    sentences = sample_sentences(documents)
    special = list(WORDPIECE_SPECIAL.values())
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    characters = _count_covered(map(library.normalizer.normalize_str, sentences), character_coverage)
    # The trainer numbers the characters inside words in an order that differs between runs, and breaks ties by number:
    # a first round finds them, the second one is given them in order.
    letters = _train_wordpiece(library, sentences, 0, special, characters).keys() - special
    needed = len(special) + len(letters)
    if needed > vocab_size:
        raise InputError(
            f"vocab_size={vocab_size} has no room for the corpus's characters, which need {needed} ids with the "
            f"special ones; choose {needed} or more, or a lower character_coverage"
        )
    vocabulary = _train_wordpiece(library, sentences, vocab_size, [*special, *sorted(letters)], characters)
    return SubwordTokenizer(
        wordpiece_description(vocabulary, WORDPIECE_SPECIAL, lowercase=lowercase), WORDPIECE_SPECIAL
    )


def train_byte_level(
    documents: Iterable[str], *, vocab_size: int, layout: ByteLevelLayout = "roberta"
) -> SubwordTokenizer:
    """RoBERTa's tokenizer (Radford et al. 2019): <s> 0, <pad> 1, </s> 2, <unk> 3, 256 bytes, merges, <mask> last.

    In GPT-2's layout the bytes come first, and last <pad>, which the published vocabulary lacks, and <|endoftext|>,
    which is EOS and unknown in one.

    Args:
      documents: the corpus; at most a million sentences and 64 M characters of it are used, drawn evenly.
      vocab_size: ids, the special ones included; a corpus that does not fill them leaves the vocabulary smaller.
      layout: which special tokens there are, and where.

    Raises:
      InputError: the corpus is empty.
    """
    special = BYTE_LEVEL_SPECIAL if layout == "roberta" else GPT2_SPECIAL
    behind = [special["mask_token"]] if layout == "roberta" else list(dict.fromkeys(special.values()))
    sentences = sample_sentences(documents)
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(behind),
        min_frequency=_LEAST_COUNT,
        special_tokens=[token for token in special.values() if token not in behind],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(_batched(sentences), trainer)
    model: dict[str, Any] = json.loads(library.to_str())["model"]
    size = len(model["vocab"])
    vocabulary = model["vocab"] | {token: size + number for number, token in enumerate(behind)}
    return SubwordTokenizer(byte_level_description(vocabulary, model["merges"], special), special)


def _train_wordpiece(
    library: Any, sentences: list[str], vocab_size: int, given: list[str], characters: int
) -> dict[str, int]:
    """The trained vocabulary; `given` are its first tokens, `characters` the number of those that it may use."""
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=_LEAST_COUNT,
        special_tokens=given,
        limit_alphabet=characters,
        show_progress=False,
    )
    library.train_from_iterator(_batched(sentences), trainer)
    return library.get_vocab(with_added_tokens=False)


def _count_covered(texts: Iterable[str], coverage: float) -> int:
    """How many of the most frequent characters make up this share of the texts; equally frequent ones all or none, so
    that the number says which."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    ordered = sorted((count for character, count in counts.items() if not character.isspace()), reverse=True)
    wanted, covered = coverage * sum(ordered), 0
    for number, count in enumerate(ordered):
        if covered >= wanted and count < ordered[number - 1]:
            return number
        covered += count
    return len(ordered)


def _batched(sentences: list[str]) -> Iterator[list[str]]:
    return (sentences[start : start + _BATCH] for start in range(0, len(sentences), _BATCH))
