"""The training of tokenizers, on a sample of the corpus in bounded memory that is the same every time."""

import functools
import io
import itertools
import json
import random
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.pipelines import (
    BYTE_LEVEL_SPECIAL,
    WORD_SPECIAL,
    WORD_SPLITS,
    WORDPIECE_SPECIAL,
    byte_level_description,
    word_description,
    wordpiece_description,
)
from t5x_lite.tokenizers.subword import SubwordTokenizer

# The trainers' memory grows with their input (about 20 bytes a character where a language writes no spaces).
_MAX_SENTENCES = 1_000_000
_MAX_CHARACTERS = 64_000_000
# SentencePiece silently drops sentences over 4,192 bytes; 1,000 characters of UTF-8 are at most 4,000.
_LONGEST_SENTENCE = 1_000


class Sample(NamedTuple):
    """Sentences of a corpus, or of a shard of it, that drew a number below `limit`, from 0 to 1."""

    limit: float
    drawn: list[tuple[float, str]]
    """The numbers and the sentences, in order."""
    sentences: int
    characters: int
    """Of all, drawn or not."""


def draw_sentences(
    documents: Iterable[str], *, seed: int = 0, share: float = 1.0, limit: float = 1.0, halve: bool = True
) -> Sample:
    """At most `share` of a million sentences and of 64 M characters, an even sample where there are more: each sentence
    draws a number once, and whenever those kept grow too many, those with the upper half of the numbers are given up.

    Args:
      seed: of the numbers.
      limit: for the numbers, to begin with.
      halve: False to keep all below `limit`.
    """
    draw, drawn = random.Random(seed).random, []
    characters = all_sentences = all_characters = 0
    for sentence in _sentences(documents):
        number = draw()
        all_sentences, all_characters = all_sentences + 1, all_characters + len(sentence)
        if number >= limit:
            continue
        drawn.append((number, sentence))
        characters += len(sentence)
        while halve and (len(drawn) > share * _MAX_SENTENCES or characters > share * _MAX_CHARACTERS):
            limit /= 2
            drawn = [pair for pair in drawn if pair[0] < limit]
            characters = sum(len(sentence) for _, sentence in drawn)
    return Sample(limit, drawn, all_sentences, all_characters)


def common_limit(samples: Sequence[Sample]) -> float:
    """The limit for the numbers of all samples together that leaves no more than a million sentences, and 64 M
    characters, on average."""
    limit = 1.0
    sentences, characters = (sum(sample[field] for sample in samples) for field in (2, 3))
    while sentences * limit > _MAX_SENTENCES or characters * limit > _MAX_CHARACTERS:
        limit /= 2
    return limit


def sample_sentences(documents: Iterable[str]) -> list[str]:
    """At most a million sentences and 64 M characters of a corpus, in order (see `draw_sentences`); `InputError` when
    it is empty."""
    if drawn := draw_sentences(documents).drawn:
        return [sentence for _, sentence in drawn]
    raise InputError("the corpus is empty, so no tokenizer can be trained; give a source with text")


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


Layout = Literal["t5", "siglip", "albert", "xlm-roberta", "xlnet", "big-bird"]

# The trainer adds up floats per thread, so the model depends on their number: a constant, not the cores of a machine.
_THREADS = 16
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NUMBER_COMMA = re.compile(r"\d,$")
# More than any two log probabilities of pieces differ.
_IMPROBABLE = 100
_T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
# Which special pieces a model begins with, and how it normalizes text.
_CONVENTIONS: dict[Layout, dict[str, Any]] = {
    "t5": _T5,
    "siglip": _T5,
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
    "xlnet": {
        "unk_id": 0,
        "bos_id": 1,
        "eos_id": 2,
        "pad_id": -1,
        "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
    },
    "big-bird": {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
}


@functools.cache
def albert_normalizer(lowercase: bool = True, keep_accents: bool = False) -> normalizers.Normalizer:
    """What ALBERT does to a text before SentencePiece sees it.

    >>> albert_normalizer().normalize_str("``Étude''")
    '"etude"'
    """
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [] if keep_accents else [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] if lowercase else []
    return normalizers.Sequence(steps)


def siglip_text(text: str) -> str:
    """What SigLIP does to a text before SentencePiece sees it: no capitals, no punctuation, one blank between words.

    >>> siglip_text("A photo,  of Two-toed sloths.")
    'a photo of twotoed sloths'
    """
    return " ".join(text.lower().translate(_NO_PUNCTUATION).split())


def train_sentencepiece(
    documents: Iterable[str], *, vocab_size: int, character_coverage: float, algorithm: str, layout: Layout = "t5"
) -> bytes:
    """A serialized model with the conventions of a layout: its special pieces first, NFKC, no byte fallback.

    "t5" and "siglip" begin with pad, eos, unk; "albert" with pad, unk, cls, sep, mask and folds case; "xlm-roberta"
    with unk, bos, eos, as its authors' model does, to which the tokenizer adds pad and mask; "xlnet" with unk, bos,
    eos, cls, sep, pad, mask, eod, eop; "big-bird" with pad, eos, bos, unk, cls, sep, mask. `vocab_size` includes these.

    Raises `InputError` where the corpus is empty, or has too few or too many characters for `vocab_size`.
    """
    from sentencepiece import SentencePieceTrainer

    before = {
        "albert": albert_normalizer().normalize_str,
        "siglip": siglip_text,
        "xlnet": albert_normalizer(lowercase=False).normalize_str,
    }
    documents = map(before[layout], documents) if layout in before else documents
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sample_sentences(documents)),
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
        problem = f": SentencePiece cannot train on this corpus ({error}); give other text"
        if found := re.search(r"set it to a value <= (\d+)", str(error)):
            problem = f" is more than this corpus supports; choose at most {found[1]} or give more text"
        elif found := re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error)):
            problem = (
                f" has no room for the corpus's {found[1]} characters and special pieces; choose more than {found[1]} "
                "or a lower character_coverage"
            )
        raise InputError(f"vocab_size={vocab_size}{problem}") from error
    return model.getvalue()


