"""The published pipelines of WordPiece and of BPE over bytes or words, written as a tokenizer.json."""

import functools
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import SENTINEL, Tokenizer, TokenOffsets, pack_continuations, token_offsets, write_config
from t5x_lite.tokenizers.vocabulary import Vocabulary

WORDPIECE_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
BYTE_LEVEL_SPECIAL = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
GPT2_SPECIAL = {"pad_token": "<pad>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
"""Of a vocabulary that is trained here; the published one has no padding."""
WORD_END = "</w>"
"""Closes the last piece of a word in the first GPT's vocabulary."""


def wordpiece_description(
    vocabulary: dict[str, int],
    special: Mapping[str, str],
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    chinese_characters: bool = True,
) -> dict[str, Any]:
    """BERT's pipeline (Devlin et al. 2019) as a tokenizer.json; accents go with the capitals unless one says."""
    library = Library(models.WordPiece(vocabulary, unk_token=special["unk_token"]))
    library.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=chinese_characters, strip_accents=strip_accents, lowercase=lowercase
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    return _described(library, special, processors.BertProcessing)


def byte_level_description(
    vocabulary: dict[str, int],
    merges: Sequence[Sequence[str]],
    special: Mapping[str, str],
    *,
    add_prefix_space: bool = False,
) -> dict[str, Any]:
    """RoBERTa's and GPT-2's pipeline (Radford et al. 2019, Liu et al. 2019) as a tokenizer.json; a mask takes the
    blank before it, as if it were a word."""
    library = Library(models.BPE(vocabulary, [tuple(pair) for pair in merges]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    library.decoder = decoders.ByteLevel()
    return _described(library, special, processors.RobertaProcessing, lstrip=special.get("mask_token", ""))


def lowercase_bpe_description(
    vocabulary: dict[str, int], merges: Sequence[Sequence[str]], special: Mapping[str, str]
) -> dict[str, Any]:
    """The first GPT's pipeline (Radford et al. 2018) as a tokenizer.json: BERT's lower-case words, split by BPE whose
    last piece of a word ends in `WORD_END`."""
    pairs = [tuple(pair) for pair in merges]
    library = Library(models.BPE(vocabulary, pairs, unk_token=special["unk_token"], end_of_word_suffix=WORD_END))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(WORD_END)
    return _described(library, special)


def _described(library: Library, special: Mapping[str, str], processor: Any = None, *, lstrip: str = "") -> dict:
    """The tokenizer.json of a pipeline with its special tokens, of which `lstrip` takes the blank before it; where
    there are CLS and SEP, `processor` puts them around texts."""
    tokens = dict.fromkeys(special.values())
    library.add_special_tokens([AddedToken(token, lstrip=token == lstrip, normalized=False) for token in tokens])
    if processor and {"cls_token", "sep_token"} <= special.keys():
        sep, cls = ((special[role], library.token_to_id(special[role])) for role in ("sep_token", "cls_token"))
        library.post_processor = processor(sep, cls)
    return json.loads(library.to_str())


TOKENIZER_FILE = "tokenizer.json"
ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token", "eos_token")
"""What special tokens are for, as Hugging Face's tokenizer_config.json names it."""

# Begins a token that no text can give: pre-tokenizers split at the blank, and U+10FFFF is no character.
_UNREACHABLE = "\U0010ffff "


class SubwordTokenizer(Tokenizer):
    """A tokenizer.json and the roles of its special tokens.

    Byte-level BPE marks words by the blank before them. The first word of a text has none, so its first id counts as
    continuing a word; before it stands CLS, SEP or another sentence, which is no part of that word.

    Raises `InputError` when the description is none that the library can open, or pad, eos or unk has no token.
    """

    def __init__(
        self, description: Mapping[str, Any], special: Mapping[str, str], *, name: str = TOKENIZER_FILE
    ) -> None:
        self.description = _canonical(description, name)
        self._marked = _open(self.description, name)
        ids: dict[str, int] = self._marked.get_vocab(with_added_tokens=True)
        self.special = {role: special[role] for role in ROLES if special.get(role) in ids}
        if {"cls_token", "sep_token"} <= self.special.keys():
            self.special["eos_token"] = self.special["sep_token"]
        if missing := [role for role in ("pad_token", "eos_token", "unk_token") if role not in self.special]:
            raise InputError(f"{name} has no {' or '.join(missing)}; name it in tokenizer_config.json beside it")
        self.mask_token = self.special.get("mask_token")
        self._added = {token["content"]: token for token in self.description["added_tokens"]}
        # An added one is found wherever it is written; one of the model only where a word ends.
        self._marked.add_special_tokens(sorted(set(self.special.values()) - self._added.keys()))
        self.vocabulary = self._make_vocabulary(ids)

    def encode(self, text: str) -> list[int]:
        if self.vocabulary.num_sentinels:
            for number in SENTINEL.findall(text):
                self.vocabulary.sentinel_id(int(number))
        return self._marked.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        silent = self._silent_ids()
        shown = [i for i in map(int, ids) if 0 <= i < self.vocabulary.size and i not in silent]
        text = self._marked.decode(shown, skip_special_tokens=False)
        if self.mask_token and self._added.get(self.mask_token, {}).get("lstrip"):
            # Such a mask swallowed the blank before it.
            text = re.sub(rf"(?<=\S)(?={re.escape(self.mask_token)})", " ", text)
        return text

    def piece(self, token_id: int) -> str:
        return self._marked.id_to_token(int(token_id)) or ""

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        encodings = self._unmarked.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        encodings = self._unmarked.encode_batch(texts, add_special_tokens=False)
        return [token_offsets(encoding.ids, encoding.offsets) for encoding in encodings]

    def save(self, folder: Path) -> None:
        write_config(folder, kind="tokenizers", **self.special)
        (folder / TOKENIZER_FILE).write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The content of a tokenizer.json."""
        return json.dumps(self.description, ensure_ascii=False, separators=(",", ":")) + "\n"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"tokenizers {sorted(self.special.items())} {self.to_json()}".encode()).hexdigest()

    @functools.cached_property
    def _unmarked(self) -> Any:
        """The same, but special tokens written in a text are plain text."""
        tokenizer = _open(_with_unreachable(self.description, set(self.special.values())), "the tokenizer")
        tokenizer.encode_special_tokens = True
        return tokenizer

    def _make_vocabulary(self, ids: dict[str, int]) -> Vocabulary:
        size = max(ids.values()) + 1
        first, number = ids.get("<extra_id_0>", -1), 0
        while first >= 0 and ids.get(f"<extra_id_{number}>") == first - number:
            number += 1
        return Vocabulary(
            size,
            **{f"{role.removesuffix('token')}id": ids[token] for role, token in self.special.items()},
            first_sentinel_id=first,
            num_sentinels=number,
            continuations=_continuations(self.description, ids, {ids[token] for token in self.special.values()}),
        )


def model_type(description: Mapping[str, Any]) -> str:
    """WordPiece, BPE, Unigram or WordLevel; files of the first years do not say."""
    model = description["model"]
    fields = {"merges": "BPE", "unk_id": "Unigram", "continuing_subword_prefix": "WordPiece"}
    return model.get("type") or next((kind for field, kind in fields.items() if field in model), "WordLevel")


def _canonical(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same for equal tokenizers: ids in order; without BPE dropout, truncation and padding, so that a text has the
    same ids each time, and as many as it has."""
    try:
        model = dict(description["model"])
        if isinstance(model["vocab"], Mapping):
            model["vocab"] = dict(sorted(model["vocab"].items(), key=lambda item: (item[1], item[0])))
        model |= {"dropout": None} if "dropout" in model else {}
        added = description.get("added_tokens") or []
        return {**description, "truncation": None, "padding": None, "added_tokens": added, "model": model}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{name} is not a tokenizer.json ({error}); copy it again") from None


def _with_unreachable(description: Mapping[str, Any], tokens: Collection[str]) -> dict[str, Any]:
    """The description with these and all special added tokens under names that no text can give.

    The library can be set to overlook added tokens, but a model may know them too: Unigram's prefer them, at score 0.
    """
    added = description["added_tokens"]
    hidden = {*tokens, *(token["content"] for token in added if token["special"])}

    def rename(token: str) -> str:
        return _UNREACHABLE + token if token in hidden else token

    model = dict(description["model"])
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        model["vocab"] = {rename(token): token_id for token, token_id in vocabulary.items()}
    else:
        model["vocab"] = [[rename(token), score] for token, score in vocabulary]
    if model.get("unk_token"):
        model["unk_token"] = rename(model["unk_token"])
    renamed = [{**token, "content": rename(token["content"]), "special": token["content"] in hidden} for token in added]
    return {**description, "model": model, "added_tokens": renamed, "post_processor": None}


def _continuations(description: Mapping[str, Any], ids: Mapping[str, int], special: Collection[int]) -> bytes:
    """`Vocabulary.continuations` from how the pieces are written; empty where that marks no words."""
    pipeline = json.dumps([description.get(part) for part in ("normalizer", "pre_tokenizer")], ensure_ascii=False)
    prefix = description["model"].get("continuing_subword_prefix") or ""
    if prefix:
        begins = {token_id for token, token_id in ids.items() if not token.startswith(prefix)}
    elif '"ByteLevel"' in pipeline or '"▁"' in pipeline:
        mark = "Ġ" if '"ByteLevel"' in pipeline else "▁"
        begins = {token_id for token, token_id in ids.items() if token.startswith(mark)}
    else:
        return b""
    known = set(ids.values())
    apart = {*special, *(token["id"] for token in description["added_tokens"])}
    size = max(known) + 1
    return pack_continuations((i in known and i not in begins for i in range(size)), apart)


def _open(description: Mapping[str, Any], name: str) -> Any:
    try:
        return Library.from_str(json.dumps(description))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{name} is not a tokenizer.json ({error}); copy it again") from None
