import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from t5x_lite.data import JsonlPairs, ParallelPairs, TfdsPairs, TsvPairs
from t5x_lite.errors import InputError

PAIRS = [("Guten Tag!", "Good day!"), ("猫である。", "I am a cat."), ("a b", "c  d")]


def write(path: Path, content: str | bytes) -> str:
    """Its name; packed where that ends in .gz."""
    content = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return str(path)


def tsv(pairs) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def jsonl(pairs) -> str:
    return "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)


def in_files(folder, kind, pairs, ending="", **options):
    """The pairs in files, as a source of a kind."""
    sides = ["".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1)]
    match kind:
        case "tsv":
            return TsvPairs((write(folder / f"a.tsv{ending}", tsv(pairs)),), **options)
        case "jsonl":
            return JsonlPairs((write(folder / f"a.jsonl{ending}", jsonl(pairs)),), **options)
    names = [(write(folder / f"a.{side}{ending}", text),) for side, text in zip(("de", "en"), sides, strict=True)]
    return ParallelPairs(*names, **options)


KINDS = ["tsv", "jsonl", "parallel"]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_files(tmp_path, kind, ending):
    source = in_files(tmp_path, kind, PAIRS, ending)
    assert list(source.pairs()) == PAIRS
    assert list(source.documents()) == [text for pair in PAIRS for text in pair]
    prefixed = replace(source, prefix="to English: ")
    assert list(prefixed.pairs()) == [(f"to English: {source}", target) for source, target in PAIRS]


@pytest.mark.parametrize("kind", KINDS)
def test_windows_ends_of_lines_and_a_byte_order_mark(tmp_path, kind):
    source = in_files(tmp_path, kind, PAIRS)
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(source.pairs()) == PAIRS


def test_columns(tmp_path):
    paths = (write(tmp_path / "a.txt", "1\tdas Haus\tthe house\n2\tder  Baum \t the tree\tx\n"),)
    expected = [("das Haus", "the house"), ("der  Baum", "the tree")]
    assert list(TsvPairs(paths, 1, 2).pairs()) == expected
    assert list(TsvPairs(paths, source_column=2, target_column=1).pairs()) == [(b, a) for a, b in expected]


def test_fields(tmp_path):
    records = [{"translation": {"de": "Haus", "en": "house"}, "en": "HOUSE", "a/b": "slash"}]
    paths = (write(tmp_path / "a.json", json.dumps(records[0]) + "\n\n"),)
    assert list(JsonlPairs(paths, "translation/de", "translation/en").pairs()) == [("Haus", "house")]
    assert list(JsonlPairs(paths, source="en", target="a/b").pairs()) == [("HOUSE", "slash")]


@pytest.mark.parametrize(("kind", "make"), [("tsv", tsv), ("jsonl", jsonl)])
def test_folders_and_globs_are_read_in_order_and_once(tmp_path, kind, make):
    for number, name in enumerate(["b", "a", "sub/c", ".hidden/d"]):
        write(tmp_path / f"{name}.{kind}", make([(f"s{number}", f"t{number}")]))
    write(tmp_path / "notes.md", "no\tpair")
    write(tmp_path / f"empty.{kind}", "")
    source = {"tsv": TsvPairs, "jsonl": JsonlPairs}[kind]
    for paths in ((".",), ("**/*." + kind,), (f"sub/c.{kind}", ".", f"b.{kind}")):
        found = list(source(tuple(str(tmp_path / path) for path in paths)).pairs())
        assert found == [("s1", "t1"), ("s0", "t0"), ("s2", "t2")]


def test_parallel_files_keep_their_order(tmp_path):
    for name in ("2", "1"):
        write(tmp_path / f"de/{name}.de", f"s{name}\n")
        write(tmp_path / f"en/{name}.en", f"t{name}\n")
    named = [tuple(str(tmp_path / side / f"{name}.{side}") for name in "21") for side in ("de", "en")]
    assert list(ParallelPairs(*named).pairs()) == [("s2", "t2"), ("s1", "t1")]
    for pattern in ("{0}", "{0}/*.{0}"):
        sides = [(str(tmp_path / pattern.format(side)),) for side in ("de", "en")]
        assert list(ParallelPairs(*sides).pairs()) == [("s1", "t1"), ("s2", "t2")]


