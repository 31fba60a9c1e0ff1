"""The configs for pods on the slices that their headers recommend, as far as that is known without compiling."""

import importlib.util
import re
from pathlib import Path

import pytest

from t5x_lite.cli.arguments import load_config
from t5x_lite.parallel import make_mesh
from t5x_lite.planning.plan import local_bytes, objective_without_text
from t5x_lite.planning.topology import Topology
from t5x_lite.runs.preparation import check_mesh
from t5x_lite.training.step import Program

CONFIGS = Path(__file__).parents[2] / "configs"
PLANNED = re.compile(r"python -m t5x_lite plan configs/(\w+)\.py --topology (\S+)$", re.MULTILINE)
PODS = {name: topology for path in CONFIGS.glob("*.py") for name, topology in PLANNED.findall(path.read_text()[:4000])}


def test_every_pod_config_recommends_a_slice_and_shows_its_plan():
    assert {"t5_11b", "mt5_xxl", "bert_large", "electra_large", "gpt3_13b", "gpt3_175b"} <= PODS.keys()
    for name in PODS:
        header = (CONFIGS / f"{name}.py").read_text().split('"""')[1]
        assert re.search(rf"{name} on {PODS[name]}: .* chips", header), name
        assert re.search(r"together, of \d+: fits", header), name
        assert re.search(r"at most [\d.]+% MFU", header), name


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
@pytest.mark.parametrize("name", PODS)
@pytest.mark.slow
def test_its_mesh_fills_the_slice_and_a_chip_holds_its_shard_of_the_state(name):
    experiment, topology = load_config(str(CONFIGS / f"{name}.py")), Topology.parse(PODS[name])
    mesh = make_mesh(experiment.mesh, topology.devices)
    check_mesh(experiment, mesh)
    program = Program(experiment, objective_without_text(experiment), mesh)
    assert local_bytes(program.abstract_state) < 0.8 * topology.chip.hbm_bytes
