"""The configs of tokenizers, and the tokenizers that they describe, made and loaded."""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from etils import epath

from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, read_bytes, read_json, write_atomically
from t5x_lite.tokenizers.base import CONFIG_FILE, ByteTokenizer, Tokenizer
from t5x_lite.tokenizers.characters import WordCharacterTokenizer
from t5x_lite.tokenizers.marian import MarianTokenizer, open_marian
from t5x_lite.tokenizers.pipelines import BYTE_LEVEL_SPECIAL
from t5x_lite.tokenizers.sentencepiece import (
    MODEL_FILE,
    AlbertTokenizer,
    BigBirdTokenizer,
    EncoderSentencePieceTokenizer,
    SentencePieceTokenizer,
    SiglipTokenizer,
    XlmRobertaTokenizer,
    XLNetTokenizer,
)
from t5x_lite.tokenizers.subword import (
    TOKENIZER_FILE,
    SubwordTokenizer,
    model_type,
    open_clip,
    open_subwords,
)
from t5x_lite.tokenizers.training import (
    ByteLevelLayout,
    Layout,
    count_words,
    train_byte_level,
    train_sentencepiece,
    train_wordpiece,
)
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NonNegative, Range, Validated

_Coverage = Annotated[float, Range(gt=0, le=1, remedy="choose e.g. 0.9995")]


@dataclass(frozen=True)
class TokenizerConfig(Validated):
    """An experiment's tokenizer; one of your own derives from it and defines `make`."""

    def make(self, documents: Callable[[], Iterator[str]]) -> Tokenizer:
        """The tokenizer, which may be trained on the documents; the same documents must give the same ids."""
        raise InputError(f"{type(self).__name__} defines no make, which every config of a tokenizer has")


@dataclass(frozen=True)
class SentencePiece(TokenizerConfig):
    """SentencePiece (Kudo and Richardson 2018) with the ids of T5, SigLIP, ALBERT, XLM-R, XLNet or BigBird."""

    vocab_size: Annotated[int, Range(ge=4)] = 32_000
    """Pieces to train; the vocabulary has extra_ids more (t5), or two more (xlm-roberta). Not used with model_file."""
    extra_ids: NonNegative = 100
    """Sentinels; <extra_id_0> is the highest id. Only T5's layout has them, the others ignore this."""
    model_file: str = ""
    """A trained spiece.model to load; empty means train on the corpus."""
    character_coverage: _Coverage = 0.9995
    """Share of the corpus's characters that get a piece, the others are unk; 1.0 for small alphabets."""
    algorithm: Literal["unigram", "bpe"] = "unigram"
    """How pieces are chosen; ALBERT's, SigLIP's, XLM-R's and XLNet's are unigram."""
    layout: Layout = "t5"
    """t5: pad 0, eos 1, unk 2, sentinels on top of the pieces. siglip: the same without sentinels, eos for padding
    too, text without capitals and punctuation. albert: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4,
    text without capitals and accents; a model file keeps its own ids. xlm-roberta: <s> 0, <pad> 1, </s> 2, <unk> 3,
    then the pieces, <mask> last. xlnet: <unk> 0, <s> 1, </s> 2, <cls> 3, <sep> 4, <pad> 5, <mask> 6, <eod> 7, <eop> 8,
    text without accents; rows end with <cls>; a model file keeps its own ids. big-bird: <pad> 0, </s> 1, <s> 2,
    <unk> 3, [CLS] 4, [SEP] 5, [MASK] 6; a model file keeps its own ids."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in ("t5", "big-bird") and self.algorithm != "unigram":
            raise InputError(
                f"algorithm={self.algorithm!r} does not go with layout={self.layout!r}; choose unigram, or layout t5"
            )


@dataclass(frozen=True)
class WordPiece(TokenizerConfig):
    """BERT's words of pieces (Devlin et al. 2019): [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4 when trained here."""

    vocab_size: int = 30_522
    """Ids, the special ones included; a small corpus fills fewer. Not used with file."""
    lowercase: bool = True
    """Drop capitals, and accents with them. A tokenizer.json or tokenizer_config.json decides this itself."""
    file: str = ""
    """A tokenizer.json, a vocab.txt, or a folder with one of them; empty means train on the corpus."""
    character_coverage: _Coverage = 0.9995
    """Share of the corpus's characters that get a piece; a word with another one is unk as a whole."""


