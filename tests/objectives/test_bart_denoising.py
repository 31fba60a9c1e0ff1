from collections import Counter
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from t5x_lite.data import Vocabulary
from t5x_lite.data.layouts.text import NumberedSentences
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.objectives import BartDenoising, corrupt_rows

from ..slow import mostly_slow

CLS, PAD, SEP, UNK, MASK = range(5)
VOCABULARY = Vocabulary(100, pad_id=PAD, eos_id=SEP, unk_id=UNK, cls_id=CLS, sep_id=SEP, mask_id=MASK)
LENGTH = 40
OFF = {"infilling_rate": 0.0, "permute_sentences": False}
NOISES = {
    "recipe": BartDenoising(LENGTH),
    "infilling": BartDenoising(LENGTH, permute_sentences=False),
    "masking": BartDenoising(LENGTH, **OFF | {"mask_rate": 0.15}),
    "deletion": BartDenoising(LENGTH, **OFF | {"deletion_rate": 0.2}),
    "rotation": BartDenoising(LENGTH, **OFF, rotate=True),
    "all": BartDenoising(LENGTH, mask_rate=0.1, deletion_rate=0.1, infilling_rate=0.2, rotate=True),
}


@pytest.fixture(scope="module")
def raw():
    """Rows of one to seven sentences, no id twice in a row; the last ones all alike, three sentences of four ids."""
    random, builder = np.random.default_rng(0), NumberedSentences(LENGTH).start(VOCABULARY)
    for _ in range(300):
        ids = random.permutation(np.arange(5, 100)).astype(np.int32)
        ends = np.sort(random.choice(np.arange(1, LENGTH - 1), random.integers(1, 8), replace=False))
        builder.add(np.split(ids[: ends[-1]], ends[:-1]))
    for _ in range(1200):
        builder.add(np.split(np.arange(10, 22, dtype=np.int32), 3))
    builder.finish()
    return stack(builder.take())


@pytest.fixture(scope="module")
def damaged(raw):
    """`damaged(name)`: (inputs, targets) under the noise of that name."""
    done = {}

    def make(name):
        if name not in done:
            objective = NOISES[name].for_vocabulary(VOCABULARY)
            features = jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(0), batch))(raw)
            done[name] = np.asarray(features["inputs"]), np.asarray(features["targets"])
        return done[name]

    return make


def texts(raw, inputs):
    """Of each row the text, its sentences and what the model sees of them, as lists; the rest must be as it was."""
    for ids, sentences, seen in zip(raw["ids"], raw["sentences"], inputs.tolist(), strict=True):
        size, end = int((sentences > 0).sum()), seen.index(SEP)
        assert seen[0] == CLS
        assert seen[end + 1 :] == [PAD] * (LENGTH - end - 1)
        shown = seen[1:end]
        assert not {CLS, PAD, SEP} & set(shown)
        yield ids[1 : size + 1].tolist(), sentences[1 : size + 1].tolist(), shown


def count(rate, size):
    return max(1, round(rate * size))


@pytest.mark.parametrize("name", mostly_slow(NOISES, "recipe", "all"))
def test_the_target_is_the_row_as_it_was(raw, damaged, name):
    inputs, targets = damaged(name)
    assert inputs.shape == targets.shape == (len(raw["ids"]), LENGTH)
    np.testing.assert_array_equal(targets, raw["ids"])


def test_masking(raw, damaged):
    for text, _, shown in texts(raw, damaged("masking")[0]):
        assert len(shown) == len(text)
        hidden = [a for a, b in zip(text, shown, strict=True) if a != b]
        assert shown.count(MASK) == len(hidden) == count(0.15, len(text))


def test_deletion(raw, damaged):
    for text, _, shown in texts(raw, damaged("deletion")[0]):
        assert len(shown) == len(text) - count(0.2, len(text))
        assert [token for token in text if token in shown] == shown


def test_infilling(raw, damaged):
    longer, masks, hidden = 0, 0, 0
    for text, _, shown in texts(raw, damaged("infilling")[0]):
        kept = [token for token in shown if token != MASK]
        assert [token for token in text if token in kept] == kept
        assert len(text) - len(kept) == count(0.3, len(text))
        # Wherever something is missing there is a mask.
        for before, token in zip([None, *shown], [*shown, None], strict=True):
            if before not in (None, MASK) and token not in (None, MASK):
                assert text.index(token) == text.index(before) + 1
        longer += len(shown) > len(text)
        masks, hidden = masks + shown.count(MASK), hidden + len(text) - len(kept)
    assert longer, "empty spans put masks in"
    assert 2.0 < hidden / masks < 3.0, "means of the Poisson distribution, the last span cut"


