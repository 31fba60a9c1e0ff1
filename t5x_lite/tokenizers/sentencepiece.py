"""SentencePiece models as T5 numbers their pieces."""

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from tokenizers import normalizers

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import SplittingTokenizer, TokenOffsets, pack_continuations, token_offsets, write_config
from t5x_lite.tokenizers.training import Layout, is_unigram, with_albert_pieces, without_dummy_prefix
from t5x_lite.tokenizers.vocabulary import Vocabulary

MODEL_FILE = "spiece.model"


def open_processor(model: bytes, name: str) -> Any:
    """The processor of a serialized model; `InputError` naming `name` when the bytes are none."""
    from sentencepiece import SentencePieceProcessor

    try:
        if not model:
            raise RuntimeError("empty")
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise InputError(f"model_file={name} is no SentencePiece model; copy it again or train one") from None


def encode_pieces_with_offsets(processor: Any, texts: list[str]) -> list[TokenOffsets]:
    """The model's own numbers of the pieces of each text, and where they stand."""
    found = processor.encode(texts, return_type="offset_mapping")
    return [token_offsets(encoding["ids"], encoding["offsets"]) for encoding in found]


def check_special(special: dict[str, int], name: str) -> None:
    """`InputError` where one of the special ids is negative."""
    if missing := [role for role, token_id in special.items() if token_id < 0]:
        raise InputError(f"model_file={name} has no {' or '.join(missing)} piece; use a model that has them")


class _PieceTokenizer(SplittingTokenizer):
    """What all layouts share: a model, and an id for each of its pieces."""

    layout: Layout
    extra_ids = 0

    def __init__(self, model: bytes, name: str) -> None:
        self.model = model
        self._processor = open_processor(model, name)

    def save(self, folder: Path) -> None:
        write_config(folder, kind="sentencepiece", layout=self.layout, extra_ids=self.extra_ids, **self.options)
        (folder / MODEL_FILE).write_bytes(self.model)

    @property
    def fingerprint(self) -> str:
        described = f"sentencepiece {self.layout} {self.extra_ids} {self.options} "
        return hashlib.sha256(described.encode() + self.model).hexdigest()

    @property
    def options(self) -> dict[str, bool]:
        """What else determines the ids, under the names of Hugging Face's tokenizer_config.json."""
        return {}

    def _set_ids(
        self, id_of_piece: Int[np.ndarray, "P"], size: int, special: dict[str, int], sentinels: range = range(0)
    ) -> None:
        """Takes the id of each piece, the number of ids, the id of each special role, and those of the sentinels."""
        self._id_of_piece = id_of_piece
        self._piece_of_id = np.full(size, self._processor.unk_id(), np.int32)
        self._piece_of_id[id_of_piece] = np.arange(len(id_of_piece), dtype=np.int32)
        continues = np.zeros(size, bool)
        pieces: list[str] = self._processor.id_to_piece(list(range(len(id_of_piece))))
        continues[id_of_piece] = [not piece.startswith("▁") for piece in pieces]
        self.vocabulary = Vocabulary(
            size,
            **special,
            first_sentinel_id=sentinels.stop - 1,
            num_sentinels=len(sentinels),
            continuations=pack_continuations(continues, {*special.values(), *sentinels}),
        )

    def _decode_run(self, ids: list[int], *, first: bool) -> str:
        if not ids:
            return ""
        pieces = self._piece_of_id[ids].tolist()
        blank = "" if first or not self._processor.id_to_piece(pieces[0]).startswith("▁") else " "
        return blank + self._processor.decode(pieces)


