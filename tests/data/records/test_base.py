import itertools
import os
import subprocess
import sys

from t5x_lite.data import PythonDocs


def test_python_docs_are_plenty_clean_and_repeatable():
    documents = list(PythonDocs().documents())
    assert sum(map(len, documents)) > 1_000_000
    assert all(len(text) >= 80 and text == text.strip() for text in documents)
    assert documents == list(PythonDocs().documents())


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
