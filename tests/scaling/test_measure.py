"""Sizes, tokens, compute and losses of runs, and of tables of others."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.models import GptConfig, T5Config
from t5x_lite.models.base import init_params
from t5x_lite.scaling import count_parameters, read_measurements, training_flops

GPT = GptConfig(vocab_size=300, embed_dim=12, num_heads=3, mlp_dim=17, num_layers=2, max_length=40)


def test_parameters():
    sizes = jax.tree.map(np.size, init_params(GPT, jax.random.key(0)))
    assert count_parameters(GPT) == sum(jax.tree.leaves(sizes))
    assert count_parameters(GPT, "non_embedding") == count_parameters(GPT) - (300 + 40) * 12
    t5 = T5Config(vocab_size=50, embed_dim=8, num_heads=2, head_dim=4, mlp_dim=8, tied=False)
    assert count_parameters(t5, "non_embedding") == count_parameters(t5) - 2 * 50 * 8


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """As a run leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    folder.mkdir()
    (folder / "experiment.json").write_text(tiny.to_json())
    records = [
        {"step": 0, "kind": "held_out", "loss": 5.0},
        {"step": 2, "kind": "train", "loss": 9.0},
        {"step": 2, "kind": "held_out", "loss": 4.0},
        {"step": 4, "kind": "held_out", "loss": 3.5},
        {"step": 4, "kind": "held_out", "loss": 3.0},
        {"step": 5, "kind": "held_out", "loss": None},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_of_runs(folder, tiny):
    measured = read_measurements([str(folder)])
    _, tokens = tiny.objective.layout.throughput(tiny.batch_size)
    np.testing.assert_array_equal(measured.loss, [4.0, 3.0])
    np.testing.assert_array_equal(measured.tokens, [2 * tokens, 4 * tokens])
    np.testing.assert_array_equal(measured.flops, [2 * training_flops(tiny), 4 * training_flops(tiny)])
    assert set(measured.parameters) == {count_parameters(tiny.model)} and measured.run == ("a", "a")
    np.testing.assert_array_equal(measured.ends().loss, [3.0])


def test_runs_that_do_not_fit_together(folder, tiny, tmp_path):
    other = shutil.copytree(folder, tmp_path / "b")
    (other / "metrics.jsonl").write_text('{"step": 2, "kind": "train", "loss": 2.0}\n')
    with pytest.raises(InputError, match=r"b has no held-out loss yet"):
        read_measurements([str(other)])
    third = shutil.copytree(folder, tmp_path / "c")
    tokenizer = replace(tiny.data.tokenizer, extra_ids=tiny.data.tokenizer.extra_ids + 1)
    (third / "experiment.json").write_text(replace(tiny, data=replace(tiny.data, tokenizer=tokenizer)).to_json())
    with pytest.raises(InputError, match="are of tokens of other tokenizers; fit them apart"):
        read_measurements([str(folder), str(third)])
    (other / "metrics.jsonl").write_text("")
    with pytest.raises(InputError, match=r"b has no metrics.jsonl with records"):
        read_measurements([str(other)])


def test_of_tables(tmp_path):
    csv, jsonl = tmp_path / "figure.csv", tmp_path / "figure.jsonl"
    csv.write_text(",Model Size,Training FLOP,loss\n0,1e9,6e20,2.5\n1,2e9,,2.4\n2,2e9,1.2e21,2.3\n")
    measured = read_measurements([str(csv)])
    np.testing.assert_allclose(measured.tokens, [1e11, 1e11])
    np.testing.assert_array_equal(measured.loss, [2.5, 2.3])
    assert measured.run == ("1", "3")
    jsonl.write_text(
        '{"run": "a", "parameters": 1000, "tokens": 10, "loss": 3}\n{"run": "a", "parameters": 1000, "tokens": 20, '
        '"loss": 2}\n'
    )
    measured = read_measurements([str(jsonl)])
    np.testing.assert_array_equal(measured.flops, [60_000, 120_000])
    assert len(measured.ends()) == 1


BAD = {
    "no sizes": ("tokens,loss\n1,2\n3,4\n", "has no column parameters; name the columns"),
    "no data": ("parameters,loss\n1,2\n3,4\n", "has no column tokens or flops"),
    "one row": ("parameters,tokens,loss\n1,2,3\n", "has 1 rows of positive numbers"),
    "no numbers": ("parameters,tokens,loss\n1,2,nan\n1,-2,3\n0,1,2\n1,1e400,2\n", "has 0 rows of positive numbers"),
    "a short line": ("parameters,tokens,loss\n1,2\n", "has 2 columns and not the 3"),
    "nothing": ("", r"is empty \(0 bytes\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables(tmp_path, case):
    content, message = BAD[case]
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_measurements([str(tmp_path / "t.csv")])
    with pytest.raises(InputError, match="is a table, and 2 inputs are given"):
        read_measurements([str(tmp_path / "t.csv"), "other"])
