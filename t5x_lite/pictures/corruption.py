"""What became of each token of a row: hidden, replaced, kept or moved."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from t5x_lite.data.layouts.base import Row
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Source
from t5x_lite.data.splits import Documents
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import ReplacedTokenDetection
from t5x_lite.objectives.base import Objective, corrupt_rows
from t5x_lite.pictures.attention import attention_masks
from t5x_lite.pictures.drawing import Picture
from t5x_lite.tokenizers.base import Tokenizer, format_tokens
from t5x_lite.tokenizers.vocabulary import Vocabulary

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
        positions, predicted_ids = features["positions"][used], targets[used]
        before, roles = inputs.copy(), [""] * len(inputs)
        before[positions] = predicted_ids
        for position, target in zip(positions.tolist(), predicted_ids.tolist(), strict=True):
            seen = inputs[position]
            roles[position] = "hidden" if seen == vocabulary.mask_id else "kept" if seen == target else "random"
        yield Strip("text", before, roles)
        yield Strip("generator" if "filled" in features else "model reads", inputs, roles)
        if "filled" in features:
            filled: list[Role] = [""] * len(inputs)
            for position, target in zip(positions.tolist(), predicted_ids.tolist(), strict=True):
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
    """The roles before and after where sentinels stand for spans that the targets write out; else None."""
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
    for index, token in enumerate(inputs.tolist()):
        if after[index] and (_mark(vocabulary, token) or token in vocabulary.special_ids):
            after[index] = _mark(vocabulary, token)
        elif after[index] and moved[token] < gone[token]:
            after[index] = "moved"
            moved[token] += 1
    for index, token in enumerate(raw.tolist()):
        if before[index] and moved[token]:
            before[index] = "moved"
            moved[token] -= 1
        elif before[index] and token in vocabulary.special_ids:
            before[index] = ""
    return before, after


COLORS = {"hidden": "#ffdf7e", "random": "#ffa8a0", "kept": "#a9e5a3", "moved": "#abcbff"}
_MEANINGS = {
    "hidden": "hidden or asked for",
    "random": "another token",
    "kept": "asked for, but shown",
    "moved": "moved",
}
_MOST_TOKENS = 200
_COLUMNS = 100
"""Characters of a line."""
_SIZE = 8.0
_CHARACTER = 0.6021 * _SIZE / 72
_LINE = 1.7 * _SIZE / 72
_MASK = 1.5


def draw_corruption(
    objective: Objective,
    tokenizer: Tokenizer,
    rows: Sequence[Row] | Sequence[str],
    *,
    model: ModelConfig | None = None,
    params: Any = None,
    seed: int = 0,
    most_rows: int = 3,
) -> Picture:
    """The first rows as they are and as the objective gives them to the model, what is changed in colour.

    Args:
      rows: those of a token store, or texts, which become rows first.
      model: draws the masks of its attention too.
      params: of the model, where it is ELECTRA's pair: draws what the generator fills in too.
      seed: of what the objective draws.
    """
    objective = objective.for_vocabulary(tokenizer.vocabulary)
    if not all(isinstance(row, Mapping) for row in rows):
        rows = rows_of_texts(objective, tokenizer, rows)
    rows = [rows[number] for number in range(min(most_rows, len(rows)))]
    features = jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(seed), batch))(stack(rows))
    if "inputs" not in features or features["inputs"].ndim != 2:
        raise InputError(
            f"objective={type(objective).__name__} reads several texts for a row, which are not drawn; print them with "
            "inspect"
        )
    masks = {} if model is None else attention_masks(objective, model, features)
    if model is not None and params is not None and isinstance(objective, ReplacedTokenDetection):
        features["filled"] = jax.jit(objective.filled, static_argnums=0)(model.build(), params, features)
    features = jax.device_get(features)
    if objective.unit != "token":
        features.pop("targets", None)  # they are no tokens
    shown = []
    for number, row in enumerate(rows):
        of_row = {name: value[number] for name, value in features.items()}
        shown.append([*strips(tokenizer.vocabulary, row.get("ids", row.get("inputs")), of_row)])
    formatted = [[list(_words(tokenizer, strip)) for strip in of_row] for of_row in shown]
    heights = [_height(words, bool(masks)) for words in formatted]
    roles = {role for of_row in shown for strip in of_row for role in strip.roles}
    picture, axes = _paper(type(objective).__name__, roles, heights, len(masks))
    for row, words in enumerate(formatted):
        label = f", label {float(features['label'][row]):g}" if "label" in features else ""
        _write(axes[row][0], shown[row], words, f"row {row}{label}")
        for panel, (kind, mask) in zip(axes[row][1:], masks.items(), strict=True):
            panel.imshow(mask[row], cmap="Greys", vmin=0, vmax=1.4, aspect="auto", interpolation="nearest")
            panel.set(xticks=[], yticks=[])
            panel.set_title(f"{kind} may look", fontsize=_SIZE)
            panel.set_xlabel("key", fontsize=_SIZE - 1, labelpad=2)
            panel.set_ylabel("query", fontsize=_SIZE - 1, labelpad=2)
    return picture


@dataclass(frozen=True)
class _Given(Source):
    """Texts that are there already."""

    texts: tuple[str, ...]

    def documents(self) -> Iterator[str]:
        yield from self.texts

    def fingerprint(self) -> str:
        raise NotImplementedError


def rows_of_texts(
    objective: Objective, tokenizer: Tokenizer, texts: Sequence[str], sentences: SentenceRule = "punctuation"
) -> list[Row]:
    """Texts as the objective's rows; `InputError` where they do not fill one."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"rows={texts!r} are none; give a list of texts, or rows of a store")
    documents = Documents(_Given(tuple(texts)), objective.layout, sentences)
    builder = objective.layout.start(tokenizer.vocabulary)
    for ids in objective.layout.tokenize(list(documents), tokenizer, sentences):
        builder.add(ids)
    builder.finish()
    if not (rows := builder.take()):
        what, remedy = builder.shortage
        raise InputError(f"the texts make no row: {what}; {remedy}")
    return rows


