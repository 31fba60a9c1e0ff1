"""Weak scaling on paper: what each chip is expected to do as a slice grows and its batch with it, 4 to 1,024 v5p chips.

    python benchmarks/weak_scaling.py [CONFIG ...] [--most CHIPS] [--slices N]

Compiles the train step of each config (default: configs/t5_11b.py and configs/gpt3_13b.py) for each slice, up to
sixteen chips sharing the parameters and copies of them beyond, everything computed again (`remat` full), and prints two
tables: all figures, and the expected MFU alone. With --slices the last row is that of N of the largest slices. One to
three minutes for each row. No TPU is needed, but the TPU compiler: pip install -e '.[tpu]'.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import jax

from t5x_lite.cli.arguments import load_config
from t5x_lite.parallel import MeshShape
from t5x_lite.parallel.chips import GIB
from t5x_lite.planning.plan import make_plan
from t5x_lite.planning.topology import Topology

SLICES = ("2x2x1", "2x2x4", "4x4x4", "4x8x8", "8x8x16")
ROWS = {"t5_11b": 16, "gpt3_13b": 4}
"""Rows of a chip; other configs have their batch over 64 chips."""
SHARDS = 16
"""Chips that share the parameters, where there are so many."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=["configs/t5_11b.py", "configs/gpt3_13b.py"])
    parser.add_argument("--most", type=int, default=1024, help="chips of the largest slice")
    parser.add_argument("--slices", type=int, default=1, help="a last row of so many of the largest slices")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    topologies = [Topology.parse(f"v5p:{shape}") for shape in SLICES]
    topologies = [topology for topology in topologies if topology.num_chips <= arguments.most]
    if arguments.slices > 1:
        topologies.append(replace(topologies[-1], num_slices=arguments.slices))
    print_row(
        *("config", "chips", "fsdp", "tokens a chip", "GiB of a chip", "compute ms", "HBM ms", "ICI ms", "DCN ms"),
        *("MFU at most", "expected ms", "expected MFU"),
    )
    print_row(*["---"] + 11 * ["---:"])
    expected: dict[str, list[str]] = {}
    for config in arguments.configs:
        experiment, name = load_config(config), Path(config).stem
        for topology in topologies:
            chips = topology.num_chips
            mesh, rows = MeshShape(data=-1, fsdp=min(SHARDS, chips)), ROWS.get(name, experiment.batch_size // 64)
            sizes = {"batch_size": rows * chips, "accumulation": 1, "remat": "full"}
            plan = make_plan(replace(experiment, mesh=mesh, **sizes), topology)
            figures, mfu = 6 * ["-"], f"{plan.missing / GIB:.1f} GiB are missing"
            if plan.fits:
                times = [f"{1e3 * plan.rooflines.get(roof, 0.0):,.0f}" for roof in ("compute", "hbm", "ici", "dcn")]
                figures = [*times, f"{plan.mfu:.1%}", f"{1e3 * plan.expected_seconds:,.0f}"]
                mfu = f"{plan.expected_mfu:.1%}"
            memory = f"{plan.memory.total / GIB:.1f}"
            tokens = f"{plan.throughput[1] // chips:,}"
            print_row(name, label(topology), plan.mesh["fsdp"], tokens, memory, *figures, mfu)
            expected.setdefault(name, []).append(mfu)
    print()
    print_row("v5p chips", *map(label, topologies))
    print_row(*["---"] + len(topologies) * ["---:"])
    for name, row in expected.items():
        print_row(name, *row)


def label(topology: Topology) -> str:
    """The chips of a slice, and how many there are."""
    chips = f"{topology.num_chips // topology.num_slices:,}"
    return chips if topology.num_slices == 1 else f"{topology.num_slices} x {chips}"


def print_row(*cells: object) -> None:
    """A row of a table, at once."""
    print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
