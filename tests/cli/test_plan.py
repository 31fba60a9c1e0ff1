"""What `plan` prints, writes and refuses; the compiler's part is tested beside the plan itself."""

import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from t5x_lite.cli.commands import plan as command
from t5x_lite.cli.plan_tables import costs_json, draw_plan, plan_json, print_costs, print_plan, ranking
from t5x_lite.parallel.chips import GIB
from t5x_lite.planning.collectives import Collective
from t5x_lite.planning.plan import Cost, Memory, Plan
from t5x_lite.planning.prices import find_price
from t5x_lite.planning.timing import ExpectedTime
from t5x_lite.planning.topology import Topology

GATHER = Collective("all-gather", 4, count=12, num_bytes=3_500_000, seconds=0.25, largest="bf16[64,128]")
BETWEEN = replace(GATHER, kind="all-reduce", group_size=2, seconds=3.0, network="dcn")


@pytest.fixture
def plan(experiments) -> Plan:
    """A plan without a compiler."""
    return Plan(
        experiment=experiments["bert"],
        topology=Topology.parse("v5e:2x2"),
        mesh={"data": 1, "fsdp": 4, "tensor": 1},
        num_params=123_456,
        model_flops=4 * 10**14,
        memory=Memory(parameters=2 * GIB, optimizer=4 * GIB, other=0, temporaries=GIB, code=GIB // 4),
        missing=0,
        cost=Cost(197 * 10**12, 819 * 10**8, (GATHER,), ExpectedTime(1.5, 0.25, 0.25)),
        compile_seconds=7.0,
    )


@pytest.fixture
def of_two_slices(plan) -> Plan:
    cost = replace(plan.cost, collectives=(GATHER, BETWEEN))
    return replace(plan, topology=Topology.parse("v5e:2x2", num_slices=2), cost=cost)


@pytest.fixture
def too_large(plan) -> Plan:
    return replace(plan, missing=3 * GIB, cost=None, memory=replace(plan.memory, temporaries=13 * GIB, code=0))


@pytest.fixture(autouse=True)
def four_devices(monkeypatch):
    """No compiler: a slice is what its name says."""
    monkeypatch.setattr(Topology, "devices", (None,) * 4)
    monkeypatch.setattr(Topology, "num_hosts", 1)


def printed(*parts) -> str:
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in parts:
        part(console) if callable(part) else console.print(part)
    return console.export_text()


def test_tables(plan):
    text = printed(lambda console: print_plan(console, "bert", plan))
    assert "bert on v5e:2x2: 4 chips, 1 host; mesh data 1, fsdp 4, tensor 1; remat none" in text
    assert "123,456 parameters; a step of 8 rows, 480 tokens" in text
    for row in (
        ("parameters", "2.00"),
        ("optimizer", "4.00"),
        ("activations, temporaries", "1.00"),
        ("code", "0.25"),
        ("together, of 16: fits", "7.25"),
        ("all-gather", "4", "12", "3.5", "250.00", "bf16[64,128]"),
        ("compute: matrix products", "1,000.0"),
        ("hbm: memory", "100.0"),
        ("ici: links between chips", "250.0"),
        ("operations", "1,500.0"),
        ("kernels of attention", "250.0"),
        ("links that nothing hides", "250.0"),
    ):
        assert any(all(cell in line for cell in row) for line in text.splitlines()), row
    assert "model FLOPs 4.000e+14 a step, compiled 7.880e+14 (1.97 times)" in text
    assert "at most 50.8% MFU and 480 tokens/s, bound by compute" in text
    assert "expected 25.4% MFU and 240 tokens/s, 2,000.0 ms a step" in text
    assert "compiled in 7 s" in text


def test_small_models_are_shown_in_smaller_units(plan):
    memory = Memory(parameters=3 * 2**20, optimizer=6 * 2**20, other=0, temporaries=2**19, code=0)
    small = replace(plan, memory=memory, cost=Cost(197 * 10**6, 0, (), ExpectedTime(2e-6)))
    text = printed(lambda console: print_plan(console, "bert", small))
    for row in (("chip", "MiB"), ("parameters", "3.00"), ("together, of 16,384: fits", "9.50"), ("compute", "0.001")):
        assert any(all(cell in line for cell in row) for line in text.splitlines()), row


def test_tables_of_several_slices(plan, of_two_slices, tmp_path):
    text = printed(lambda console: print_plan(console, "bert", of_two_slices))
    assert "bert on 2 x v5e:2x2: 8 chips" in text
    for row in (
        ("all-reduce", "2 slices", "12", "3.5", "3,000.00"),
        ("ici: links between chips", "250.0"),
        ("dcn: network of slices", "3,000.0"),
        ("links and network that nothing hides", "250.0"),
    ):
        assert any(all(cell in line for cell in row) for line in text.splitlines()), row
    assert "bound by dcn" in text
    assert "dcn" not in printed(lambda console: print_plan(console, "bert", plan))
    header, row = printed(ranking([of_two_slices])).splitlines()[:2]
    assert header.split()[5:] == ["hbm", "ici", "dcn", "expected", "MFU"]
    # The network bounds the step, so that it takes 3 s at least; the mesh has to fit 80 columns beside the figures.
    assert row.split() == ["fsdp=4", "none", "7.2", "1,000.0", "100.0", "250.0", "3,000.0", "3,000.0", "8.5%"]
    narrow = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    narrow.print(ranking([of_two_slices]))
    assert "fsdp=4" in narrow.export_text()
    figures = json.loads(json.dumps(plan_json(of_two_slices)))
    assert (figures["topology"], figures["slices"], figures["chips"]) == ("v5e:2x2", 2, 8)
    assert figures["seconds"]["dcn"] == 3.0
    assert [each["network"] for each in figures["collectives"]] == ["ici", "dcn"]
    labels = [label.get_text() for label in draw_plan("bert", of_two_slices).axes[1].get_xticklabels()]
    assert "network" in labels
    assert "network" not in [label.get_text() for label in draw_plan("bert", plan).axes[1].get_xticklabels()]


def test_a_run_on_several_slices_costs_all_of_them(plan, of_two_slices):
    run = replace(of_two_slices, experiment=replace(plan.experiment, steps=1200))  # of three seconds each
    assert costs_json(run, find_price("2.5", "v5e"))["run"]["at_least"]["dollars"] == pytest.approx(8 * 2.5)


def test_tables_of_what_does_not_fit(too_large):
    text = printed(lambda console: print_plan(console, "bert", too_large))
    assert "together, of 16: does not fit: 3.00 GiB are missing" in text
    assert "MFU" not in text


def test_a_ranking(plan, too_large):
    parts = replace(too_large, experiment=replace(plan.experiment, accumulation=8), mesh={"data": 32, "tensor": 2})
    first, second = printed(ranking([plan, parts])).splitlines()[1:3]
    assert first.split() == ["fsdp=4", "none", "7.2", "1,000.0", "100.0", "250.0", "2,000.0", "25.4%,", "50.8%"]
    assert second.split() == ["data=32", "tensor=2", "none", "8", "parts", "19.0", "3.0", "missing"]
    narrow = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    narrow.print(ranking([plan, parts]))
    assert "data=32" in (text := narrow.export_text()) and "…" not in text


def test_json(plan, too_large):
    figures = json.loads(json.dumps(plan_json(plan)))
    assert figures["topology"] == "v5e:2x2"
    assert figures["memory_bytes"]["total"] == plan.memory.total
    assert figures["seconds"] == {"compute": 1.0, "hbm": 0.1, "ici": 0.25}
    parts = {"operations": 1.5, "kernels": 0.25, "exposed": 0.25, "data_round": 0.0}
    assert figures["expected_seconds"] == parts | {"total": 2.0}
    assert figures["expected_mfu"] == pytest.approx(figures["mfu"] / 2)
    assert figures["collectives"][0]["kind"] == "all-gather"
    assert (figures["fits"], figures["bound"]) == (True, "compute")
    missing = plan_json(too_large)
    assert (missing["fits"], missing["missing_bytes"]) == (False, 3 * GIB)
    assert "mfu" not in missing


def test_pictures(plan, too_large, tmp_path):
    for name, one in (("fits", plan), ("not", too_large)):
        draw_plan("bert", one).save(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fits.png", "not.png"]


def test_bars_fill_their_panel_whatever_the_size_of_the_model(plan, too_large):
    """So does a model that takes a thousandth of the chip."""
    memory = Memory(parameters=3 * 2**20, optimizer=6 * 2**20, other=0, temporaries=2**19, code=0)
    for one in (plan, too_large, replace(plan, memory=memory)):
        axes = draw_plan("a$_$b", one).axes[0]
        ends = {label.get_text(): 0.0 for label in axes.get_yticklabels()}
        assert list(ends)[-1] == "together"
        assert "average, teacher, batch" not in ends, "what takes nothing has no bar"
        longest = max(bar.get_x() + bar.get_width() for bar in axes.patches)
        limit = axes.lines[0].get_xdata()[0] if axes.lines else 0.0
        assert max(longest, limit) > 0.8 * axes.get_xlim()[1]
        assert longest > 0.2 * axes.get_xlim()[1]
        together = max(bar.get_x() + bar.get_width() for bar in axes.patches)
        np.testing.assert_allclose(together, one.memory.total / (GIB if one.memory.total >= GIB else 2**20))


@pytest.fixture
def config(experiments, write_config, tmp_path):
    return write_config(experiments["bert"], tmp_path / "bert.py")


def test_a_plan_that_fits(run, config, plan, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "make_plan", lambda experiment, topology: replace(plan, experiment=experiment))
    picture = tmp_path / "plan.png"
    status, out, err = run("plan", config, "--topology", "v5e:2x2", "--batch-size", 16, "--plot", picture)
    assert (status, err) == (0, "")
    assert "a step of 16 rows" in out
    assert picture.exists()
    status, out, err = run("plan", config, "--topology", "v5e:2x2", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["fits"]


def test_slices_are_planned_together(run, config, plan, monkeypatch):
    monkeypatch.setattr(command, "make_plan", lambda experiment, topology: replace(plan, topology=topology))
    status, out, err = run("plan", config, "--topology", "v5e:2x2", "--slices", 3)
    assert (status, err) == (0, "")
    assert "on 3 x v5e:2x2: 12 chips" in out


def test_a_plan_that_does_not_fit_names_the_nearest_that_does(run, config, plan, too_large, monkeypatch):
    fits = replace(plan, experiment=replace(plan.experiment, remat="dots", accumulation=2))
    monkeypatch.setattr(command, "make_plan", lambda experiment, topology: too_large)
    monkeypatch.setattr(command, "nearest_fit", lambda plan, report: fits)
    status, out, err = run("plan", config, "--topology", "v5e:2x2")
    assert status == 2
    assert "does not fit: 3.00 GiB are missing" in out
    assert "does not fit v5e:2x2: 3.0 GiB more than a chip's 16 GiB; it fits with --mesh.data 4 --mesh.fsdp 1 " in err
    assert err.strip().endswith("--remat dots --accumulation 2")
    message, refused = err.splitlines()
    assert message == "does not fit: 3.0 GiB are missing; looking for the nearest setting that does"
    assert refused.startswith("t5x-lite: ")
    status, out, _ = run("plan", config, "--topology", "v5e:2x2", "--json")
    assert status == 2
    assert json.loads(out)["nearest"]["remat"] == "dots"
    monkeypatch.setattr(command, "nearest_fit", lambda plan, report: None)
    status, _, err = run("plan", config, "--topology", "v5e:2x2")
    assert (status, "choose a larger slice or a smaller batch" in err) == (2, True)


def test_days_and_dollars_of_the_whole_run(plan):
    run = replace(plan, experiment=replace(plan.experiment, steps=86_400))  # of a second each, on four chips
    text = printed(lambda console: print_costs(console, run, find_price("2.5", "v5e")))
    assert "the whole run: 86,400 steps" in text
    assert "at least 1.0 96.0 240 expected 2.0 192 480" in " ".join(text.split())
    assert "at 2.50 dollars of a chip for an hour (as given); evaluation, checkpoints and restarts come on top" in text
    text = printed(lambda console: print_costs(console, run, None))
    assert "dollars\n" not in text
    assert "no list price of v5e is known; --price 1.2 says" in text


def test_costs_in_json(plan, too_large):
    run = replace(plan, experiment=replace(plan.experiment, steps=3600))
    figures = json.loads(json.dumps(costs_json(run, find_price("us-central1", "v5e"))))["run"]
    assert (figures["steps"], figures["at_least"]["chip_hours"]) == (3600, 4.0)
    assert figures["at_least"]["dollars"] == pytest.approx(4 * figures["price"]["dollars"])
    assert "us-central1" in figures["price"]["what"]
    assert costs_json(run, None)["run"]["at_least"]["dollars"] is None
    assert costs_json(too_large, None) == {}


def test_a_price_changes_the_dollars_that_are_printed(run, config, plan, monkeypatch):
    monkeypatch.setattr(command, "make_plan", lambda experiment, topology: replace(plan, experiment=experiment))
    options = ("plan", config, "--topology", "v5e:2x2", "--json", "--steps", 3600)
    dollars = [
        json.loads(run(*options, *price)[1])["run"]["at_least"]["dollars"]
        for price in ((), ("--price", "europe-west4"), ("--price", "0.5"))
    ]
    assert dollars == pytest.approx([4 * 1.2, 4 * 1.56, 4 * 0.5])


def test_a_search(run, config, plan, too_large, monkeypatch):
    found = [too_large, plan]
    monkeypatch.setattr(command, "search", lambda experiment, topology, report, tries, make: found[:tries])
    status, out, err = run("plan", config, "--topology", "v5e:2x2", "--search")
    assert status == 0
    assert out.index("50.8%") < out.index("3.0 missing"), "the fastest that fits comes first"
    assert "at most 50.8% MFU" in out
    first, second = err.splitlines()
    assert first.strip().startswith("does not fit: 3.0 GiB are missing; about ")
    assert second.strip().startswith(
        "1,000.0 ms a step at least, 2,000.0 expected, 25.4% MFU, 7.2 GiB a chip, the fastest so far"
    )
    status, out, _ = run("plan", config, "--topology", "v5e:2x2", "--search", "--json", "--tries", 2)
    assert (status, [one["fits"] for one in json.loads(out)]) == (0, [True, False])
    monkeypatch.setattr(command, "search", lambda *arguments: [too_large])
    status, out, err = run("plan", config, "--topology", "v5e:2x2", "--search")
    assert status == 2
    assert "none of the 1 settings" in err.splitlines()[-1]


def test_a_search_announces_each_setting_and_the_time_that_is_left(run, config, plan, monkeypatch):
    clock = iter(range(0, 10_000, 60))
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(command, "in_thread", lambda function, waiting: function())
    monkeypatch.setattr(command, "make_plan", lambda experiment, topology: replace(plan, experiment=experiment))

    def search(experiment, topology, report, tries, make):
        for number in range(tries):
            report(f"setting {number}")
            yield make(experiment, topology)

    monkeypatch.setattr(command, "search", search)
    status, _, err = run("plan", config, "--topology", "v5e:2x2", "--search", "--tries", 3)
    lines = err.splitlines()
    assert (status, len(lines)) == (0, 6)
    assert lines[::2] == ["setting 0", "setting 1", "setting 2"]
    assert lines[1].endswith("the fastest so far; about 2 minutes left")
    assert lines[3].endswith("about 60 seconds left")
    assert "left" not in lines[5]


def test_ctrl_c_ends_a_search_with_the_ranking_so_far(run, config, plan, monkeypatch):
    def search(*arguments):
        yield plan
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "search", search)
    status, out, err = run("plan", config, "--topology", "v5e:2x2", "--search")
    assert status == 130
    assert "at most 50.8% MFU" in out
    assert err.splitlines()[1:] == ["interrupted after 1 of 8 settings", "t5x-lite: interrupted"]
    status, out, _ = run("plan", config, "--topology", "v5e:2x2", "--search", "--json")
    assert (status, [one["fits"] for one in json.loads(out)]) == (130, [True])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--topology is missing; name a slice with one of v4, v5e, v5p, v6e, tpu7x, such as v5p:4x4x4"),
        (("--topology", "v9:2x2"), "topology='v9:2x2' is not known"),
        (("--topology", "v5e:2x2", "--tries", "0"), "tries=0 is too small"),
        (("--topology", "v5e:2x2", "--slices", "0"), "slices=0 is too small"),
        (("--topology", "v4:2x2x2", "--slices", "2"), "slices=2 of v4 cannot be planned"),
        (("--topology", "v5e:2x2", "--price", "moon"), "price=moon is not known for v5e"),
        (("--topology", "v5e:2x2", "--plot", "a.jpg"), "plot=a.jpg is not the name of a picture"),
        (("--topology", "v5e:2x2", "--plot", "absent/a.png"), "plot=absent/a.png lies in no folder"),
        (("--topology", "v5e:2x2", "--mesh.fdsp", "2"), "perhaps you meant --mesh.fsdp"),
    ],
)
def test_what_is_refused(run, config, options, says):
    status, _, err = run("plan", config, *options)
    assert (status, err.count("\n")) == (2, 1)
    assert says in err
