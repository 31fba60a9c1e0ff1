import dataclasses
import itertools
import os
import re
import subprocess
import sys

import pytest

import t5x_lite.data
from t5x_lite.data import PythonDocs
from t5x_lite.data.records.base import Source
from t5x_lite.errors import InputError

EXPORTS = [getattr(t5x_lite.data, name) for name in t5x_lite.data.__all__]
SOURCES = [one for one in EXPORTS if isinstance(one, type) and issubclass(one, Source)]
OF_FILES = [(one, field) for one in SOURCES for field in dataclasses.fields(one) if field.name in ("path", "paths")]


@pytest.mark.slow
def test_python_docs_are_plenty_clean_and_repeatable():
    documents = list(PythonDocs().documents())
    assert sum(map(len, documents)) > 1_000_000
    assert all(len(text) >= 80 and text == text.strip() for text in documents)
    assert documents == list(PythonDocs().documents())


@pytest.mark.slow
def test_python_docs_hold_topics_and_docstrings_of_methods():
    documents = list(PythonDocs().documents())
    assert any(text.startswith("Assignment statements") for text in documents[:100])
    assert any("Pretty-print" in text for text in documents)
    assert not any("unittest.TestCase subclass for test_" in text for text in documents)


def test_another_process_finds_the_same_fingerprint():
    code = "from t5x_lite.data import PythonDocs; print(PythonDocs().fingerprint())"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert other.stdout.strip() == PythonDocs().fingerprint()


def test_documents_stream():
    assert len(list(itertools.islice(PythonDocs().documents(), 3))) == 3


def given(source, field, name):
    """The arguments of a source whose files have this name."""
    needed = [one for one in dataclasses.fields(source) if one.default is one.default_factory is dataclasses.MISSING]
    return {one.name: "text" for one in needed} | {field.name: (name,) if field.name == "paths" else name}


@pytest.mark.parametrize("name", ["", "\ud800", "a\0b", "~\ud800"], ids=ascii)
@pytest.mark.parametrize(("source", "field"), OF_FILES, ids=[one.__name__ for one, _ in OF_FILES])
def test_a_path_that_no_file_can_have_is_refused(source, field, name):
    with pytest.raises(InputError, match=f"^{field.name}={re.escape(repr(name))} is not the name of a"):
        source(**given(source, field, name))


def test_a_name_that_is_not_utf8_is_a_path(tmp_path):
    file = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    with open(file, "w") as out:
        out.write("one line of text\n")
    assert list(t5x_lite.data.TextFiles((os.fsdecode(file),)).documents()) == ["one line of text"]
