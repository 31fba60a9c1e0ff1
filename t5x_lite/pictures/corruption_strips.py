"""What became of each token of a row: hidden, replaced, kept or moved."""

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from t5x_lite.data.vocabulary import Vocabulary

Role = Literal["hidden", "random", "kept", "moved", ""]


class Strip(NamedTuple):
    """A line of tokens, each with what became of it; empty: nothing."""

    name: str
    ids: Int[np.ndarray, "L"]
    roles: list[Role]


def strips(vocabulary: Vocabulary, raw: Int[np.ndarray, "R"], features: dict[str, np.ndarray]) -> Iterator[Strip]:
    """A row before and after, where the two differ, and what is asked for where that is a text of its own."""
    inputs, targets = features["inputs"], features.get("targets")
    if "positions" in features:  # single tokens are asked for in their places
        used = targets != vocabulary.pad_id
        positions, asked = features["positions"][used], targets[used]
        before, roles = inputs.copy(), [""] * len(inputs)
        before[positions] = asked
        for position, target in zip(positions.tolist(), asked.tolist(), strict=True):
            seen = inputs[position]
            roles[position] = "hidden" if seen == vocabulary.mask_id else "kept" if seen == target else "random"
        yield Strip("text", before, roles)
        yield Strip("generator" if "filled" in features else "model reads", inputs, roles)
        if "filled" in features:
            filled: list[Role] = [""] * len(inputs)
            for position, target in zip(positions.tolist(), asked.tolist(), strict=True):
                filled[position] = "kept" if features["filled"][position] == target else "random"
            yield Strip("discriminator", features["filled"], filled)
        return
    if np.array_equal(raw[: len(inputs)], inputs):
        yield Strip("model reads", inputs, [""] * len(inputs))
    else:
        before, after = _spans(vocabulary, raw, inputs, targets) or _changes(vocabulary, raw, inputs)
        yield Strip("text", raw, before)
        yield Strip("model reads", inputs, after)
    if targets is not None:
        marks = [_mark(vocabulary, token) for token in targets.tolist()]
        yield Strip("is asked for", targets, marks)


def _mark(vocabulary: Vocabulary, token: int) -> str:
    return "hidden" if token == vocabulary.mask_id or vocabulary.sentinel_number(token) is not None else ""


def _spans(
    vocabulary: Vocabulary, raw: np.ndarray, inputs: np.ndarray, targets: np.ndarray
) -> tuple[list[Role], list[Role]] | None:
    """The roles before and after where sentinels stand for spans that the targets spell; else None."""
    spans: dict[int, list[int]] = {}
    number = None
    for token in targets.tolist():
        if (sentinel := vocabulary.sentinel_number(token)) is not None:
            number = sentinel
            spans[number] = []
        elif number is not None and token not in (vocabulary.eos_id, vocabulary.pad_id):
            spans[number].append(token)
    text, before, after = [], [], []
    for token in inputs.tolist():
        span = spans.get(vocabulary.sentinel_number(token))
        after.append("" if span is None else "hidden")
        text += [token] if span is None else span
        before += [""] if span is None else ["hidden"] * len(span)
    if not spans or text[: len(raw)] != raw.tolist():
        return None
    return before[: len(raw)], after


def _changes(vocabulary: Vocabulary, raw: np.ndarray, inputs: np.ndarray) -> tuple[list[Role], list[Role]]:
    """The roles before and after from what the two have in common, in its order."""
    before, after = ["hidden"] * len(raw), ["random"] * len(inputs)
    matcher = SequenceMatcher(None, raw.tolist(), inputs.tolist(), autojunk=False)
    for i, j, size in matcher.get_matching_blocks():
        before[i : i + size], after[j : j + size] = [""] * size, [""] * size
    gone = Counter(token for token, role in zip(raw.tolist(), before, strict=True) if role)
    moved: Counter[int] = Counter()
    for place, token in enumerate(inputs.tolist()):
        if after[place] and (_mark(vocabulary, token) or token in vocabulary.special_ids):
            after[place] = _mark(vocabulary, token)
        elif after[place] and moved[token] < gone[token]:
            after[place] = "moved"
            moved[token] += 1
    for place, token in enumerate(raw.tolist()):
        if before[place] and moved[token]:
            before[place] = "moved"
            moved[token] -= 1
        elif before[place] and token in vocabulary.special_ids:
            before[place] = ""
    return before, after
