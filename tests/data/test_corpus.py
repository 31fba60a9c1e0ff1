"""Stores of pairs, and stores whose held-out part has a source of its own."""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from t5x_lite.data import (
    Bytes,
    Data,
    Record,
    Records,
    Stream,
    TableFiles,
    TextPairs,
    TextTemplate,
    TextToText,
    splits,
)
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import ByteTokenizer

from ..tiny_corpora import is_held_out

PAIRS = tuple((f"{n} {'source ' * (n % 4)}{n}", f"{n * 7} {'target ' * (n * n % 5)}x") for n in range(150))
LENGTHS = (60, 60)
DECODE = ByteTokenizer(0)


@dataclass(frozen=True)
class Held(Records):
    """Pairs held in memory, as lines of a file."""

    all_pairs: tuple[tuple[str, str], ...] = PAIRS
    name: str = "memory"

    def __iter__(self) -> Iterator[Record]:
        for number, (source, target) in enumerate(self.all_pairs, start=11):
            yield Record(f"{self.name}:{number}", {"source": source, "target": target})

    def fingerprint(self) -> str:
        return repr(self)


def held(pairs=PAIRS, name="memory") -> TextToText:
    return TextToText(Held(pairs, name))


def store_of(tmp_path, layout=None, source=None, *, tokenizer=None, progress=None, **options):
    data = Data(source or held(), Bytes(), cache_dir=str(tmp_path), **{"held_out": 0.2, **options})
    return data.prepare(layout or TextPairs(*LENGTHS), tokenizer=tokenizer, progress=progress)


def pairs_in(made, split) -> list[tuple[str, str]]:
    """The pairs of a split as text, in the order of its rows."""
    vocabulary = made.tokenizer.vocabulary
    found = [pair for row in getattr(made, split) for pair in made.layout.pairs_of(row, vocabulary)]
    return [(DECODE.decode(source), DECODE.decode(target)) for source, target in found]


@pytest.mark.parametrize("chunk", [1, 1000, 1 << 20])
@pytest.mark.parametrize("packed", [True, False])
def test_each_split_is_made_of_its_own_pairs(tmp_path, monkeypatch, chunk, packed):
    monkeypatch.setattr(splits, "_CHUNK_CHARACTERS", chunk)
    made = store_of(tmp_path, TextPairs(*LENGTHS, packed=packed))
    holds_out = is_held_out(map("\0".join, PAIRS), 0.2)
    for name in ("train", "held_out"):
        builder = made.layout.start(DECODE.vocabulary)
        mine = [pair for pair in PAIRS if holds_out("\0".join(pair)) == (name == "held_out")]
        for pair in mine:
            builder.add(DECODE.encode_batch(list(pair)))
        builder.finish()
        found, expected = stack(getattr(made, name)[:]), stack(builder.take())
        for side in ("inputs", "targets"):
            np.testing.assert_array_equal(found[side], expected[side])
        assert sorted(pairs_in(made, name)) == sorted(mine)
        assert made.figures[name].documents == len(mine)
        assert made.figures[name].tokens == builder.tokens


def test_a_pair_is_held_out_as_a_whole(tmp_path):
    """Every source and every target comes in several pairs; copies of a pair stay together."""
    pairs = tuple((f"source {n % 10}", f"target {n // 10}") for n in range(100))
    made = store_of(tmp_path, source=held(pairs + pairs[::-1]))
    train, held_out = (set(pairs_in(made, split)) for split in ("train", "held_out"))
    assert not train & held_out and train | held_out == set(pairs)
    for side in (0, 1):
        assert {pair[side] for pair in train} & {pair[side] for pair in held_out}


def test_the_figures_of_pairs(tmp_path):
    made = store_of(tmp_path)
    for split, figures in made.figures.items():
        rows = np.concatenate(list(stack(getattr(made, split)[:]).values()), axis=1)
        assert figures.rows == len(rows)
        assert figures.padding == pytest.approx((rows == made.tokenizer.vocabulary.pad_id).mean())
        assert figures.tokens == (rows != made.tokenizer.vocabulary.pad_id).sum()
    assert sum(figures.documents for figures in made.figures.values()) == len(PAIRS)
    assert made.remarks == []
    stages = []
    again = store_of(tmp_path, progress=lambda *stage: stages.append(stage))
    assert stages == [] and again.figures == made.figures and again.key == made.key


def test_pairs_over_the_lengths_are_told(tmp_path):
    source = held(tuple((f"{n}", "long" * (12 if n in (40, 41, 77) else 1)) for n in range(100)))
    message = r"memory:51: the target has 49 ids, .* target_length=40; raise it, or set too_long='skip' or 'cut'"
    with pytest.raises(InputError, match=message):
        store_of(tmp_path, TextPairs(9, 40), source)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    for too_long, done in (("skip", "left out"), ("cut", "cut")):
        made = store_of(tmp_path, TextPairs(9, 40, too_long=too_long), source)
        figures = made.figures.values()
        assert sum(each.too_long for each in figures) == 3
        assert sum(each.skipped_documents for each in figures) == (3 if too_long == "skip" else 0)
        found = {pair for split in made.figures for pair in pairs_in(made, split)}
        kept = {(s, t[:39]) for s, t in source.examples.all_pairs if too_long == "cut" or len(t) < 40}
        assert found == kept
        # Each split tells its first one: one of the two is that of the whole corpus.
        assert len(made.remarks) == sum(each.too_long > 0 for each in figures)
        first = [remark for remark in made.remarks if "memory:51" in remark]
        assert len(first) == 1 and f"pairs {done}, longer than a row" in first[0] and "49 ids" in first[0]
        locations = {each.first_too_long.split()[0] for each in figures if each.too_long}
        assert locations <= {"memory:51:", "memory:52:", "memory:88:"}


