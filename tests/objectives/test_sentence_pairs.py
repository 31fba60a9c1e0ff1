from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from t5x_lite.data import Pairs, Vocabulary
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models import AlbertConfig, BertConfig, DistilBertConfig
from t5x_lite.objectives import NextSentencePrediction, SentenceOrderPrediction, corrupt_rows

from ..slow import mostly_slow

# Ids that tell where they stand: of document d, sentence s and word w the id is FIRST + (20 d + s) * 10 + w.
FIRST, DOCUMENTS = 5, 300
TELLING = Vocabulary(FIRST + DOCUMENTS * 200, pad_id=0, unk_id=1, cls_id=2, sep_id=3, eos_id=3, mask_id=4)
LENGTH = 40


def documents() -> list[list[np.ndarray]]:
    random = np.random.default_rng(0)
    return [
        [
            FIRST + (20 * document + sentence) * 10 + np.arange(random.integers(2, 9), dtype=np.int32)
            for sentence in range(random.integers(2, 20))
        ]
        for document in range(DOCUMENTS)
    ]


def document_of(ids):
    return (np.asarray(ids) - FIRST) // 200


def segments_of(row: np.ndarray) -> tuple[list[int], list[int]]:
    """The two segments of `[CLS] one [SEP] two [SEP] pad ...`, which the row must be."""
    first, second = np.nonzero(row == TELLING.sep_id)[0]
    assert row[0] == TELLING.cls_id
    assert (row[second + 1 :] == TELLING.pad_id).all()
    one, two = row[1:first], row[first + 1 : second]
    assert len(one)
    assert len(two)
    assert (one >= FIRST).all()
    assert (two >= FIRST).all()
    return one.tolist(), two.tolist()


@pytest.fixture(scope="module", params=mostly_slow(["segment-pair", "sentence-pair"], "segment-pair"))
def input_format(request):
    return request.param


def corrupt(objective, times: int = 1):
    """(raw, features with the targets put back) of all rows of the documents, each seen `times` times."""
    builder = objective.layout.start(TELLING)
    for document in documents():
        builder.add(document)
    builder.finish()
    batch = {name: np.repeat(column, times, axis=0) for name, column in stack(builder.take()).items()}
    raw = [{name: column[number] for name, column in batch.items()} for number in range(len(batch["ids"]))]
    features = jax.jit(lambda key, batch: corrupt_rows(objective, key, batch))(jax.random.key(0), batch)
    features = {name: np.array(value) for name, value in features.items()}
    for row, (positions, targets) in enumerate(zip(features["positions"], features["targets"], strict=True)):
        used = targets != TELLING.pad_id
        features["inputs"][row, positions[used]] = targets[used]
    assert len(raw) >= 1000
    return raw, features


def check_segment_ids(features) -> None:
    for inputs, segments in zip(features["inputs"], features["segments"], strict=True):
        one, two = segments_of(inputs)
        ids = [0] * (len(one) + 2) + [1] * (len(two) + 1)
        assert segments.tolist() == ids + [0] * (LENGTH - len(ids))


def assert_half(labels: np.ndarray) -> None:
    assert set(labels.tolist()) == {0, 1}
    assert binomtest(int(labels.sum()), len(labels)).pvalue > 1e-3


def test_label_0_follows_and_label_1_is_from_another_document(input_format):
    objective = NextSentencePrediction(LENGTH, input_format=input_format).for_vocabulary(TELLING)
    assert objective.layout == Pairs(LENGTH, input_format.removesuffix("-pair"), with_other=True)
    raw, features = corrupt(objective, times=2)
    check_segment_ids(features)
    for row, inputs, label in zip(raw, features["inputs"], features["label"], strict=True):
        one, two = segments_of(inputs)
        a, b = segments_of(row["ids"])
        assert one == a
        (home,) = set(document_of(one))
        (other,) = set(document_of(two))
        if label:
            assert other != home
            assert two == [token for token in row["other"].tolist() if token != TELLING.pad_id]
        else:
            assert other == home
            assert two == b
            assert two[0] > one[-1]
    assert_half(features["label"])
    # The same raw row is seen both ways.
    assert (features["label"][::2] != features["label"][1::2]).mean() > 0.4


def test_label_1_exactly_where_the_two_are_swapped(input_format):
    objective = SentenceOrderPrediction(LENGTH, input_format=input_format).for_vocabulary(TELLING)
    assert objective.layout == Pairs(LENGTH, input_format.removesuffix("-pair"), with_other=False)
    raw, features = corrupt(objective, times=2)
    check_segment_ids(features)
    for row, inputs, label in zip(raw, features["inputs"], features["label"], strict=True):
        a, b = segments_of(row["ids"])
        assert segments_of(inputs) == ((b, a) if label else (a, b))
        assert len(set(document_of(a + b))) == 1
        assert a[-1] < b[0]
    assert_half(features["label"])
    assert (features["label"][::2] != features["label"][1::2]).mean() > 0.4