def with_control_pieces(model: bytes, special: tuple[str, ...], *, splits_commas: bool = True) -> bytes:
    """The same model as ALBERT, XLNet and BigBird use it; a model that was treated before comes back byte for byte.

    Special tokens written in a text are plain text, even those that the model declares as user-defined. With
    `splits_commas`, as ALBERT and XLNet have it, a comma after a digit is a piece of its own: pieces that hold both
    become too improbable to be chosen.
    """
    proto = parse_model(model)
    for piece in proto.pieces:
        if splits_commas and _NUMBER_COMMA.search(piece.piece) and piece.score > -_IMPROBABLE:
            piece.score -= _IMPROBABLE
        if piece.piece in special and piece.type == piece.USER_DEFINED:
            piece.type = piece.CONTROL
    return proto.SerializeToString() if proto != parse_model(model) else model


def parse_model(model: bytes) -> Any:
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(model)


# A pair of pieces that occurs once is chance.
_LEAST_COUNT = 2
ByteLevelLayout = Literal["roberta", "gpt2"]
"""Whose special tokens a byte-level BPE has."""


def train_wordpiece(
    documents: Iterable[str], *, vocab_size: int, lowercase: bool, character_coverage: float
) -> SubwordTokenizer:
    """BERT's tokenizer: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, the characters, then what merging them gives.

    Pieces are merged by their count (Sennrich et al. 2016), as the library `tokenizers` does it. A corpus that does not
    fill `vocab_size` ids, the special ones included, leaves the vocabulary smaller.

    Raises `InputError` where the corpus is empty, or `vocab_size` has no room for its characters.
    """
    sentences = sample_sentences(documents)
    special = list(WORDPIECE_SPECIAL.values())
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    characters = _count_covered(map(library.normalizer.normalize_str, sentences), character_coverage)

    def train(vocab_size: int, first_tokens: list[str]) -> dict[str, int]:
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=_LEAST_COUNT,
            special_tokens=first_tokens,
            limit_alphabet=characters,
            show_progress=False,
        )
        library.train_from_iterator(sentences, trainer)
        return library.get_vocab(with_added_tokens=False)

    # The trainer numbers the characters inside words in an order that differs between runs, and breaks ties by number:
    # a first round finds them, the second one is given them in order.
    letters = train(0, special).keys() - special
    needed = len(special) + len(letters)
    if needed > vocab_size:
        raise InputError(
            f"vocab_size={vocab_size} has no room for the corpus's characters, which need {needed} ids with the "
            f"special ones; choose {needed} or more, or a lower character_coverage"
        )
    vocabulary = train(vocab_size, [*special, *sorted(letters)])
    description = wordpiece_description(vocabulary, WORDPIECE_SPECIAL, lowercase=lowercase)
    return SubwordTokenizer(description, WORDPIECE_SPECIAL)


def train_byte_level(
    documents: Iterable[str], *, vocab_size: int, layout: ByteLevelLayout = "roberta"
) -> SubwordTokenizer:
    """RoBERTa's tokenizer (Radford et al. 2019): <s> 0, <pad> 1, </s> 2, <unk> 3, 256 bytes, merges, <mask> last.

    In GPT-2's layout the bytes come first, and last <pad>, which the published vocabulary lacks, and <|endoftext|>,
    which is EOS and unknown in one. A corpus that does not fill `vocab_size` ids, the special ones included, leaves the
    vocabulary smaller; an empty one raises `InputError`.
    """
    special = BYTE_LEVEL_SPECIAL[layout]
    last = [special["mask_token"]] if layout == "roberta" else list(dict.fromkeys(special.values()))
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(last),
        min_frequency=_LEAST_COUNT,
        special_tokens=[token for token in special.values() if token not in last],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(sample_sentences(documents), trainer)
    model: dict[str, Any] = json.loads(library.to_str())["model"]
    size = len(model["vocab"])
    vocabulary = model["vocab"] | {token: size + number for number, token in enumerate(last)}
    return SubwordTokenizer(byte_level_description(vocabulary, model["merges"], special), special)


def count_words(documents: Iterable[str], *, vocab_size: int, split: str = "blanks") -> SubwordTokenizer:
    """The most frequent words, <eos> 0 and <unk> 1 first, then by their counts, equal ones in order.

    A corpus of fewer words leaves the vocabulary smaller; an empty one raises `InputError`.
    """
    counts: Counter[str] = Counter()
    for sentence in sample_sentences(documents):
        counts.update(word for word, _ in WORD_SPLITS[split].pre_tokenize_str(sentence))
    special = list(dict.fromkeys(WORD_SPECIAL.values()))
    words = sorted(counts.keys() - special, key=lambda word: (-counts[word], word))[: vocab_size - len(special)]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    return SubwordTokenizer(word_description(vocabulary, split), WORD_SPECIAL)


def _count_covered(texts: Iterable[str], coverage: float) -> int:
    """The number of the most frequent characters that make up this share of the texts; equally frequent ones count all
    or none."""
    counts = Counter(itertools.chain.from_iterable(texts))
    ordered = sorted((count for character, count in counts.items() if not character.isspace()), reverse=True)
    wanted, covered = coverage * sum(ordered), 0
    for number, count in enumerate(ordered):
        if covered >= wanted and count < ordered[number - 1]:
            return number
        covered += count
    return len(ordered)
