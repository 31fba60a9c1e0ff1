"""The token stores of a mixture's parts as one."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from t5x_lite.data.layouts.base import Example, Layout, Row
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.mixed_rows import MixedRows, RowsInTurns
from t5x_lite.data.mixtures import Mixture, Rates, of_part
from t5x_lite.data.store import Progress, TokenStore, cached_tokenizer, prepare
from t5x_lite.tokenizers.config import Tokenizer, TokenizerConfig


@dataclass(frozen=True, eq=False)
class MixtureStore(TokenStore):
    """A store for each part of a mixture. `train` has all their rows, drawn at the mixture's rates by `batches`;
    `held_out` has those of the parts in turns; `figures` has "train" and "held_out" of each part behind its name."""

    parts: dict[str, TokenStore]
    """By name."""
    shares: dict[str, float]
    """Of each part among the examples that are drawn."""

    def held_out_documents(self) -> Iterator[Example]:
        """What the held-out rows of each part were made of, those of one part behind those of another."""
        return itertools.chain.from_iterable(store.held_out_documents() for store in self.parts.values())

    @property
    def rows_to_show(self) -> Sequence[Row]:
        """Those of the parts in turns."""
        return RowsInTurns([store.train for store in self.parts.values()])

    @property
    def remarks(self) -> list[str]:
        """How much of the training each part is, and those of the parts."""
        shares = ", ".join(f"{name} {share:.2%}" for name, share in self.shares.items())
        of_parts = [f"{name}: {remark}" for name, store in self.parts.items() for remark in store.remarks]
        return [f"mixture, shares of examples: {shares}", *of_parts]


def prepare_mixture(
    mixture: Mixture,
    tokenizer_config: TokenizerConfig | None,
    layout: Layout,
    *,
    held_out: float,
    cache_dir: Path,
    sentences: SentenceRule = "punctuation",
    tokenizer: Tokenizer | None = None,
    progress: Progress | None = None,
) -> MixtureStore:
    """Tokenize each part into its store, or open the one that is there: see `store.prepare`.

    A tokenizer that is to be trained is trained on all parts. Raises `InputError` with the name of a part that is
    empty, or bad in any other way.
    """
    report = progress or (lambda stage, fraction: None)
    if tokenizer is None and tokenizer_config is not None:
        folder = Path(cache_dir) / "tokenizers"
        tokenizer = cached_tokenizer(mixture, mixture.fingerprint(), tokenizer_config, folder, report)
    stores = {}
    for part in mixture.parts:
        with of_part(part.name):
            stores[part.name] = prepare(
                part.source,
                tokenizer_config,
                layout,
                held_out=held_out,
                cache_dir=cache_dir,
                held_out_source=part.held_out_source,
                sentences=sentences,
                tokenizer=tokenizer,
                progress=lambda stage, fraction, name=part.name: report(f"{stage}: {name}", fraction),
            )
    return _join(stores, mixture.rates, tokenizer, layout, Path(cache_dir))


def _join(
    stores: dict[str, TokenStore], rates: Rates, tokenizer: Tokenizer | None, layout: Layout, cache_dir: Path
) -> MixtureStore:
    sizes = [_examples(store) for store in stores.values()]
    shares = rates.of(sizes)
    # Rates are of examples; a row of several is drawn as much less often.
    of_rows = [
        share * len(store.train) / size for share, size, store in zip(shares, sizes, stores.values(), strict=True)
    ]
    parts = [(name, store.key) for name, store in stores.items()]
    formatted = json.dumps([parts, type(rates).__name__, asdict(rates)])
    return MixtureStore(
        key=hashlib.blake2b(formatted.encode(), digest_size=16).hexdigest(),
        path=cache_dir / "stores",
        tokenizer=tokenizer,
        train=MixedRows([store.train for store in stores.values()], of_rows),
        held_out=RowsInTurns([store.held_out for store in stores.values()]),
        layout=layout,
        figures={
            f"{name} {split}": figures for name, store in stores.items() for split, figures in store.figures.items()
        },
        corpus=None,
        parts=stores,
        shares=dict(zip(stores, shares, strict=True)),
    )


def _examples(store: TokenStore) -> int:
    """What counts as examples in a store's rows: pairs and labelled texts, else rows."""
    if not store.layout.has_examples:
        return len(store.train)
    return store.figures["train"].documents - store.figures["train"].skipped_documents