class SentencePieceTokenizer(_PieceTokenizer):
    """See `SentencePiece`, layout "t5". Blanks are normalised: runs of them become one space, and the one before a
    sentinel goes, so `decode` writes one there: encode(decode(ids)) == ids for ids that came from text.

    Raises `InputError` when the bytes are not a model, or the model lacks pad, eos or unk.
    """

    layout = "t5"

    def __init__(self, model: bytes, extra_ids: int, *, name: str = "the model") -> None:
        super().__init__(model, name)
        self.extra_ids = extra_ids
        size = self._processor.get_piece_size()
        special = {
            "pad": self._special(self._processor.pad_id(), "<pad>", "[PAD]"),
            "eos": self._special(self._processor.eos_id(), "</s>", "[SEP]"),
            "unk": self._processor.unk_id(),
        }
        check_special(special, name)
        sentinels = range(size, size + extra_ids) if extra_ids else self._sentinel_pieces()
        roles = {f"{role}_id": token_id for role, token_id in special.items()}
        self._set_ids(np.arange(size, dtype=np.int32), size + extra_ids, roles, sentinels)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return self._processor.encode(texts, return_type="numpy")

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        return encode_pieces_with_offsets(self._processor, texts)

    def piece(self, token_id: int) -> str:
        own = token_id < self._processor.get_piece_size()
        return self._processor.id_to_piece(int(token_id)) if own else self._shown_mark(token_id)

    def _sentinel_pieces(self) -> range:
        """The ids of the sentinels among the model's pieces, as mT5's model has them."""
        first = self._special(-1, "▁<extra_id_0>", "<extra_id_0>")
        number = 0
        while first >= number and self._processor.id_to_piece(first - number).endswith(f"<extra_id_{number}>"):
            number += 1
        return range(first - number + 1, first + 1)

    def _special(self, token_id: int, *pieces: str) -> int:
        """The id the model declares, else that of the first of these pieces it has, else -1."""
        ids = [token_id, *(self._processor.piece_to_id(piece) for piece in pieces)]
        return next((i for i in ids if i >= 0 and i != self._processor.unk_id()), -1)

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        # After a sentinel only a text that starts with a blank starts a word: "think<extra_id_0>ing".
        starts_word = first or text[:1].isspace()
        return (self._processor if starts_word else self._glued_processor).encode(text)

    def _append_mark(self, text: str, mark: str) -> str:
        return f"{text}{' ' if text else ''}{mark}"

    @functools.cached_property
    def _glued_processor(self) -> Any:
        return open_processor(without_dummy_prefix(self.model), "the model")


class EncoderSentencePieceTokenizer(_PieceTokenizer):
    """What the two share: no sentinels, but special tokens written in a text. As in Transformers, what follows such a
    token begins a word, blank or not."""

    def __init__(self, model: bytes, name: str) -> None:
        super().__init__(model, name)
        if not is_unigram(model):
            raise InputError(
                f"model_file={name} is not a unigram model, as layout={self.layout!r} takes it; use another"
            )

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        ids = self._processor.encode([self._normalize(text) for text in texts], return_type="numpy")
        return [self._id_of_piece[pieces] for pieces in ids]

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        aligned = [self._aligned(text) for text in texts]
        found = encode_pieces_with_offsets(self._processor, [normalized for normalized, _ in aligned])
        return [
            TokenOffsets(self._id_of_piece[pieces], _through(spans, origins))
            for (pieces, spans), (_, origins) in zip(found, aligned, strict=True)
        ]

    def piece(self, token_id: int) -> str:
        special = {number: token for token, number in self._special_ids.items()}
        return special.get(token_id) or self._processor.id_to_piece(int(self._piece_of_id[token_id]))

    def _set_tokens(self, id_of_piece: Int[np.ndarray, "P"], size: int, special: dict[str, tuple[str, int]]) -> None:
        """`_set_ids` with token and id of each special role; SEP is EOS too."""
        self._special_ids = dict(special.values())
        self._marks = re.compile("|".join(map(re.escape, self._special_ids)))
        self.mask_token, self._unk_token = special["mask"][0], special["unk"][0]
        roles = {f"{role}_id": token_id for role, (_, token_id) in special.items()}
        self._set_ids(id_of_piece, size, {"eos_id": roles["sep_id"]} | roles)

    def _normalize(self, text: str) -> str:
        return text

    def _aligned(self, text: str) -> tuple[str, np.ndarray]:
        """The normalized text, and the characters [L 2] that each of its characters comes from."""
        normalized, origins = "", []
        for word in re.finditer(r"\s+|\S+", text):
            whole, by_character = self._normalize(word[0]), list(map(self._normalize, word[0]))
            if "".join(by_character) == whole:
                spans = enumerate(by_character, word.start())
                origins += [(index, index + 1) for index, written in spans for _ in written]
            else:
                origins += [word.span()] * len(whole)
            normalized += whole
        if normalized != self._normalize(text):
            normalized = self._normalize(text)
            origins = [(0, len(text))] * len(normalized)
        return normalized, np.array(origins, np.int32).reshape(-1, 2)

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        return self._id_of_piece[np.array(self._processor.encode(self._normalize(text)), int)].tolist()

    def _mark_id(self, match: re.Match[str]) -> int:
        return self._special_ids[match[0]]

    def _shown_mark(self, token_id: int) -> str | None:
        return {self.vocabulary.mask_id: self.mask_token, self.vocabulary.unk_id: self._unk_token}.get(token_id)

    def _append_mark(self, text: str, mark: str) -> str:
        # A mask stands for a word with the blank before it, an unknown character may stand anywhere.
        return f"{text}{' ' if text and mark == self.mask_token else ''}{mark}"


