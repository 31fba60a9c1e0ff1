"""What the splits of a token store were made of, as its summary says."""

from dataclasses import dataclass, fields, replace
from typing import Any

from t5x_lite.data.layouts.base import Layout, RowBuilder
from t5x_lite.data.splits import OverlapCounter, Part, location_in_split
from t5x_lite.data.stored_rows import SPLITS


@dataclass(frozen=True)
class SplitFigures:
    """What a split of a store was made of."""

    documents: int
    """Texts or pairs."""
    skipped_documents: int
    """Those that began no row of their own (see `RowBuilder.skipped`)."""
    tokens: int
    """Ids of the documents."""
    rows: int
    padding: float
    """Share of the ids in its rows that is padding."""
    too_long: int
    """Pairs that were left out or cut since they are longer than a row."""
    first_too_long: str
    """Where the first of them stands, and its lengths; empty when there is none."""
    in_training: int = 0
    """Of held-out examples from a source of their own: those whose texts are trained on too."""
    same_in_training: int = 0
    """Those of them that are trained on with the same answer."""
    first_in_training: str = ""
    """Where the first of them stands; empty when there is none."""


def write_figures(
    layout: Layout, builders: dict[str, RowBuilder], parts: list[Part], counter: OverlapCounter | None
) -> dict[str, dict[str, Any]]:
    """The figures of every split, by figure and split, as `store.json` has them."""
    figures = {
        name: SplitFigures(
            documents=builder.documents,
            skipped_documents=builder.skipped,
            tokens=builder.tokens,
            rows=builder.rows,
            padding=builder.padding / max(builder.rows * layout.num_ids, 1),
            too_long=builder.too_long,
            first_too_long=_first_too_long(builder, name, parts),
        )
        for name, builder in builders.items()
    }
    if counter and (found := counter.count()).found:
        location = parts[-1].documents.location(found.first)
        found_overlap = {
            "in_training": found.found,
            "same_in_training": found.same_answer,
            "first_in_training": location,
        }
        figures["held_out"] = replace(figures["held_out"], **found_overlap)
    return {field.name: {n: getattr(figures[n], field.name) for n in SPLITS} for field in fields(SplitFigures)}


def read_figures(summary: dict[str, Any]) -> dict[str, SplitFigures]:
    """By split."""
    names = [field.name for field in fields(SplitFigures)]
    return {split: SplitFigures(**{name: summary[name][split] for name in names}) for split in SPLITS}


def _first_too_long(builder: RowBuilder, name: str, parts: list[Part]) -> str:
    if builder.first_too_long is None:
        return ""
    number, problem = builder.first_too_long
    return f"{location_in_split(parts, name, number)}: {problem}"
