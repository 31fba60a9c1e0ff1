"""WordPiece and byte-level BPE from a corpus of any size, in bounded memory, the same ids for the same corpus."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from t5x_lite.data.corpus_sample import sample_sentences
from t5x_lite.data.subword_pipelines import (
    BYTE_LEVEL_SPECIAL,
    GPT2_SPECIAL,
    WORDPIECE_SPECIAL,
    byte_level_description,
    wordpiece_description,
)
from t5x_lite.data.subword_tokenizer import SubwordTokenizer
from t5x_lite.errors import InputError

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
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

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
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers, trainers

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
    from tokenizers import trainers

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
