"""SentencePiece models with the ids of T5, SigLIP, ALBERT, XLM-R and XLNet."""

import functools
import hashlib
import re
import string
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int
from tokenizers import PreTokenizedString, Regex, normalizers

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import SplittingTokenizer, TokenOffsets, pack_continuations, token_offsets, write_config
from t5x_lite.tokenizers.training import Layout, albert_normalizer, parse_model, siglip_text, with_control_pieces
from t5x_lite.tokenizers.vocabulary import Vocabulary

MODEL_FILE = "spiece.model"


def open_processor(model: bytes, name: str) -> Any:
    """The processor of a serialized model; `InputError` with `name` for bytes that are not one."""
    from sentencepiece import SentencePieceProcessor

    try:
        if not model:
            raise RuntimeError("empty")
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise InputError(f"model_file={name} is not a SentencePiece model; copy it again or train one") from None


class _PieceTokenizer(SplittingTokenizer):
    """A model, and an id for each of its pieces."""

    layout: Layout
    extra_ids = 0
    separators = 1
    """Between two texts."""
    options: Mapping[str, bool] = {}
    """What else determines the ids, under the names of Hugging Face's tokenizer_config.json."""
    _normalizer: normalizers.Normalizer | None = None
    """What is done to a text before the model normalizes it."""

    def __init__(self, model: bytes, name: str) -> None:
        self.model = model
        self._processor = open_processor(model, name)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        ids = self._processor.encode([self._normalize(text) for text in texts], return_type="numpy")
        return [self._id_of_piece[pieces] for pieces in ids]

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        encodings = self._processor.encode([self._normalize(text) for text in texts], return_type="offset_mapping")
        return [
            TokenOffsets(self._id_of_piece[ids], self._spans_in(text, spans))
            for text, encoding in zip(texts, encodings, strict=True)
            for ids, spans in [token_offsets(encoding["ids"], encoding["offsets"])]
        ]

    def save(self, folder: Path) -> None:
        write_config(folder, kind="sentencepiece", layout=self.layout, extra_ids=self.extra_ids, **self.options)
        (folder / MODEL_FILE).write_bytes(self.model)

    @property
    def fingerprint(self) -> str:
        described = f"sentencepiece {self.layout} {self.extra_ids} {self.options} "
        return hashlib.sha256(described.encode() + self.model).hexdigest()

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
            **{f"{role}_id": token_id for role, token_id in special.items()},
            first_sentinel_id=sentinels.stop - 1,
            num_sentinels=len(sentinels),
            continuations=pack_continuations(continues, {*special.values(), *sentinels}),
            separators=self.separators,
        )

    def _normalize(self, text: str) -> str:
        return text if self._normalizer is None else self._normalizer.normalize_str(text)

    def _spans_in(self, text: str, spans: Int[np.ndarray, "L 2"]) -> Int[np.ndarray, "L 2"]:
        """Spans of the normalized text as spans of the text itself."""
        origins = self._origins(text)
        if origins is None:
            return spans
        first, last = np.array([(0, 0), *origins, (0, 0)], np.int32).T
        starts, ends = spans.T
        return np.stack([np.where(starts < ends, first[starts + 1], last[ends]), last[ends]], axis=1)

    def _origins(self, text: str) -> list[tuple[int, int]] | None:
        """Of each character of the normalized text where it comes from in the text; None where the two are the same."""
        if self._normalizer is None:
            return None
        aligned = PreTokenizedString(text)
        aligned.normalize(self._normalizer.normalize)
        aligned.split(lambda _, normalized: normalized.split(Regex("(?m)."), "isolated"))  # at each character
        return [
            # The library aligns a replaced pair such as '' with its second half.
            (start - (character == '"' and text[start] in "`'"), end)
            for character, (start, end), _ in aligned.get_splits("original", "char")
        ]

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
        _check_special(special, name)
        sentinels = range(size, size + extra_ids) if extra_ids else self._sentinel_pieces()
        self._set_ids(np.arange(size, dtype=np.int32), size + extra_ids, special, sentinels)

    def piece(self, token_id: int) -> str:
        is_piece = token_id < self._processor.get_piece_size()
        return self._processor.id_to_piece(int(token_id)) if is_piece else self._shown_mark(token_id)

    def _sentinel_pieces(self) -> range:
        """The ids of the sentinels among the model's pieces, as mT5's model has them."""
        first = self._special(-1, "▁<extra_id_0>", "<extra_id_0>")
        number = 0
        while number <= first and self._processor.id_to_piece(first - number).endswith(f"<extra_id_{number}>"):
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
        """The model for text that goes on after a sentinel, which does not start with a blank."""
        proto = parse_model(self.model)
        proto.normalizer_spec.add_dummy_prefix = False
        return open_processor(proto.SerializeToString(), "the model")


