"""What augmentation adds to the time of a train step on a TPU slice, as the compiler expects it: no TPU is needed.

    python benchmarks/augmentation.py                      # or --topology v5e:4x4 --variants deit
    python benchmarks/augmentation.py --help

Plans the step of a ViT-L/16 with 1,024 pictures by the recipe of configs/deit_b.py: with the center of each picture
alone, with the augmentation of DeiT (crop, flip, RandAugment, erasing, mixup, cutmix), and with that of DeiT III (crop,
flip, 3-Augment, color jitter, mixup, cutmix). It takes the TPU compiler (pip install 't5x_lite[tpu]'), and minutes a
plan.
"""

import argparse
from dataclasses import replace

import jax
from rich.console import Console
from rich.table import Table

from t5x_lite.cli.arguments import load_config
from t5x_lite.images.augmentation import Augmentation, ColorJitter
from t5x_lite.images.mixing import Mixing
from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape
from t5x_lite.parallel.chips import GIB
from t5x_lite.planning.plan import make_plan
from t5x_lite.planning.topology import Topology
from t5x_lite.training import Experiment

VARIANTS = ("none", "deit", "deit3")


def experiment(variant: str) -> Experiment:
    """DeiT's recipe with a ViT-L/16, augmented by one of `VARIANTS`."""
    base = load_config("configs/deit_b.py")
    objective = base.objective
    if variant == "none":
        objective = replace(objective, augmentation=objective.augmentation.for_evaluation(), mixing=Mixing())
    if variant == "deit3":
        augmentation = Augmentation(three_augment=True, color_jitter=ColorJitter(0.3, 0.3, 0.3))
        objective = replace(objective, augmentation=augmentation)
    return replace(base, model=PRESETS["vit-l-16"], objective=objective, remat="dots", mesh=MeshShape(data=-1, fsdp=16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="v5e:4x4")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    topology, first = Topology.parse(options.topology), None
    table = Table(*("augmentation", "expected (ms)", "at least (ms)", "over the first (%)", "GiB a chip"))
    for variant in options.variants:
        plan = make_plan(experiment(variant), topology)
        expected, least = 1e3 * plan.expected_seconds, 1e3 * plan.seconds
        first = first or expected
        figures = f"{expected:.1f}", f"{least:.1f}", f"{100 * (expected / first - 1):.2f}"
        table.add_row(variant, *figures, f"{plan.memory.total / GIB:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