@pytest.mark.parametrize("kind", ["tsv", "parallel"])
def test_blank_lines_are_no_pairs(tmp_path, kind):
    pairs = [("a", "b"), ("", ""), (" ", ""), ("c", "d"), ("", "")]
    source = in_files(tmp_path, kind, pairs)
    assert list(source.pairs()) == [("a", "b"), ("c", "d")]
    assert source.location(2).startswith(str(tmp_path)) and source.location(2).endswith(":4")


@pytest.mark.parametrize(("fewer", "more"), [("source", "target"), ("target", "source")])
def test_parallel_files_of_unequal_counts(tmp_path, fewer, more):
    paths = {
        fewer: (write(tmp_path / "first.gz", "1\n2\n"), write(tmp_path / "few", "1\n2\n3")),
        more: (write(tmp_path / "other", "1\n2\n"), write(tmp_path / "many", "1\n2\n3\n4\n5\n6\n")),
    }
    message = "many has 6 lines and .*few has 3, so that line 4 of many has no partner; give files that are parallel"
    with pytest.raises(InputError, match=message):
        list(ParallelPairs(**paths).pairs())
    paths[fewer] = paths[fewer][:1]
    with pytest.raises(
        InputError, match=rf"source has {len(paths['source'])} files and target {len(paths['target'])},"
    ):
        list(ParallelPairs(**paths).pairs())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("side", "place"), [("source", 0), ("target", 1)])
def test_an_empty_side(tmp_path, kind, side, place):
    pairs = [list(pair) for pair in PAIRS]
    pairs[1][place] = " "
    source = in_files(tmp_path, kind, pairs, prefix="to English: ")
    with pytest.raises(InputError, match=rf"a\.\w+:2 has an empty {side}; .*set empty='skip'"):
        list(source.pairs())
    kept = list(replace(source, empty="skip").pairs())
    assert kept == [(f"to English: {source}", target) for source, target in (PAIRS[0], PAIRS[2])]
    assert replace(source, empty="skip").location(2).endswith(":3")


def test_the_fingerprint_follows_content_and_options_not_place(tmp_path):
    def sources(folder, pairs=PAIRS, **options):
        return [in_files(tmp_path / folder, kind, pairs, **options) for kind in KINDS]

    def prints(made):
        return [source.fingerprint() for source in made]

    before = prints(sources("a"))
    assert prints(sources("b")) == before
    changed = [
        *prints(sources("c", [*PAIRS[:2], ("a b", "c  e")])),
        *prints(sources("d", prefix="x")),
        *prints(sources("e", empty="skip")),
    ]
    first, second, third = sources("f")
    changed += prints([replace(first, source_column=1, target_column=0), replace(second, source="target")])
    changed += prints([replace(third, source=third.target, target=third.source)])
    assert len({*before, *changed}) == len(before) + len(changed)


BAD_FILES = [
    ("a.tsv", "a\tb\nalone\n", {}, r"target_column=1 is missing in .*a\.tsv:2, which has column 0 alone; set target"),
    ("a.tsv", "a\tb\n", {"source_column": 3}, r"source_column=3 is missing in .*a\.tsv:1, .* columns 0 to 1 alone"),
    ("a.tsv", "a\tb\ngr\xfcn\tgreen\n".encode("latin-1"), {}, "not UTF-8 at line 2"),
    ("a.tsv", "\n \n", {}, "holds no pairs"),
    ("a.tsv", "", {}, "is empty"),
    (
        "a.jsonl",
        '{"source": "a", "target": "b"}\n{"source": "a", "en": "b"}',
        {},
        r"target='target' .*:2, .*'source', 'en'; set target",
    ),
    ("a.jsonl", '{"de": {"x": "a"}}', {"source": "de/y"}, "source='de/y' is missing in .*:1, .* has 'de/x'"),
    ("a.jsonl", '{"de": {"x": "a"}}', {"source": "de"}, "source='de' is {'x': 'a'} in .*:1; set source to"),
    ("a.jsonl", '{"de": "a"}', {"source": "de/x"}, "source='de/x' is missing in .*:1, which has 'de'"),
    ("a.jsonl", '{"source": "a", "target": 3}', {}, "target='target' is 3 in .*:1; set target to a field of text"),
    ("a.jsonl", "[]", {}, "a.jsonl:1 is a list; write one JSON object"),
    ("a.jsonl", '{"source"', {}, ":1 is not JSON"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), BAD_FILES)
