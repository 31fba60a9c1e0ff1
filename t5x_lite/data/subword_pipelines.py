"""The published pipelines of WordPiece and of BPE over bytes or words, written as a tokenizer.json."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

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
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(vocabulary, token) for token in _by_id(vocabulary, special.values())],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": chinese_characters,
            "strip_accents": strip_accents,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template(vocabulary, special, doubled=False),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": special["unk_token"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }


def byte_level_description(
    vocabulary: dict[str, int],
    merges: Sequence[Sequence[str]],
    special: Mapping[str, str],
    *,
    add_prefix_space: bool = False,
) -> dict[str, Any]:
    """RoBERTa's and GPT-2's pipeline (Radford et al. 2019, Liu et al. 2019) as a tokenizer.json; a mask swallows the
    blank before it, as if it were a word."""
    byte_level = {"add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": True}
    mask = special.get("mask_token")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(vocabulary, token, lstrip=token == mask) for token in _by_id(vocabulary, special.values())
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **byte_level},
        "post_processor": _template(vocabulary, special, doubled=True),
        "decoder": {"type": "ByteLevel", **byte_level},
        "model": _bpe(vocabulary, merges),
    }


def lowercase_bpe_description(
    vocabulary: dict[str, int], merges: Sequence[Sequence[str]], special: Mapping[str, str]
) -> dict[str, Any]:
    """The first GPT's pipeline (Radford et al. 2018) as a tokenizer.json: BERT's lower-case words, split by BPE whose
    last piece of a word ends in `WORD_END`."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(vocabulary, token) for token in _by_id(vocabulary, special.values())],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "BPEDecoder", "suffix": WORD_END},
        "model": _bpe(vocabulary, merges, special["unk_token"], WORD_END),
    }


def _bpe(
    vocabulary: dict[str, int], merges: Sequence[Sequence[str]], unknown: str | None = None, suffix: str = ""
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": suffix,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [list(pair) for pair in merges],
    }


def _by_id(vocabulary: Mapping[str, int], tokens: Collection[str]) -> list[str]:
    return sorted(set(tokens), key=vocabulary.__getitem__)


def _added(vocabulary: Mapping[str, int], token: str, *, lstrip: bool = False) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": True}
    return {"id": vocabulary[token], "content": token, **flags}


def _template(vocabulary: Mapping[str, int], special: Mapping[str, str], *, doubled: bool) -> dict[str, Any] | None:
    """How other programs put special tokens around one text and two: RoBERTa's second SEP is doubled."""
    if not {"cls_token", "sep_token"} <= special.keys():
        return None
    cls, sep = special["cls_token"], special["sep_token"]
    second = 0 if doubled else 1

    def mark(token: str, segment: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int = 0) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [mark(cls), text("A"), mark(sep)]
    between = [mark(sep)] if doubled else []
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *between, text("B", second), mark(sep, second)],
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in {cls: 0, sep: 0}
        },
    }