@pytest.mark.parametrize("layout", [TextPairs(*LENGTHS), Stream(16)], ids=str)
def test_a_source_of_what_is_held_out(tmp_path, layout):
    dev = held(PAIRS[:7], name="dev")
    stages = []
    made = store_of(tmp_path, layout, held_out_source=dev, held_out=9.0, progress=lambda *stage: stages.append(stage))
    assert stages == [("tokenize", 0.5), ("tokenize", 1.0)], "nothing is split"
    assert [figures.documents for figures in made.figures.values()] == (
        [len(PAIRS), 7] if isinstance(layout, TextPairs) else [2 * len(PAIRS), 14]
    )
    for split, pairs in (("train", PAIRS), ("held_out", PAIRS[:7])):
        if isinstance(layout, TextPairs):
            assert sorted(pairs_in(made, split)) == sorted(pairs)
        else:
            ids = [i for pair in pairs for ids in DECODE.encode_batch(list(pair)) for i in [*ids.tolist(), 1]]
            assert stack(getattr(made, split)[:])["ids"].flatten().tolist() == ids[: len(ids) // 16 * 16]


def test_the_key_follows_what_is_held_out(tmp_path):
    keys = [
        store_of(tmp_path).key,
        store_of(tmp_path, held_out=0.3).key,
        store_of(tmp_path, held_out_source=held(PAIRS[:7])).key,
        store_of(tmp_path, held_out_source=held(PAIRS[:8])).key,
        store_of(tmp_path, TextPairs(*LENGTHS, packed=False)).key,
        store_of(tmp_path, TextPairs(*LENGTHS, too_long="skip")).key,
        store_of(tmp_path, TextPairs(*LENGTHS[:1], 61)).key,
    ]
    assert len(set(keys)) == len(keys)
    assert store_of(tmp_path, held_out_source=held(PAIRS[:7]), held_out=0.4).key == keys[2], "the share is not used"
    assert store_of(tmp_path, sentences="line").key == keys[0], "pairs have no sentences"


def test_data_takes_pairs(tmp_path):
    for name, pairs in (("train", PAIRS), ("dev", PAIRS[3:9])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    table = functools.partial(TextToText, prompt=TextTemplate("{0}", "{1}"), prefix="translate: ")
    train, dev = (table(TableFiles((str(tmp_path / f"{name}.tsv"),), columns=())) for name in ("train", "dev"))
    data = Data(train, Bytes(), held_out_source=dev, cache_dir=str(tmp_path))
    made = data.prepare(TextPairs(80, 60))
    assert sorted(pairs_in(made, "held_out")) == sorted((f"translate: {source}", t) for source, t in PAIRS[3:9])
    assert len(pairs_in(made, "train")) == len(PAIRS)
    summary = json.loads((made.path / "store.json").read_text())
    assert {split: found["documents"] for split, found in summary["splits"].items()} == {
        "train": len(PAIRS),
        "held_out": 6,
    }
    assert summary["splits"]["train"]["padding"] == made.figures["train"].padding
    assert replace(data, held_out_source=None).prepare(TextPairs(80, 60)).key != made.key


def test_the_target_side_of_a_tokenizer(tmp_path):
    class TwoSided(ByteTokenizer):
        @property
        def target_side(self):
            return Shifted(0)

    class Shifted(ByteTokenizer):
        def encode_batch(self, texts):
            return [ids + 1 for ids in super().encode_batch(texts)]

    made = store_of(tmp_path, TextPairs(60, 60, packed=False), tokenizer=TwoSided(0))
    found = {pair for split in made.figures for pair in pairs_in(made, split)}
    assert found == {(source, "".join(chr(ord(c) + 1) for c in target)) for source, target in PAIRS}


@pytest.mark.parametrize("options", ["source", "held_out_source"])
def test_pairs_need_a_source_of_pairs(corpus, tmp_path, options):
    with pytest.raises(InputError, match=r"source=Texts\(...\) has no pairs, .* TextPairs .* give TextToText"):
        store_of(tmp_path, **{options: corpus})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (held((("a", "b"), ("c", " "))), "memory:12 has an empty target"),
        (held(()), "holds no pairs"),
        (held((("a", "b"),) * 5), "1 distinct pairs.* a held_out_source"),
        (held((("a" * 99, "b"), ("c" * 99, "d"))), "has 1 pairs, 1 of them longer than a row; give more text"),
    ],
)
def test_corpora_of_pairs_that_cannot_be(tmp_path, source, message):
    with pytest.raises(InputError, match=message):
        store_of(tmp_path, TextPairs(20, 20, too_long="skip"), source)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