def test_sentences_in_all_orders(raw, damaged):
    orders = Counter()
    for row, (text, sentences, shown) in enumerate(texts(raw, damaged("recipe")[0])):
        kept = [token for token in shown if token != MASK]
        assert len(text) - len(kept) == count(0.3, len(text))
        place = {token: (sentence, index) for index, (token, sentence) in enumerate(zip(text, sentences, strict=True))}
        order = list(dict.fromkeys(place[token][0] for token in kept))
        # Within a sentence tokens keep their order, and sentences do not mix.
        assert kept == sorted(kept, key=lambda token: (order.index(place[token][0]), place[token][1]))
        if row >= 300 and len(order) == 3:
            orders[tuple(order)] += 1
    possible = list(permutations((1, 2, 3)))
    assert sum(orders.values()) > 1000
    assert chisquare([orders[order] for order in possible]).pvalue > 1e-3


def test_rotation_begins_anywhere(raw, damaged):
    starts = Counter()
    for row, (text, _, shown) in enumerate(texts(raw, damaged("rotation")[0])):
        first = text.index(shown[0])
        assert shown == text[first:] + text[:first]
        if row >= 300:
            starts[first] += 1
    assert chisquare([starts[first] for first in range(12)]).pvalue > 1e-3


def test_no_token_is_damaged_twice(raw, damaged):
    for text, _, shown in texts(raw, damaged("all")[0]):
        size = len(text)
        kept = [token for token in shown if token != MASK]
        # In the shortest texts there is nothing left to mask or delete.
        gone = min(size, count(0.1, size) * 2 + count(0.2, size))
        assert len(kept) == size - gone
        assert len(set(kept)) == len(kept)
        assert set(kept) <= set(text)


def test_jit_of_vmap_equals_row_by_row_and_the_key_decides(raw, damaged):
    objective = NOISES["recipe"].for_vocabulary(VOCABULARY)
    inputs, _ = damaged("recipe")
    corrupt = jax.jit(objective.corrupt)
    for row in (0, 7, 400):
        one = {name: column[row] for name, column in raw.items()}
        alone = corrupt(jax.random.fold_in(jax.random.key(0), row), one)
        np.testing.assert_array_equal(alone["inputs"], inputs[row])
    assert len({tuple(row) for row in inputs[300:400].tolist()}) > 70


def test_a_row_without_text_and_one_of_one_token():
    corrupt = jax.jit(NOISES["all"].for_vocabulary(VOCABULARY).corrupt)
    raw = {"ids": np.full(LENGTH, PAD, np.int32), "sentences": np.zeros(LENGTH, np.int32)}
    assert corrupt(jax.random.key(0), raw)["inputs"].tolist() == [CLS, SEP] + [PAD] * (LENGTH - 2)
    raw["ids"][:3], raw["sentences"][1] = (CLS, 50, SEP), 1
    for seed in range(5):
        seen = corrupt(jax.random.key(seed), raw)["inputs"].tolist()
        end = seen.index(SEP)
        assert set(seen[1:end]) == {MASK}


def test_a_row_that_is_full_and_full_of_empty_spans():
    """Where means are short there are more masks than hidden ids, but never more than there is room for."""
    objective = BartDenoising(12, infilling_rate=0.9, mean_span_length=1.0, permute_sentences=False)
    corrupt = jax.jit(jax.vmap(objective.for_vocabulary(VOCABULARY).corrupt, (0, None)))
    raw = {"ids": np.array([CLS, *range(10, 20), SEP]), "sentences": np.array([0, *[1] * 10, 0])}
    inputs = np.asarray(corrupt(jax.random.split(jax.random.key(0), 300), raw)["inputs"])
    ends = (inputs == SEP).argmax(1)
    assert ((inputs == SEP).sum(1) == 1).all()
    assert ((inputs >= 10).sum(1) == 1).all()
    assert ends.max() == 11
    assert (ends < 11).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"infilling_rate": 1.0}, "infilling_rate=1.0 is not in"),
        ({"mask_rate": -0.1}, "mask_rate=-0.1 is not in"),
        ({"deletion_rate": float("nan")}, "deletion_rate=nan"),
        ({"mask_rate": 0.5, "deletion_rate": 0.3}, "mask_rate, deletion_rate, infilling_rate are 1.1 together"),
        (OFF, "infilling_rate=0.0 and no other noise leaves the text as it is"),
        ({"mean_span_length": 0.5}, "mean_span_length=0.5 is too small; choose e.g. 3.0"),
        ({"input_length": 3}, "input_length=3 is too short"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        BartDenoising(**change)


@pytest.mark.parametrize("role", ["mask", "cls", "sep"])
def test_vocabularies_that_lack_a_token(role):
    ids = {f"{name}_id": 5 for name in ("mask", "cls", "sep") if name != role}
    with pytest.raises(InputError, match=f"no {role} token, which BartDenoising needs; use WordPiece, ByteLevelBPE"):
        NOISES["recipe"].for_vocabulary(Vocabulary(100, **ids))


def test_rows_of_another_length():
    with pytest.raises(ValueError, match="BartDenoising takes"):
        NOISES["recipe"].for_vocabulary(VOCABULARY).corrupt(jax.random.key(0), {"ids": jnp.zeros(LENGTH, jnp.int32)})
