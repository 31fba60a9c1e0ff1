"""The interface of tokenizers, the bytes of ByT5, and tokens in print."""

import abc
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.vocabulary import Vocabulary

MOST_IDS = 1 << 24
"""Of any tokenizer: a larger id is a damaged file's."""
CONFIG_FILE = "tokenizer_config.json"
SENTINEL = re.compile(r"<extra_id_(\d+)>")


class TokenOffsets(NamedTuple):
    """Ids int32 [L] and the spans int32 [L 2] of text that they stand for: the first character and the one after the
    last; the two are equal where an id stands for none."""

    ids: np.ndarray
    spans: np.ndarray


class Tokenizer(abc.ABC):
    """Text to ids and back.

    One of your own derives from it, and from `TokenizerConfig` what makes it. Where JSON holds its `arguments`, it is
    saved and loaded by them; other tokenizers define `save`, `load` and `fingerprint`.
    """

    vocabulary: Vocabulary
    mask_token: str | None = None
    """How the mask is written in a text; None where the vocabulary has none."""

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a text, nothing put around them; special tokens written in it become theirs, `<extra_id_N>` its
        sentinel: `InputError` where a vocabulary with sentinels does not have it."""

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: masks and sentinels are written; pad, cls, sep, eos and ids beyond the vocabulary left out."""

    def decode_span(self, ids: Sequence[int], first: int, last: int) -> str:
        """Text of some ids of a row, both ends included, with all that the last one stands for; stripped of blanks."""
        return self.decode(ids[first : last + 1]).strip()

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

    @property
    def arguments(self) -> dict[str, Any]:
        """What the class is called with to make this tokenizer again."""
        raise InputError(f"a {type(self).__name__} has no arguments to be saved by; define them, or save and load")

    def save(self, folder: Path) -> None:
        """Write what `load_tokenizer` reads into a folder, which is made when missing."""
        cls = type(self)
        write_config(folder, kind=f"{cls.__module__}:{cls.__name__}", arguments=self.arguments)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer that `save` wrote."""
        return cls(**json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))["arguments"])

    @property
    def fingerprint(self) -> str:
        """Hexadecimal hash: equal means equal ids for every text."""
        described = json.dumps([type(self).__name__, self.arguments], sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()

    @property
    def target_side(self) -> "Tokenizer":
        """What encodes the targets of pairs: this one, unless each language has its own model (Marian)."""
        return self

    def _silent_ids(self) -> set[int | None]:
        vocabulary = self.vocabulary
        return {vocabulary.pad_id, vocabulary.eos_id, vocabulary.cls_id, vocabulary.sep_id}


class SplittingTokenizer(Tokenizer):
    """Encodes and decodes the text between special tokens, by default the sentinels, piece by piece."""

    _marks: re.Pattern[str] = SENTINEL
    _special_ids: Mapping[str, int] = {}
    """The ids of the special tokens that are not sentinels."""

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        end = 0
        for match in self._marks.finditer(text):
            ids += self._encode_piece(text[end : match.start()], first=end == 0)
            special = self._special_ids.get(match[0])
            ids.append(self.vocabulary.sentinel_id(int(match[1])) if special is None else special)
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

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        return self.encode_batch([text])[0].tolist()

    @abc.abstractmethod
    def _decode_run(self, ids: list[int], *, first: bool) -> str: ...

    def _shown_mark(self, token_id: int) -> str | None:
        number = self.vocabulary.sentinel_number(token_id)
        return None if number is None else f"<extra_id_{number}>"

    def _append_mark(self, text: str, mark: str) -> str:
        return text + mark


def write_config(folder: Path, **config: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(json.dumps({"format": 1, **config}, indent=2) + "\n", encoding="utf-8")


def pack_continuations(continues: Iterable[bool], special: Iterable[int]) -> bytes:
    """The `continuations` of a vocabulary: whether each id continues a word, the special ids never."""
    flags = np.array(list(continues), bool)
    flags[sorted(special)] = False
    return np.packbits(flags).tobytes()


def token_offsets(ids: Iterable[int], spans: Iterable[tuple[int, int]]) -> TokenOffsets:
    """The ids and spans of a text as arrays."""
    return TokenOffsets(np.array(ids, np.int32).reshape(-1), np.array(spans, np.int32).reshape(-1, 2))


_BYTE_OFFSET = 3


class ByteTokenizer(SplittingTokenizer):
    """See `Bytes`.

    >>> ByteTokenizer(0).encode("hi<extra_id_0>")
    [107, 108, 258]
    """

    def __init__(self, extra_ids: int) -> None:
        self.extra_ids = extra_ids
        size = 256 + _BYTE_OFFSET + extra_ids
        self.vocabulary = Vocabulary(size, 0, 1, 2, first_sentinel_id=size - 1, num_sentinels=extra_ids or 100)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return [np.frombuffer(t.encode(), np.uint8).astype(np.int32) + np.int32(_BYTE_OFFSET) for t in texts]

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        return [
            token_offsets(ids, [(index, index + 1) for index, character in enumerate(text) for _ in character.encode()])
            for text, ids in zip(texts, self.encode_batch(texts), strict=True)
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

    def _decode_run(self, ids: list[int], *, first: bool) -> str:
        # unk is not a byte; bytes that are not UTF-8 show as the replacement character.
        values = (token_id - _BYTE_OFFSET for token_id in ids)
        return bytes(value for value in values if 0 <= value < 256).decode(errors="replace")

    def _shown_mark(self, token_id: int) -> str | None:
        # Where sentinels reuse byte ids, only those that UTF-8 does not use, from 0xF5 on, differ from text.
        is_text = not self.extra_ids and token_id < 0xF5 + _BYTE_OFFSET
        return None if is_text else super()._shown_mark(token_id)


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
    words: list[str] = []
    for token_id in map(int, ids):
        # A text's first word may have no blank before it, and a blank may be a token of its own.
        inside = bool(words) and words[-1][-1].isalnum()
        words.append(format_token(tokenizer, token_id) if inside else _format(tokenizer, token_id))
    return tuple(words)


def format_token(tokenizer: Tokenizer, token_id: int) -> str:
    """The same for a token by itself, or after a word."""
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
        # Not a whole character: the bytes of a byte-level BPE's piece; pieces of other vocabularies name them.
        alphabet, text = _byte_alphabet(), piece
        if set(piece) <= alphabet.keys() and not piece.startswith("<0x"):
            text = "".join(f"<0x{alphabet[c]:02X}>" for c in piece.removeprefix("Ġ"))
    text = text.strip(" ") or text or piece or f"<id {token_id}>"
    return "".join(_BLANKS.get(c, c) if c in _BLANKS or c.isprintable() else f"<0x{ord(c):02X}>" for c in text)


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """The byte that each character stands for in byte-level BPE: printable ones for themselves, the others in order."""
    alphabet = sorted(ByteLevel.alphabet())
    printable = [ord(character) for character in alphabet if ord(character) < 256]
    others = sorted(set(range(256)) - set(printable))
    return dict(zip(alphabet, printable + others, strict=True))
