import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from t5x_lite.data import JoinedRecords, JsonlFiles, ParallelFiles, TableFiles, TextTemplate, TextToText, Tfds
from t5x_lite.errors import InputError

SIDES = ("source", "target")

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


def in_files(folder, form, pairs, ending="", **options):
    """The pairs in files, as a source."""
    sides = ["".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1)]
    match form:
        case "tsv":
            table = TableFiles((write(folder / f"a.tsv{ending}", tsv(pairs)),), columns=SIDES)
            return TextToText(table, **options)
        case "jsonl":
            return TextToText(JsonlFiles((write(folder / f"a.jsonl{ending}", jsonl(pairs)),)), **options)
    names = tuple(write(folder / f"a.{side}{ending}", text) for side, text in zip(("de", "en"), sides, strict=True))
    return TextToText(ParallelFiles(SIDES, names), **options)


FORMS = ["tsv", "jsonl", "parallel"]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("form", FORMS)
def test_pairs_of_files(tmp_path, form, ending):
    source = in_files(tmp_path, form, PAIRS, ending)
    assert list(source.read()) == PAIRS
    assert list(source.documents()) == [text for pair in PAIRS for text in pair]
    prefixed = replace(source, prefix="to English: ")
    assert list(prefixed.read()) == [(f"to English: {source}", target) for source, target in PAIRS]


@pytest.mark.parametrize("form", FORMS)
def test_windows_ends_of_lines_and_a_byte_order_mark(tmp_path, form):
    source = in_files(tmp_path, form, PAIRS)
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(source.read()) == PAIRS


def columns(paths, source=0, target=1):
    """The pairs in two columns of tables without a line of names."""
    return TextToText(TableFiles(paths, columns=()), TextTemplate(f"{{{source}}}", f"{{{target}}}"))


def test_columns_by_number_whatever_stands_in_others(tmp_path):
    paths = (write(tmp_path / "a.txt", "1\tdas Haus\tthe house\n2\tder  Baum \t the tree\tx\n"),)
    expected = [("das Haus", "the house"), ("der  Baum", "the tree")]
    assert list(columns(paths, 1, 2).read()) == expected
    assert list(columns(paths, 2, 1).read()) == [(b, a) for a, b in expected]


def test_fields(tmp_path):
    records = [{"translation": {"de": "Haus", "en": "house"}, "en": "HOUSE", "a/b": "slash"}]
    examples = JsonlFiles((write(tmp_path / "a.json", json.dumps(records[0]) + "\n\n"),))
    nested = TextTemplate("{translation/de}", "{translation/en}")
    assert list(TextToText(examples, nested).read()) == [("Haus", "house")]
    assert list(TextToText(examples, TextTemplate("{en}", "{a/b}")).read()) == [("HOUSE", "slash")]


@pytest.mark.parametrize(("form", "make"), [("tsv", tsv), ("jsonl", jsonl)])
def test_folders_and_globs_are_read_in_order_and_once(tmp_path, form, make):
    for number, name in enumerate(["b", "a", "sub/c", ".hidden/d"]):
        write(tmp_path / f"{name}.{form}", make([(f"s{number}", f"t{number}")]))
    write(tmp_path / "notes.md", "no\tpair")
    write(tmp_path / f"empty.{form}", "")
    for paths in ((".",), ("**/*." + form,), (f"sub/c.{form}", ".", f"b.{form}")):
        paths = tuple(str(tmp_path / path) for path in paths)
        source = TextToText(TableFiles(paths, columns=SIDES) if form == "tsv" else JsonlFiles(paths))
        assert list(source.read()) == [("s1", "t1"), ("s0", "t0"), ("s2", "t2")]


