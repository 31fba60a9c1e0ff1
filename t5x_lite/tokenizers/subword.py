"""Tokenizers of the library `tokenizers`: WordPiece, BPE over bytes or words, and any tokenizer.json.

Also read are BERT's vocab.txt and the vocab.json with merges.txt of RoBERTa, GPT-2 and GPT.
"""

import functools
import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from t5x_lite.errors import InputError
from t5x_lite.files import read_bytes, read_json
from t5x_lite.tokenizers.base import (
    CONFIG_FILE,
    MOST_IDS,
    SENTINEL,
    Tokenizer,
    TokenOffsets,
    pack_continuations,
    token_offsets,
    write_config,
)
from t5x_lite.tokenizers.pipelines import (
    CLIP_SPECIAL,
    WORD_END,
    byte_level_description,
    clip_description,
    is_clip,
    lowercase_bpe_description,
    wordpiece_description,
)
from t5x_lite.tokenizers.vocabulary import Vocabulary

TOKENIZER_FILE = "tokenizer.json"
ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token", "eos_token")
"""The roles of special tokens, as Hugging Face's tokenizer_config.json names them."""

_MOST_MERGES = 1 << 26
"""Bytes of a file of merges."""
_MOST_WORDS = 1 << 20
"""Whose ids are kept."""

# Begins a token that no text can give: pre-tokenizers split at the blank, and U+10FFFF is not a character.
_UNREACHABLE = "\U0010ffff "


