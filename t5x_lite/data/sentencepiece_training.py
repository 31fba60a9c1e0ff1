"""A SentencePiece model from a corpus of any size, in bounded memory, the same bytes for the same corpus."""

import io
import re
from collections.abc import Iterable
from typing import Any, Literal

from t5x_lite.data.corpus_sample import sample_sentences
from t5x_lite.errors import InputError

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
