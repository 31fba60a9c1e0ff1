"""Checksums of the files of a folder: what is changed later is noticed and named."""

import json
import threading

import pytest
from etils import epath

from t5x_lite.checksums import file_names, find_damage, is_checked, write_checksums


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "numbers").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text.json").write_text("{}")
    write_checksums(tmp_path)
    return tmp_path


def test_files_as_they_were_written(folder):
    assert file_names(folder) == ["d/numbers", "empty", "text.json"]
    assert is_checked(folder)
    assert find_damage(folder) == ""


def test_every_flipped_bit_is_noticed(folder):
    path = folder / "d" / "numbers"
    content = path.read_bytes()
    for index in (0, 12_345, len(content) - 1):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[index] ^= 1 << bit
            path.write_bytes(flipped)
            assert find_damage(folder) == "d/numbers is not what was written, by its checksum"
            assert find_damage(folder, lambda name: not name.startswith("d/")) == ""
            assert find_damage(folder, sizes_alone=True) == ""


def test_where_no_thread_is_left(folder, monkeypatch):
    """They are computed in this one."""
    started = []

    def refuse(thread):
        started.append(thread)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    write_checksums(folder)
    assert started and find_damage(folder) == ""


def test_files_that_are_cut_short_or_missing(folder):
    (folder / "d" / "numbers").write_bytes(bytes(5))
    assert find_damage(folder, sizes_alone=True) == "d/numbers has 5 bytes and not 25,600"
    (folder / "text.json").unlink()
    assert find_damage(folder) == "text.json is missing"
    assert find_damage(folder, lambda name: name == "empty") == ""


def test_a_new_file_has_no_checksum(folder):
    (folder / "new").write_text("x")
    assert find_damage(folder) == "" and not is_checked(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": 3}', '{"files": {"empty": 3}}', "[" * 100_000, "\xff"])
def test_damaged_checksums(folder, content):
    (folder / "checksums.0.json").write_bytes(content.encode("latin-1"))
    assert find_damage(folder) == "checksums.0.json is not what was written"


def test_processes_write_and_read_a_share_each(folder):
    (folder / "checksums.0.json").unlink()
    write_checksums(folder, ["d/numbers"], process=1)
    assert not is_checked(folder)
    write_checksums(folder, ["empty", "text.json"], process=0)
    assert is_checked(folder)
    assert json.loads((folder / "checksums.1.json").read_text())["files"].keys() == {"d/numbers"}
    (folder / "d" / "numbers").write_bytes(bytes(25_600))
    damages = [find_damage(folder, share=(process, 2)) for process in range(2)]
    assert damages == ["d/numbers is not what was written, by its checksum", ""]


def test_what_another_process_is_writing_meanwhile(folder, monkeypatch):
    """Its checksums are no file of the folder, nor while they have another name; nor what it leaves when killed."""
    seen = []

    def listed(path, target):
        seen.append((len(list(folder.iterdir())), file_names(folder), is_checked(folder)))

    monkeypatch.setattr(type(epath.Path(folder)), "replace", listed)
    write_checksums(folder, ["empty"], process=1)
    assert seen == [(5, ["d/numbers", "empty", "text.json"], True)]
    assert len(list(folder.iterdir())) == 5 and is_checked(folder)
    (folder / "notes.tmp").write_text("x")
    assert file_names(folder) == ["d/numbers", "empty", "notes.tmp", "text.json"]
