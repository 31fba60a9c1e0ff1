"""SentencePiece models as T5 numbers their pieces."""

import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from t5x_lite.data.base_tokenizer import Placed, SplittingTokenizer, pack_continuations, placed, write_config
from t5x_lite.data.sentencepiece_training import Layout, without_dummy_prefix
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError

MODEL_FILE = "spiece.model"


class SentencePieceTokenizer(SplittingTokenizer):
    """See `SentencePiece`, layout "t5". Blanks are normalised: runs of them become one space, and the one before a
    sentinel goes, so `decode` writes one there: encode(decode(ids)) == ids for ids that came from text.

    Raises `InputError` when the bytes are no model, or the model lacks pad, eos or unk.
    """

    layout: Layout = "t5"

    def __init__(self, model: bytes, extra_ids: int, *, name: str = "the model") -> None:
        self.model, self.extra_ids = model, extra_ids
        self._processor = open_processor(model, name)
        size = self._processor.get_piece_size()
        special = {
            "pad": self._special(self._processor.pad_id(), "<pad>", "[PAD]"),
            "eos": self._special(self._processor.eos_id(), "</s>", "[SEP]"),
            "unk": self._processor.unk_id(),
        }
        check_special(special, name)
        first, number = size + extra_ids - 1, extra_ids
        if not extra_ids:
            first, number = self._sentinel_pieces()
        sentinels = range(first - number + 1, first + 1)
        self.vocabulary = Vocabulary(
            size + extra_ids,
            *special.values(),
            first_sentinel_id=first,
            num_sentinels=number,
            continuations=pack_continuations(
                (not piece.startswith("▁") for piece in [*self._pieces(), *[""] * extra_ids]),
                {*special.values(), *sentinels},
            ),
        )

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return self._processor.encode(texts, return_type="numpy")

    def encode_placed(self, texts: list[str]) -> list[Placed]:
        return place_pieces(self._processor, texts)

    def piece(self, token_id: int) -> str:
        own = token_id < self._processor.get_piece_size()
        return self._processor.id_to_piece(int(token_id)) if own else self._shown_mark(token_id)

    def save(self, folder: Path) -> None:
        write_config(folder, kind="sentencepiece", layout=self.layout, extra_ids=self.extra_ids)
        (folder / MODEL_FILE).write_bytes(self.model)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"sentencepiece {self.extra_ids} ".encode() + self.model).hexdigest()

    def _pieces(self) -> list[str]:
        return self._processor.id_to_piece(list(range(self._processor.get_piece_size())))

    def _sentinel_pieces(self) -> tuple[int, int]:
        """(id of the first, number) of the sentinels among the model's own pieces, as mT5's model has them."""
        first = self._special(-1, "▁<extra_id_0>", "<extra_id_0>")
        number = 0
        while first >= number and self._processor.id_to_piece(first - number).endswith(f"<extra_id_{number}>"):
            number += 1
        return first, number

    def _special(self, token_id: int, *pieces: str) -> int:
        """The id the model declares, else that of the first of these pieces it has, else -1."""
        ids = [token_id, *(self._processor.piece_to_id(piece) for piece in pieces)]
        return next((i for i in ids if i >= 0 and i != self._processor.unk_id()), -1)

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        # After a sentinel only a text that starts with a blank starts a word: "think<extra_id_0>ing".
        starts_word = first or text[:1].isspace()
        return (self._processor if starts_word else self._glued_processor).encode(text)

    def _decode_run(self, ids: list[int], *, first: bool) -> str:
        if not ids:
            return ""
        blank = "" if first or not self._processor.id_to_piece(ids[0]).startswith("▁") else " "
        return blank + self._processor.decode(ids)

    def _append_mark(self, text: str, mark: str) -> str:
        return f"{text}{' ' if text else ''}{mark}"

    @functools.cached_property
    def _glued_processor(self) -> Any:
        return open_processor(without_dummy_prefix(self.model), "the model")


def open_processor(model: bytes, name: str) -> Any:
    """The processor of a serialized model; `InputError` naming `name` when the bytes are none."""
    from sentencepiece import SentencePieceProcessor

    try:
        if not model:
            raise RuntimeError("empty")
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise InputError(f"model_file={name} is no SentencePiece model; copy it again or train one") from None


def place_pieces(processor: Any, texts: list[str]) -> list[Placed]:
    """The model's own numbers of the pieces of each text, and where they stand."""
    found = processor.encode(texts, return_type="offset_mapping")
    return [placed(said["ids"], said["offsets"]) for said in found]


def check_special(special: dict[str, int], name: str) -> None:
    """`InputError` where one of the special ids is negative."""
    if missing := [role for role, token_id in special.items() if token_id < 0]:
        raise InputError(f"model_file={name} has no {' or '.join(missing)} piece; use a model that has them")
