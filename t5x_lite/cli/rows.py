"""Corrupted rows for people to look at: what the model sees, and what it predicts."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int
from rich.text import Text

from t5x_lite.data import Layout, TextPairs, Tokenizer

_MARKED = "bold black on yellow"
STYLES = {"hidden": _MARKED, "random": "bold white on red", "kept": "black on green", "special": "dim", "": ""}
_ROLES = {"cls_id": "[CLS]", "sep_id": "[SEP]", "unk_id": "[UNK]", "pad_id": "[PAD]"}
_LABELS = ("0: B follows A in the text", "1: B does not follow A in the text")

Row = dict[str, Any]
"""The columns or the features of one row."""


def legend() -> Text:
    """What the styles of `rows_of_tokens` mean."""
    words = {"hidden": "hidden", "random": "shown as a random token", "kept": "predicted and shown as it is"}
    return Text("  ").join(Text(f" {words[kind]} ", STYLES[kind]) for kind in words)


def describe_row(
    tokenizer: Tokenizer | None, row: Row, features: Row, layout: Layout | None = None, labels: tuple[str, ...] = ()
) -> Iterator[tuple[str, Text]]:
    """(name, text) of a row, named "row", and of every feature that can be read.

    Pairs, of which nothing is corrupted, stand one a line; sentences with bars between them; examples of tasks with
    their answers, by their names in `labels` where there are classes; what is not text by its shape and range.
    """
    if tokenizer is None or "ids" not in row:
        if isinstance(layout, TextPairs):
            pairs = layout.pairs_of(row, tokenizer.vocabulary)
            yield "row", _pairs(tokenizer, pairs)
            yield "filled", _filled(layout, pairs)
            return
        yield "row", Text("\n").join(Text(f"{name}: {_range(value)}") for name, value in row.items())
        yield from ((name, Text(_range(value))) for name, value in features.items())
    elif layout is not None and layout.has_examples:
        yield from _example(tokenizer, row, features, layout, labels)
    elif "positions" not in features:
        is_numbered = "sentences" in row
        yield "row", _sentences(tokenizer, **row) if is_numbered else Text(tokenizer.decode(row["ids"]))
        for name, ids in features.items():
            yield name, highlighted(tokenizer, ids)
    else:
        yield from _masked(tokenizer, row, features)


def _masked(tokenizer: Tokenizer, row: Row, features: Row) -> Iterator[tuple[str, Text]]:
    """(name, text) of what a masked language model sees and predicts."""
    yield "row", tokens(tokenizer, row["ids"])
    if "other" in row:
        yield "a segment of another document", tokens(tokenizer, row["other"])
    targets = dict(_asked(tokenizer, features))
    kinds = {position: _kind(tokenizer, features, position, target) for position, target in targets.items()}
    yield "inputs", tokens(tokenizer, features["inputs"], targets, kinds)
    yield "targets", _targets(tokenizer, features, targets, kinds)
    if "left" in features:
        yield "span boundaries", _spans(tokenizer, features, targets)
    if features["segments"].any():
        yield "segments", _segments(tokenizer, features)
    if "label" in features:
        yield "label", Text(_LABELS[int(features["label"])])


def _example(
    tokenizer: Tokenizer, row: Row, features: Row, layout: Layout, labels: tuple[str, ...]
) -> Iterator[tuple[str, Text]]:
    """(name, text) of an example of a task."""
    for number, ids in enumerate(np.atleast_2d(row["ids"])):
        yield f"choice {number}" if number else "row", tokens(tokenizer, ids, added_ids=layout.added_ids)
    if "swapped" in features:
        yield "swapped", tokens(tokenizer, features["swapped"], added_ids=layout.added_ids)
    if np.ndim(features.get("segments", 0)) == 1 and features["segments"].any():
        yield "segments", _segments(tokenizer, features)
    if "label" in features:
        yield "label", Text(_label(float(features["label"]), labels))
    if "tags" in features:
        yield f"tags of sentence {features['example']}", _tags(tokenizer, features, labels)
    if "ends" in features:
        begin, end = features["ends"].tolist()
        answer = tokenizer.decode(features["inputs"][begin : end + 1]).strip() if begin else "(not in this window)"
        yield f"answer to question {features['example']}", Text(answer)


def _range(value: np.ndarray) -> str:
    value = np.asarray(value)
    if not value.ndim:
        return str(value)
    return f"{value.dtype} [{', '.join(map(str, value.shape))}], from {value.min():g} to {value.max():g}"


def _tags(tokenizer: Tokenizer, features: Row, labels: tuple[str, ...]) -> Text:
    (firsts,) = np.nonzero(features["tags"] >= 0)
    tagged = ((tokenizer.decode([features["inputs"][i]]).strip(), labels[features["tags"][i]]) for i in firsts)
    return Text("  ").join(Text.assemble(piece, ("/", "dim"), (tag, "bold")) for piece, tag in tagged)


def _label(label: float, labels: tuple[str, ...]) -> str:
    return f"{int(label)}: {labels[int(label)]}" if labels else str(label)


def highlighted(tokenizer: Tokenizer, ids: Int[np.ndarray, "L"]) -> Text:
    """The text of some ids, sentinels and masks in colour."""
    text = Text(tokenizer.decode(ids))
    marks = r"<extra_id_\d+>" + (f"|{re.escape(tokenizer.mask_token)}" if tokenizer.mask_token else "")
    text.highlight_regex(re.compile(marks), _MARKED)
    return text


def tokens(
    tokenizer: Tokenizer,
    ids: Int[np.ndarray, "L"],
    targets: dict[int, int] | None = None,
    kinds: dict[int, str] | None = None,
    added_ids: tuple[str, ...] = (),
) -> Text:
    """The text of some ids, special ones written and padding counted.

    `targets` says what stood at some positions, which decides whether a blank is before them, `kinds` their styles;
    `added_ids` are the names of ids beyond the vocabulary's.
    """
    vocabulary, text, targets = tokenizer.vocabulary, Text(), targets or {}
    special = {getattr(vocabulary, role): name for role, name in _ROLES.items()}
    special |= {vocabulary.size + number: f"[{name.upper()}]" for number, name in enumerate(added_ids)}
    continues = vocabulary.continues_word() if vocabulary.marks_words else np.zeros(vocabulary.size, bool)
    continues = np.concatenate([continues, np.zeros(len(added_ids), bool)])

    def kind(position: int) -> str:
        return (kinds or {}).get(position) or ("special" if ids[position] in special else "")

    start = 0
    while start < len(ids):
        end, token = start + 1, ids[start]
        while end < len(ids) and (ids[end] == token if token in special else kind(end) == kind(start)):
            end += 1
        word = tokenizer.decode(ids[start:end]).strip()
        if token in special:
            word = special[token] if end == start + 1 else f"{special[token]} x {end - start}"
        glued = not start or (continues[targets.get(start, token)] and ids[start - 1] not in special)
        text.append("" if glued else " ").append(word, STYLES[kind(start)])
        start = end
    return text


def _pairs(tokenizer: Tokenizer, pairs: list[tuple[np.ndarray, np.ndarray]]) -> Text:
    def one(source: np.ndarray, target: np.ndarray) -> Text:
        return Text.assemble(tokenizer.decode(source), ("  ->  ", "dim"), tokenizer.decode(target))

    return Text("\n").join(one(*pair) for pair in pairs)


def _filled(layout: TextPairs, pairs: list[tuple[np.ndarray, np.ndarray]]) -> Text:
    lengths = layout.length, layout.target_length
    sources, targets = (
        f"{sum(len(ids) + 1 for ids in side)} of {length} ids"
        for side, length in zip(zip(*pairs, strict=True), lengths, strict=True)
    )
    return Text(f"{len(pairs)} {'pair' if len(pairs) == 1 else 'pairs'}: sources {sources}, targets {targets}")


def _sentences(tokenizer: Tokenizer, ids: Int[np.ndarray, "L"], sentences: Int[np.ndarray, "L"]) -> Text:
    texts = (ids[sentences == number] for number in range(1, int(sentences.max()) + 1))
    return Text(" | ", "dim").join(Text(tokenizer.decode(text).strip()) for text in texts)


def _asked(tokenizer: Tokenizer, features: Row) -> Iterator[tuple[int, int]]:
    """(position, target) of each position that is used."""
    for position, target in zip(features["positions"].tolist(), features["targets"].tolist(), strict=True):
        if target != tokenizer.vocabulary.pad_id:
            yield position, target


def _kind(tokenizer: Tokenizer, features: Row, position: int, target: int) -> str:
    seen = features["inputs"][position]
    return "hidden" if seen == tokenizer.vocabulary.mask_id else "kept" if seen == target else "random"


def _targets(tokenizer: Tokenizer, features: Row, targets: dict[int, int], kinds: dict[int, str]) -> Text:
    def one(position: int, target: int) -> Text:
        shown = {"hidden": "", "kept": " (shown)"}.get(kinds[position])
        if shown is None:
            shown = f" (shown as {tokenizer.decode([features['inputs'][position]]).strip()})"
        return Text.assemble((f"{position} ", "dim"), (tokenizer.decode([target]).strip(), "bold"), shown)

    return Text(", ").join(one(position, target) for position, target in targets.items())


def _spans(tokenizer: Tokenizer, features: Row, targets: dict[int, int]) -> Text:
    """Each hidden span between the two tokens that predict it."""
    spans: dict[tuple[int, int], list[int]] = {}
    used = len(targets)
    for left, right, target in zip(
        *(features[name][:used].tolist() for name in ("left", "right", "targets")), strict=True
    ):
        spans.setdefault((left, right), []).append(target)

    def one(bounds: tuple[int, int], inside: list[int]) -> Text:
        left, right = (tokens(tokenizer, features["inputs"][[bound]]) for bound in bounds)
        return Text.assemble(left, " < ", (tokenizer.decode(inside).strip(), "bold"), " > ", right)

    return Text("  |  ").join(one(bounds, inside) for bounds, inside in spans.items())


def _segments(tokenizer: Tokenizer, features: Row) -> Text:
    inside = features["inputs"] != tokenizer.vocabulary.pad_id
    sizes = [int((inside & (features["segments"] == segment)).sum()) for segment in (0, 1)]
    return Text(f"A {sizes[0]} ids, B {sizes[1]}, special ones included")
