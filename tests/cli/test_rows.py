"""How a corrupted row is shown."""

import jax
import numpy as np
import pytest

from t5x_lite.cli.rows import STYLES, describe_row
from t5x_lite.data import Bytes, TextPairs, make_tokenizer
from t5x_lite.data.layouts.text import NumberedSentences
from t5x_lite.objectives import CausalClassification
from t5x_lite.tokenizers.config import WordPiece


@pytest.fixture(scope="module")
def wordpiece():
    texts = ["green bottles hanging on the wall"] * 9 + ["a wall and the green"] * 9
    return make_tokenizer(WordPiece(vocab_size=80), lambda: iter(texts))


def row_of(tokenizer, text, length):
    """`text` with [PAD] after it, and its `segments`."""
    ids = tokenizer.encode(text)
    return np.array(ids + [tokenizer.vocabulary.pad_id] * (length - len(ids)), np.int32)


def styled(text, kind):
    """The words of a text that are shown in a style."""
    return [text.plain[span.start : span.end] for span in text.spans if span.style == STYLES[kind]]


def test_masks_replacements_and_kept_tokens(wordpiece):
    raw = row_of(wordpiece, "[CLS] the green bottles [SEP] on the wall [SEP]", 11)
    inputs = row_of(wordpiece, "[CLS] the [MASK] bottles [SEP] on hanging wall [SEP]", 11)
    assert len(wordpiece.encode("the green bottles hanging")) == 4, "the corpus gives whole words"
    features = {
        "inputs": inputs,
        "segments": np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0], np.int32),
        "positions": np.array([2, 6, 7, 0], np.int32),
        "targets": np.array([raw[2], raw[6], raw[7], wordpiece.vocabulary.pad_id], np.int32),
        "label": np.int32(1),
        "sampling": np.zeros(2, np.uint32),
    }
    shown = dict(describe_row(wordpiece, {"ids": raw}, features))
    assert {name: text.plain for name, text in shown.items()} == {
        "row": "[CLS] the green bottles [SEP] on the wall [SEP] [PAD] x 2",
        "inputs": "[CLS] the [MASK] bottles [SEP] on hanging wall [SEP] [PAD] x 2",
        "targets": "2 green, 6 the (shown as hanging), 7 wall (shown)",
        "segments": "A 5 ids, B 4, special ones included",
        "label": "1: B does not follow A in the text",
    }
    kinds = {kind: styled(shown["inputs"], kind) for kind in ("hidden", "random", "kept", "special")}
    assert kinds == {
        "hidden": ["[MASK]"],
        "random": ["hanging"],
        "kept": ["wall"],
        "special": ["[CLS]", "[SEP]", "[SEP]", "[PAD] x 2"],
    }
    features = {name: value for name, value in features.items() if name not in ("segments", "label")}
    one = dict(describe_row(wordpiece, {"ids": raw}, features | {"segments": np.zeros(11, np.int32)}))
    assert set(one) == {"row", "inputs", "targets"}, "of one segment there is nothing to say"


def test_spans_stand_between_their_neighbours(wordpiece):
    raw = row_of(wordpiece, "[CLS] the green bottles on a wall [SEP]", 8)
    inputs = row_of(wordpiece, "[CLS] the [MASK] [MASK] on [MASK] wall [SEP]", 8)
    features = {
        "inputs": inputs,
        "segments": np.zeros(8, np.int32),
        "positions": np.array([2, 3, 5, 0], np.int32),
        "targets": np.array([*raw[[2, 3, 5]], wordpiece.vocabulary.pad_id], np.int32),
        "left": np.array([1, 1, 4, 0], np.int32),
        "right": np.array([4, 4, 6, 0], np.int32),
        "offset": np.array([0, 1, 0, 0], np.int32),
    }
    shown = dict(describe_row(wordpiece, {"ids": raw}, features))
    assert shown["span boundaries"].plain == "the < green bottles > on  |  on < a > wall"


def test_what_continues_a_word_stands_close_to_it(wordpiece):
    pieces = wordpiece.encode("greenest")
    assert len(pieces) > 1
    raw = np.array([wordpiece.vocabulary.cls_id, *pieces, wordpiece.vocabulary.sep_id], np.int32)
    inputs = raw.copy()
    inputs[2] = wordpiece.vocabulary.mask_id
    features = {"inputs": inputs, "segments": np.zeros_like(raw)}
    features |= {"positions": np.array([2]), "targets": raw[[2]]}
    assert dict(describe_row(wordpiece, {"ids": raw}, features))["inputs"].plain.startswith("[CLS] green[MASK]")


