"""The data of an experiment."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from etils import epath

from t5x_lite.cache import cache_folder
from t5x_lite.data.corpus_tokenizer import cached_tokenizer
from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.mixtures import Mixture, MixtureStore, of_part
from t5x_lite.data.passage_rows import PassageRows
from t5x_lite.data.records.base import Source, digest
from t5x_lite.data.records.text import PythonDocs
from t5x_lite.data.splits import Corpus, Documents, Progress
from t5x_lite.data.store import TokenStore, is_complete, make_store, read_store, store_key
from t5x_lite.data.workers import Workers
from t5x_lite.errors import InputError
from t5x_lite.files import local_or_bucket, read_json, write_atomically
from t5x_lite.tokenizers.config import SentencePiece, Tokenizer, TokenizerConfig
from t5x_lite.validation import Positive, Validated

_PREPARED = "prepared"


@dataclass(frozen=True)
class Data(Validated):
    """A corpus, its tokenizer, and the cache of both."""

    source: Source = field(default_factory=PythonDocs)
    """Text: PythonDocs, TextFiles or Tfds; pairs of texts: TextToText; other tasks: LabeledTexts, Choices, Questions or
    TaggedWords; pictures: ImageFolder, ImageTable, ImageArrays, LabeledImages, Digits, or an ImageSubset of
    these; pictures with texts: CaptionTable, CaptionFolder or CaptionedImages; pictures with boxes: CocoBoxes,
    VocBoxes, YoloBoxes or BoxedImages; or a Mixture of several."""
    tokenizer: TokenizerConfig | None = field(default_factory=lambda: SentencePiece(vocab_size=8_000))
    """SentencePiece, WordPiece, ByteLevelBPE or Words (made of the texts, of `corpus` where there is one, or loaded),
    ClipBPE, TokenizerFile, Bytes or WordCharacters; 8,000 pieces are what PythonDocs can fill, T5 has 32,000. None for
    data without text. A run with a teacher, or from a model, takes the tokenizer of that."""
    held_out: float = 0.02
    """Share of the corpus's characters that is kept for evaluation, in whole documents or pairs."""
    held_out_source: Source | None = None
    """A corpus to evaluate on, such as an official development set, instead of a share `held_out` of `source`."""
    corpus: Source | None = None
    """The texts that a model looks passages up in, of objectives that have such; None: those of `source`."""
    augmentation_repeats: Positive = 1
    """N: a batch of training has N copies of each of its rows, which are augmented, or corrupted, by keys of their own
    (Hoffer et al. 2020; 3 in DeiT). An epoch, a pass through all rows, then takes N times the steps. DeiT's epochs have
    as many steps as without: each is 1 / N of such a pass."""
    sentences: SentenceRule = "punctuation"
    """Where sentences end, for objectives that read them: 'punctuation' (rules), or 'line' (each line is one)."""
    cache_dir: str = ""
    """Folder for tokenizers and token stores, on a disk or in a bucket; empty means $T5X_LITE_CACHE, else
    ~/.cache/t5x_lite."""

    prepared: str = ""
    """Folder that `t5x-lite prepare` wrote for this data, on a disk or in a bucket: its tokenizer and rows are used.
    `source` is not read then, but for what is held out where texts are scored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.held_out_source, Mixture) or (isinstance(self.source, Mixture) and self.held_out_source):
            name = type(self.held_out_source).__name__
            raise InputError(f"held_out_source={name}(...) does not go with a mixture; give each of its parts one")

    @property
    def of_corpus(self) -> "Data":
        """The data whose rows are the passages of `corpus`."""
        return replace(self, source=self.corpus, held_out_source=None, corpus=None)

    @property
    def training_sources(self) -> tuple[Source, ...]:
        return tuple(p.source for p in self.source.parts) if isinstance(self.source, Mixture) else (self.source,)

    @property
    def sources(self) -> tuple[Source, ...]:
        """All corpora, to train and to evaluate on."""
        parts = self.source.parts if isinstance(self.source, Mixture) else (self,)
        return tuple(one for part in parts for one in (part.source, part.held_out_source) if one is not None)

    def prepare(
        self,
        layout: Layout,
        *,
        tokenizer: Tokenizer | None = None,
        check_tokenizer: Callable[[Tokenizer], None] = lambda tokenizer: None,
        progress: Progress | None = None,
        workers: int = 1,
    ) -> TokenStore:
        """Tokenizes the corpus into a store of rows, or opens the one that is there.

        The share `held_out` of the characters, in whole documents or pairs, is kept from training (see
        `held_out_threshold`), unless there is a `held_out_source`; the documents of each split become rows of their
        own, and so do those of each of a source's shards. A call that was interrupted is gone on with by the next.
        Each part of a mixture has a store, and its name in an `InputError`; a tokenizer is trained on all parts.

        Args:
          layout: how documents become rows.
          tokenizer: used instead of making one, when a run is resumed.
          check_tokenizer: called with the tokenizer before there is any row; what it raises ends the call.
          progress: called with the stage and the share of it that is done, 0 to 1, or None where it is not known.
          workers: processes that read shards side by side; the store is the same for any number. A script that calls
            this with more than one has to be importable (`if __name__ == "__main__":`).

        Raises:
          InputError: a value out of range, unreadable text, a source without what the layout reads, a document that no
            row can hold, a tokenizer without the special ids of the rows, or a corpus that does not fill a row of each
            split.
          OSError: the disk is full.
        """
        report = progress or (lambda stage, fraction: None)
        if self.prepared:
            store = self._open_prepared(layout, tokenizer)
            if store.tokenizer:
                check_tokenizer(store.tokenizer)
            return store
        if isinstance(self.source, Mixture):
            return self._prepare_parts(layout, tokenizer, check_tokenizer, report, workers)
        corpus, held_out_key = self._corpus(layout), self.held_out
        corpus = replace(corpus, classes=self._classes(layout))
        if self.held_out_source is not None:
            held_out_key = ["source", self.held_out_source.fingerprint()]
        elif not 0 < self.held_out < 0.5:
            raise InputError(
                f"held_out={self.held_out} is not a share of the corpus for evaluation; choose one in (0, 0.5)"
            )
        source_key = self.source.fingerprint()
        if tokenizer is None:
            tokenizer = self._tokenizer(source_key, report, workers)
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        key = store_key(corpus, source_key, held_out_key, tokenizer)
        return make_store(corpus, key, tokenizer, self.cache_path, report, Workers(workers))

    def prepare_corpus(
        self, layout: Layout, rows: Layout, *, tokenizer: Tokenizer | None, progress: Progress | None = None
    ) -> PassageRows:
        """The passages of `corpus`, without a look at `source`; of `source`, where there is no corpus.

        Args:
          layout: how texts become passages.
          rows: how the documents of `source` become rows.
          tokenizer: the one that read these.
          progress: as for `prepare`.

        Raises `InputError` as `prepare` does, and where there is no corpus and the rows are not passages.
        """
        if self.corpus is None and (rows != layout or isinstance(self.source, Mixture)):
            raise InputError(
                "data.corpus=None leaves nothing to look passages up in, since the rows are not passages of one "
                "source; give the texts, such as TextFiles(('wiki/*.txt',)), or --corpus"
            )
        data = self if self.corpus is None else self.of_corpus
        passages = data.prepare(layout, tokenizer=tokenizer, progress=progress)
        return PassageRows(passages.key, [passages.train, passages.held_out])

    def prepare_in(self, folder: Path | epath.Path, layout: Layout, **options: Any) -> TokenStore:
        """The store that a `Data` with this folder in `prepared` opens; options and errors are those of `prepare`."""
        store = replace(self, cache_dir=str(folder), prepared="").prepare(layout, **options)
        of_parts = store.parts if isinstance(store, MixtureStore) else {"": store}
        record = {"stores": {name: part.key for name, part in of_parts.items()}, "data": self._recipe(layout)}
        path = epath.Path(folder) / _PREPARED / f"{digest(self._recipe(layout))}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(record, indent=1) + "\n")
        return store

    def _open_prepared(self, layout: Layout, tokenizer: Tokenizer | None) -> TokenStore:
        folder, recipe = local_or_bucket(self.prepared, "data.prepared"), self._recipe(layout)
        record = read_json(epath.Path(folder) / _PREPARED / f"{digest(recipe)}.json")
        parts = {part.name: part for part in self.source.parts} if isinstance(self.source, Mixture) else {"": self}
        keys = record.get("stores")
        if not isinstance(keys, dict) or keys.keys() != parts.keys():
            raise InputError(
                f"data.prepared={self.prepared} has no rows of this data ({recipe}); write them with 't5x-lite prepare "
                f"CONFIG --out {self.prepared}'"
            )
        stores = {}
        for name, part in parts.items():
            path = folder / "stores" / str(keys[name])
            if not is_complete(path):
                raise InputError(f"data.prepared={self.prepared} is damaged in {path}; prepare it again")
            data = replace(self, source=part.source, held_out_source=part.held_out_source)
            stores[name] = read_store(path, data._corpus(layout))
        store = stores[""] if "" in stores else MixtureStore.of(stores, self.source.rates)
        if tokenizer is not None and store.tokenizer.fingerprint != tokenizer.fingerprint:
            raise InputError(
                f"data.prepared={self.prepared} has another tokenizer than the model that this run begins with or has "
                "so far; prepare the data with that model's"
            )
        return store

    def _recipe(self, layout: Layout) -> str:
        """What determines the rows, as the config says it."""
        corpus = "" if self.corpus is None else f", corpus {self.corpus}"
        held_out = self.held_out if self.held_out_source is None else self.held_out_source
        sentences = f", sentences {self.sentences!r}" if layout.reads_sentences else ""
        return f"{self.source}, {self.tokenizer}, held out {held_out}, {layout}{sentences}{corpus}"

    def _corpus(self, layout: Layout) -> Corpus:
        held_out = self.held_out_source and Documents(self.held_out_source, layout, self.sentences)
        return Corpus(Documents(self.source, layout, self.sentences), self.held_out, held_out)

    def _classes(self, layout: Layout) -> tuple[str, ...]:
        names = layout.classes_of(self.source)
        if self.held_out_source is not None and (held := layout.classes_of(self.held_out_source)) != names:
            raise InputError(
                f"held_out_source has the {len(held)} classes {_some(held)} and source the {len(names)} classes "
                f"{_some(names)}, so that numbers of classes would not agree; set class_names of both to the same"
            )
        return names

    def _tokenizer(self, source_key: str, report: Progress, workers: int) -> Tokenizer | None:
        if self.tokenizer is None:
            return None
        source = self.source if self.corpus is None else self.corpus
        key = source_key if self.corpus is None else source.fingerprint()
        return cached_tokenizer(source, key, self.tokenizer, self.cache_path, report, Workers(workers))

    def _prepare_parts(
        self,
        layout: Layout,
        tokenizer: Tokenizer | None,
        check_tokenizer: Callable[[Tokenizer], None],
        report: Progress,
        workers: int,
    ) -> MixtureStore:
        if tokenizer is None:
            tokenizer = self._tokenizer(self.source.fingerprint(), report, workers)
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        stores = {}
        for part in self.source.parts:
            data = replace(self, source=part.source, held_out_source=part.held_out_source)
            of_stage = lambda stage, fraction, name=part.name: report(f"{stage}: {name}", fraction)  # noqa: E731
            with of_part(part.name):
                stores[part.name] = data.prepare(layout, tokenizer=tokenizer, progress=of_stage, workers=workers)
        return MixtureStore.of(stores, self.source.rates)

    @property
    def cache_path(self) -> Path | epath.Path:
        """`cache_dir` with its default filled in."""
        return local_or_bucket(self.cache_dir, "data.cache_dir") if self.cache_dir else cache_folder()


def _some(names: tuple[str, ...]) -> str:
    return f"({', '.join(names[:10])}{', ...' if len(names) > 10 else ''})"
