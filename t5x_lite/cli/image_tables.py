"""A store of pictures as tables: splits, classes and sizes."""

from collections import Counter
from collections.abc import Iterator

from rich.table import Column, Table
from rich.text import Text

from t5x_lite.data import TokenStore

_MOST_CLASSES = 20


def image_tables(store: TokenStore) -> Iterator[Table]:
    """The pictures of each split, then how many each class and each range of sizes has; a class without a picture too,
    and of many classes those with the most and the fewest."""
    splits = {name.replace("_", "-"): figures for name, figures in store.figures.items()}
    columns = ("images", "left out", "encoded anew", "rows")
    table = Table("split", *(Column(name, justify="right") for name in columns), box=None)
    for name, figures in splits.items():
        anew = figures.counts.get("stored", {}).get("anew", 0)
        counts = (figures.documents, figures.skipped_documents, anew, figures.rows)
        table.add_row(name, *(f"{count:,}" for count in counts))
    yield table

    of_classes = {name: figures.counts.get("labels", {}) for name, figures in splits.items()}
    if store.classes:
        total = sum(map(Counter, of_classes.values()), Counter())
        numbers: list[int | None] = list(range(len(store.classes)))
        if len(numbers) > _MOST_CLASSES:
            by_count = sorted(range(len(store.classes)), key=lambda number: -total[str(number)])
            half = _MOST_CLASSES // 2
            numbers = [*by_count[:half], None, *by_count[-half:]]
        table = Table("class", "name", *(Column(name, justify="right") for name in splits), box=None)
        for number in numbers:
            if number is None:
                table.add_row("...", f"{len(store.classes) - _MOST_CLASSES:,} others")
            else:
                counts = (f"{counts.get(str(number), 0):,}" for counts in of_classes.values())
                table.add_row(str(number), Text(store.classes[number]), *counts)
        yield table

    for title, counted in (("shorter side", "sizes"), ("objects", "objects"), ("boxes", "boxes")):
        counts = {name: Counter(figures.counts.get(counted, {})) for name, figures in splits.items()}
        if any(counts.values()):
            table = Table(title, *(Column(name, justify="right") for name in splits), box=None)
            for key in sorted(sum(counts.values(), Counter()), key=lambda key: (len(key), key)):
                table.add_row(_span(key), *(f"{of_split[key]:,}" for of_split in counts.values()))
            yield table


def _span(key: str) -> str:
    """The numbers that are counted together from this power of two on, or a name as it is.

    >>> [_span(key) for key in ("0", "1", "16", "clipped")]
    ['0', '1', '16 to 31', 'clipped']
    """
    return f"{int(key):,} to {2 * int(key) - 1:,}" if key.isdigit() and int(key) > 1 else key