def test_what_a_raw_row_carries_beside_itself(wordpiece):
    raw = row_of(wordpiece, "[CLS] the wall [SEP] a bottles [SEP] green", 9)
    features = {"inputs": raw[:7], "segments": np.zeros(7, np.int32)}
    features |= {"positions": np.zeros(1, np.int32), "targets": np.full(1, wordpiece.vocabulary.pad_id)}
    row = {"ids": raw[:7], "other": raw[7:]}
    shown = {name: text.plain for name, text in describe_row(wordpiece, row, features)}
    assert shown["row"] == "[CLS] the wall [SEP] a bottles [SEP]"
    assert shown["a segment of another document"] == "green [PAD]"


def test_a_row_of_spans_as_its_texts():
    tokenizer = make_tokenizer(Bytes(), lambda: iter(()))
    features = {
        name: np.array(tokenizer.encode(text)) for name, text in (("inputs", "a<extra_id_0>"), ("targets", "b"))
    }
    shown = list(describe_row(tokenizer, {"ids": np.array(tokenizer.encode("ab"))}, features))
    assert [(name, text.plain) for name, text in shown] == [
        ("row", "ab"),
        ("inputs", "a<extra_id_0>"),
        ("targets", "b"),
    ]
    assert styled(shown[1][1], "hidden") == ["<extra_id_0>"]


@pytest.mark.parametrize("packed", [True, False])
def test_rows_of_pairs_are_shown_pair_by_pair(packed):
    tokenizer = make_tokenizer(Bytes(), lambda: iter(()))
    layout = TextPairs(12, 10, packed=packed)
    builder = layout.start(tokenizer.vocabulary)
    for pair in (["ein", "one"], ["zwei", "two"]):
        builder.add(tokenizer.encode_batch(pair))
    builder.finish()
    shown = [
        {name: text.plain for name, text in describe_row(tokenizer, row, {"inputs": row["inputs"]}, layout)}
        for row in builder.take()
    ]
    assert shown == (
        [{"row": "ein  ->  one\nzwei  ->  two", "filled": "2 pairs: sources 9 of 12 ids, targets 8 of 10 ids"}]
        if packed
        else [
            {"row": "ein  ->  one", "filled": "1 pair: sources 4 of 12 ids, targets 4 of 10 ids"},
            {"row": "zwei  ->  two", "filled": "1 pair: sources 5 of 12 ids, targets 4 of 10 ids"},
        ]
    )


def test_sentences_of_a_row_and_masks_in_it(wordpiece):
    layout = NumberedSentences(10)
    builder = layout.start(wordpiece.vocabulary)
    builder.add([np.array(wordpiece.encode(text), np.int32) for text in ("the green wall", "a bottles")])
    builder.finish()
    (raw,) = builder.take()
    inputs = row_of(wordpiece, "[CLS] a [MASK] the green wall [SEP]", 10)
    shown = dict(describe_row(wordpiece, raw, {"inputs": inputs, "targets": raw["ids"]}, layout))
    assert {name: text.plain for name, text in shown.items()} == {
        "row": "the green wall | a bottles",
        "inputs": "a [MASK] the green wall",
        "targets": "the green wall a bottles",
    }
    assert styled(shown["inputs"], "hidden") == ["[MASK]"]


def test_marks_beyond_the_vocabulary_are_written(wordpiece):
    """Of both orders of a pair."""
    objective = CausalClassification(10, both_orders=True).for_vocabulary(wordpiece.vocabulary)
    builder = objective.layout.start(wordpiece.vocabulary)
    texts = [np.array(wordpiece.encode(text), np.int32) for text in ("the wall", "a green wall")]
    builder.add([*texts, 1.0])
    (raw,) = builder.take()
    features = jax.tree.map(np.asarray, objective.corrupt(jax.random.key(0), jax.device_put(raw)))
    shown = describe_row(wordpiece, raw, features, objective.layout, ("no", "yes"))
    assert {name: text.plain for name, text in shown} == {
        "row": "[START] the wall [DELIMITER] a green wall [EXTRACT] [PAD] x 2",
        "swapped": "[START] a green wall [DELIMITER] the wall [EXTRACT] [PAD] x 2",
        "segments": "A 4 ids, B 4, special ones included",
        "label": "1: yes",
    }