class SubwordTokenizer(Tokenizer):
    """A tokenizer.json and the roles of its special tokens.

    Byte-level BPE marks words by the blank before them. The first word of a text has none, so its first id counts as
    continuing a word, though the id before it is CLS, SEP or of another sentence.

    Raises `InputError` when the library cannot open the description, or pad, eos or unk has no token.
    """

    def __init__(
        self, description: Mapping[str, Any], special: Mapping[str, str], *, name: str = TOKENIZER_FILE
    ) -> None:
        try:
            self.description = _canonical(description)
            _check_patterns(self.description)
            self._marked = Library.from_str(json.dumps(self.description))
        except InputError as error:
            raise InputError(f"{name} {error}") from None
        except BaseException as error:  # the library raises nothing narrower, and panics
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise InputError(f"{name} is not a tokenizer.json ({error}); copy it again") from None
        ids: dict[str, int] = self._marked.get_vocab(with_added_tokens=True)
        if not ids or max(ids.values()) >= MOST_IDS:
            raise InputError(f"{name} has ids up to {max(ids.values(), default=0):,}; it is damaged: copy it again")
        self.special = {role: special[role] for role in ROLES if special.get(role) in ids}
        if {"cls_token", "sep_token"} <= self.special.keys():
            self.special["eos_token"] = self.special["sep_token"]
        if missing := [role for role in ("unk_token", "pad_token", "eos_token") if role not in self.special]:
            raise InputError(f"{name} has no {' or '.join(missing)}; name it in tokenizer_config.json beside it")
        self.mask_token = self.special.get("mask_token")
        self._added = {token["content"]: token for token in self.description["added_tokens"]}
        # An added one is found wherever it is written; one of the model only where a word ends.
        self._marked.add_special_tokens(sorted(set(self.special.values()) - self._added.keys()))
        self.vocabulary = self._make_vocabulary(ids)
        self._ids_of_word: dict[str, tuple[int, ...]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.description, self.special)  # without the ids that it keeps

    def encode(self, text: str) -> list[int]:
        if self.vocabulary.num_sentinels:
            for number in SENTINEL.findall(text):
                self.vocabulary.sentinel_id(int(number))
        return self._marked.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        silent = self._silent_ids()
        shown = [i for i in map(int, ids) if 0 <= i < self.vocabulary.size and i not in silent]
        text = self._marked.decode(shown, skip_special_tokens=False)
        if (end := self.description["model"].get("end_of_word_suffix")) and end in text:
            text = text.replace(end, " ").rstrip()
        if self.mask_token and self._added.get(self.mask_token, {}).get("lstrip"):
            # Such a mask swallowed the blank before it.
            text = re.sub(rf"(?<=\S)(?={re.escape(self.mask_token)})", " ", text)
        return text

    def piece(self, token_id: int) -> str:
        return self._marked.id_to_token(int(token_id)) or ""

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        if self._words is None:
            encodings = self._unmarked.encode_batch_fast(texts, add_special_tokens=False)
            return [np.array(encoding.ids, np.int32) for encoding in encodings]
        # Looking a word up takes a tenth of the time that the library needs for it, and in a corpus most are known.
        ids = [self._known_ids(text) for text in texts]
        waiting = {number: self._words(texts[number]) for number, found in enumerate(ids) if found is None}
        if waiting:
            if len(self._ids_of_word) > _MOST_WORDS:
                self._ids_of_word.clear()
            new = list(set().union(*waiting.values()) - self._ids_of_word.keys())
            encodings = self._unmarked.encode_batch_fast(new, add_special_tokens=False)
            self._ids_of_word |= {word: tuple(of.ids) for word, of in zip(new, encodings, strict=True)}
        return [self._known_ids(texts[number]) if number in waiting else found for number, found in enumerate(ids)]

    def _known_ids(self, text: str) -> np.ndarray | None:
        """None where it has a word that is not known yet."""
        try:
            of_words = map(self._ids_of_word.__getitem__, self._words(text))
            return np.fromiter(itertools.chain.from_iterable(of_words), np.int32)
        except KeyError:
            return None

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
    def _words(self) -> Callable[[str], list[str]] | None:
        """Splits a text so that the ids of the parts are its ids; None where no way to do so is known.

        WordPiece reads word by word (Devlin et al. 2019). Byte-level BPE never merges over a single blank between two
        words, which belongs to the second (Radford et al. 2019).
        """
        described = json.loads(self._unmarked.to_str())
        normalizer, split = described["normalizer"] or {}, described["pre_tokenizer"] or {}
        if any(not token["special"] for token in described["added_tokens"]):
            return None
        match described["model"]["type"], normalizer.get("type"), split.get("type"):
            case "WordPiece", "BertNormalizer", "BertPreTokenizer":
                return lambda text: text.replace("\n", " ").split(" ")
            case "BPE", None, "ByteLevel" if split["use_regex"] and not split["add_prefix_space"]:
                return re.compile(r"(?<=\S)(?= \S)").split
        return None

    @functools.cached_property
    def _unmarked(self) -> Library:
        """The same, but special tokens written in a text are plain text.

        The library can be set to overlook added tokens, but a model may know them too: Unigram's prefer them, at score
        0. So all special tokens get names that no text can give.
        """
        added, model = self.description["added_tokens"], dict(self.description["model"])
        hidden = {*self.special.values(), *(token["content"] for token in added if token["special"])}

        def rename(token: str) -> str:
            return _UNREACHABLE + token if token in hidden else token

        if isinstance(model["vocab"], Mapping):
            model["vocab"] = {rename(token): token_id for token, token_id in model["vocab"].items()}
        else:
            model["vocab"] = [[rename(token), score] for token, score in model["vocab"]]
        if model.get("unk_token"):
            model["unk_token"] = rename(model["unk_token"])
        added = [{**one, "content": rename(one["content"]), "special": one["content"] in hidden} for one in added]
        changed = {"model": model, "added_tokens": added, "post_processor": None}
        tokenizer = Library.from_str(json.dumps({**self.description, **changed}))
        tokenizer.encode_special_tokens = True
        return tokenizer

    def _make_vocabulary(self, ids: dict[str, int]) -> Vocabulary:
        size, special = max(ids.values()) + 1, {role: ids[token] for role, token in self.special.items()}
        first, number = ids.get("<extra_id_0>", -1), 0
        while first >= 0 and ids.get(f"<extra_id_{number}>") == first - number:
            number += 1
        # How the pieces are written tells which of them continue a word: with WordPiece's prefix, or without a mark.
        pipeline = json.dumps([self.description.get(step) for step in ("normalizer", "pre_tokenizer")])
        prefix = self.description["model"].get("continuing_subword_prefix") or ""
        begins = not self.description["model"].get("end_of_word_suffix")
        mark = prefix or ("Ġ" if '"ByteLevel"' in pipeline and begins else "▁" if json.dumps("▁") in pipeline else "")
        continuing = {token_id for token, token_id in ids.items() if token.startswith(mark) == bool(prefix)}
        processor = self.description.get("post_processor")
        apart = {*special.values(), *(ids[token] for token in self._added if token in ids)}
        return Vocabulary(
            size,
            **{f"{role.removesuffix('token')}id": token_id for role, token_id in special.items()},
            separators=_separators(processor) if "sep_token" in special else 1,
            cls_last=_ends_with(processor, self.special.get("cls_token")),
            first_sentinel_id=first,
            num_sentinels=number,
            continuations=pack_continuations((i in continuing for i in range(size)), apart) if mark else b"",
        )