class AlbertTokenizer(EncoderSentencePieceTokenizer):
    """See `SentencePiece`, layout "albert" (Lan et al. 2020): the pieces keep their ids.

    Raises `InputError` when the bytes are no unigram model, or it lacks <pad>, <unk>, [CLS], [SEP] or [MASK].
    """

    layout = "albert"

    def __init__(
        self, model: bytes, *, lowercase: bool = True, keep_accents: bool = False, name: str = "the model"
    ) -> None:
        super().__init__(model, name)
        self.lowercase, self.keep_accents = lowercase, keep_accents
        self.model = with_albert_pieces(model)
        self._processor = open_processor(self.model, name)
        self._normalize = albert_normalizer(lowercase, keep_accents)
        unk = self._processor.unk_id()
        tokens = {"pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
        found = {role: self._processor.piece_to_id(token) for role, token in tokens.items()}
        check_special({tokens[role]: -1 if token_id == unk else token_id for role, token_id in found.items()}, name)
        special = {role: (tokens[role], token_id) for role, token_id in found.items()}
        special["unk"] = (self._processor.id_to_piece(unk), unk)
        size = self._processor.get_piece_size()
        self._set_tokens(np.arange(size, dtype=np.int32), size, special)

    @property
    def options(self) -> dict[str, bool]:
        return {"do_lower_case": self.lowercase, "keep_accents": self.keep_accents}


class XlmRobertaTokenizer(EncoderSentencePieceTokenizer):
    """See `SentencePiece`, layout "xlm-roberta" (Conneau et al. 2020): fairseq's <s>, <pad>, </s>, <unk> first, each
    further piece one above its number, <mask> behind them all.

    Raises `InputError` when the bytes are no unigram model, or it does not begin with unk, <s>, </s>.
    """

    layout = "xlm-roberta"

    def __init__(self, model: bytes, *, name: str = "the model") -> None:
        super().__init__(model, name)
        processor = self._processor
        if (processor.unk_id(), processor.piece_to_id("<s>"), processor.piece_to_id("</s>")) != (0, 1, 2):
            raise InputError(
                f"model_file={name} does not begin with the pieces <unk>, <s>, </s> as layout='xlm-roberta' takes it; "
                f"use another model or layout"
            )
        pieces = processor.get_piece_size()
        ids = np.arange(1, pieces + 1, dtype=np.int32)
        ids[:3] = 3, 0, 2
        special = {"cls": ("<s>", 0), "pad": ("<pad>", 1), "sep": ("</s>", 2), "unk": ("<unk>", 3)}
        self._set_tokens(ids, pieces + 2, special | {"mask": ("<mask>", pieces + 1)})


def _through(spans: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Spans [L 2] of a normalized text as spans of the text itself.

    >>> _through(np.array([[0, 2], [2, 2], [2, 3]]), np.array([[0, 1], [0, 1], [4, 5]])).tolist()
    [[0, 1], [1, 1], [4, 5]]
    """
    if not len(origins):
        return spans
    starts, ends = spans.T
    before = np.concatenate([[0], origins[:, 1]])[ends]
    begin = np.where(starts < ends, origins[np.minimum(starts, len(origins) - 1), 0], before)
    return np.stack([begin, before], axis=1).astype(np.int32)


@functools.cache
def albert_normalizer(lowercase: bool = True, keep_accents: bool = False) -> Callable[[str], str]:
    """What ALBERT does to a text before SentencePiece sees it.

    >>> albert_normalizer()("``Étude''")
    '"etude"'
    """
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [] if keep_accents else [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] if lowercase else []
    return normalizers.Sequence(steps).normalize_str
