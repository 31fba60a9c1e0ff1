"""UTF-8 bytes as tokens."""

import hashlib
from pathlib import Path

import numpy as np

from t5x_lite.data.base_tokenizer import Placed, SplittingTokenizer, write_config
from t5x_lite.data.vocabulary import Vocabulary

_BYTE_OFFSET = 3
_BYTE_VOCABULARY = 256 + _BYTE_OFFSET
_FIRST_BYTE_NOT_IN_UTF8 = 0xF5


class ByteTokenizer(SplittingTokenizer):
    """See `Bytes`.

    >>> ByteTokenizer(0).encode("hi<extra_id_0>")
    [107, 108, 258]
    """

    def __init__(self, extra_ids: int) -> None:
        self.extra_ids = extra_ids
        size = _BYTE_VOCABULARY + extra_ids
        self.vocabulary = Vocabulary(size, 0, 1, 2, first_sentinel_id=size - 1, num_sentinels=extra_ids or 100)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return [np.frombuffer(t.encode(), np.uint8).astype(np.int32) + np.int32(_BYTE_OFFSET) for t in texts]

    def encode_placed(self, texts: list[str]) -> list[Placed]:
        sizes = [np.array([len(character.encode()) for character in text], int) for text in texts]
        starts = [np.repeat(np.arange(len(size)), size).astype(np.int32) for size in sizes]
        return [
            Placed(ids, np.stack([start, start + 1], axis=1))
            for ids, start in zip(self.encode_batch(texts), starts, strict=True)
        ]

    def piece(self, token_id: int) -> str:
        if token_id < _BYTE_OFFSET:
            return ("<pad>", "</s>", "<unk>")[token_id]
        return self._shown_mark(token_id) or f"<0x{token_id - _BYTE_OFFSET:02X}>"

    def save(self, folder: Path) -> None:
        write_config(folder, kind="bytes", extra_ids=self.extra_ids)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"bytes {self.extra_ids}".encode()).hexdigest()

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        return [byte + _BYTE_OFFSET for byte in text.encode()]

    def _decode_run(self, ids: list[int], *, first: bool) -> str:
        # unk is no byte; a run of bytes that is not UTF-8 shows as the replacement character.
        values = (token_id - _BYTE_OFFSET for token_id in ids)
        return bytes(value for value in values if 0 <= value < 256).decode(errors="replace")

    def _shown_mark(self, token_id: int) -> str | None:
        # Where sentinels reuse byte ids, only those that occur in no UTF-8 text can be told from text.
        if not self.extra_ids and token_id < _FIRST_BYTE_NOT_IN_UTF8 + _BYTE_OFFSET:
            return None
        return super()._shown_mark(token_id)
