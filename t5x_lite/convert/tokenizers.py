"""The tokenizer's files in a Hugging Face folder, so that Transformers' AutoTokenizer gives the ids that ours gives."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_lite.data import Tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import CONFIG_FILE, read_json
from t5x_lite.tokenizers.config import ByteTokenizer, SentencePieceTokenizer, open_sentencepiece
from t5x_lite.tokenizers.marian import SOURCE_FILE, MarianTokenizer, open_marian
from t5x_lite.tokenizers.sentencepiece import AlbertTokenizer, EncoderSentencePieceTokenizer
from t5x_lite.tokenizers.subword import (
    TOKENIZER_FILE,
    WORD_END,
    SubwordTokenizer,
    lowercase_bpe_description,
    model_type,
)
from t5x_lite.tokenizers.subword_files import open_subword_file

# Their byte tokenizer counts its extra ids upwards, ours down; ours are kept under a name that theirs ignores.
_OUR_EXTRA_IDS = "t5x_lite_extra_ids"
_T5 = ("t5", "mt5")
_T5_CLASSES = ("T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast")
# Their models of these types take segment ids. GPT's would add vectors of tokens for them.
_WITH_SEGMENTS = ("bert", "electra", "albert")
_ENCODER_ROLES = {"cls_token", "sep_token", "mask_token"}


def read_tokenizer(folder: Path, config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a folder whose config.json is `config`; None where it has none that we know.

    T5 comes from its SentencePiece model where there is one, as its authors published it; the others from the
    tokenizer.json where there is one. Raises `InputError` for files that are damaged.
    """
    described = read_json(folder / CONFIG_FILE)
    if described.get("tokenizer_class") == "ByT5Tokenizer":
        # ByT5 was pretrained with its last byte ids as sentinels and never saw the extra ids of this class.
        return ByteTokenizer(described.get(_OUR_EXTRA_IDS, 0))
    family = config.get("model_type")
    if (folder / SOURCE_FILE).exists():
        return open_marian(folder, f"tokenizer {folder}")
    is_t5 = family in _T5 or described.get("tokenizer_class") in _T5_CLASSES
    others = (TOKENIZER_FILE, "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
    names = ("spiece.model", TOKENIZER_FILE) if is_t5 else others
    name = next((name for name in names if (folder / name).exists()), None)
    if name is None:
        return None
    path = folder / name
    if path.suffix != ".model":
        return open_subword_file(path, f"tokenizer {folder}")
    layout = "xlm-roberta" if name != "spiece.model" else "t5" if is_t5 else "albert"
    # mT5's sentinels are pieces of its model; T5's 100 stand behind it.
    extra_ids = described.get("extra_ids", 0 if family == "mt5" else 100)
    return open_sentencepiece(path.read_bytes(), layout, extra_ids, described, str(path))


def write_tokenizer(folder: Path, tokenizer: Tokenizer, model_type: str) -> None:
    """Writes a tokenizer into the folder of a model of this `model_type`."""
    tokens = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    match tokenizer:
        case ByteTokenizer(extra_ids=extra_ids):
            described = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125, _OUR_EXTRA_IDS: extra_ids} | tokens
        case SentencePieceTokenizer(extra_ids=extra_ids, model=model):
            (folder / "spiece.model").write_bytes(model)
            described = {"tokenizer_class": "T5Tokenizer", "extra_ids": extra_ids} | tokens
        case EncoderSentencePieceTokenizer():
            described = _write_encoder_model(folder, tokenizer)
        case MarianTokenizer():
            tokenizer.write_files(folder)
            described = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False} | tokens
        case SubwordTokenizer():
            described = _write_subwords(folder, tokenizer, model_type)
        case _:
            raise InputError(f"a {type(tokenizer).__name__} has no Hugging Face counterpart; leave the tokenizer out")
    (folder / CONFIG_FILE).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _write_encoder_model(folder: Path, tokenizer: EncoderSentencePieceTokenizer) -> dict[str, Any]:
    albert = isinstance(tokenizer, AlbertTokenizer)
    (folder / ("spiece.model" if albert else "sentencepiece.bpe.model")).write_bytes(tokenizer.model)
    cls, sep, name = ("[CLS]", "[SEP]", "AlbertTokenizer") if albert else ("<s>", "</s>", "XLMRobertaTokenizer")
    return {
        "tokenizer_class": name,
        "bos_token": cls,
        "cls_token": cls,
        "eos_token": sep,
        "sep_token": sep,
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": _mask(tokenizer.mask_token, lstrip=True),
        **tokenizer.options,
    }


