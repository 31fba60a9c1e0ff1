"""The tokenizer's files in a Hugging Face folder, so that Transformers' AutoTokenizer gives the ids that ours gives."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from t5x_lite.data import Bytes, MarianFiles, SentencePiece, Tokenizer, TokenizerFile, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.files import read_json
from t5x_lite.tokenizers.base import CONFIG_FILE, MOST_IDS
from t5x_lite.tokenizers.config import ByteTokenizer, SentencePieceTokenizer
from t5x_lite.tokenizers.marian import SOURCE_FILE, MarianTokenizer
from t5x_lite.tokenizers.pipelines import (
    CLIP_SPECIAL,
    byte_level_description,
    clip_description,
    lowercase_bpe_description,
    wordpiece_description,
)
from t5x_lite.tokenizers.sentencepiece import (
    AlbertTokenizer,
    BigBirdTokenizer,
    EncoderSentencePieceTokenizer,
    SiglipTokenizer,
    XLNetTokenizer,
)
from t5x_lite.tokenizers.subword import TOKENIZER_FILE, SubwordTokenizer, model_type

# Their byte tokenizer counts its extra ids upwards, ours down; ours are kept under a name that theirs ignores.
_OUR_EXTRA_IDS = "t5x_lite_extra_ids"
_T5 = ("t5", "mt5")
_T5_CLASSES = ("T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast")
# Their models of these types take segment ids. GPT's would add vectors of tokens for them.
_WITH_SEGMENTS = ("bert", "electra", "albert")
_ENCODER_ROLES = {"cls_token", "sep_token", "mask_token"}
_ANY_PIPELINE = "PreTrainedTokenizerFast"


def read_tokenizer(folder: Path, config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a folder whose config.json is `config`; None where it has none that we know.

    T5 and SigLIP come from their SentencePiece models where there are some, as their authors published them; the
    others from the tokenizer.json where there is one. Raises `InputError` for files that are damaged.
    """
    described, family = read_json(folder / CONFIG_FILE), config.get("model_type")
    if described.get("tokenizer_class") == "ByT5Tokenizer":
        # ByT5 was pretrained with its last byte ids as sentinels and never saw the extra ids of this class.
        return make_tokenizer(Bytes(_extra_ids(described, _OUR_EXTRA_IDS, 0)), iter)
    is_t5 = family in _T5 or described.get("tokenizer_class") in _T5_CLASSES
    others = (SOURCE_FILE, TOKENIZER_FILE, "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
    is_siglip = described.get("tokenizer_class") in ("SiglipTokenizer", "SiglipTokenizerFast")
    names = (SOURCE_FILE, "spiece.model", TOKENIZER_FILE) if is_t5 or is_siglip else others
    path = next((folder / name for name in names if (folder / name).exists()), None)
    if path is None:
        return None
    if path.name == SOURCE_FILE:
        return make_tokenizer(MarianFiles(str(folder)), iter)
    if path.suffix != ".model":
        return make_tokenizer(TokenizerFile(str(path)), iter)
    layout = "xlm-roberta" if path.name != "spiece.model" else "t5" if is_t5 else "siglip" if is_siglip else "albert"
    if layout == "albert" and (family == "xlnet" or str(described.get("tokenizer_class")).startswith("XLNet")):
        layout = "xlnet"
    if layout == "albert" and (family == "big_bird" or str(described.get("tokenizer_class")).startswith("BigBird")):
        layout = "big-bird"
    # mT5's sentinels are pieces of its model; T5's 100 come after it.
    extra_ids = _extra_ids(described, "extra_ids", 0 if family == "mt5" else 100)
    return make_tokenizer(SentencePiece(extra_ids=extra_ids, model_file=str(path), layout=layout), iter)


def _extra_ids(described: Mapping[str, Any], name: str, default: int) -> int:
    number = described.get(name, default)
    if type(number) is not int or not 0 <= number < MOST_IDS:
        raise InputError(f"{name}={number!r} in {CONFIG_FILE} is not a number of ids; it is damaged: fetch it again")
    return number


def can_write(tokenizer: Tokenizer) -> bool:
    """Whether Transformers has a class for a tokenizer."""
    ours = (
        ByteTokenizer,
        SentencePieceTokenizer,
        EncoderSentencePieceTokenizer,
        MarianTokenizer,
        SubwordTokenizer,
    )
    return isinstance(tokenizer, ours)


def write_tokenizer(folder: Path, tokenizer: Tokenizer, model_type: str) -> None:
    """Writes a tokenizer into the folder of a model of this `model_type`."""
    tokens = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    match tokenizer:
        case ByteTokenizer(extra_ids=extra_ids):
            described = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125, _OUR_EXTRA_IDS: extra_ids} | tokens
        case SiglipTokenizer(model=model):
            (folder / "spiece.model").write_bytes(model)
            described = {"tokenizer_class": "SiglipTokenizer", "do_lower_case": True} | tokens | {"pad_token": "</s>"}
        case SentencePieceTokenizer(extra_ids=extra_ids, model=model):
            (folder / "spiece.model").write_bytes(model)
            described = {"tokenizer_class": "T5Tokenizer", "extra_ids": extra_ids} | tokens
        case XLNetTokenizer(model=model):
            (folder / "spiece.model").write_bytes(model)
            described = {
                "tokenizer_class": "XLNetTokenizer",
                **{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "<sep>"},
                **{"pad_token": "<pad>", "cls_token": "<cls>", "mask_token": _mask("<mask>", lstrip=True)},
                "additional_special_tokens": ["<eop>", "<eod>"],
                **tokenizer.options,
            }
        case BigBirdTokenizer(model=model):
            (folder / "spiece.model").write_bytes(model)
            described = {
                "tokenizer_class": "BigBirdTokenizer",
                **{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "[SEP]"},
                **{"pad_token": "<pad>", "cls_token": "[CLS]", "mask_token": _mask("[MASK]", lstrip=True)},
            }
        case EncoderSentencePieceTokenizer():
            albert = isinstance(tokenizer, AlbertTokenizer)
            (folder / ("spiece.model" if albert else "sentencepiece.bpe.model")).write_bytes(tokenizer.model)
            cls, sep = ("[CLS]", "[SEP]") if albert else ("<s>", "</s>")
            described = {
                "tokenizer_class": "AlbertTokenizer" if albert else "XLMRobertaTokenizer",
                **{"bos_token": cls, "cls_token": cls, "eos_token": sep, "sep_token": sep},
                **{"pad_token": "<pad>", "unk_token": "<unk>"},
                "mask_token": _mask(tokenizer.mask_token, lstrip=True),
                **tokenizer.options,
            }
        case MarianTokenizer():
            tokenizer.write_files(folder)
            described = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False} | tokens
        case SubwordTokenizer():
            described = _write_subwords(folder, tokenizer, model_type)
        case _:
            raise InputError(f"a {type(tokenizer).__name__} has no Hugging Face counterpart; leave the tokenizer out")
    (folder / CONFIG_FILE).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _write_subwords(folder: Path, tokenizer: SubwordTokenizer, family: str) -> dict[str, Any]:
    """tokenizer.json, and for the published pipelines the files that older programs read."""
    (folder / TOKENIZER_FILE).write_text(tokenizer.to_json(), encoding="utf-8")
    roles = dict(tokenizer.special)
    # Roles that another one's token fills in for are left out: they have none there.
    if roles["pad_token"] == roles["eos_token"]:
        del roles["pad_token"]
        if roles["eos_token"] == roles["unk_token"] == "<unk>":
            del roles["eos_token"]
    inputs = ["input_ids", *(["token_type_ids"] if family in _WITH_SEGMENTS else []), "attention_mask"]
    described: dict[str, Any] = {**roles, "model_input_names": inputs}
    if tokenizer.mask_token:
        added = (token for token in tokenizer.description["added_tokens"] if token["content"] == tokenizer.mask_token)
        described["mask_token"] = _mask(tokenizer.mask_token, lstrip=any(token["lstrip"] for token in added))
    name, options = _class_of(tokenizer, family)
    if name != _ANY_PIPELINE:
        Library.from_str(tokenizer.to_json()).model.save(str(folder))  # vocab.txt, or vocab.json and merges.txt
    return {"tokenizer_class": name, **described, **options}