def _words(tokenizer: Tokenizer, strip: Strip) -> Iterator[tuple[str, str]]:
    """(word, role) of the tokens of a strip; padding is counted, and a long strip cut."""
    ids, pad_id = strip.ids.tolist(), tokenizer.vocabulary.pad_id
    words, index = format_tokens(tokenizer, ids), 0
    while index < min(len(ids), _MOST_TOKENS):
        end = index + 1
        while tokenizer.vocabulary.has_padding and end < len(ids) and ids[index] == ids[end] == pad_id:
            end += 1
        yield words[index] if end == index + 1 else f"{words[index]} × {end - index}", strip.roles[index]
        index = end
    if index < len(ids):
        yield f"… and {len(ids) - index} more", ""


def _lines(words: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    lines: list[list[tuple[str, str]]] = [[]]
    used = 0
    for word, role in words:
        if used and used + len(word) > _COLUMNS:
            lines.append([])
            used = 0
        lines[-1].append((word, role))
        used += len(word) + 1
    return lines


def _height(strips_of_row: list[list[tuple[str, str]]], has_masks: bool) -> float:
    lines = sum(len(_lines(words)) for words in strips_of_row)
    return max((lines + 1.2 + 0.5 * len(strips_of_row)) * _LINE, _MASK + 0.6 if has_masks else 0.0)


def _paper(name: str, roles: set[str], heights: list[float], num_masks: int) -> tuple[Picture, list[list[Any]]]:
    """A picture with a place for the text of each row and, beside it, for its masks; everything in inches."""
    text = 1.0 + (_COLUMNS + 2) * _CHARACTER
    width, height = 0.2 + text + num_masks * (_MASK + 0.35), 0.75 + sum(heights) + 0.1
    picture = Picture(figsize=(width, height))
    picture.text(0.2 / width, 1 - 0.25 / height, name, fontsize=11, weight="bold", va="center")
    left = 0.2
    for role, meaning in ((role, meaning) for role, meaning in _MEANINGS.items() if role in roles):
        spot = {"facecolor": COLORS[role], "edgecolor": "none", "pad": 2.0}
        picture.text(
            left / width, 1 - 0.5 / height, meaning, fontsize=_SIZE, va="center", family="monospace", bbox=spot
        )
        left += (len(meaning) + 3) * _CHARACTER
    panels, top = [], height - 0.75
    for of_row in heights:
        boxes = [(0.2, top - of_row, text, of_row)]
        boxes += [(0.2 + text + 0.25 + n * (_MASK + 0.35), top - 0.3 - _MASK, _MASK, _MASK) for n in range(num_masks)]
        panels.append([picture.add_axes((x / width, y / height, w / width, h / height)) for x, y, w, h in boxes])
        top -= of_row
    return picture, panels


def _write(axes: Any, shown: list[Strip], words: list[list[tuple[str, str]]], title: str) -> None:
    """The strips of a row, in units of characters and lines."""
    box = axes.get_position()
    width, height = axes.figure.get_size_inches()
    axes.set(xlim=(0, box.width * width / _CHARACTER), ylim=(box.height * height / _LINE, 0))
    axes.set_axis_off()
    style = {"fontsize": _SIZE, "family": "monospace", "va": "center", "parse_math": False}
    axes.text(0, 0.5, title, weight="bold", **style)
    y = 1.5
    for strip, of_strip in zip(shown, words, strict=True):
        axes.text(0, y, strip.name, color="gray", **style)
        for line in _lines(of_strip):
            x = 1.0 / _CHARACTER
            for word, role in line:
                spot = {"facecolor": COLORS[role], "edgecolor": "none", "pad": 1.2} if role else None
                axes.text(x, y, word, bbox=spot, **style)
                x += len(word) + 1
            y += 1
        y += 0.5