def test_parallel_files_go_together_by_the_order_of_names(tmp_path):
    for name in ("2", "1"):
        write(tmp_path / f"de/{name}.de", f"s{name}\n")
        write(tmp_path / f"en/{name}.en", f"t{name}\n")
    for pattern in ("{0}", "{0}/*.{0}"):
        paths = tuple(str(tmp_path / pattern.format(side)) for side in ("de", "en"))
        assert list(TextToText(ParallelFiles(SIDES, paths)).read()) == [("s1", "t1"), ("s2", "t2")]
    named = [tuple(str(tmp_path / side / f"{name}.{side}") for side in ("de", "en")) for name in "21"]
    joined = JoinedRecords(tuple(ParallelFiles(SIDES, paths) for paths in named))
    assert list(TextToText(joined).read()) == [("s2", "t2"), ("s1", "t1")]


@pytest.mark.parametrize("form", ["tsv", "parallel"])
def test_blank_lines_are_skipped(tmp_path, form):
    pairs = [("a", "b"), ("", ""), (" ", ""), ("c", "d"), ("", "")]
    source = in_files(tmp_path, form, pairs)
    assert list(source.read()) == [("a", "b"), ("c", "d")]
    assert source.location(2).startswith(str(tmp_path)) and source.location(2).endswith(":4")


@pytest.mark.parametrize("fewer", [0, 1])
def test_parallel_files_of_unequal_counts(tmp_path, fewer):
    folders = [tmp_path / "few", tmp_path / "many"]
    for folder, lines in zip(folders, ("1\n2\n3", "1\n2\n3\n4\n5\n6\n"), strict=True):
        write(folder / "first.gz", "1\n2\n")
        write(folder / "second", lines)
    paths = tuple(map(str, folders if fewer == 0 else folders[::-1]))
    message = "few/second ends before line 4, which .*many/second has; give files that are parallel line by line"
    with pytest.raises(InputError, match=message):
        list(ParallelFiles(SIDES, paths))
    (folders[0] / "second").unlink()
    with pytest.raises(InputError, match=r"few' 1.* so that they cannot be parallel; give as many for each field"):
        list(ParallelFiles(SIDES, paths))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("side", "index"), [("source", 0), ("target", 1)])
def test_an_empty_side(tmp_path, form, side, index):
    pairs = [list(pair) for pair in PAIRS]
    pairs[1][index] = " "
    source = in_files(tmp_path, form, pairs, prefix="to English: ")
    with pytest.raises(InputError, match=rf"a\.\w+:2 has an empty {side}; .*set empty='skip'"):
        list(source.read())
    kept = list(replace(source, empty="skip").read())
    assert kept == [(f"to English: {source}", target) for source, target in (PAIRS[0], PAIRS[2])]
    assert replace(source, empty="skip").location(2).endswith(":3")


def test_the_fingerprint_follows_content_and_options_not_the_folder(tmp_path):
    def sources(folder, pairs=PAIRS, **options):
        return [in_files(tmp_path / folder, form, pairs, **options) for form in FORMS]

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
    turned = TextTemplate("{target}", "{source}")
    changed += prints([replace(first, prompt=turned), replace(second, prompt=TextTemplate("{target}", "{target}"))])
    changed += prints([replace(third, examples=replace(third.examples, fields=SIDES[::-1]))])
    assert len({*before, *changed}) == len(before) + len(changed)