def _class_of(tokenizer: SubwordTokenizer, family: str) -> tuple[str, dict[str, Any]]:
    """(Transformers' class that builds a pipeline with the same ids, its options).

    The last one opens tokenizer.json as it stands; the others would build their own pipeline around its vocabulary.
    """
    description, special = tokenizer.description, tokenizer.special
    kind, vocabulary, added = model_type(description), description["model"]["vocab"], description["added_tokens"]
    if kind not in ("WordPiece", "BPE"):
        return _ANY_PIPELINE, {}
    contents, roles = {token["content"] for token in added}, _ENCODER_ROLES & special.keys()
    # The vocabulary and the roles are all that the class needs: no other tokens were added.
    is_self_contained = (
        list(vocabulary.values()) == list(range(len(vocabulary)))
        and contents <= set(special.values()) <= vocabulary.keys()
        and not any(token["rstrip"] or token["single_word"] for token in added)
        and not any(token["lstrip"] for token in added if token["content"] != tokenizer.mask_token)
    )
    normalizer, pre_tokenizer = (description.get(step) or {} for step in ("normalizer", "pre_tokenizer"))
    if kind == "WordPiece" and is_self_contained and roles == _ENCODER_ROLES and "lowercase" in normalizer:
        lowercase, accents = normalizer["lowercase"], normalizer.get("strip_accents")
        chinese = normalizer["handle_chinese_chars"]
        options = {"lowercase": lowercase, "strip_accents": accents, "chinese_characters": chinese}
        usual = wordpiece_description({}, special, **options)
        if _have_same_ids(description, usual) and not any(token["normalized"] for token in added):
            name = "DistilBertTokenizer" if family == "distilbert" else "BertTokenizer"
            return name, {"do_lower_case": lowercase, "strip_accents": accents, "tokenize_chinese_chars": chinese}
    if kind == "BPE" and is_self_contained and roles in (_ENCODER_ROLES, set()):
        space = pre_tokenizer.get("add_prefix_space", False)
        if _have_same_ids(description, byte_level_description({}, [], special, add_prefix_space=space)):
            name, bos = ("RobertaTokenizer", "cls_token") if roles else ("GPT2Tokenizer", "eos_token")
            return name, {"add_prefix_space": space, "bos_token": special[bos]}
    if kind == "BPE" and is_self_contained and special == CLIP_SPECIAL:
        tokens = dict.fromkeys(CLIP_SPECIAL.values())
        if _have_same_ids(description, clip_description({token: i for i, token in enumerate(tokens)}, [])):
            return "CLIPTokenizer", {"bos_token": special["cls_token"]}
    if kind == "BPE" and set(special.values()) == {special["unk_token"]} == contents:
        usual = lowercase_bpe_description({special["unk_token"]: 0}, [], special)
        steps = [(pipeline.get("post_processor"), pipeline.get("decoder")) for pipeline in (description, usual)]
        if _have_same_ids(description, usual) and steps[0] == steps[1]:
            return "OpenAIGPTTokenizer", {}
    return _ANY_PIPELINE, {}


def _have_same_ids(description: Mapping[str, Any], usual: Mapping[str, Any]) -> bool:
    """Whether two pipelines give the same ids if they have the same vocabulary."""
    steps = []
    for pipeline in (description, usual):
        full = json.loads(Library.from_str(json.dumps(pipeline)).to_str())
        parts = (full["normalizer"] or {}, full["pre_tokenizer"] or {}, full["model"])
        ignored = ("vocab", "merges", "trim_offsets")
        steps.append([{name: part[name] for name in part if part[name] and name not in ignored} for part in parts])
    return steps[0] == steps[1]


def _mask(token: str, *, lstrip: bool) -> dict[str, Any]:
    flags = {"lstrip": lstrip, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    return {"__type": "AddedToken", "content": token, **flags}
