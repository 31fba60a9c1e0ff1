"""Marian's SentencePiece models over one vocabulary: the source's and the target's (Junczys-Dowmunt et al. 2018)."""

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.files import read_bytes, read_json
from t5x_lite.tokenizers.base import MOST_IDS, SplittingTokenizer, pack_continuations, write_config
from t5x_lite.tokenizers.sentencepiece import open_processor
from t5x_lite.tokenizers.vocabulary import Vocabulary

SOURCE_FILE, TARGET_FILE, IDS_FILE = "source.spm", "target.spm", "vocab.json"
_SPECIAL = {"pad_id": "<pad>", "eos_id": "</s>", "unk_id": "<unk>"}
Side = Literal["source", "target"]
# The language to write, in front of a text for a model of several.
_LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)


class MarianTokenizer(SplittingTokenizer):
    """Texts are split by the source's model, those of `target_side` by the target's; ids are read as targets.

    A piece of either model has the id that vocab.json gives it; one that is not there is unknown. A text may begin with
    the language to write: `>>fra<<`.

    Raises `InputError` when one of the models cannot be opened, or the vocabulary lacks <pad>, </s> or <unk>.
    """

    _marks = re.compile("|".join(map(re.escape, _SPECIAL.values())))

    def __init__(
        self, source: bytes, target: bytes, ids: Mapping[str, int], *, side: Side = "source", name: str = "the folder"
    ) -> None:
        self.source, self.target, self.ids, self.side = source, target, dict(ids), side
        if missing := [token for token in _SPECIAL.values() if token not in self.ids]:
            raise InputError(f"{name}: {IDS_FILE} has no {' or '.join(missing)}; use one that has them")
        self._target = open_processor(target, f"{name}: {TARGET_FILE}")
        self._source = open_processor(source, f"{name}: {SOURCE_FILE}") if side == "source" else self._target
        self._pieces = {token_id: piece for piece, token_id in self.ids.items()}
        self._special_ids = {token: self.ids[token] for token in _SPECIAL.values()}
        special = {role: self.ids[token] for role, token in _SPECIAL.items()}
        size = max(self._pieces) + 1
        continues = (not self._pieces.get(i, "▁").startswith(("▁", ">>")) for i in range(size))
        continuations = pack_continuations(continues, special.values())
        self.vocabulary = Vocabulary(size, **special, continuations=continuations)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return [np.array(self._encode_piece(text, first=True), np.int32) for text in texts]

    def piece(self, token_id: int) -> str:
        return self._pieces.get(token_id, "")

    def save(self, folder: Path) -> None:
        write_config(folder, kind="marian")
        self.write_files(folder)

    def write_files(self, folder: Path) -> None:
        """The two models and the ids, as Hugging Face's folders have them."""
        (folder / SOURCE_FILE).write_bytes(self.source)
        (folder / TARGET_FILE).write_bytes(self.target)
        (folder / IDS_FILE).write_text(json.dumps(self.ids, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        parts = (b"marian", self.side.encode(), json.dumps(sorted(self.ids.items())).encode(), self.source, self.target)
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    @functools.cached_property
    def target_side(self) -> "MarianTokenizer":
        return self if self.side == "target" else MarianTokenizer(self.source, self.target, self.ids, side="target")

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        language = _LANGUAGE.match(text)
        pieces = [language[0]] if language else []
        pieces += self._source.encode(text[language.end() :] if language else text, out_type=str)
        return [self.ids.get(piece, self.vocabulary.unk_id) for piece in pieces]

    def _decode_run(self, ids: list[int], *, first: bool) -> str:
        pieces = [self._pieces[i] for i in ids if i in self._pieces]
        text = self._target.decode_pieces(pieces).replace("▁", " ").strip()
        return text if first or not text else f" {text}"


def open_marian(folder: Path, what: str) -> MarianTokenizer:
    """The tokenizer of a folder with source.spm, target.spm and vocab.json.

    Raises `InputError` for what is missing or damaged, and for two vocabularies.
    """
    if (folder / "target_vocab.json").exists():
        raise InputError(
            f"{folder} has a vocabulary for each side, which is not supported; choose a model with vocab.json alone"
        )
    source, target = (read_bytes(folder / name, what) for name in (SOURCE_FILE, TARGET_FILE))
    read_bytes(folder / IDS_FILE, what)
    ids = read_json(folder / IDS_FILE)
    if not all(type(token_id) is int and 0 <= token_id < MOST_IDS for token_id in ids.values()):
        raise InputError(f"{folder / IDS_FILE} gives no ids to its pieces; copy it again")
    return MarianTokenizer(source, target, ids, name=str(folder))
