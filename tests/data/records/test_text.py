import gzip
import json

import pytest

from t5x_lite.data import TextFiles
from t5x_lite.data.records import input_files
from t5x_lite.errors import InputError

JAPANESE = "吾輩は猫である。\n名前はまだ無い。\n\nどこで生れたか\r\n\r\n\r\nとんと見当がつかぬ。\n"


def read(*paths, **options):
    return list(TextFiles(tuple(map(str, paths)), **options).documents())


@pytest.fixture
def novel(tmp_path):
    path = tmp_path / "novel.txt"
    path.write_bytes(JAPANESE.encode())
    return path


def test_units_of_plain_text(novel):
    assert read(novel) == ["吾輩は猫である。\n名前はまだ無い。", "どこで生れたか", "とんと見当がつかぬ。"]
    assert read(novel, document="line") == [line.strip() for line in JAPANESE.split("\n") if line.strip()]
    assert read(novel, document="file") == [JAPANESE.strip()]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("blanks", ["", "\n\n", "\n  \n"])
def test_a_file_without_blank_lines_inside_is_one_document_a_line(tmp_path, blanks, encoding):
    path = tmp_path / "lines.txt"
    path.write_text(f"{blanks}one\ntwo\nthree{blanks}", encoding=encoding)
    assert read(path) == ["one", "two", "three"]


def test_json_lines_and_gzip(tmp_path):
    records = "\n".join(json.dumps({"text": text, "id": 1}) for text in ["a\n\nb", " ", "猫"])
    (tmp_path / "a.jsonl").write_text(records + "\n\n")
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(records.replace("text", "body").encode()))
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"x\ny"))
    assert read(tmp_path / "a.jsonl") == ["a\n\nb", "猫"]
    assert read(tmp_path / "b.json.gz", field="body") == ["a\n\nb", "猫"]
    assert read(tmp_path / "c.txt.gz") == ["x", "y"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a\n" * 500_000, "has 1,006 bytes and 1,026 or more of text"), (b"a" * 2000, "has a line of more than")],
)
@pytest.mark.parametrize("document", ["paragraph", "line", "file"])
def test_what_gzip_makes_out_of_nothing_is_not_read(tmp_path, monkeypatch, content, message, document):
    monkeypatch.setattr(input_files, "MOST_BYTES", 1024)
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(input_files, "_MOST_RATIO", 1)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "bomb.txt.gz", document=document)


def test_folders_globs_and_names_are_sorted_and_read_once(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    names = ["b.txt", "a.txt", "sub/c.TXT", "notes.md", ".hidden/d.txt", ".e.txt"]
    for name in names:
        (tmp_path / name).write_text(name)
    (tmp_path / "empty.txt").touch()
    assert read(tmp_path) == ["a.txt", "b.txt", "sub/c.TXT"]
    assert read(tmp_path / "**/*.TXT", tmp_path / "b.txt", tmp_path) == ["a.txt", "b.txt", "sub/c.TXT"]
    assert read(tmp_path / "notes.md") == ["notes.md"]


def test_fingerprint_follows_content_and_options_not_place(tmp_path, novel):
    source = TextFiles((str(novel),))
    before = source.fingerprint()
    (tmp_path / "moved").mkdir()
    moved = tmp_path / "moved" / novel.name
    moved.write_bytes(novel.read_bytes())
    assert TextFiles((str(moved),)).fingerprint() == before
    assert TextFiles((str(novel),), document="line").fingerprint() != before
    assert TextFiles((str(novel),), field="body").fingerprint() != before
    moved.write_bytes(novel.read_bytes().replace(b"\r", b"\n"))
    assert TextFiles((str(moved),)).fingerprint() != before


def test_a_large_file_is_hashed_in_three_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "_WHOLE_HASH", 100)
    monkeypatch.setattr(input_files, "_PART_HASH", 10)
    path = tmp_path / "large.txt"

    def with_change_at(offset):
        content = bytearray(b"a" * 1000)
        content[offset] = ord("b")
        path.write_bytes(content)
        return TextFiles((str(path),)).fingerprint()

    untouched = with_change_at(300)
    assert with_change_at(301) == untouched
    assert len({untouched, *map(with_change_at, (5, 500, 995))}) == 4


def test_paragraphs_stream(tmp_path):
    path = tmp_path / "late.txt"
    path.write_bytes(b"good\n\nalso good\n\n\xff\n")
    documents = TextFiles((str(path),)).documents()
    assert [next(documents), next(documents)] == ["good", "also good"]
    with pytest.raises(InputError, match="line 5"):
        next(documents)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.txt", b"", {}, "0 bytes"),
        ("a.txt", b" \n\n ", {}, "no text but blanks"),
        ("a.txt", b"good\nb\xe9d\n", {}, "not UTF-8 at line 2 .*0xe9.*iconv"),
        ("a.txt", b"good\nb\xe9d\n", {"document": "file"}, "byte offset 6"),
        ("a.txt", "text".encode("utf-16"), {}, "not UTF-8 at line 1 .*iconv -f UTF-16"),
        ("a.txt.gz", b"plain", {}, "broken as gzip"),
        ("a.txt.gz", gzip.compress(b"word " * 1000, mtime=0)[:-20], {}, "broken as gzip"),
        ("a.jsonl", b'{"text": "a"}\n{"text', {}, r"a.jsonl:2 is not JSON"),
        ("a.jsonl", b'{"body": "a", "id": 1}', {}, r"field='text'.*a.jsonl:1.*'body', 'id'; set field"),
        ("a.jsonl", b'{"text": 3}', {}, "field='text' is 3 in .*a.jsonl:1; set field to a field of text"),
        ("a.jsonl", b"[1, 2]", {}, "a.jsonl:1 is a list; write one JSON object"),
        ("a.jsonl", b'{"text": "\\ud800"}', {}, "surrogate"),
    ],
)
def test_bad_content_is_one_sentence(tmp_path, name, content, options, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        read(tmp_path / name, **options)
    assert "\n" not in str(raised.value)


def test_bad_paths(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.txt.*does not exist"):
        read(tmp_path / "nothing.txt")
    with pytest.raises(InputError, match="glob matches no file"):
        read(tmp_path / "*.txt")
    with pytest.raises(InputError, match=r"holds no file that ends in \.txt"):
        read(tmp_path)
    with pytest.raises(InputError, match="names no text"):
        TextFiles(())
    with pytest.raises(InputError, match="names no text"):
        TextFiles("a.txt")
    with pytest.raises(InputError, match="document='page'"):
        TextFiles(("a.txt",), document="page")


def test_a_file_without_permission(novel, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(novel), "open", refuse)  # root may read every file
    with pytest.raises(InputError, match=r"novel\.txt cannot be read \(Permission denied\)"):
        read(novel)
