"""What every tokenizer can do, and what those share that split a text at the special tokens written in it."""

import abc
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError

CONFIG_FILE = "tokenizer_config.json"
SENTINEL = re.compile(r"<extra_id_(\d+)>")


class Placed(NamedTuple):
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

    def encode_placed(self, texts: list[str]) -> list[Placed]:
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
        raise InputError(f"{path} cannot be read as JSON ({error}); it may be truncated") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object; it is no tokenizer's")
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


def placed(ids: Iterable[int], spans: Iterable[tuple[int, int]]) -> Placed:
    """What the libraries say of a text, as arrays."""
    return Placed(np.array(ids, np.int32).reshape(-1), np.array(spans, np.int32).reshape(-1, 2))
