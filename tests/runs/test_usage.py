"""The lines that a run begins with, memory, and the share of the chips' peak."""

import dataclasses
from dataclasses import replace

import jax
import pytest

from t5x_lite.models import num_params
from t5x_lite.parallel import make_mesh
from t5x_lite.planning.plan import objective_without_text
from t5x_lite.runs import usage
from t5x_lite.runs.records import read_records
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
    flops = step_flops(tiny.model, program.objective, tiny.batch_size)
    assert lines[3:] == [f"a step: {flops:.3g} FLOPs of the model"]


def test_the_least_time_of_a_step(tiny, program, monkeypatch):
    flops = step_flops(tiny.model, program.objective, tiny.batch_size)
    for peak, least in ((flops * 1e2, "10.00 ms"), (flops / 4, "4.00 s")):
        monkeypatch.setattr(usage, "peak_flops", lambda kind, peak=peak: peak / len(jax.devices()))
        line = usage.describe_run(program, tiny, "runs/a", 0).splitlines()[3]
        each = peak / len(jax.devices()) / 1e12
        assert line == (
            f"a step: {flops:.3g} FLOPs of the model, which take at least {least} at the devices' peak of "
            f"{each:,.0f} TFLOP/s each (bfloat16)"
        )


def test_an_objective_that_has_no_hash(tiny, program, monkeypatch):
    """One from outside may hold a list."""

    class Unhashable(type(program.objective)):
        __hash__ = None

    fields = {field.name: getattr(program.objective, field.name) for field in dataclasses.fields(program.objective)}
    monkeypatch.setattr(program, "objective", Unhashable(**fields))
    flops = step_flops(tiny.model, program.objective, tiny.batch_size)
    assert usage.describe_run(program, tiny, "runs/a", 0).endswith(f"a step: {flops:.3g} FLOPs of the model")


def test_the_share_of_the_peak(tiny, program, monkeypatch):
    monkeypatch.setattr(usage, "peak_flops", lambda kind: 1e9)
    flops = step_flops(tiny.model, program.objective, tiny.batch_size)
    figures = usage.usage_of(program, tiny)(2.0)
    assert figures["mfu"] == pytest.approx(flops / (2.0 * 1e9 * len(jax.devices())))
    assert figures["peak_memory_bytes"] >= figures["memory_bytes"] > 0


@pytest.mark.slow
def test_records_have_the_share_of_the_plans_operations(tiny, train, tmp_path, monkeypatch):
    """MFU is the FLOPs that a plan counts, over the measured time of a step at the devices' peak."""
    monkeypatch.setattr(usage, "peak_flops", lambda kind: 2e9)
    train(tiny, tmp_path, devices=2, report=False)
    records = [record for record in read_records(tmp_path / "metrics.jsonl") if record["kind"] == "train"]
    flops = step_flops(tiny.model, objective_without_text(tiny), tiny.batch_size)
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6]
    for record in records:
        assert record["mfu"] == pytest.approx(flops / (record["seconds_per_step"] * 2 * 2e9))
        tokens = tiny.objective.layout.throughput(tiny.batch_size)[1]
        assert record["tokens_per_second"] == pytest.approx(tokens / record["seconds_per_step"])
        assert record["seconds_per_step"] >= record["host_seconds_per_step"] >= record["data_seconds_per_step"] >= 0
