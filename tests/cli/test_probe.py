"""The command `probe` on tables, JSON lines, parallel files and CoNLL."""

import json
import random
from pathlib import Path

import pytest

THINGS = ("bottle", "chair", "lamp", "cat", "river")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Sentences that are about a cat, or not: a file of each kind, and CoNLL in which the cat is an entity."""
    folder, source = tmp_path_factory.mktemp("probe"), random.Random(0)
    for name, count in (("train", 60), ("test", 30)):
        texts = [f"The {source.choice(THINGS)} stands on the {source.choice(THINGS)}." for _ in range(count)]
        labels = ["cat" if "cat" in text else "other" for text in texts]
        rows = list(zip(texts, labels, strict=True))
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"t": a, "y": b}) + "\n" for a, b in rows))
        (folder / f"{name}.texts").write_text("".join(f"{text}\n" for text in texts))
        (folder / f"{name}.labels").write_text("".join(f"{label}\n" for label in labels))
        words = ["\n".join(f"{word} {'B-CAT' if word == 'cat' else 'O'}" for word in text.split()) for text in texts]
        (folder / f"{name}.conll").write_text("\n\n".join(words) + "\n")
    (folder / "other.tsv").write_text("text\tlabel\na cat\tcat\na dog\tdog\na dog\tdog\n")
    (folder / "one.tsv").write_text("text\tlabel\na cat\tcat\na dog\tcat\n")
    return folder


def test_a_table_for_people(run, make_run, files):
    """The model has two layers; the mean of random embeddings tells the word."""
    status, out, err = run("probe", make_run("bert"), "--train", files / "train.tsv", "--test", files / "test.tsv")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["layers", "features", "accuracy", "macro", "f1"]
    assert [line.split("  ")[0] for line in lines[1:5]] == ["embeddings", "second to last", "last", "sum all"]
    assert "100.0% (100.0-100.0)" in lines[1]
    assert "60 examples of training, 30 of the test" in lines[6]
    assert "left out: the model has 2 layers" in lines[7]
    assert "encoding 60 texts of training and 30 of the test" in err


@pytest.mark.slow
def test_figures_for_machines_from_every_kind_of_file(run, make_run, files):
    def figures(*arguments):
        status, out, err = run("probe", make_run("bert"), "--json", "--layers", "0", "-1", *arguments)
        assert status == 0, err
        return json.loads(out)

    table = figures("--train", files / "train.tsv", "--test", files / "test.tsv")
    assert [one["layers"] for one in table["probed"]] == [0, -1]
    assert table["probed"][0]["figures"]["accuracy"] == 1.0
    assert table["probed"][1]["intervals"]["accuracy"][0] <= table["probed"][1]["figures"]["accuracy"]
    fields = ("--texts", "t", "--label", "y")
    assert figures("--train", files / "train.jsonl", "--test", files / "test.jsonl", *fields) == table
    sides = {name: [files / f"{name}.texts", files / f"{name}.labels"] for name in ("train", "test")}
    given = ("--fields", "text", "label", "--train", *sides["train"], "--test", *sides["test"])
    assert figures(*given) == table
    tagged = figures("--tagged", "--train", files / "train.conll", "--test", files / "test.conll")
    assert tagged["probed"][0]["figures"]["f1"] == 1.0
    assert tagged["num_test"] == 30
    drawn = figures("--train", files / "train.tsv", "--held-out", "0.25", "--num-test", "10")
    assert (drawn["num_train"], drawn["num_test"]) == (45, 10)


BAD = {
    "a label that training lacks": (["--test", "other.tsv"], "labels that training lacks: 'dog' 2 times"),
    "a missing column": (["--label", "sentiment"], "label='sentiment' is missing in"),
    "an unknown choice": (["--layers", "first"], "layers='first' is unknown; choose one of last"),
    "one class": (["--train", "one.tsv"], "all 2 labels of training are 'cat'"),
    "no share": (["--held-out", "1.5"], "held_out=1.5 is not between 0 and 1"),
    "too few": (["--num-train", "1"], "training has 1 labels; a probe needs 2 or more"),
    "a negative number": (["--num-train", "-1"], "num_train=-1 is too small; choose 1 or more, or 0 for all"),
    "no file": (["--train", "absent.tsv"], "does not exist"),
    "files of two kinds": (["--train", "train.tsv", "train.jsonl"], "files of JSON and others"),
    "no tags": (["--tagged", "--tag-column", "4"], "tag_column=4 is missing in"),
    "no weight": (["--l2", "-1"], "l2=-1.0 is not positive"),
    "nothing to fit": (["--train"], "train=() names no text"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(run, make_run, files, name):
    arguments, expected = BAD[name]
    arguments = [files / argument if argument.endswith((".tsv", ".jsonl")) else argument for argument in arguments]
    given = [] if "--train" in arguments else ["--train", files / "train.tsv"]
    test = (
        []
        if {"--test", "--held-out"} & {*arguments}
        else ["--test", files / ("one.tsv" if name == "one class" else "test.tsv")]
    )
    status, _, err = run("probe", make_run("bert"), *given, *test, *arguments)
    *_, last = err.splitlines()
    assert status == 2, err
    assert last.startswith("t5x-lite: ")
    assert expected in last
