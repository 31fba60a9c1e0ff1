"""The data of an experiment."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from t5x_lite.cache import cache_folder
from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.mixtures import Mixture, MixtureStore, of_part
from t5x_lite.data.records.base import Source
from t5x_lite.data.records.text import PythonDocs
from t5x_lite.data.splits import Progress
from t5x_lite.data.store import TokenStore, cached_tokenizer, prepare
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import SentencePiece, Tokenizer, TokenizerConfig
from t5x_lite.validation import Validated


@dataclass(frozen=True)
class Data(Validated):
    """A corpus, its tokenizer, and the cache of both."""

    source: Source = field(default_factory=PythonDocs)
    """Text: PythonDocs, TextFiles or Tfds; pairs of texts: TextToText; other tasks: LabeledTexts, Choices, Questions or
    TaggedWords; or a Mixture of several."""
    tokenizer: TokenizerConfig | None = field(default_factory=lambda: SentencePiece(vocab_size=8_000))
    """SentencePiece, WordPiece or ByteLevelBPE (trained on the corpus or loaded), TokenizerFile or Bytes; 8,000 pieces
    are what PythonDocs can fill, T5 has 32,000. None for data without text. A run with a teacher, or from a model,
    takes the tokenizer of that."""
    held_out: float = 0.02
    """Share of the corpus's characters that is kept for evaluation, in whole documents or pairs."""
    held_out_source: Source | None = None
    """A corpus to evaluate on, such as an official development set, instead of a share `held_out` of `source`."""
    sentences: SentenceRule = "punctuation"
    """Where sentences end, for objectives that read them: 'punctuation' (rules), or 'line' (each line is one)."""
    cache_dir: str = ""
    """Folder for tokenizers and token stores; empty means $T5X_LITE_CACHE, else ~/.cache/t5x_lite."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.held_out_source, Mixture) or (isinstance(self.source, Mixture) and self.held_out_source):
            name = type(self.held_out_source).__name__
            raise InputError(f"held_out_source={name}(...) does not go with a mixture; give each of its parts one")

    @property
    def training_sources(self) -> tuple[Source, ...]:
        return tuple(p.source for p in self.source.parts) if isinstance(self.source, Mixture) else (self.source,)

    @property
    def sources(self) -> tuple[Source, ...]:
        """All corpora, to train and to evaluate on."""
        parts = self.source.parts if isinstance(self.source, Mixture) else (self,)
        return tuple(one for part in parts for one in (part.source, part.held_out_source) if one is not None)

    def prepare(
        self, layout: Layout, *, tokenizer: Tokenizer | None = None, progress: Progress | None = None
    ) -> TokenStore:
        """Tokenizes the corpus into a store of rows, or opens the one that is there: see `store.prepare`.

        Each part of a mixture has a store, and its name in an `InputError`; a tokenizer is trained on all parts.
        """
        report = progress or (lambda stage, fraction: None)
        if not isinstance(self.source, Mixture):
            return prepare(
                self.source,
                self.tokenizer,
                layout,
                held_out=self.held_out,
                cache_dir=self.cache_path,
                held_out_source=self.held_out_source,
                sentences=self.sentences,
                tokenizer=tokenizer,
                progress=report,
            )
        if tokenizer is None and self.tokenizer is not None:
            key = self.source.fingerprint()
            tokenizer = cached_tokenizer(self.source, key, self.tokenizer, self.cache_path, report)
        stores = {}
        for part in self.source.parts:
            data = replace(self, source=part.source, held_out_source=part.held_out_source)
            of_stage = lambda stage, fraction, name=part.name: report(f"{stage}: {name}", fraction)  # noqa: E731
            with of_part(part.name):
                stores[part.name] = data.prepare(layout, tokenizer=tokenizer, progress=of_stage)
        return MixtureStore.of(stores, self.source.rates)

    @property
    def cache_path(self) -> Path:
        """`cache_dir` with its default filled in."""
        return Path(self.cache_dir).expanduser() if self.cache_dir else cache_folder()