def _write_subwords(folder: Path, tokenizer: SubwordTokenizer, family: str) -> dict[str, Any]:
    """tokenizer.json, and for the published pipelines the files that older programs read."""
    (folder / TOKENIZER_FILE).write_text(tokenizer.to_json(), encoding="utf-8")
    description, special = tokenizer.description, tokenizer.special
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    if family not in _WITH_SEGMENTS:
        inputs.remove("token_type_ids")
    described: dict[str, Any] = {**_own_roles(special), "model_input_names": inputs}
    if tokenizer.mask_token:
        added = (token for token in description["added_tokens"] if token["content"] == tokenizer.mask_token)
        described["mask_token"] = _mask(tokenizer.mask_token, lstrip=any(token["lstrip"] for token in added))
    vocabulary = description["model"]["vocab"]
    if _is_bert(tokenizer):
        name = "DistilBertTokenizer" if family == "distilbert" else "BertTokenizer"
        normalizer = description["normalizer"]
        options = {
            "do_lower_case": normalizer["lowercase"],
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        }
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
        return {"tokenizer_class": name, **described, **options}
    if _is_byte_level(tokenizer):
        _write_merges(folder, description)
        options = {"add_prefix_space": description["pre_tokenizer"]["add_prefix_space"]}
        if "cls_token" in special:
            return {"tokenizer_class": "RobertaTokenizer", **described, **options, "bos_token": special["cls_token"]}
        return {"tokenizer_class": "GPT2Tokenizer", **described, **options, "bos_token": special["eos_token"]}
    if _is_lowercase_bpe(tokenizer):
        _write_merges(folder, description)
        return {"tokenizer_class": "OpenAIGPTTokenizer", **described}
    # Opens tokenizer.json as it stands; the other classes would build their own pipeline around its vocabulary.
    return {"tokenizer_class": "PreTrainedTokenizerFast", **described}


def _write_merges(folder: Path, description: Mapping[str, Any]) -> None:
    model = description["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False) + "\n", encoding="utf-8")
    merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")


def _own_roles(special: Mapping[str, str]) -> dict[str, str]:
    """The roles without those that another one's token fills in for: they have none there."""
    own = dict(special)
    if own["pad_token"] == own["eos_token"]:
        del own["pad_token"]
        if own["eos_token"] == own["unk_token"] == "<unk>":
            del own["eos_token"]
    return own


def _is_bert(tokenizer: SubwordTokenizer) -> bool:
    """Whether Transformers' BertTokenizer builds the same pipeline."""
    description = tokenizer.description
    model, normalizer = description["model"], description.get("normalizer") or {}
    return (
        model_type(description) == "WordPiece"
        and tokenizer.special.keys() >= _ENCODER_ROLES
        and _is_self_contained(tokenizer)
        and not any(token["normalized"] for token in description["added_tokens"])
        and normalizer.get("type") == "BertNormalizer"
        and normalizer["clean_text"]
        and description["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and model.get("continuing_subword_prefix", "##") == "##"
        and model.get("max_input_chars_per_word", 100) == 100
    )


def _is_byte_level(tokenizer: SubwordTokenizer) -> bool:
    """Whether Transformers' RobertaTokenizer, or where there is no CLS its GPT2Tokenizer, builds the same pipeline."""
    description = tokenizer.description
    model, step = description["model"], description.get("pre_tokenizer") or {}
    unusual = (
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges",
    )
    return (
        model_type(description) == "BPE"
        and _ENCODER_ROLES & tokenizer.special.keys() in (_ENCODER_ROLES, set())
        and _is_self_contained(tokenizer)
        and not description.get("normalizer")
        and step.get("type") == "ByteLevel"
        and step.get("use_regex", True)
        and not any(model.get(field) for field in unusual)
    )


def _is_lowercase_bpe(tokenizer: SubwordTokenizer) -> bool:
    """Whether Transformers' OpenAIGPTTokenizer builds the same pipeline."""
    description, special = tokenizer.description, tokenizer.special
    model = description["model"]
    if model_type(description) != "BPE" or model.get("end_of_word_suffix") != WORD_END:
        return False
    usual = lowercase_bpe_description({special["unk_token"]: 0}, [], special)
    steps = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    return (
        set(special.values()) == {special["unk_token"]} == {token["content"] for token in description["added_tokens"]}
        and {step: description.get(step) for step in steps} == {step: usual[step] for step in steps}
        and model.get("unk_token") == special["unk_token"]
    )


def _is_self_contained(tokenizer: SubwordTokenizer) -> bool:
    """Whether the vocabulary of the model and the roles say everything: no tokens were added but CLS, SEP, mask ..."""
    description, special = tokenizer.description, tokenizer.special
    vocabulary: dict[str, int] = description["model"]["vocab"]
    added = description["added_tokens"]
    return (
        list(vocabulary.values()) == list(range(len(vocabulary)))
        and {token["content"] for token in added} <= set(special.values()) <= vocabulary.keys()
        and not any(token["rstrip"] or token["single_word"] for token in added)
        and not any(token["lstrip"] for token in added if token["content"] != tokenizer.mask_token)
    )


def _mask(token: str, *, lstrip: bool) -> dict[str, Any]:
    flags = {"lstrip": lstrip, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    return {"__type": "AddedToken", "content": token, **flags}
