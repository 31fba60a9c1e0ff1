"""Text to ids and back: what an experiment says about it (configs) and what does it (tokenizers)."""

import abc
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from t5x_lite.data.sentencepiece_training import train_sentencepiece, without_dummy_prefix
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError

_SENTINEL = re.compile(r"<extra_id_(\d+)>")
_CONFIG_FILE = "tokenizer_config.json"
_MODEL_FILE = "spiece.model"
_BYTE_OFFSET = 3
_BYTE_VOCABULARY = 256 + _BYTE_OFFSET
_FIRST_BYTE_NOT_IN_UTF8 = 0xF5


@dataclass(frozen=True)
class TokenizerConfig:
    """Base of what an experiment says about its tokenizer."""


@dataclass(frozen=True)
class SentencePiece(TokenizerConfig):
    """SentencePiece as T5 has it (Kudo and Richardson 2018): pad 0, eos 1, unk 2, sentinels on top of the pieces."""

    vocab_size: int = 32_000
    """Pieces to train; the vocabulary has extra_ids more. Not used with model_file."""
    extra_ids: int = 100
    """Sentinels; <extra_id_0> is the highest id."""
    model_file: str = ""
    """A trained spiece.model to load; empty means train on the corpus."""
    character_coverage: float = 0.9995
    """Share of the corpus's characters that get a piece, the others are unk; 1.0 for small alphabets."""
    algorithm: Literal["unigram", "bpe"] = "unigram"

    def __post_init__(self) -> None:
        _check_extra_ids(self.extra_ids)
        if self.vocab_size < 4:
            raise InputError(
                f"vocab_size={self.vocab_size} has no room for pad, eos, unk and a piece; choose 4 or more"
            )
        if not 0 < self.character_coverage <= 1:
            raise InputError(f"character_coverage={self.character_coverage} is no share; choose one in (0, 1]")
        if self.algorithm not in get_args(Literal["unigram", "bpe"]):
            raise InputError(f"algorithm={self.algorithm!r} is unknown; choose unigram or bpe")


@dataclass(frozen=True)
class Bytes(TokenizerConfig):
    """UTF-8 bytes as ByT5 has them (Xue et al. 2022): id = byte + 3, pad 0, eos 1, unk 2."""

    extra_ids: int = 0
    """Sentinels above the bytes; 0 means as published: 100 sentinels that reuse the highest byte ids, 258 downwards."""

    def __post_init__(self) -> None:
        _check_extra_ids(self.extra_ids)


def _check_extra_ids(extra_ids: int) -> None:
    if extra_ids < 0:
        raise InputError(f"extra_ids={extra_ids} is negative; choose 0 or more")


