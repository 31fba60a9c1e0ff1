"""The stores of a mixture's parts."""

import json

import pytest

from t5x_lite.data import (
    Bytes,
    Data,
    Equal,
    JsonlFiles,
    LabelTemplate,
    Mixture,
    Part,
    SentencePiece,
    Stream,
    TextFiles,
    TextPairs,
    TextToText,
    batches,
)
from t5x_lite.errors import InputError

PAIRS = TextPairs(40, 20)


@pytest.fixture
def source(tmp_path):
    """`source(name, lengths)`: pairs whose inputs are the name, a colon and so many letters a."""

    def make(name, lengths):
        path = tmp_path / f"{name}-{len(lengths)}.jsonl"
        path.write_text("".join(json.dumps({"text": "a" * length, "label": length % 2}) + "\n" for length in lengths))
        return TextToText(JsonlFiles((str(path),)), LabelTemplate(f"{name}: {{text}}", labels=("0", "1")))

    return make


@pytest.fixture
def data(tmp_path, source):
    """Sixty short pairs, of which rows hold several, and thirty long ones, each of which fills a row."""
    short = Part("short", source("short", [1, 2, 3] * 20), source("short", [1, 2]))
    long = Part("long", source("long", [30, 31] * 15), source("long", [30]))
    return lambda rates=None: Data(
        Mixture((short, long), *([rates] if rates else [])), Bytes(), cache_dir=str(tmp_path / "cache")
    )


def test_parts_have_stores_of_their_own_that_other_mixtures_share(data):
    first, second = data().prepare(PAIRS), data(Equal()).prepare(PAIRS)
    assert list(first.parts) == ["short", "long"]
    assert [store.path for store in first.parts.values()] == [store.path for store in second.parts.values()]
    assert first.key != second.key
    assert len(first.train) == sum(len(store.train) for store in first.parts.values())
    assert {name: figures.documents for name, figures in first.figures.items()} == {
        "short train": 60,
        "short held_out": 2,
        "long train": 30,
        "long held_out": 1,
    }


def test_rows_to_look_at_come_from_every_part(data):
    store = data().prepare(PAIRS)
    shown = [store.tokenizer.decode(store.rows_to_show[row]["inputs"]).split(":")[0] for row in range(4)]
    assert shown == ["short", "long", "short", "long"]


@pytest.mark.parametrize(("rates", "share"), [(None, 2 / 3), (Equal(), 1 / 2)])
def test_rates_are_of_examples_however_many_share_a_row(data, rates, share):
    store = data(rates).prepare(PAIRS)
    assert store.parts["short"].figures["train"].rows < 30
    assert store.shares == pytest.approx({"short": share, "long": 1 - share})
    dataset = batches(store.train, batch_size=10, seed=0, shuffle=False)
    seen = [dataset[step] for step in range(60)]
    rows = [{n: column[i] for n, column in batch.items()} for batch in seen for i in range(10)]
    vocabulary, text = store.tokenizer.vocabulary, store.tokenizer.decode
    sources = [text(pair[0]) for row in rows for pair in PAIRS.pairs_of(row, vocabulary)]
    found = sum(one.startswith("short: ") for one in sources) / len(sources)
    assert found == pytest.approx(share, abs=0.02)


def test_the_shares_are_told_and_the_remarks_of_the_parts(data):
    shares, *others = data().prepare(TextPairs(37, 20, too_long="skip")).remarks
    assert shares == "mixture, shares of examples: short 80.00%, long 20.00%"
    of_short, left_out, of_long = others
    assert of_short.startswith("short: held-out: 2 of 2 pairs stand in the training data too")
    assert left_out.startswith("long: train: 15 of 30 pairs left out, longer than a row; the first at ")
    assert of_long.startswith("long: held-out: 1 of 1 pairs stand in the training data too")


def test_an_empty_part_is_named(data, source, tmp_path):
    empty = Part("empty", source("empty", []), source("short", [1]))
    mixture = Mixture((*data().source.parts, empty))
    with pytest.raises(InputError, match=r"part 'empty' of the mixture: paths=.*is empty \(0 bytes\)"):
        Data(mixture, Bytes(), cache_dir=str(tmp_path)).prepare(PAIRS)
    path = tmp_path / "blank.jsonl"
    path.write_text("\n")
    blank = Part("blank", TextToText(JsonlFiles((str(path),)), LabelTemplate("{text}", labels=("0", "1"))))
    for tokenizer in (Bytes(), SentencePiece(vocab_size=60)):
        with pytest.raises(InputError, match="part 'blank' of the mixture: .*holds no pairs"):
            Data(Mixture((blank, *data().source.parts)), tokenizer, cache_dir=str(tmp_path)).prepare(PAIRS)


def test_a_tokenizer_is_trained_on_all_parts_and_text_is_mixed_as_well(tmp_path):
    for name, word in (("one", "alal"), ("two", "zuzu")):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{word} {i}" for i in range(400)))
    parts = tuple(Part(name, TextFiles((str(tmp_path / f"{name}.txt"),), document="line")) for name in ("one", "two"))
    tokenizer = SentencePiece(vocab_size=50, extra_ids=0, character_coverage=1.0)
    store = Data(Mixture(parts), tokenizer, held_out=0.1, cache_dir=str(tmp_path / "cache")).prepare(Stream(16))
    assert store.tokenizer.vocabulary.unk_id not in store.tokenizer.encode("alal zuzu")
    assert store.shares["one"] == pytest.approx(0.5, abs=0.1)
    assert "alal" in store.tokenizer.decode(store.held_out[0]["ids"])
    assert "zuzu" in store.tokenizer.decode(store.held_out[1]["ids"])


def test_a_mixture_has_what_is_held_out_in_its_parts(data, source):
    with pytest.raises(InputError, match="does not go with a mixture"):
        Data(data().source, held_out_source=source("short", [1]))
    with pytest.raises(InputError, match="does not go with a mixture"):
        Data(source("short", [1]), held_out_source=data().source)
