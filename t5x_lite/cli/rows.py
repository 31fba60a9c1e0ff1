"""Corrupted rows as coloured text: what the model sees, and what it predicts."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int
from rich.text import Text

from t5x_lite.data import Images, Layout, TextPairs, Tokenizer
from t5x_lite.data.layouts.image_texts import texts_of_row

_MARKED = "bold black on yellow"
STYLES = {"hidden": _MARKED, "random": "bold white on red", "kept": "black on green", "special": "dim", "": ""}
_ROLES = {"cls_id": "[CLS]", "sep_id": "[SEP]", "unk_id": "[UNK]", "pad_id": "[PAD]"}
_LABELS = ("0: B follows A in the text", "1: B does not follow A in the text")

Row = dict[str, Any]
"""The columns or the features of one row."""


def legend() -> Text:
    words = {"hidden": "hidden", "random": "shown as a random token", "kept": "predicted and shown as it is"}
    return Text("  ").join(Text(f" {word} ", STYLES[kind]) for kind, word in words.items())


def describe_row(
    tokenizer: Tokenizer | None, row: Row, features: Row, layout: Layout | None = None, labels: tuple[str, ...] = ()
) -> Iterator[tuple[str, Text]]:
    """(name, text) of a row, named "row", and of every feature that can be read.

    Pairs are shown one a line; sentences with bars between them; examples of tasks with their answers, by their names
    in `labels` where there are classes; columns that are not text by their shape and range.
    """
    if tokenizer is None or "ids" not in row:
        if isinstance(layout, TextPairs):
            yield from _pairs(tokenizer, layout, row)
        else:
            yield "row", _picture(row, labels) if isinstance(layout, Images) else _columns(row)
            if "captions" in row:
                yield "captions", Text("\n".join(texts_of_row(row, tokenizer)))
            yield from ((name, Text(_range(value))) for name, value in features.items())
    elif layout is not None and layout.has_examples:
        yield from _example(tokenizer, row, features, layout, labels)
    elif "positions" in features:
        yield from _masked(tokenizer, row, features)
    else:
        shown = Text(tokenizer.decode(row["ids"]))
        if "sentences" in row:
            numbers = range(1, int(row["sentences"].max()) + 1)
            texts = (tokenizer.decode(row["ids"][row["sentences"] == number]) for number in numbers)
            shown = Text(" | ", "dim").join(Text(text.strip()) for text in texts)
        yield "row", shown
        for name, ids in features.items():
            yield name, highlighted(tokenizer, ids)


def _columns(row: Row) -> Text:
    return Text("\n").join(Text(f"{name}: {_range(value)}") for name, value in row.items())


def _picture(row: Row, labels: tuple[str, ...]) -> Text:
    (height, width), canvas, image = row["size"], row["image"].shape, row["image"]
    text = f"{height} x {width} pixels, stretched to {canvas[0]} x {canvas[1]}, from {image.min()} to {image.max()}"
    if "num_boxes" in row:
        names = ((labels[number] if number < len(labels) else str(number)) for number in row["classes"])
        boxes = zip(names, row["boxes"] * np.tile(row["size"][::-1], 2), row["crowd"], strict=True)
        lines = (
            f"{name}{' (crowd)' * int(crowd)}: {' '.join(f'{side:.1f}' for side in box)}" for name, box, crowd in boxes
        )
        return Text("\n".join((text, *itertools.islice(lines, int(row["num_boxes"])))))
    if "label" not in row:
        return Text(text)
    number = int(row["label"])
    return Text.assemble(text, "\n", f"label {number}: ", (labels[number] if number < len(labels) else "", "bold"))


def _pairs(tokenizer: Tokenizer, layout: TextPairs, row: Row) -> Iterator[tuple[str, Text]]:
    """Every pair of a row, and how much of the row they fill."""
    pairs = layout.pairs_of(row, tokenizer.vocabulary)
    texts = ([tokenizer.decode(side) for side in pair] for pair in pairs)
    yield "row", Text("\n").join(Text.assemble(source, ("  ->  ", "dim"), target) for source, target in texts)
    sources, targets = (
        f"{sum(len(ids) + 1 for ids in side)} of {length} ids"
        for side, length in zip(zip(*pairs, strict=True), (layout.length, layout.target_length), strict=True)
    )
    number = f"{len(pairs)} {'pair' if len(pairs) == 1 else 'pairs'}"
    yield "filled", Text(f"{number}: sources {sources}, targets {targets}")


def _masked(tokenizer: Tokenizer, row: Row, features: Row) -> Iterator[tuple[str, Text]]:
    """What a masked language model sees and predicts."""
    inputs, words = features["inputs"], tokenizer.vocabulary
    yield "row", tokens(tokenizer, row["ids"])
    if "other" in row:
        yield "a segment of another document", tokens(tokenizer, row["other"])
    predicted = zip(features["positions"].tolist(), features["targets"].tolist(), strict=True)
    targets = {position: target for position, target in predicted if target != words.pad_id}
    kinds, answers = {}, []
    for position, target in targets.items():
        shown, note = inputs[position], ""
        kinds[position] = "hidden" if shown == words.mask_id else "kept" if shown == target else "random"
        if kinds[position] == "kept":
            note = " (shown)"
        elif kinds[position] == "random":
            note = f" (shown as {tokenizer.decode([shown]).strip()})"
        answers.append(Text.assemble((f"{position} ", "dim"), (tokenizer.decode([target]).strip(), "bold"), note))
    yield "inputs", tokens(tokenizer, inputs, targets, kinds)
    yield "targets", Text(", ").join(answers)
    if "left" in features:
        spans: dict[tuple[int, int], list[int]] = {}  # hidden ids by the two positions that predict them
        for left, right, target in zip(features["left"], features["right"], targets.values(), strict=False):
            spans.setdefault((int(left), int(right)), []).append(target)
        shown_spans = []
        for bounds, inside in spans.items():
            left, right = (tokens(tokenizer, inputs[[bound]]) for bound in bounds)
            span = (tokenizer.decode(inside).strip(), "bold")
            shown_spans.append(Text.assemble(left, " < ", span, " > ", right))
        yield "span boundaries", Text("  |  ").join(shown_spans)
    if features["segments"].any():
        yield "segments", _segments(tokenizer, features)
    if "label" in features:
        yield "label", Text(_LABELS[int(features["label"])])


def _example(
    tokenizer: Tokenizer, row: Row, features: Row, layout: Layout, labels: tuple[str, ...]
) -> Iterator[tuple[str, Text]]:
    for number, ids in enumerate(np.atleast_2d(row["ids"])):
        yield f"choice {number}" if number else "row", tokens(tokenizer, ids, added_ids=layout.added_ids)
    if "swapped" in features:
        yield "swapped", tokens(tokenizer, features["swapped"], added_ids=layout.added_ids)
    if np.ndim(features.get("segments", 0)) == 1 and features["segments"].any():
        yield "segments", _segments(tokenizer, features)
    if "label" in features:
        label = float(features["label"])
        yield "label", Text(f"{int(label)}: {labels[int(label)]}" if labels else str(label))
    if "tags" in features:
        (firsts,) = np.nonzero(features["tags"] >= 0)
        pieces = ((tokenizer.decode_span(features["inputs"], i, i), labels[features["tags"][i]]) for i in firsts)
        tagged = (Text.assemble(piece, ("/", "dim"), (tag, "bold")) for piece, tag in pieces)
        yield f"tags of sentence {features['example']}", Text("  ").join(tagged)
    if "ends" in features:
        begin, end = features["ends"].tolist()
        answer = tokenizer.decode_span(features["inputs"], begin, end) if begin else "(not in this window)"
        yield f"answer to question {features['example']}", Text(answer)


def _segments(tokenizer: Tokenizer, features: Row) -> Text:
    inside = features["inputs"] != tokenizer.vocabulary.pad_id
    sizes = [int((inside & (features["segments"] == segment)).sum()) for segment in (0, 1)]
    return Text(f"A {sizes[0]} ids, B {sizes[1]}, special ones included")


def _range(value: np.ndarray) -> str:
    value = np.asarray(value)
    if not value.ndim:
        return str(value)
    return f"{value.dtype} [{', '.join(map(str, value.shape))}], from {value.min():g} to {value.max():g}"


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
    """The text of some ids, special ones by name and padding counted.

    Args:
      tokenizer: of the ids.
      ids: of the row.
      targets: ids before the corruption by position; they decide whether a blank comes before.
      kinds: keys of `STYLES` by position.
      added_ids: names of ids beyond the vocabulary's.
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