class Tokenizer(abc.ABC):
    """Text to ids and back."""

    vocabulary: Vocabulary

    def encode(self, text: str) -> list[int]:
        """Ids of a text, no EOS; `<extra_id_N>` becomes its sentinel (`InputError` when there is none)."""
        ids: list[int] = []
        end = 0
        for match in _SENTINEL.finditer(text):
            ids += self._encode_piece(text[end : match.start()], first=end == 0)
            ids.append(self.vocabulary.sentinel_id(int(match[1])))
            end = match.end()
        return ids + self._encode_piece(text[end:], first=end == 0)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids: pad, eos and ids beyond the vocabulary are left out, sentinels written as `<extra_id_N>`."""
        text = ""
        run: list[int] = []
        for token_id in map(int, ids):
            number = self._shown_sentinel(token_id)
            if number is not None:
                text = self._append_sentinel(text + self._decode_run(run, first=not text), number)
                run = []
            elif 0 <= token_id < self.vocabulary.size and token_id not in self._silent_ids():
                run.append(token_id)
        return text + self._decode_run(run, first=not text)

    @abc.abstractmethod
    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """Ids int32 [L] of each text, no EOS: the fast path for corpora. `<extra_id_N>` is NOT parsed, it is plain
        text there."""

    @abc.abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `load_tokenizer` reads into a folder, which is made when missing."""

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Hexadecimal hash: equal means equal ids for every text."""

    @abc.abstractmethod
    def _encode_piece(self, text: str, *, first: bool) -> list[int]: ...

    @abc.abstractmethod
    def _decode_run(self, ids: list[int], *, first: bool) -> str: ...

    def _silent_ids(self) -> tuple[int, ...]:
        return self.vocabulary.pad_id, self.vocabulary.eos_id

    def _shown_sentinel(self, token_id: int) -> int | None:
        return self.vocabulary.sentinel_number(token_id)

    def _append_sentinel(self, text: str, number: int) -> str:
        return f"{text}<extra_id_{number}>"


class ByteTokenizer(Tokenizer):
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

    def save(self, folder: Path) -> None:
        _write_config(folder, kind="bytes", extra_ids=self.extra_ids)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"bytes {self.extra_ids}".encode()).hexdigest()

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        return [byte + _BYTE_OFFSET for byte in text.encode()]

    def _decode_run(self, ids: list[int], *, first: bool) -> str:
        # unk is no byte; a run of bytes that is not UTF-8 shows as the replacement character.
        values = (token_id - _BYTE_OFFSET for token_id in ids)
        return bytes(value for value in values if 0 <= value < 256).decode(errors="replace")

    def _shown_sentinel(self, token_id: int) -> int | None:
        # Where sentinels reuse byte ids, only those that occur in no UTF-8 text can be told from text.
        if not self.extra_ids and token_id < _FIRST_BYTE_NOT_IN_UTF8 + _BYTE_OFFSET:
            return None
        return self.vocabulary.sentinel_number(token_id)


class SentencePieceTokenizer(Tokenizer):
    """See `SentencePiece`. Blanks are normalised: runs of them become one space, and the one before a sentinel goes, so
    `decode` writes one there: encode(decode(ids)) == ids for ids that came from text.

    Raises `InputError` when the bytes are no model, or the model lacks pad, eos or unk.
    """

    def __init__(self, model: bytes, extra_ids: int, *, name: str = "the model") -> None:
        self.model, self.extra_ids = model, extra_ids
        self._processor = _processor(model, name)
        size = self._processor.get_piece_size()
        special = {
            "pad": self._special(self._processor.pad_id(), "<pad>", "[PAD]"),
            "eos": self._special(self._processor.eos_id(), "</s>", "[SEP]"),
            "unk": self._processor.unk_id(),
        }
        missing = [role for role, token_id in special.items() if token_id < 0]
        if missing:
            raise InputError(f"model_file={name} has no {' or '.join(missing)} piece; use a model that has them")
        first, number = size + extra_ids - 1, extra_ids
        if not extra_ids:
            first, number = self._sentinel_pieces()
        self.vocabulary = Vocabulary(size + extra_ids, *special.values(), first_sentinel_id=first, num_sentinels=number)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return self._processor.encode(texts, return_type="numpy")

    def save(self, folder: Path) -> None:
        _write_config(folder, kind="sentencepiece", extra_ids=self.extra_ids)
        (folder / _MODEL_FILE).write_bytes(self.model)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"sentencepiece {self.extra_ids} ".encode() + self.model).hexdigest()

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

    def _append_sentinel(self, text: str, number: int) -> str:
        return f"{text}{' ' if text else ''}<extra_id_{number}>"

    @functools.cached_property
    def _glued_processor(self) -> Any:
        return _processor(without_dummy_prefix(self.model), "the model")


def make_tokenizer(config: TokenizerConfig, documents: Callable[[], Iterator[str]]) -> Tokenizer:
    """The tokenizer a config describes: loaded, or trained on the documents; the same documents give the same bytes.

    Raises `InputError` for a missing or corrupt model file, an empty corpus, or a vocab_size the corpus cannot fill.
    """
    match config:
        case Bytes(extra_ids):
            return ByteTokenizer(extra_ids)
        case SentencePiece(model_file="", extra_ids=extra_ids):
            model = train_sentencepiece(
                documents(),
                vocab_size=config.vocab_size,
                character_coverage=config.character_coverage,
                algorithm=config.algorithm,
            )
            return SentencePieceTokenizer(model, extra_ids)
        case SentencePiece(model_file=name, extra_ids=extra_ids):
            return SentencePieceTokenizer(_read(Path(name).expanduser(), f"model_file={name!r}"), extra_ids, name=name)
    raise InputError(f"tokenizer={config!r} is no tokenizer config; use SentencePiece(...) or Bytes(...)")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that `Tokenizer.save` wrote; `InputError` when the folder holds none or a broken one."""
    folder = Path(folder)
    path = folder / _CONFIG_FILE
    try:
        config = json.loads(_read(path, f"tokenizer {folder}"))
        kind, extra_ids = config["kind"], config["extra_ids"]
        known = kind in ("bytes", "sentencepiece") and isinstance(extra_ids, int) and extra_ids >= 0
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        known = False
    if not known:
        raise InputError(f"tokenizer file {path} is corrupt; copy the folder again or make a new tokenizer")
    if kind == "bytes":
        return ByteTokenizer(extra_ids)
    model = folder / _MODEL_FILE
    return SentencePieceTokenizer(_read(model, f"tokenizer {folder}"), extra_ids, name=str(model))


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{what}: {path} cannot be read ({error.strerror}); correct the path") from None


def _write_config(folder: Path, **config: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _CONFIG_FILE).write_text(json.dumps({"format": 1, **config}, indent=2) + "\n")


def _processor(model: bytes, name: str) -> Any:
    from sentencepiece import SentencePieceProcessor

    try:
        if not model:
            raise RuntimeError("empty")
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise InputError(f"model_file={name} is no SentencePiece model; copy it again or train one") from None
