"""The vocabulary that a tokenizer will have, told by its config alone: no text is read, no file opened."""

import numpy as np

from t5x_lite.data.byte_tokenizer import ByteTokenizer
from t5x_lite.data.tokenizers import ByteLevelBPE, Bytes, MarianFiles, SentencePiece, TokenizerConfig, WordPiece
from t5x_lite.data.vocabulary import Vocabulary


def expected_vocabulary(config: TokenizerConfig, model_size: int) -> Vocabulary:
    """A stand-in with special ids where the kind of tokenizer has them, and no id that continues a word.

    A program that is compiled for it has the shapes of the one that is compiled for the tokenizer itself: the sizes of
    a row do not depend on what its ids mean.

    Args:
      config: a tokenizer that is trained has as many ids as it asks for, or fewer.
      model_size: rows of the model's embedding; taken where the number of ids stands in a file.

    >>> from t5x_lite.data.tokenizers import SentencePiece
    >>> vocabulary = expected_vocabulary(SentencePiece(vocab_size=32_000), 32_128)
    >>> vocabulary.size, vocabulary.eos_id, vocabulary.sentinel_id(0)
    (32100, 1, 32099)
    """
    match config:
        case Bytes(extra_ids):
            return ByteTokenizer(extra_ids).vocabulary
        case SentencePiece(layout="t5"):
            size = model_size if config.model_file else config.vocab_size + config.extra_ids
            ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2}
            # A model file without extra ids brings T5's hundred sentinels among its pieces (mT5's).
            ids |= {"first_sentinel_id": size - 1, "num_sentinels": config.extra_ids or 100}
        case SentencePiece(layout="albert"):
            size = model_size if config.model_file else config.vocab_size
            ids = {"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "eos_id": 3, "mask_id": 4}
        case SentencePiece(layout="xlm-roberta"):
            size = model_size if config.model_file else config.vocab_size + 2
            ids = _fairseq(size)
        case ByteLevelBPE(layout="gpt2"):
            size = model_size if config.file else config.vocab_size
            ids = {"pad_id": size - 2, "eos_id": size - 1, "unk_id": size - 1}
        case ByteLevelBPE():
            size = model_size if config.file else config.vocab_size
            ids = _fairseq(size)
        case MarianFiles():
            size, ids = model_size, {"eos_id": 0, "unk_id": 1, "pad_id": model_size - 1}
        case _:
            size = config.vocab_size if isinstance(config, WordPiece) and not config.file else model_size
            ids = {"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "eos_id": 3, "mask_id": 4}
    return Vocabulary(size, **ids, continuations=np.packbits(np.zeros(size, bool)).tobytes())


def _fairseq(size: int) -> dict[str, int]:
    return {"cls_id": 0, "pad_id": 1, "sep_id": 2, "eos_id": 2, "unk_id": 3, "mask_id": size - 1}
