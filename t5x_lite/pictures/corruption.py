"""Rows as pictures, before and after corruption, with the hidden, replaced, kept and moved tokens in colour."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from math import ceil
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from t5x_lite.data.layouts.base import Row
from t5x_lite.data.records.base import Source
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import ReplacedTokenDetection
from t5x_lite.objectives.base import Objective, corrupt_rows
from t5x_lite.objectives.span_corruption import spans_by_sentinel
from t5x_lite.pictures import model_title
from t5x_lite.pictures.attention import attention_masks
from t5x_lite.pictures.drawing import Picture, text_width
from t5x_lite.tokenizers.base import Tokenizer, format_tokens
from t5x_lite.tokenizers.vocabulary import Vocabulary

Role = Literal["hidden", "random", "kept", "moved", ""]


class Strip(NamedTuple):
    """A line of tokens, each with its role; empty for an unchanged token."""

    name: str
    ids: Int[np.ndarray, "L"]
    roles: list[Role]


def strips(vocabulary: Vocabulary, raw: Int[np.ndarray, "R"], features: dict[str, np.ndarray]) -> Iterator[Strip]:
    """A row before and after, where the two differ, and the targets where they are a text."""
    inputs, targets = features["inputs"], features.get("targets")
    if "positions" in features:  # the targets are single tokens
        used = targets != vocabulary.pad_id
        positions, before = features["positions"][used], inputs.copy()
        before[positions] = targets[used]

        def roles_of(ids: Int[np.ndarray, "L"]) -> np.ndarray:
            roles = np.full(len(ids), "", object)
            roles[positions] = np.where(ids[positions] == before[positions], "kept", "random")
            return roles

        roles = roles_of(inputs)
        roles[positions[inputs[positions] == vocabulary.mask_id]] = "hidden"
        yield Strip("text", before, roles.tolist())
        yield Strip("generator" if "filled" in features else "model reads", inputs, roles.tolist())
        if "filled" in features:
            yield Strip("discriminator", features["filled"], roles_of(features["filled"]).tolist())
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
    """The roles before and after where sentinels replace spans that the targets hold; else None."""
    spans = spans_by_sentinel(targets.tolist(), vocabulary)
    spans.pop(None, None)
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
    """The roles before and after, by the longest runs of tokens that the two share."""
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
_MEANINGS = {"hidden": "hidden or predicted", "random": "replaced", "kept": "predicted but shown", "moved": "moved"}
_MOST_TOKENS = 200
# 800 pixels in a notebook, which is about what it has, so that it does not shrink the text, of 12 pixels.
_WIDTH, _INDENT, _EDGE, _MASK = 8.0, 1.1, 0.2, 1.4  # inches
_SIZE = 8.6  # points
_CHARACTER, _LINE = 0.6021 * _SIZE / 72, 1.7 * _SIZE / 72  # inches
_COLUMNS = int((_WIDTH - _INDENT - 2 * _EDGE) / _CHARACTER)  # characters of a line
_LONGEST = _COLUMNS // 2  # characters of a word, which other scripts write in twice the width
_STYLE = {"fontsize": _SIZE, "family": "monospace", "va": "center", "parse_math": False}

Words = list[tuple[str, str]]
"""(word, role) of the tokens of a line."""


def draw_corruption(
    objective: Objective,
    tokenizer: Tokenizer | None,
    rows: Sequence[Row] | Sequence[str],
    *,
    model: ModelConfig | None = None,
    params: Any = None,
    seed: int = 0,
    most_rows: int = 3,
) -> Picture:
    """The first rows as they are and as the objective gives them to the model, changes in colour.

    Args:
      rows: of a token store, or texts, which become rows first.
      model: adds the masks of its attention.
      params: of the model, where it is ELECTRA's pair: adds what the generator samples.
      seed: of the objective's random choices.

    Raises `InputError` for rows without text, and for those of several texts.
    """
    if tokenizer is None:
        name = type(objective).__name__
        raise InputError(f"objective={name} reads no text, and tokens are drawn; draw pictures with --picture")
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
        features.pop("targets", None)  # they are not tokens
    drawn = {}
    for number, row in enumerate(rows):
        of_row = {name: value[number] for name, value in features.items()}
        label = f", label {float(of_row['label']):g}" if "label" in of_row else ""
        before_and_after = strips(tokenizer.vocabulary, row.get("ids", row.get("inputs")), of_row)
        drawn[f"row {number}{label}"] = [(one.name, _lines(_words(tokenizer, one))) for one in before_and_after]
    name = type(objective).__name__
    return _draw(name if model is None else model_title(name, model), drawn, masks)


def rows_of_texts(objective: Objective, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Row]:
    """Texts as the objective's rows; `InputError` where they do not fill one."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"rows={texts!r} are none; give a list of texts, or rows of a store")
    if objective.layout.source_type is not Source:
        raise InputError(
            f"rows are texts, and {type(objective).__name__} reads {objective.layout.unit_name}; give rows of a store"
        )
    builder = objective.layout.start(tokenizer.vocabulary)
    for ids in objective.layout.tokenize(list(texts), tokenizer, "punctuation"):
        builder.add(ids)
    builder.finish()
    if not (rows := builder.take()):
        what, remedy = builder.shortage
        raise InputError(f"the texts make no row: {what}; {remedy}")
    return rows


