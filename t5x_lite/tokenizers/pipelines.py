"""How texts become pieces: the pipelines of WordPiece, BPE over bytes or words, CLIP's and whole words, each as a
tokenizer.json of the library `tokenizers`, and the special tokens that go with them."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

WORDPIECE_SPECIAL = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
BYTE_LEVEL_SPECIAL = {
    "roberta": {
        "cls_token": "<s>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    },
    # The published vocabulary has no padding.
    "gpt2": {"pad_token": "<pad>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
}
"""The special tokens of a byte-level BPE that is trained here, by layout and role."""
WORD_END = "</w>"
"""Closes the last piece of a word in the vocabularies of the first GPT and CLIP."""


def wordpiece_description(
    vocabulary: dict[str, int],
    special: Mapping[str, str],
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    chinese_characters: bool = True,
) -> dict[str, Any]:
    """BERT's pipeline (Devlin et al. 2019) as a tokenizer.json; by default accents go with the capitals."""
    library = Library(models.WordPiece(vocabulary, unk_token=special.get("unk_token", "")))
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
    library = Library(models.BPE(vocabulary, pairs, unk_token=special.get("unk_token"), end_of_word_suffix=WORD_END))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(WORD_END)
    return _described(library, special)


WORD_SPECIAL = {"pad_token": "<eos>", "eos_token": "<eos>", "unk_token": "<unk>"}
"""Of a vocabulary of words that is made here, as language models of words have them."""
WORD_SPLITS = {"blanks": pre_tokenizers.WhitespaceSplit(), "punctuation": pre_tokenizers.BertPreTokenizer()}
"""Where words end."""


def word_description(vocabulary: dict[str, int], split: str) -> dict[str, Any]:
    """Whole words, as a tokenizer.json; `split` is one of `WORD_SPLITS`."""
    library = Library(models.WordLevel(vocabulary, unk_token=WORD_SPECIAL["unk_token"]))
    library.pre_tokenizer = WORD_SPLITS[split]
    return _described(library, WORD_SPECIAL)


CLIP_SPECIAL = {
    "cls_token": "<|startoftext|>",
    "eos_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
    "unk_token": "<|endoftext|>",
}
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def clip_description(vocabulary: dict[str, int], merges: Sequence[Sequence[str]]) -> dict[str, Any]:
    """CLIP's pipeline (Radford et al. 2021, section 2.4) as a tokenizer.json: lower-cased words, whose bytes are merged
    and whose last piece ends in `WORD_END`."""
    pairs, unknown = [tuple(pair) for pair in merges], CLIP_SPECIAL["unk_token"]
    library = Library(models.BPE(vocabulary, pairs, unk_token=unknown, end_of_word_suffix=WORD_END))
    blanks = normalizers.Replace(Regex(r"\s+"), " ")
    library.normalizer = normalizers.Sequence([normalizers.NFC(), blanks, normalizers.Lowercase()])
    words = pre_tokenizers.Split(Regex(_CLIP_WORDS), behavior="removed", invert=True)
    library.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    library.decoder = decoders.ByteLevel()
    return _described(library, CLIP_SPECIAL, _clip_processing, end="eos_token")


def is_clip(tokens: Collection[str]) -> bool:
    """Whether these are the tokens of a CLIP."""
    return set(CLIP_SPECIAL.values()) <= set(tokens) and any(token.endswith(WORD_END) for token in tokens)


def _clip_processing(last: tuple[str, int], first: tuple[str, int]) -> processors.PostProcessor:
    return processors.RobertaProcessing(last, first, trim_offsets=False, add_prefix_space=False)


def _described(
    library: Library, special: Mapping[str, str], processor: Any = None, *, lstrip: str = "", end: str = "sep_token"
) -> dict:
    """The tokenizer.json of a pipeline with its special tokens, of which `lstrip` takes the blank before it; where
    there are CLS and the role `end`, `processor` puts them around texts."""
    tokens = dict.fromkeys(special.values())
    library.add_special_tokens([AddedToken(token, lstrip=token == lstrip, normalized=False) for token in tokens])
    if processor and {"cls_token", end} <= special.keys():
        last, first = ((special[role], library.token_to_id(special[role])) for role in (end, "cls_token"))
        library.post_processor = processor(last, first)
    return json.loads(library.to_str())
