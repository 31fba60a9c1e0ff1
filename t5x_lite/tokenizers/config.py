"""What an experiment says about its tokenizer, and making and loading the tokenizer it describes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import CONFIG_FILE, ByteTokenizer, Tokenizer, read_bytes, read_json
from t5x_lite.tokenizers.marian import MarianTokenizer, open_marian
from t5x_lite.tokenizers.sentencepiece import (
    MODEL_FILE,
    AlbertTokenizer,
    EncoderSentencePieceTokenizer,
    SentencePieceTokenizer,
    XlmRobertaTokenizer,
    albert_normalizer,
)
from t5x_lite.tokenizers.subword import TOKENIZER_FILE, SubwordTokenizer, model_type
from t5x_lite.tokenizers.subword_files import open_subword_file
from t5x_lite.tokenizers.training import (
    SMALLEST_BYTE_LEVEL,
    ByteLevelLayout,
    Layout,
    train_byte_level,
    train_sentencepiece,
    train_wordpiece,
)
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NonNegative, Range, Validated

_Coverage = Annotated[float, Range(gt=0, le=1, remedy="choose e.g. 0.9995")]


@dataclass(frozen=True)
class TokenizerConfig(Validated):
    """Base of what an experiment says about its tokenizer."""


@dataclass(frozen=True)
class SentencePiece(TokenizerConfig):
    """SentencePiece (Kudo and Richardson 2018) with the ids of T5, ALBERT or XLM-R."""

    vocab_size: Annotated[int, Range(ge=4)] = 32_000
    """Pieces to train; the vocabulary has extra_ids more (t5), or two more (xlm-roberta). Not used with model_file."""
    extra_ids: NonNegative = 100
    """Sentinels; <extra_id_0> is the highest id. Only T5's layout has them, the others ignore this."""
    model_file: str = ""
    """A trained spiece.model to load; empty means train on the corpus."""
    character_coverage: _Coverage = 0.9995
    """Share of the corpus's characters that get a piece, the others are unk; 1.0 for small alphabets."""
    algorithm: Literal["unigram", "bpe"] = "unigram"
    """How pieces are found; ALBERT's and XLM-R's are unigram."""
    layout: Layout = "t5"
    """t5: pad 0, eos 1, unk 2, sentinels on top of the pieces. albert: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4,
    text without capitals and accents; a model file keeps its own ids. xlm-roberta: <s> 0, <pad> 1, </s> 2, <unk> 3,
    then the pieces, <mask> last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout != "t5" and self.algorithm != "unigram":
            raise InputError(
                f"algorithm={self.algorithm!r} does not go with layout={self.layout!r}; choose unigram, or layout t5"
            )


@dataclass(frozen=True)
class WordPiece(TokenizerConfig):
    """BERT's words of pieces (Devlin et al. 2019): [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4 when trained here."""

    vocab_size: int = 30_522
    """Ids, the special ones included; a small corpus fills fewer. Not used with file."""
    lowercase: bool = True
    """Drop capitals, and accents with them. A tokenizer.json says this itself, a tokenizer_config.json too."""
    file: str = ""
    """A tokenizer.json, a vocab.txt, or a folder with one of them; empty means train on the corpus."""
    character_coverage: _Coverage = 0.9995
    """Share of the corpus's characters that get a piece; a word with another one is unk as a whole."""


@dataclass(frozen=True)
class ByteLevelBPE(TokenizerConfig):
    """Merged bytes (Radford et al. 2019), as GPT-2, RoBERTa and BART have them. Any text can be written; a blank
    belongs to the word behind it."""

    vocab_size: int = 50_265
    """Ids, the special ones included; a small corpus fills fewer. Not used with file."""
    file: str = ""
    """A tokenizer.json, a vocab.json with merges.txt beside it, or a folder with them; empty means train on the
    corpus."""
    layout: ByteLevelLayout = "roberta"
    """roberta: <s> 0, <pad> 1, </s> 2, <unk> 3, <mask> last. gpt2: <pad> and <|endoftext|> last, which is EOS and
    unknown in one. A file keeps its own; GPT-2's published one has no <pad>, and pads with <|endoftext|>."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab_size < SMALLEST_BYTE_LEVEL[self.layout]:
            raise InputError(
                f"vocab_size={self.vocab_size} has no room for 256 bytes and the special tokens; choose "
                f"{SMALLEST_BYTE_LEVEL[self.layout]} or more"
            )


@dataclass(frozen=True)
class TokenizerFile(TokenizerConfig):
    """Any tokenizer.json of the library `tokenizers`; the tokenizer_config.json beside it names the special tokens."""

    file: str
    """A tokenizer.json, or a folder with one."""


@dataclass(frozen=True)
class MarianFiles(TokenizerConfig):
    """Marian's two SentencePiece models, for sources and for targets, over one vocabulary."""

    folder: str
    """A folder with source.spm, target.spm and vocab.json."""