class SiglipTokenizer(SentencePieceTokenizer):
    """See `SentencePiece`, layout "siglip" (Zhai et al. 2023): T5's pieces without sentinels, of text without capitals
    and punctuation; EOS is padding too."""

    layout = "siglip"

    def __init__(self, model: bytes, *, name: str = "the model") -> None:
        super().__init__(model, 0, name=name)
        self.vocabulary = replace(self.vocabulary, pad_id=self.vocabulary.eos_id, num_sentinels=0)

    def _normalize(self, text: str) -> str:
        return siglip_text(text)

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        return self._processor.encode(self._normalize(text))

    def _origins(self, text: str) -> list[tuple[int, int]]:
        origins, blank = [], None
        for number, character in enumerate(text):
            for lower in character.lower():
                if lower.isspace():
                    blank = number
                elif lower not in string.punctuation:
                    origins += [(blank, blank + 1)] if blank is not None and origins else []
                    origins.append((number, number + 1))
                    blank = None
        return origins


class EncoderSentencePieceTokenizer(_PieceTokenizer):
    """A tokenizer without sentinels, but with special tokens written in a text. As in Transformers, what follows such a
    token begins a word, blank or not."""

    takes_bpe: ClassVar[bool] = False

    def __init__(self, model: bytes, name: str) -> None:
        super().__init__(model, name)
        spec = parse_model(model).trainer_spec
        if not self.takes_bpe and spec.model_type != spec.UNIGRAM:
            raise InputError(
                f"model_file={name} is not a unigram model, as layout={self.layout!r} takes it; use another"
            )

    def piece(self, token_id: int) -> str:
        special = {number: token for token, number in self._special_ids.items()}
        return special.get(token_id) or self._processor.id_to_piece(int(self._piece_of_id[token_id]))

    def _set_tokens(
        self,
        id_of_piece: Int[np.ndarray, "P"],
        size: int,
        special: dict[str, tuple[str, int]],
        others: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`_set_ids` with token and id of each special role, and of other special tokens; SEP is EOS too."""
        self._special_ids = dict(special.values()) | dict(others)
        self._marks = re.compile("|".join(map(re.escape, self._special_ids)))
        self.mask_token, self._unk_token = special["mask"][0], special["unk"][0]
        self._set_ids(id_of_piece, size, {role: special[role][1] for role in special} | {"eos": special["sep"][1]})

    def _keep_ids(self, tokens: Mapping[str, str], name: str, others: tuple[str, ...] = ()) -> None:
        """`_set_tokens` of a model whose pieces keep their ids, with the special token of each role."""
        processor = self._processor
        size, unk = processor.get_piece_size(), processor.unk_id()
        special = {role: (token, processor.piece_to_id(token)) for role, token in tokens.items()}
        _check_special({token: -1 if token_id == unk else token_id for token, token_id in special.values()}, name)
        special["unk"] = (processor.id_to_piece(unk), unk)
        more = {token: processor.piece_to_id(token) for token in others}
        self._set_tokens(np.arange(size, dtype=np.int32), size, special, more)

    def _shown_mark(self, token_id: int) -> str | None:
        return {self.vocabulary.mask_id: self.mask_token, self.vocabulary.unk_id: self._unk_token}.get(token_id)

    def _append_mark(self, text: str, mark: str) -> str:
        # A mask stands for a word with the blank before it, an unknown character may stand anywhere.
        return f"{text}{' ' if text and mark == self.mask_token else ''}{mark}"


class AlbertTokenizer(EncoderSentencePieceTokenizer):
    """See `SentencePiece`, layout "albert" (Lan et al. 2020): the pieces keep their ids.

    Raises `InputError` when the bytes are not a unigram model, or it lacks <pad>, <unk>, [CLS], [SEP] or [MASK].
    """

    layout = "albert"

    def __init__(
        self, model: bytes, *, lowercase: bool = True, keep_accents: bool = False, name: str = "the model"
    ) -> None:
        super().__init__(model, name)
        self.options = {"do_lower_case": lowercase, "keep_accents": keep_accents}
        self.model = with_control_pieces(model, ("[CLS]", "[SEP]", "[MASK]", "<pad>"))
        self._processor = open_processor(self.model, name)
        self._normalizer = albert_normalizer(lowercase, keep_accents)
        self._keep_ids({"pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}, name)


class XLNetTokenizer(EncoderSentencePieceTokenizer):
    """See `SentencePiece`, layout "xlnet" (Yang et al. 2019): the pieces keep their ids, [CLS] ends a row, and <eod> a
    document.

    Raises `InputError` when the bytes are not a unigram model, or it lacks <cls>, <sep>, <pad>, <mask> or <eod>.
    """

    layout = "xlnet"

    def __init__(
        self, model: bytes, *, lowercase: bool = False, keep_accents: bool = False, name: str = "the model"
    ) -> None:
        super().__init__(model, name)
        self.options = {"do_lower_case": lowercase, "keep_accents": keep_accents}
        tokens = {"cls": "<cls>", "sep": "<sep>", "pad": "<pad>", "mask": "<mask>", "eos": "<eod>"}
        self.model = with_control_pieces(model, tuple(tokens.values()))
        self._processor = open_processor(self.model, name)
        self._normalizer = albert_normalizer(lowercase, keep_accents)
        self._keep_ids(tokens, name, ("<s>", "</s>", "<eop>"))
        self.vocabulary = replace(self.vocabulary, eos_id=self._special_ids["<eod>"], cls_last=True)


class BigBirdTokenizer(EncoderSentencePieceTokenizer):
    """See `SentencePiece`, layout "big-bird" (Zaheer et al. 2020): the pieces, unigram or BPE, keep their ids.

    Raises `InputError` when the model lacks <pad>, <unk>, [CLS], [SEP] or [MASK].
    """

    layout = "big-bird"
    takes_bpe = True

    def __init__(self, model: bytes, *, name: str = "the model") -> None:
        super().__init__(model, name)
        tokens = {"pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
        self.model = with_control_pieces(model, tuple(tokens.values()), splits_commas=False)
        self._processor = open_processor(self.model, name)
        self._keep_ids(tokens, name, ("<s>", "</s>"))


class XlmRobertaTokenizer(EncoderSentencePieceTokenizer):
    """See `SentencePiece`, layout "xlm-roberta" (Conneau et al. 2020): fairseq's <s>, <pad>, </s>, <unk> first, each
    further piece one above its number, <mask> after them all.

    Raises `InputError` when the bytes are not a unigram model, or it does not begin with unk, <s>, </s>.
    """

    layout = "xlm-roberta"
    separators = 2

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


def _check_special(special: dict[str, int], name: str) -> None:
    if missing := [role for role, token_id in special.items() if token_id < 0]:
        raise InputError(f"model_file={name} has no {' or '.join(missing)} piece; use a model that has them")
