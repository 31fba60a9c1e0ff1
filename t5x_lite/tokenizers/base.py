"""What every tokenizer can do, and what those share that split a text at the special tokens written in it."""

import abc
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.vocabulary import Vocabulary

CONFIG_FILE = "tokenizer_config.json"
SENTINEL = re.compile(r"<extra_id_(\d+)>")


class TokenOffsets(NamedTuple):
    """Ids and where each stands in the text."""

    ids: np.ndarray
    """int32 [L]."""
    spans: np.ndarray
    """int32 [L 2]: first character and the one behind the last; the two are equal where an id stands for none."""


class Tokenizer(abc.ABC):
    """Text to ids and back."""

    vocabulary: Vocabulary
    mask_token: str | None = None
    """How the mask is written in a text; None where the vocabulary has none."""

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a text, nothing put around them; special tokens written in it become theirs.

        `<extra_id_N>` becomes its sentinel; `InputError` when there is none in a vocabulary of sentinels.
        """

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: masks and sentinels are written; pad, cls, sep, eos and ids beyond the vocabulary left out."""

    @abc.abstractmethod
    def piece(self, token_id: int) -> str:
        """How the vocabulary itself writes an id below its size: `▁the`, `Ġthe`, `##ing`, `</s>`; empty for none."""

    @abc.abstractmethod
    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """Ids int32 [L] of each text, nothing put around them: the fast path for corpora. Special tokens written in
        the texts are plain text there."""

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        """The ids of `encode_batch`, and the characters that each of them stands for. Several ids may stand for one
        character, such as its bytes. Raises `InputError` where the tokenizer cannot tell."""
        raise InputError(
            f"a {type(self).__name__} cannot tell where in a text its tokens stand; use WordPiece, ByteLevelBPE, "
            "SentencePiece or Bytes"
        )

    @abc.abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `load_tokenizer` reads into a folder, which is made when missing."""

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Hexadecimal hash: equal means equal ids for every text."""

    @property
    def target_side(self) -> "Tokenizer":
        """What encodes the targets of pairs: this one, but where two languages are split in two ways (Marian)."""
        return self

    def _silent_ids(self) -> set[int]:
        vocabulary = self.vocabulary
        return {vocabulary.pad_id, vocabulary.eos_id, vocabulary.cls_id, vocabulary.sep_id} - {None}


class SplittingTokenizer(Tokenizer):
    """Encodes and decodes the stretches between special tokens one by one. Here the special tokens are sentinels."""

    _marks: re.Pattern[str] = SENTINEL

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        end = 0
        for match in self._marks.finditer(text):
            ids += self._encode_piece(text[end : match.start()], first=end == 0)
            ids.append(self._mark_id(match))
            end = match.end()
        return ids + self._encode_piece(text[end:], first=end == 0)

    def decode(self, ids: Iterable[int]) -> str:
        text = ""
        run: list[int] = []
        silent = self._silent_ids()
        for token_id in map(int, ids):
            mark = self._shown_mark(token_id)
            if mark is not None:
                text = self._append_mark(text + self._decode_run(run, first=not text), mark)
                run = []
            elif 0 <= token_id < self.vocabulary.size and token_id not in silent:
                run.append(token_id)
        return text + self._decode_run(run, first=not text)

    @abc.abstractmethod
    def _encode_piece(self, text: str, *, first: bool) -> list[int]: ...

    @abc.abstractmethod
    def _decode_run(self, ids: list[int], *, first: bool) -> str: ...

    def _mark_id(self, match: re.Match[str]) -> int:
        return self.vocabulary.sentinel_id(int(match[1]))

    def _shown_mark(self, token_id: int) -> str | None:
        number = self.vocabulary.sentinel_number(token_id)
        return None if number is None else f"<extra_id_{number}>"

    def _append_mark(self, text: str, mark: str) -> str:
        return text + mark


def read_bytes(path: Path, what: str) -> bytes:
    """The content of a file; `InputError` that begins with `what` when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{what}: {path} cannot be read ({error.strerror}); correct the path") from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, an empty one where there is no file; `InputError` when it holds something else."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); it may be truncated: copy it again") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object, so it is not a tokenizer's; copy it again")
    return content


def write_config(folder: Path, **config: Any) -> None:
    """Write the tokenizer_config.json of a tokenizer of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(json.dumps({"format": 1, **config}, indent=2) + "\n", encoding="utf-8")


