"""Weak scaling on paper: the most that each chip can do as a slice grows and its batch with it, 4 to 1,024 v5p chips.

    python benchmarks/weak_scaling.py [CONFIG ...] [--most CHIPS]

Compiles the train step of each config (default: configs/t5_11b.py and configs/gpt3_13b.py) for each slice, all chips
sharing the parameters, and prints a table in Markdown. About a minute for each row. No TPU is needed, but the TPU
compiler: pip install -e '.[tpu]'.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import jax

from t5x_lite.cli.arguments import load_config
from t5x_lite.parallel import MeshShape
from t5x_lite.parallel.chips import GIB
from t5x_lite.parallel.topology import Topology
from t5x_lite.training.plan import make_plan

SLICES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16")
ROWS = {"t5_11b": 16, "gpt3_13b": 4}
"""Rows of a chip; other configs have their batch over 64 chips."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=["configs/t5_11b.py", "configs/gpt3_13b.py"])
    parser.add_argument("--most", type=int, default=1024, help="chips of the largest slice")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    print("| config | chips | tokens a chip | GiB of a chip | compute ms | HBM ms | ICI ms | MFU at most |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for config in arguments.configs:
        experiment, name = load_config(config), Path(config).stem
        for shape in SLICES:
            topology = Topology.parse(f"v5p:{shape}")
            if topology.num_chips > arguments.most:
                continue
            rows = ROWS.get(name, experiment.batch_size // 64) * topology.num_chips
            mesh = MeshShape(data=1, fsdp=-1)
            plan = make_plan(replace(experiment, mesh=mesh, batch_size=rows, accumulation=1), topology)
            figures = (
                [*(f"{1e3 * seconds:,.0f}" for seconds in plan.rooflines.values()), f"{plan.mfu:.1%}"]
                if plan.fits
                else [f"{plan.missing / GIB:.1f} GiB are missing"]
            )
            tokens, memory = plan.tokens // topology.num_chips, plan.memory.total / GIB
            cells = (name, topology.num_chips, f"{tokens:,}", f"{memory:.1f}", *figures)
            print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