@dataclass(frozen=True)
class Bytes(TokenizerConfig):
    """UTF-8 bytes as ByT5 has them (Xue et al. 2022): id = byte + 3, pad 0, eos 1, unk 2."""

    extra_ids: NonNegative = 0
    """Sentinels above the bytes; 0 means as published: 100 sentinels that reuse the highest byte ids, 258 downwards."""


def is_trained(config: TokenizerConfig) -> bool:
    """Whether a config describes a tokenizer that is trained on the corpus, which takes long."""
    match config:
        case SentencePiece(model_file="") | WordPiece(file="") | ByteLevelBPE(file=""):
            return True
    return False


def make_tokenizer(config: TokenizerConfig, documents: Callable[[], Iterator[str]]) -> Tokenizer:
    """The tokenizer a config describes: loaded, or trained on the documents; the same documents give the same bytes.

    Raises `InputError` for a missing or corrupt file, one of another kind, an empty corpus, a vocab_size without room
    for the corpus's characters, and a SentencePiece vocab_size that the corpus cannot fill.
    """
    match config:
        case Bytes(extra_ids):
            return ByteTokenizer(extra_ids)
        case SentencePiece(model_file=""):
            return _train_sentencepiece(config, documents)
        case SentencePiece(model_file=name):
            path = Path(name).expanduser()
            model = read_bytes(path, f"model_file={name!r}")
            options = read_json(path.parent / CONFIG_FILE) if config.layout == "albert" else {}
            return open_sentencepiece(model, config.layout, config.extra_ids, options, name)
        case WordPiece(file=""):
            return train_wordpiece(
                documents(),
                vocab_size=config.vocab_size,
                lowercase=config.lowercase,
                character_coverage=config.character_coverage,
            )
        case WordPiece(file=name):
            return _open_file(name, "WordPiece", lowercase=config.lowercase)
        case ByteLevelBPE(file=""):
            return train_byte_level(documents(), vocab_size=config.vocab_size, layout=config.layout)
        case ByteLevelBPE(file=name):
            return _open_file(name, "BPE")
        case TokenizerFile(name):
            return _open_file(name, None)
        case MarianFiles(name):
            return open_marian(Path(name).expanduser(), f"folder={name!r}")
    raise InputError(
        f"tokenizer={config!r} is not a tokenizer config; use SentencePiece(...), WordPiece(...), ByteLevelBPE(...) or "
        f"Bytes(...)"
    )


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that `Tokenizer.save` wrote; `InputError` when the folder holds none or a broken one."""
    folder = Path(folder)
    path, what = folder / CONFIG_FILE, f"tokenizer {folder}"
    try:
        config: dict[str, Any] = json.loads(read_bytes(path, what))
        kind, extra_ids, layout = config["kind"], config.get("extra_ids", 0), config.get("layout", "t5")
        known = (
            kind in ("bytes", "sentencepiece", "tokenizers", "marian")
            and layout in get_args(Layout)
            and isinstance(extra_ids, int)
            and extra_ids >= 0
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        known = False
    if not known:
        raise InputError(f"tokenizer file {path} is corrupt; copy the folder again or make a new tokenizer")
    if kind == "bytes":
        return ByteTokenizer(extra_ids)
    if kind == "tokenizers":
        return open_subword_file(folder / TOKENIZER_FILE, what)
    if kind == "marian":
        return open_marian(folder, what)
    model = folder / MODEL_FILE
    return open_sentencepiece(read_bytes(model, what), layout, extra_ids, config, str(model))


def saved_config(tokenizer: Tokenizer, folder: Path) -> TokenizerConfig:
    """The config that makes a tokenizer from what its `save(folder)` wrote."""
    match tokenizer:
        case ByteTokenizer():
            return Bytes(tokenizer.extra_ids)
        case SentencePieceTokenizer() | EncoderSentencePieceTokenizer():
            model_file = str(folder / MODEL_FILE)
            return SentencePiece(model_file=model_file, extra_ids=tokenizer.extra_ids, layout=tokenizer.layout)
        case SubwordTokenizer():
            configs = {"WordPiece": WordPiece, "BPE": ByteLevelBPE}
            return configs.get(model_type(tokenizer.description), TokenizerFile)(file=str(folder / TOKENIZER_FILE))
        case MarianTokenizer():
            return MarianFiles(str(folder))
    raise InputError(f"a {type(tokenizer).__name__} has no config; use one of t5x_lite's tokenizers")


def open_sentencepiece(
    model: bytes, layout: Layout, extra_ids: int, options: dict[str, Any], name: str
) -> SentencePieceTokenizer | EncoderSentencePieceTokenizer:
    """The tokenizer of a serialized model; `options` is a tokenizer_config.json, of which ALBERT's layout takes
    do_lower_case and keep_accents."""
    if layout == "albert":
        lowercase, keep_accents = options.get("do_lower_case", True), options.get("keep_accents", False)
        return AlbertTokenizer(model, lowercase=bool(lowercase), keep_accents=bool(keep_accents), name=name)
    if layout == "xlm-roberta":
        return XlmRobertaTokenizer(model, name=name)
    return SentencePieceTokenizer(model, extra_ids, name=name)


def _train_sentencepiece(config: SentencePiece, documents: Callable[[], Iterator[str]]) -> Tokenizer:
    texts = documents()
    model = train_sentencepiece(
        map(albert_normalizer(), texts) if config.layout == "albert" else texts,
        vocab_size=config.vocab_size,
        character_coverage=config.character_coverage,
        algorithm=config.algorithm,
        layout=config.layout,
    )
    return open_sentencepiece(model, config.layout, config.extra_ids, {}, "the model")


def _open_file(name: str, kind: str | None, *, lowercase: bool = True) -> SubwordTokenizer:
    tokenizer = open_subword_file(Path(name).expanduser(), f"file={name!r}", lowercase=lowercase)
    found = model_type(tokenizer.description)
    if kind and found != kind:
        raise InputError(f"file={name!r} holds a {found}, no {kind}; use TokenizerFile(file={name!r})")
    return tokenizer


def expected_vocabulary(config: TokenizerConfig, model_size: int) -> Vocabulary:
    """A stand-in with special ids where the kind of tokenizer has them, and no id that continues a word.

    A program that is compiled for it has the shapes of the one that is compiled for the tokenizer itself: the sizes of
    a row do not depend on what its ids mean.

    Args:
      config: a tokenizer that is trained has as many ids as it asks for, or fewer.
      model_size: rows of the model's embedding; taken where the number of ids stands in a file.

    >>> from t5x_lite.tokenizers.config import SentencePiece
    >>> vocabulary = expected_vocabulary(SentencePiece(vocab_size=32_000), 32_128)
    >>> vocabulary.size, vocabulary.eos_id, vocabulary.sentinel_id(0)
    (32100, 1, 32099)
    """
    match config:
        case Bytes(extra_ids):
            return ByteTokenizer(extra_ids).vocabulary
        case SentencePiece(layout="t5"):
            size = model_size if config.model_file else config.vocab_size + config.extra_ids
            ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2}
            # A model file without extra ids brings T5's hundred sentinels among its pieces (mT5's).
            ids |= {"first_sentinel_id": size - 1, "num_sentinels": config.extra_ids or 100}
        case SentencePiece(layout="albert"):
            size = model_size if config.model_file else config.vocab_size
            ids = {"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "eos_id": 3, "mask_id": 4}
        case SentencePiece(layout="xlm-roberta"):
            size = model_size if config.model_file else config.vocab_size + 2
            ids = _fairseq(size)
        case ByteLevelBPE(layout="gpt2"):
            size = model_size if config.file else config.vocab_size
            ids = {"pad_id": size - 2, "eos_id": size - 1, "unk_id": size - 1}
        case ByteLevelBPE():
            size = model_size if config.file else config.vocab_size
            ids = _fairseq(size)
        case MarianFiles():
            size, ids = model_size, {"eos_id": 0, "unk_id": 1, "pad_id": model_size - 1}
        case _:
            size = config.vocab_size if isinstance(config, WordPiece) and not config.file else model_size
            ids = {"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "eos_id": 3, "mask_id": 4}
    return Vocabulary(size, **ids, continuations=np.packbits(np.zeros(size, bool)).tobytes())


def _fairseq(size: int) -> dict[str, int]:
    return {"cls_id": 0, "pad_id": 1, "sep_id": 2, "eos_id": 2, "unk_id": 3, "mask_id": size - 1}
