"""Files that describe a tokenizer of the library `tokenizers`: tokenizer.json, BERT's vocab.txt, the vocab.json with
merges.txt of RoBERTa, GPT-2 and GPT, and what their neighbours say about special tokens."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tokenizers.models import BPE, WordPiece

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import CONFIG_FILE, read_bytes, read_json
from t5x_lite.tokenizers.subword import (
    ROLES,
    TOKENIZER_FILE,
    WORD_END,
    SubwordTokenizer,
    byte_level_description,
    lowercase_bpe_description,
    wordpiece_description,
)

# What special tokens are called where no file says it.
_USUAL = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>", "<|endoftext|>"),
    "mask_token": ("[MASK]", "<mask>"),
    "eos_token": ("</s>", "<|endoftext|>"),
}
_USUAL_PAIRS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))


def open_subword_file(path: Path, what: str, *, lowercase: bool = True) -> SubwordTokenizer:
    """The tokenizer of a tokenizer.json, a vocab.txt, a vocab.json with merges.txt beside it, or a folder with one.

    `lowercase` is for a vocab.txt that no tokenizer_config.json explains. Raises `InputError`, beginning with `what`
    where the file is missing.
    """
    if path.is_dir():
        names = (TOKENIZER_FILE, "vocab.txt", "vocab.json")
        found = next((path / name for name in names if (path / name).exists()), None)
        if found is None:
            raise InputError(f"{what}: {path} holds none of {', '.join(names)}; correct the path")
        path = found
    if path.suffix == ".txt":
        return _open_vocabulary(path, what, lowercase)
    read_bytes(path, what)
    content = read_json(path)
    if "model" in content:
        return _open_description(path, content)
    return _open_merges(path, what)


def special_tokens(folder: Path, tokens: Collection[str]) -> dict[str, str]:
    """The token of each role: what tokenizer_config.json or special_tokens_map.json in a folder names, else what is
    usual, as far as it is among `tokens`. CLS and SEP are found together or not at all: T5's </s> is no SEP. Where
    nothing is for padding, EOS is, as Transformers pads with GPT-2's."""
    named: dict[str, str] = {}
    for file in ("special_tokens_map.json", CONFIG_FILE):
        for role, token in read_json(folder / file).items():
            content = token.get("content") if isinstance(token, dict) else token
            if role in ROLES and content in tokens:
                named[role] = content
    if not {"cls_token", "sep_token"} & named.keys():
        pair = next((pair for pair in _USUAL_PAIRS if pair[0] in tokens and pair[1] in tokens), ())
        named |= dict(zip(("cls_token", "sep_token"), pair, strict=False))
    for role, names in _USUAL.items():
        found = next((name for name in names if name in tokens), None)
        if found is not None:
            named.setdefault(role, found)
    if "eos_token" in named:
        named.setdefault("pad_token", named["eos_token"])
    return named


def with_unknown_for_all(special: dict[str, str]) -> dict[str, str]:
    """With the unknown token for the padding and the EOS that the first GPT's vocabulary does not have."""
    unknown = special.get("unk_token")
    return special if unknown is None else dict.fromkeys(("pad_token", "eos_token"), unknown) | special


def _open_description(path: Path, description: dict[str, Any]) -> SubwordTokenizer:
    """A tokenizer.json. Where the tokenizer_config.json beside it says how to normalize, Transformers obeys that, so we
    do."""
    described = read_json(path.parent / CONFIG_FILE)
    parts = {
        "normalizer": {
            "lowercase": "do_lower_case",
            "strip_accents": "strip_accents",
            "handle_chinese_chars": "tokenize_chinese_chars",
        },
        "pre_tokenizer": {"add_prefix_space": "add_prefix_space"},
    }
    for part, fields in parts.items():
        step = description.get(part)
        if isinstance(step, dict) and step.get("type") in ("BertNormalizer", "ByteLevel"):
            changed = {field: described[name] for field, name in fields.items() if name in described}
            description = {**description, part: {**step, **changed}}
    try:
        tokens = _tokens(description)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is not a tokenizer.json ({error}); copy it again") from None
    special = special_tokens(path.parent, tokens)
    if (description["model"].get("end_of_word_suffix") or "") == WORD_END:
        special = with_unknown_for_all(special)
    return SubwordTokenizer(description, special, name=str(path))


def _open_vocabulary(path: Path, what: str, lowercase: bool) -> SubwordTokenizer:
    read_bytes(path, what)
    try:
        vocabulary = WordPiece.read_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path} is not a vocabulary ({error}); copy it again") from None
    described = read_json(path.parent / CONFIG_FILE)
    special = special_tokens(path.parent, vocabulary)
    if "unk_token" not in special:
        raise InputError(f"{path} has no unk_token; name it in tokenizer_config.json beside it")
    description = wordpiece_description(
        vocabulary,
        special,
        lowercase=described.get("do_lower_case", lowercase),
        strip_accents=described.get("strip_accents"),
        chinese_characters=described.get("tokenize_chinese_chars", True),
    )
    return SubwordTokenizer(description, special, name=str(path))


def _open_merges(path: Path, what: str) -> SubwordTokenizer:
    merges_path = path.parent / "merges.txt"
    read_bytes(merges_path, what)
    prefix_space = read_json(path.parent / CONFIG_FILE).get("add_prefix_space", False)
    try:
        vocabulary, merges = BPE.read_file(str(path), str(merges_path))
        special = special_tokens(path.parent, vocabulary)
        if not any(token.endswith(WORD_END) for token in vocabulary):
            description = byte_level_description(vocabulary, merges, special, add_prefix_space=prefix_space)
        else:
            special = with_unknown_for_all(special)
            if "unk_token" not in special:
                raise InputError(f"{path} has no unk_token; name it in tokenizer_config.json beside it")
            description = lowercase_bpe_description(vocabulary, merges, special)
    except InputError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path} with {merges_path.name} is not a BPE ({error}); copy them again") from None
    return SubwordTokenizer(description, special, name=str(path))


def _tokens(description: Mapping[str, Any]) -> set[str]:
    """Everything a tokenizer.json has an id for."""
    vocabulary = description["model"].get("vocab") or ()
    model = vocabulary if isinstance(vocabulary, Mapping) else (token for token, *_ in vocabulary)
    return {*model, *(token["content"] for token in description.get("added_tokens") or ())}