BAD_FILES = [
    ("a.tsv", "a\tb\nalone\n", (0, 1), r"target='1' is missing in .*a\.tsv:2, which has '0'; set target"),
    ("a.tsv", "a\tb\n", (3, 1), r"source='3' is missing in .*a\.tsv:1, which has '0', '1'; .* correct the record"),
    ("a.tsv", "a\tb\ngr\xfcn\tgreen\n".encode("latin-1"), (0, 1), "not UTF-8 at line 2"),
    ("a.tsv", "\n \n", (0, 1), "holds no pairs"),
    ("a.tsv", "", (0, 1), "is empty"),
    (
        "a.jsonl",
        '{"source": "a", "target": "b"}\n{"source": "a", "en": "b"}',
        SIDES,
        r"target='target' .*:2, .*'source', 'en'; set target",
    ),
    ("a.jsonl", '{"de": {"x": "a"}}', ("de/y", "de/x"), "source='de/y' is missing in .*:1, .* has 'de/x'"),
    ("a.jsonl", '{"de": {"x": "a"}}', ("de", "de/x"), "source='de' is {'x': 'a'} in .*:1; set source to"),
    ("a.jsonl", '{"de": "a"}', ("de/x", "de"), "source='de/x' is missing in .*:1, which has 'de'"),
    ("a.jsonl", '{"source": "a", "target": null}', SIDES, "target='target' is None in .*:1; set target to"),
    ("a.jsonl", "[]", SIDES, "a.jsonl:1 is a list; write one JSON object"),
    ("a.jsonl", '{"source"', SIDES, ":1 is not JSON"),
    ("a.jsonl", r'{"source": "\ud83d", "target": "b"}', SIDES, ":1 escapes half a surrogate pair"),
]


@pytest.mark.parametrize(("name", "content", "fields", "message"), BAD_FILES)
def test_bad_files_are_one_sentence(tmp_path, name, content, fields, message):
    paths = (write(tmp_path / name, content),)
    examples = TableFiles(paths, columns=()) if "tsv" in name else JsonlFiles(paths)
    with pytest.raises(InputError, match=message) as raised:
        list(TextToText(examples, TextTemplate(*(f"{{{field}}}" for field in fields))).read())
    assert "\n" not in str(raised.value)


def test_broken_gzip_and_paths(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(b"plain")
    with pytest.raises(InputError, match="broken as gzip"):
        list(columns((str(tmp_path / "a.tsv.gz"),)).read())
    with pytest.raises(InputError, match=r"paths=.*absent\.tsv.* does not exist"):
        list(columns((str(tmp_path / "absent.tsv"),)).read())
    with pytest.raises(InputError, match=r"paths=.*absent\.en.* does not exist"):
        list(ParallelFiles(SIDES, (str(tmp_path / "a.tsv.gz"), str(tmp_path / "absent.en"))))
    with pytest.raises(InputError, match=r"holds no file that ends in \.jsonl"):
        list(JsonlFiles((str(tmp_path),)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TableFiles("a.tsv"), "paths='a.tsv' names no text; give a tuple"),
        (lambda: JsonlFiles(()), r"paths=\(\) names no text"),
        (lambda: TableFiles(("a",), columns=("x", "x")), "columns=.* names one of them twice"),
        (lambda: TextToText(Tfds("a"), empty="drop"), "empty='drop' is unknown; choose error or skip"),
        (lambda: TextTemplate("{a}", "b"), "target='b' names no field"),
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
    def pairs(source, target, split="train", **options):
        template = TextTemplate(f"{{{before}{source}}}", f"{{{before}{target}}}")
        return TextToText(Tfds(name, split, str(datasets)), template, **options)

    source = pairs("de", "en", empty="skip", prefix="p ")
    assert list(source.read()) == [("p Haus", "house"), ("p 猫", "cat"), ("p Baum", "tree")]
    assert source.location(3) == f"example 3 of split='train' of name='{name}'"
    assert list(pairs("de", "en", "train[3:]").documents()) == ["Baum", "tree"]
    turned = pairs("en", "de", "train[:2]")
    assert list(turned.read()) == [("house", "Haus"), ("cat", "猫")]
    with pytest.raises(InputError, match=r"example 2 of split='train' of name='\w+' has an empty source"):
        list(replace(source, empty="error").read())
    others = [source, turned, replace(source, prefix=""), pairs("de", "en", "train[:2]", empty="skip", prefix="p ")]
    assert len({other.fingerprint() for other in others}) == len(others)
    with pytest.raises(InputError, match=f"source=.* is missing .* has .*'{before}de', '{before}en'; set source"):
        list(pairs("fr", "en").read())