def _words(tokenizer: Tokenizer, strip: Strip) -> Iterator[tuple[str, str]]:
    """The words of a strip; padding is counted, and a long strip cut."""
    ids, pad_id = strip.ids.tolist(), tokenizer.vocabulary.pad_id
    words, index = format_tokens(tokenizer, ids), 0
    while index < min(len(ids), _MOST_TOKENS):
        end = index + 1
        while tokenizer.vocabulary.has_padding and end < len(ids) and ids[index] == ids[end] == pad_id:
            end += 1
        word = words[index] if end == index + 1 else f"{words[index]} × {end - index}"
        yield word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…", strip.roles[index]
        index = end
    if index < len(ids):
        yield f"… and {len(ids) - index} more", ""


@lru_cache(1 << 12)
def _width(word: str) -> int:
    """In characters of the monospaced font, which has none of most other scripts."""
    return len(word) if word.isascii() else max(1, ceil(text_width(word, **_STYLE) / _CHARACTER - 0.1))


def _lines(words: Iterable[tuple[str, str]]) -> list[Words]:
    lines: list[Words] = [[]]
    used = 0
    for word, role in words:
        if used and used + _width(word) > _COLUMNS:
            lines.append([])
            used = 0
        lines[-1].append((word, role))
        used += _width(word) + 1
    return lines


def _draw(
    title: str, rows: dict[str, list[tuple[str, list[Words]]]], masks: Mapping[str, Bool[np.ndarray, "B L M"]]
) -> Picture:
    """A legend; below it, for each row the lines of its strips by name and, below them, its masks."""
    heights = []  # in inches, as all sizes here
    for strips_of_row in rows.values():
        heights.append((1.2 + sum(len(lines) + 0.5 for _, lines in strips_of_row)) * _LINE)
    below = _MASK + 0.6 if masks else 0.0
    width, height = _WIDTH, 0.75 + sum(heights) + len(heights) * below + 0.1
    picture = Picture(figsize=(width, height))

    def panel(x: float, y: float, w: float, h: float) -> Any:
        """Axes at a distance from the upper left corner."""
        return picture.add_axes((x / width, 1 - (y + h) / height, w / width, h / height))

    def box(role: str, pad: float) -> dict[str, Any] | None:
        return {"facecolor": COLORS[role], "edgecolor": "none", "pad": pad} if role else None

    picture.text(_EDGE / width, 1 - 0.25 / height, title, fontsize=11, weight="bold", va="center")
    roles, x = {role for of_row in rows.values() for _, lines in of_row for line in lines for _, role in line}, _EDGE
    for role, meaning in _MEANINGS.items():
        if role in roles:
            picture.text(x / width, 1 - 0.5 / height, meaning, bbox=box(role, 2.0), **_STYLE)
            x += (len(meaning) + 3) * _CHARACTER
    top = 0.75
    for number, ((name, strips_of_row), row_height) in enumerate(zip(rows.items(), heights, strict=True)):
        axes = panel(_EDGE, top, width - _EDGE, row_height)
        axes.set(xlim=(0, (width - _EDGE) / _CHARACTER), ylim=(row_height / _LINE, 0))  # in characters and lines
        axes.set_axis_off()
        axes.text(0, 0.5, name, weight="bold", **_STYLE)
        y = 1.5
        for strip_name, lines in strips_of_row:
            axes.text(0, y, strip_name, color="gray", **_STYLE)
            for line in lines:
                x = _INDENT / _CHARACTER
                for word, role in line:
                    axes.text(x, y, word, bbox=box(role, 1.2), **_STYLE)
                    x += _width(word) + 1
                y += 1
            y += 0.5
        for column, (kind, mask) in enumerate(masks.items()):
            axes = panel(_EDGE + _INDENT + column * (_MASK + 0.5), top + row_height + 0.1, _MASK, _MASK)
            axes.imshow(mask[number], cmap="Greys", vmin=0, vmax=1.4, aspect="auto", interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.set_title(f"{kind} may look", fontsize=_SIZE)
            axes.set_xlabel("key", fontsize=_SIZE - 1, labelpad=2)
            axes.set_ylabel("query", fontsize=_SIZE - 1, labelpad=2)
        top += row_height + below
    return picture