def test_bad_files_are_one_sentence(tmp_path, name, content, options, message):
    paths = (write(tmp_path / name, content),)
    with pytest.raises(InputError, match=message) as raised:
        list((TsvPairs if "tsv" in name else JsonlPairs)(paths, **options).pairs())
    assert "\n" not in str(raised.value)


def test_broken_gzip_and_paths(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(b"plain")
    with pytest.raises(InputError, match="broken as gzip"):
        list(TsvPairs((str(tmp_path / "a.tsv.gz"),)).pairs())
    with pytest.raises(InputError, match=r"paths=.*absent\.tsv.* does not exist"):
        list(TsvPairs((str(tmp_path / "absent.tsv"),)).pairs())
    with pytest.raises(InputError, match=r"target=.*absent\.en.* does not exist"):
        list(ParallelPairs((str(tmp_path / "a.tsv.gz"),), (str(tmp_path / "absent.en"),)).pairs())
    with pytest.raises(InputError, match=r"holds no file that ends in \.jsonl"):
        list(JsonlPairs((str(tmp_path),)).pairs())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TsvPairs("a.tsv"), "paths='a.tsv' names no text; give a tuple"),
        (lambda: JsonlPairs(()), r"paths=\(\) names no text"),
        (lambda: ParallelPairs(("a",), "b"), "target='b' names no text"),
        (lambda: TsvPairs(("a",), source_column=-1), "source_column=-1 is negative; columns count from 0"),
        (lambda: TsvPairs(("a",), 1), "source_column=1 is target_column too"),
        (lambda: TfdsPairs("a", empty="drop"), "empty='drop' is unknown; choose one of error, skip"),
    ],
)
def test_values_that_cannot_be(make, message):
    with pytest.raises(InputError, match=message):
        make()


TRANSLATIONS = [("Haus", "house"), (" 猫 ", "cat"), ("", "nothing"), ("Baum", "tree")]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory, write_dataset):
    """A dataset that is a translation, and one with a translation within another feature."""
    features = pytest.importorskip("tensorflow_datasets").features
    folder, languages = tmp_path_factory.mktemp("tfds"), features.Translation(languages=["de", "en"])
    rows = [{"de": source, "en": target} for source, target in TRANSLATIONS]
    write_dataset(folder / "flat" / "1.0.0", languages, train=rows)
    nested = features.FeaturesDict({"id": features.Text(), "translation": languages})
    write_dataset(folder / "nested" / "1.0.0", nested, train=[{"id": "x", "translation": row} for row in rows])
    return folder


@pytest.mark.parametrize(("name", "before"), [("flat", ""), ("nested", "translation/")])
def test_translations_of_tfds(datasets, name, before):
    source = TfdsPairs(name, "train", f"{before}de", f"{before}en", str(datasets), empty="skip", prefix="p ")
    assert list(source.pairs()) == [("p Haus", "house"), ("p 猫", "cat"), ("p Baum", "tree")]
    assert list(replace(source, split="train[3:]", prefix="").documents()) == ["Baum", "tree"]
    turned = replace(source, source=source.target, target=source.source, split="train[:2]", prefix="")
    assert list(turned.pairs()) == [("house", "Haus"), ("cat", "猫")]
    with pytest.raises(InputError, match=r"example 2 of split='train' of name='\w+' has an empty source"):
        list(replace(source, empty="error").pairs())
    others = [source, turned, replace(source, prefix=""), replace(source, split="train[:2]")]
    assert len({other.fingerprint() for other in others}) == len(others)
    known = f"'{before}de', '{before}en'"
    for wrong in ("source", before.rstrip("/") or "fr"):
        with pytest.raises(InputError, match=f"source='{wrong}' is .*(has .*{known}; set source|field of text)"):
            list(replace(source, source=wrong).pairs())