def _separators(processor: Any) -> int:
    """How many special tokens a pipeline puts between two texts; one where it puts none."""
    found = 1
    if isinstance(processor, Mapping) and processor.get("type") == "RobertaProcessing":
        found = 2
    elif isinstance(processor, Mapping) and processor.get("type") == "TemplateProcessing":
        single, pair = (sum("SpecialToken" in part for part in processor[name]) for name in ("single", "pair"))
        found = pair - single
    return max(1, found)


def _ends_with(processor: Any, token: str | None) -> bool:
    """Whether a pipeline ends a row with a token, after another special one."""
    if token is None or not isinstance(processor, Mapping) or processor.get("type") != "TemplateProcessing":
        return False
    marks = [part["SpecialToken"].get("id") for part in processor["single"] if "SpecialToken" in part]
    return len(marks) > 1 and marks[-1] == token != marks[0]


def model_type(description: Mapping[str, Any]) -> str:
    """WordPiece, BPE, Unigram or WordLevel; early files do not name it."""
    model = description["model"]
    fields = {"merges": "BPE", "unk_id": "Unigram", "continuing_subword_prefix": "WordPiece"}
    return model.get("type") or next((kind for field, kind in fields.items() if field in model), "WordLevel")


_PATTERN_PART = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?:\?[^():]*:)?|[)|*+]|\{\d+,\}|.", re.DOTALL)


def _check_patterns(description: Any) -> None:
    """Raises `InputError` for a regular expression that may take exponential time: one that repeats a group in which
    something is repeated already, or which has alternatives."""
    children = description.values() if isinstance(description, dict) else description
    if isinstance(description, dict) and isinstance(pattern := description.get("Regex"), str):
        groups = [False]  # whether a group that is open has repetitions or alternatives
        parts = _PATTERN_PART.findall(pattern)
        for part, after in zip(parts, [*parts[1:], ""], strict=True):
            repeats = after in ("*", "+") or after[:1] == "{" != after
            if part.startswith("("):
                groups.append(False)
            elif part == ")" and len(groups) > 1:
                if groups.pop() and repeats:
                    raise InputError(f"has the pattern {pattern!r:.99}, which can take forever; write it without")
            elif part == "|":
                groups[-1] = len(groups) > 1
            groups[-1] |= repeats
    for child in children:
        if isinstance(child, dict | list):
            _check_patterns(child)


def _canonical(description: Mapping[str, Any]) -> dict[str, Any]:
    """The same for equal tokenizers: ids in order; without BPE dropout, truncation and padding, so that a text has the
    same ids each time, and as many as it has."""
    model = dict(description["model"])
    if isinstance(model["vocab"], Mapping):
        model["vocab"] = dict(sorted(model["vocab"].items(), key=lambda item: (item[1], item[0])))
    model |= {"dropout": None} if "dropout" in model else {}
    added = description.get("added_tokens") or []
    return {**description, "truncation": None, "padding": None, "added_tokens": added, "model": model}


# The special tokens where no file names them.
_USUAL = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>", "<|endoftext|>"),
    "mask_token": ("[MASK]", "<mask>"),
    "eos_token": ("</s>", "<|endoftext|>"),
}
_USUAL_PAIRS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))


def open_subwords(path: Path, what: str, *, lowercase: bool = True) -> SubwordTokenizer:
    """The tokenizer of a tokenizer.json, a vocab.txt, a vocab.json with merges.txt beside it, or a folder with one.

    `lowercase` is for a vocab.txt without a tokenizer_config.json. Raises `InputError`, beginning with `what` where the
    file is missing.
    """
    if path.is_dir():
        names = (TOKENIZER_FILE, "vocab.txt", "vocab.json")
        found = next((path / name for name in names if (path / name).exists()), None)
        if found is None:
            raise InputError(f"{what}: {path} holds none of {', '.join(names)}; correct the path")
        path = found
    read_bytes(path, what)
    folder, config = path.parent, read_json(path.parent / CONFIG_FILE)
    description = {} if path.suffix == ".txt" else read_json(path)
    try:
        if "model" in description:
            description = _normalized_as(description, config)
            vocabulary = description["model"].get("vocab") or ()
            tokens = set(vocabulary) if isinstance(vocabulary, Mapping) else {token for token, *_ in vocabulary}
            tokens |= {token["content"] for token in description.get("added_tokens") or ()}
            special = special_tokens(folder, tokens)
        elif path.suffix == ".txt":
            vocabulary = models.WordPiece.read_file(str(path))
            special = special_tokens(folder, vocabulary)
            description = wordpiece_description(
                vocabulary,
                special,
                lowercase=config.get("do_lower_case", lowercase),
                strip_accents=config.get("strip_accents"),
                chinese_characters=config.get("tokenize_chinese_chars", True),
            )
        else:
            read_bytes(folder / "merges.txt", what)
            vocabulary, merges = models.BPE.read_file(str(path), str(folder / "merges.txt"))
            special = special_tokens(folder, vocabulary)
            if is_clip(vocabulary):
                description = clip_description(vocabulary, merges)
            elif any(token.endswith(WORD_END) for token in vocabulary):
                description = lowercase_bpe_description(vocabulary, merges, special)
            else:
                space = config.get("add_prefix_space", False)
                description = byte_level_description(vocabulary, merges, special, add_prefix_space=space)
    except InputError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path} is not a tokenizer's file ({error}); copy it again") from None
    return SubwordTokenizer(description, special, name=str(path))