def hidden_runs(objective) -> list[int]:
    """Lengths of the runs of hidden tokens in one-token words."""
    row = np.array([2, *range(10, 60), 3, *range(60, 107), 3], np.int32)
    keys = jax.random.split(jax.random.key(0), 500)
    chosen = np.asarray(jax.jit(jax.vmap(lambda key: objective.choose(key, jnp.asarray(row))))(keys))
    assert (chosen.sum(1) == round(0.15 * len(row))).all()
    edges = np.diff(np.pad(chosen.astype(int), ((0, 0), (1, 1))), axis=1)
    return (np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]).tolist()


def test_n_grams_are_hidden_together():
    """Lan et al. 2020, section 3.1 and equation 2: up to three words, n with a probability in proportion to 1 / n."""
    runs = np.bincount(hidden_runs(SentenceOrderPrediction(100).for_vocabulary(TELLING)))
    assert len(runs) == 4
    # The last n-gram of each row is cut where the budget ends.
    np.testing.assert_allclose(runs[1:] / runs.sum(), np.array([6, 3, 2]) / 11, atol=0.06)
    one_by_one = np.bincount(hidden_runs(SentenceOrderPrediction(100, longest_ngram=1).for_vocabulary(TELLING)))
    assert one_by_one[1] / one_by_one.sum() > 0.8
    assert len(one_by_one) > 3


SIZES = {
    "vocab_size": 67,
    "embed_dim": 12,
    "num_heads": 3,
    "mlp_dim": 17,
    "num_layers": 1,
    "max_length": LENGTH,
    "heads": ("masked_lm", "sentence_pair"),
}
CASES = {
    "BERT": (NextSentencePrediction(28), BertConfig(**SIZES)),
    "ALBERT": (SentenceOrderPrediction(28), AlbertConfig(**SIZES, token_embed_dim=7)),
}


@pytest.mark.parametrize("case", mostly_slow(CASES, "ALBERT"))
def test_loss_is_a_mean_over_tokens_plus_a_mean_over_rows(case, vocabulary, make_batch, make_model, say, token_losses):
    objective, config = CASES[case]
    objective, pad_id = objective.for_vocabulary(vocabulary), vocabulary.pad_id
    module, params = make_model(config)
    corrupt = jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(1), batch))
    features = jax.device_get(corrupt(make_batch(objective.layout, 5)))
    features |= {"valid": np.array([True, True, False, True, True])}
    compiled = jax.jit(lambda features, whole: objective.loss(module, params, features, None, whole=whole))

    def loss(features, whole):
        return jax.device_get(compiled(features, whole))

    total, weight, metrics = loss(features, features)
    # Parts of a batch add up to it, though they have different numbers of tokens.
    parts = [features | {"valid": np.array(rows)} for rows in ([True] + [False] * 4, [False, True, False, True, True])]
    sums = [loss(part, features)[:2] for part in parts]
    assert sums[0][0] + sums[1][0] == pytest.approx(float(total), rel=1e-6)
    assert sums[0][1] + sums[1][1] == weight
    assert abs(sum(loss(part, part)[0] for part in parts) - total) > 1e-3

    said = say(module, params, features["inputs"], features["segments"], pad_id)
    tokens = token_losses(said["masked_lm_logits"], features, pad_id)
    rows, labels = [0, 1, 3, 4], features["label"]
    assert set(labels[rows].tolist()) == {0, 1}
    scores = said["sentence_pair_logits"]
    pairs = np.array([np.logaddexp(*scores[row]) - scores[row, labels[row]] for row in rows])
    assert total / weight == pytest.approx(tokens.mean() + pairs.mean(), rel=1e-5)
    assert weight == len(tokens)
    assert metrics["loss"] == pytest.approx(tokens.sum(), rel=1e-5)
    assert metrics["pair_loss"].sum == pytest.approx(pairs.sum(), rel=1e-5)
    assert metrics["pair_loss"].weight == metrics["pair_accuracy"].weight == 4
    assert metrics["pair_accuracy"].sum == sum(scores[row].argmax() == labels[row] for row in rows)


@pytest.mark.parametrize("objective", [NextSentencePrediction, SentenceOrderPrediction])
def test_what_has_no_pairs_is_refused(objective):
    name = objective.__name__
    with pytest.raises(InputError, match=f"input_format='full-sentences' has no pairs, which {name} asks about"):
        objective(input_format="full-sentences")
    with pytest.raises(InputError, match="sentence_pair, which"):
        objective(28).check_model(replace(CASES["BERT"][1], heads=("masked_lm",)))
    with pytest.raises(InputError, match="sentence_pair, which"):
        objective(28).check_model(DistilBertConfig(heads=("masked_lm",)))


def test_no_words_at_all():
    with pytest.raises(InputError, match="longest_ngram=0"):
        SentenceOrderPrediction(longest_ngram=0)