@dataclass(frozen=True)
class ByteLevelBPE(TokenizerConfig):
    """Merged bytes (Radford et al. 2019), as GPT-2, RoBERTa and BART have them. Any text can be written; a blank
    belongs to the word after it."""

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
        least = 256 + len(set(BYTE_LEVEL_SPECIAL[self.layout].values()))
        if self.vocab_size < least:
            raise InputError(
                f"vocab_size={self.vocab_size} has no room for 256 bytes and the special tokens; choose {least} or more"
            )


@dataclass(frozen=True)
class Words(TokenizerConfig):
    """The most frequent words, others being <unk>, as Transformer-XL's on WikiText-103: <eos> 0, which pads too, <unk>
    1, then by frequency."""

    vocab_size: Annotated[int, Range(ge=3)] = 267_735
    """Ids, both special ones included; a small corpus fills fewer. Not used with file."""
    file: str = ""
    """A tokenizer.json, or a folder with one; empty means count the corpus's words."""
    split: Literal["blanks", "punctuation"] = "blanks"
    """Where words end: at blanks, or at punctuation too, each mark of which is a word. Not used with file."""


@dataclass(frozen=True)
class ClipBPE(TokenizerConfig):
    """CLIP's lower-cased BPE over bytes (Radford et al. 2021, section 2.4), by its published merges.

    Without the repairs of broken text (`ftfy`, HTML entities) that the authors' code begins with.
    """

    file: str
    """The published bpe_simple_vocab_16e6.txt.gz."""
    vocab_size: int = 49_408
    """Ids: 512 of bytes, one a merge, and <|startoftext|> and <|endoftext|>, the last, which also pads. Fewer take the
    first merges alone, which are the most frequent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab_size < 514:
            raise InputError(
                f"vocab_size={self.vocab_size} has no room for 512 bytes and the special tokens; choose 514 or more"
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


@dataclass(frozen=True)
class WordCharacters(TokenizerConfig):
    """Words by their characters, as ELMo reads them: 258 before each word, then its UTF-8 bytes. `<S>` 256 and `</S>`
    257 stand around texts, 260 pads."""

    split: Literal["blanks", "punctuation"] = "punctuation"
    """Where words end: at blanks, or at punctuation too, each mark of which is a word."""


_CONFIGS = {"WordPiece": WordPiece, "BPE": ByteLevelBPE, "WordLevel": Words}
"""The config of a tokenizer.json by the type of its model; others have a TokenizerFile."""


def is_trained(config: TokenizerConfig) -> bool:
    """Whether a config describes a tokenizer that is trained on the corpus, which takes long."""
    match config:
        case SentencePiece(model_file="") | WordPiece(file="") | ByteLevelBPE(file="") | Words(file=""):
            return True
    return False


def make_tokenizer(config: TokenizerConfig, documents: Callable[[], Iterator[str]]) -> Tokenizer:
    """The tokenizer a config describes: loaded, or trained on the documents; the same documents give the same bytes.

    Raises `InputError` for a missing or corrupt file, one of another type, an empty corpus, a vocab_size without room
    for the corpus's characters, and a SentencePiece vocab_size that the corpus cannot fill.
    """
    match config:
        case Bytes(extra_ids):
            return ByteTokenizer(extra_ids)
        case WordCharacters(split):
            return WordCharacterTokenizer(split)
        case SentencePiece(layout=layout, model_file=name):
            options: dict[str, Any] = {}
            if name:
                path = Path(name).expanduser()
                model = read_bytes(path, f"model_file={name!r}")
                options = read_json(path.parent / CONFIG_FILE) if layout in ("albert", "xlnet") else {}
            else:
                model = train_sentencepiece(
                    documents(),
                    vocab_size=config.vocab_size,
                    character_coverage=config.character_coverage,
                    algorithm=config.algorithm,
                    layout=layout,
                )
            name = name or "the model"
            if layout in ("albert", "xlnet"):
                kind = AlbertTokenizer if layout == "albert" else XLNetTokenizer
                lowercase = bool(options.get("do_lower_case", layout == "albert"))
                accents = bool(options.get("keep_accents", False))
                return kind(model, lowercase=lowercase, keep_accents=accents, name=name)
            kinds = {"siglip": SiglipTokenizer, "xlm-roberta": XlmRobertaTokenizer, "big-bird": BigBirdTokenizer}
            if layout in kinds:
                return kinds[layout](model, name=name)
            return SentencePieceTokenizer(model, config.extra_ids, name=name)
        case WordPiece(file=""):
            return train_wordpiece(
                documents(),
                vocab_size=config.vocab_size,
                lowercase=config.lowercase,
                character_coverage=config.character_coverage,
            )
        case ByteLevelBPE(file=""):
            return train_byte_level(documents(), vocab_size=config.vocab_size, layout=config.layout)
        case Words(file=""):
            return count_words(documents(), vocab_size=config.vocab_size, split=config.split)
        case WordPiece(file=name) | ByteLevelBPE(file=name) | Words(file=name) | TokenizerFile(name):
            lowercase = getattr(config, "lowercase", True)
            tokenizer = open_subwords(Path(name).expanduser(), f"file={name!r}", lowercase=lowercase)
            found = model_type(tokenizer.description)
            wanted = next((kind for kind, made in _CONFIGS.items() if isinstance(config, made)), found)
            if found != wanted:
                raise InputError(f"file={name!r} holds a {found}, not a {wanted}; use TokenizerFile(file={name!r})")
            return tokenizer
        case ClipBPE(name, vocab_size):
            return open_clip(Path(name).expanduser(), f"file={name!r}", vocab_size)
        case MarianFiles(name):
            return open_marian(Path(name).expanduser(), f"folder={name!r}")
    if isinstance(config, TokenizerConfig):
        return config.make(documents)
    raise InputError(
        f"tokenizer={config!r} is not a tokenizer config; use SentencePiece(...), WordPiece(...), ByteLevelBPE(...), "
        "Bytes(...), or a TokenizerConfig of your own"
    )


def load_tokenizer(folder: epath.PathLike) -> Tokenizer:
    """The tokenizer that `Tokenizer.save` wrote, on a disk or in a bucket; `InputError` when the folder holds none or a
    broken one."""
    if is_in_bucket(folder):
        with tempfile.TemporaryDirectory() as local:
            for path in epath.Path(folder).iterdir():
                (Path(local) / path.name).write_bytes(read_bytes(path, f"tokenizer {folder}"))
            return load_tokenizer(Path(local))
    folder = Path(folder)
    path = folder / CONFIG_FILE
    content = read_bytes(path, f"tokenizer {folder}")
    try:
        saved = json.loads(content)
        extra_ids, layout, model_file = saved.get("extra_ids", 0), saved.get("layout", "t5"), str(folder / MODEL_FILE)
        configs = {
            "bytes": Bytes(extra_ids),
            "characters": WordCharacters(saved.get("split", "punctuation")),
            "sentencepiece": SentencePiece(extra_ids=extra_ids, layout=layout, model_file=model_file),
            "tokenizers": TokenizerFile(str(folder / TOKENIZER_FILE)),
            "marian": MarianFiles(str(folder)),
        }
        kind = saved["kind"]
        config = configs.get(kind) if isinstance(kind, str) and ":" in kind else configs[kind]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"tokenizer file {path} is corrupt; copy the folder again or make a new tokenizer") from None
    return _load_outside(kind, folder) if config is None else make_tokenizer(config, iter)


def save_tokenizer(tokenizer: Tokenizer, folder: epath.PathLike) -> None:
    """`Tokenizer.save`, into a folder on a disk or in a bucket."""
    if not is_in_bucket(folder):
        tokenizer.save(Path(folder))
        return
    with tempfile.TemporaryDirectory() as local:
        tokenizer.save(Path(local))
        # Without its config, which is last, it is not read.
        for path in sorted(Path(local).iterdir(), key=lambda path: path.name == CONFIG_FILE):
            write_atomically(epath.Path(folder) / path.name, path.read_bytes())


def _load_outside(kind: str, folder: Path) -> Tokenizer:
    """The tokenizer of a class from outside the package, `module:Class`, which has to be imported already."""
    module, _, name = kind.rpartition(":")
    package = __name__.partition(".")[0]
    outside = [cls for cls in _subclasses(Tokenizer) if cls.__module__.partition(".")[0] != package]
    found = [cls for cls in outside if cls.__name__ == name]
    cls = next((cls for cls in found if cls.__module__ == module), found[0] if found else None)
    if cls is None:
        raise InputError(
            f"the tokenizer in {folder} is of class {name!r} of the module {module!r}, which is not imported; import "
            f"it first, on the command line with --import {module} or --import FILE"
        )
    try:
        return cls.load(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the tokenizer in {folder} cannot be made by its class {name} ({type(error).__name__}: {error}); use the "
            "class that wrote it"
        ) from None


def _subclasses(cls: type) -> list[type]:
    return [each for child in cls.__subclasses__() for each in (child, *_subclasses(child))]


def saved_config(tokenizer: Tokenizer, folder: Path) -> TokenizerConfig:
    """The config that makes a tokenizer from what its `save(folder)` wrote."""
    match tokenizer:
        case ByteTokenizer():
            return Bytes(tokenizer.extra_ids)
        case WordCharacterTokenizer():
            return WordCharacters(tokenizer.split)
        case SentencePieceTokenizer() | EncoderSentencePieceTokenizer():
            model_file = str(folder / MODEL_FILE)
            return SentencePiece(model_file=model_file, extra_ids=tokenizer.extra_ids, layout=tokenizer.layout)
        case SubwordTokenizer():
            config = _CONFIGS.get(model_type(tokenizer.description), TokenizerFile)
            return config(file=str(folder / TOKENIZER_FILE))
        case MarianTokenizer():
            return MarianFiles(str(folder))
    raise InputError(f"a {type(tokenizer).__name__} has no config; use one of t5x_lite's tokenizers")


def expected_vocabulary(config: TokenizerConfig, model_size: int) -> Vocabulary:
    """A stand-in with the special ids of a tokenizer that is not made yet, and no id that continues a word.

    A program that is compiled for it has the shapes of the one for the tokenizer itself: the sizes of a row do not
    depend on what its ids mean. `model_size`, the rows of the model's embedding, stands for a number of ids in a file.

    >>> from t5x_lite.tokenizers.config import SentencePiece
    >>> vocabulary = expected_vocabulary(SentencePiece(vocab_size=32_000), 32_128)
    >>> vocabulary.size, vocabulary.eos_id, vocabulary.sentinel_id(0)
    (32100, 1, 32099)
    """
    if isinstance(config, Bytes | WordCharacters):
        return make_tokenizer(config, iter).vocabulary
    size = config.vocab_size if is_trained(config) or isinstance(config, ClipBPE) else model_size
    ids = {"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "eos_id": 3, "mask_id": 4}
    match config:
        case SentencePiece(layout="t5"):
            size += config.extra_ids if is_trained(config) else 0
            # A model file without extra ids brings T5's hundred sentinels among its pieces (mT5's).
            sentinels = {"first_sentinel_id": size - 1, "num_sentinels": config.extra_ids or 100}
            ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2} | sentinels
        case SentencePiece(layout="siglip"):
            ids = {"pad_id": 1, "eos_id": 1, "unk_id": 2}
        case SentencePiece(layout="xlnet"):
            ids = {"unk_id": 0, "cls_id": 3, "sep_id": 4, "pad_id": 5, "mask_id": 6, "eos_id": 7, "cls_last": True}
        case SentencePiece(layout="big-bird"):
            ids = {"pad_id": 0, "unk_id": 3, "cls_id": 4, "sep_id": 5, "eos_id": 5, "mask_id": 6}
        case Words():
            ids = {"pad_id": 0, "eos_id": 0, "unk_id": 1}
        case ByteLevelBPE(layout="gpt2"):
            ids = {"pad_id": size - 2, "eos_id": size - 1, "unk_id": size - 1}
        case ClipBPE():
            ids = {"cls_id": size - 2, "pad_id": size - 1, "eos_id": size - 1, "unk_id": size - 1}
        case SentencePiece(layout="xlm-roberta") | ByteLevelBPE():
            size += 2 if isinstance(config, SentencePiece) and is_trained(config) else 0
            ids = {
                "cls_id": 0,
                "pad_id": 1,
                "sep_id": 2,
                "eos_id": 2,
                "unk_id": 3,
                "mask_id": size - 1,
                "separators": 2,
            }
        case MarianFiles():
            ids = {"eos_id": 0, "unk_id": 1, "pad_id": size - 1}
    return Vocabulary(size, **ids, continuations=np.packbits(np.zeros(size, bool)).tobytes())