def open_clip(path: Path, wanted: str, vocab_size: int) -> "SubwordTokenizer":
    """CLIP's tokenizer, of the first merges in a published `bpe_simple_vocab_16e6.txt.gz` or one unpacked.

    Raises `InputError` where the file is missing or damaged, or has fewer merges than `vocab_size` needs.
    """
    content = read_bytes(path, wanted)
    try:
        if content[:2] == b"\x1f\x8b":
            content = zlib.decompressobj(wbits=31).decompress(content, _MOST_MERGES)
        lines = content.decode().split("\n")
    except (zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{wanted} is damaged ({error}); copy it again") from None
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = list(dict.fromkeys(CLIP_SPECIAL.values()))
    number = vocab_size - 2 * len(letters) - len(special)
    merges = [line.split() for line in lines[1 : 1 + number]]
    if len(merges) < number or any(len(pair) != 2 for pair in merges):
        raise InputError(
            f"{wanted} is not a list of {number:,} merges or more, two pieces a line after the first one; give the "
            "published bpe_simple_vocab_16e6.txt.gz"
        )
    pieces = [*letters, *(letter + WORD_END for letter in letters), *map("".join, merges), *special]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return SubwordTokenizer(clip_description(vocabulary, merges), CLIP_SPECIAL, name=wanted)


def _normalized_as(description: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer.json whose normalization is that of the tokenizer_config.json beside it, as in Transformers."""
    steps = {
        "normalizer": {
            "lowercase": "do_lower_case",
            "strip_accents": "strip_accents",
            "handle_chinese_chars": "tokenize_chinese_chars",
        },
        "pre_tokenizer": {"add_prefix_space": "add_prefix_space"},
    }
    for name, fields in steps.items():
        step = description.get(name)
        if isinstance(step, dict) and step.get("type") in ("BertNormalizer", "ByteLevel"):
            changed = {field: config[theirs] for field, theirs in fields.items() if theirs in config}
            description = {**description, name: {**step, **changed}}
    return description


def special_tokens(folder: Path, tokens: Collection[str]) -> dict[str, str]:
    """The token of each role: what tokenizer_config.json or special_tokens_map.json in a folder names, else what is
    usual, as far as it is among `tokens`. CLS and SEP come together or not at all: T5's </s> is not a SEP; but CLIP has
    a CLS alone. Without a token for padding, EOS is used, as Transformers pads with GPT-2's; the first GPT has <unk>
    for both."""
    named: dict[str, str] = {}
    for file in ("special_tokens_map.json", CONFIG_FILE):
        for role, token in read_json(folder / file).items():
            content = token.get("content") if isinstance(token, dict) else token
            if role in ROLES and content in tokens:
                named[role] = content
    if not {"cls_token", "sep_token"} & named.keys():
        pair = next((pair for pair in _USUAL_PAIRS if pair[0] in tokens and pair[1] in tokens), ())
        named |= dict(zip(("cls_token", "sep_token"), pair, strict=False))
    usual = {role: next((name for name in names if name in tokens), None) for role, names in _USUAL.items()}
    named = {role: name for role, name in usual.items() if name is not None} | named
    if "eos_token" in named:
        named.setdefault("pad_token", named["eos_token"])
    if is_clip(tokens):
        named = CLIP_SPECIAL | named
    elif "unk_token" in named and any(token.endswith(WORD_END) for token in tokens):
        named = dict.fromkeys(("pad_token", "eos_token"), named["unk_token"]) | named
    return named