def pack_continuations(continues: Iterable[bool], special: Iterable[int]) -> bytes:
    """The `continuations` of a vocabulary: whether each id continues a word, the special ids never."""
    flags = np.array(list(continues), bool)
    flags[sorted(special)] = False
    return np.packbits(flags).tobytes()


def token_offsets(ids: Iterable[int], spans: Iterable[tuple[int, int]]) -> TokenOffsets:
    """What the libraries say of a text, as arrays."""
    return TokenOffsets(np.array(ids, np.int32).reshape(-1), np.array(spans, np.int32).reshape(-1, 2))


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

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        sizes = [np.array([len(character.encode()) for character in text], int) for text in texts]
        starts = [np.repeat(np.arange(len(size)), size).astype(np.int32) for size in sizes]
        return [
            TokenOffsets(ids, np.stack([start, start + 1], axis=1))
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
        # Where sentinels reuse byte ids, only those that occur in no UTF-8 text can be distinguished from text.
        if not self.extra_ids and token_id < _FIRST_BYTE_NOT_IN_UTF8 + _BYTE_OFFSET:
            return None
        return super()._shown_mark(token_id)


_BLANKS = {" ": "␣", "▁": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}


def format_tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[str, ...]:
    """A word for each id, none of them empty.

    Special tokens have their names. What continues the word before it has `·` in front, or `##` as WordPiece writes it.
    Blanks and line breaks that are tokens are shown as signs; bytes that make no character as `<0xE2>`, ids beyond the
    vocabulary as `<id 300>`.

    >>> from t5x_lite.tokenizers.base import ByteTokenizer
    >>> tokenizer = ByteTokenizer(0)
    >>> format_tokens(tokenizer, [*tokenizer.encode("a ä"), 1])
    ('a', '␣', '<0xC3>', '<0xA4>', '</s>')
    """
    vocabulary, ids = tokenizer.vocabulary, [int(token_id) for token_id in ids]
    continues = vocabulary.continues_word() if vocabulary.marks_words else np.zeros(vocabulary.size, bool)
    words: list[str] = []
    for index, token_id in enumerate(ids):
        word = _format(tokenizer, token_id)
        # A text's first word may have no blank before it, and a blank may be a token of its own.
        inside = index > 0 and words[-1][-1].isalnum()
        if inside and word[0].isalnum() and token_id < vocabulary.size and continues[token_id]:
            word = f"·{word}"
        words.append(word)
    return tuple(words)


def format_token(tokenizer: Tokenizer, token_id: int) -> str:
    """The same for a token by itself, wherever it may stand."""
    word, vocabulary = _format(tokenizer, token_id), tokenizer.vocabulary
    continues = vocabulary.marks_words and token_id < vocabulary.size and vocabulary.continues_word()[token_id]
    return f"·{word}" if continues and word[0].isalnum() else word


def _format(tokenizer: Tokenizer, token_id: int) -> str:
    vocabulary = tokenizer.vocabulary
    if not 0 <= token_id < vocabulary.size:
        return f"<id {token_id}>"
    piece = tokenizer.piece(token_id)
    if token_id in vocabulary.special_ids:
        return piece.strip("▁ ") or f"<id {token_id}>"
    text = tokenizer.decode([token_id])
    if "\ufffd" in text:
        text = _bytes_of(piece)
    text = text.strip(" ") or text or piece or f"<id {token_id}>"
    return "".join(_BLANKS.get(c, c) if c in _BLANKS or c.isprintable() else f"<0x{ord(c):02X}>" for c in text)


def _bytes_of(piece: str) -> str:
    """The bytes of a byte-level BPE's piece; pieces of other vocabularies, which say it themselves, as they are."""
    alphabet = _byte_alphabet()
    if not set(piece) <= alphabet.keys() or piece.startswith("<0x"):
        return piece
    return "".join(f"<0x{alphabet[c]:02X}>" for c in piece.removeprefix("Ġ"))


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """The byte that each character stands for in byte-level BPE: printable ones for themselves, the others in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
