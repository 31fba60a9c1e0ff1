"""The lines that a run begins with, memory, and the share of the chips' peak."""

from dataclasses import replace

import jax
import pytest

from t5x_lite.models import num_params
from t5x_lite.parallel import make_mesh
from t5x_lite.runs import usage
from t5x_lite.training.flops import step_flops
from t5x_lite.training.step import Program


@pytest.fixture
def program(tiny) -> Program:
    objective = tiny.objective.for_vocabulary(tiny.data.prepare(tiny.objective.layout).tokenizer.vocabulary)
    return Program(tiny, objective, make_mesh(tiny.mesh))


def test_what_a_run_is(tiny, program):
    mesh = " ".join(f"{axis}={size}" for axis, size in program.mesh.shape.items() if size > 1)
    lines = usage.describe_run(program, replace(tiny, steps=1200), "runs/a", 300).splitlines()
    assert f"{num_params(tiny.model):,} parameters, computed in float32" in lines[0]
    assert lines[1] == f"{len(jax.devices())} x cpu, 1 process; mesh: {mesh}"
    assert lines[2].startswith(f"steps 300 to 1,200 of {tiny.batch_size:,} rows (")
    assert lines[2].endswith("tokens); folder: runs/a")


def test_the_share_of_the_peak(tiny, program, monkeypatch):
    monkeypatch.setattr(usage, "peak_flops", lambda kind: 1e9)
    flops = step_flops(tiny.model, program.objective, tiny.batch_size)
    figures = usage.usage_of(program, tiny)(2.0)
    assert figures["mfu"] == pytest.approx(flops / (2.0 * 1e9 * len(jax.devices())))
    assert figures["peak_memory_bytes"] >= figures["memory_bytes"] > 0
