"""The data of an experiment."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from t5x_lite.cache import cache_folder
from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.mixtures import Mixture, MixtureStore, of_part
from t5x_lite.data.records.base import Source
from t5x_lite.data.records.text import PythonDocs
from t5x_lite.data.splits import Corpus, Documents, Progress
from t5x_lite.data.store import TokenStore, cached_tokenizer, open_store
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
        """Tokenizes the corpus into a store of rows, or opens the one that is there.

        The share `held_out` of the characters, in whole documents or pairs, is kept from training (see
        `split_documents`), unless there is a `held_out_source`; the documents of each split become rows of their own.
        Each part of a mixture has a store, and its name in an `InputError`; a tokenizer is trained on all parts.

        Args:
          layout: how documents become rows.
          tokenizer: used instead of making one, when a run is resumed.
          progress: called with the stage and the share of it that is done, 0 to 1, or None where it is not known.

        Raises:
          InputError: a value out of range, unreadable text, a source without what the layout reads, a document that no
            row can hold, a tokenizer without the special ids of the rows, or a corpus that does not fill a row of each
            split.
          OSError: the disk is full (nothing is left behind).
        """
        report = progress or (lambda stage, fraction: None)
        if isinstance(self.source, Mixture):
            return self._prepare_parts(layout, tokenizer, report)
        corpus, held_out_key = Corpus(Documents(self.source, layout, self.sentences), self.held_out), self.held_out
        if self.held_out_source is not None:
            corpus = replace(corpus, held_out_documents=Documents(self.held_out_source, layout, self.sentences))
            held_out_key = ["source", self.held_out_source.fingerprint()]
        elif not 0 < self.held_out < 0.5:
            raise InputError(
                f"held_out={self.held_out} is not a share of the corpus for evaluation; choose one in (0, 0.5)"
            )
        source_key = self.source.fingerprint()
        if tokenizer is None and self.tokenizer is not None:
            tokenizer = cached_tokenizer(self.source, source_key, self.tokenizer, self.cache_path, report)
        return open_store(corpus, source_key, held_out_key, tokenizer, self.cache_path, report)

    def _prepare_parts(self, layout: Layout, tokenizer: Tokenizer | None, report: Progress) -> MixtureStore:
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
