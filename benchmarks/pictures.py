"""Fashion-MNIST: a small ViT, what MAE's pretraining is worth with 1,000 labels, and what a ResNet teaches a DeiT.

    python benchmarks/pictures.py --data FOLDER [--studies vit few_labels distillation] [--seeds 3]

FOLDER holds fashion_mnist.npz. The studies are the configs `*_fashion_mnist*.py`, with their steps, and all 10,000 test
pictures:

  vit           vit_fashion_mnist
  few_labels    mae_fashion_mnist_finetune, which begins with mae_fashion_mnist's encoder, against random parameters
                with one rate for all layers; each seed draws other 1,000 pictures. Of the config's learning rate and
                three times it either arm has the one that is better, with seed 0, on 1,000 other training pictures
  distillation  deit_fashion_mnist_distilled, whose teacher is the run of resnet_fashion_mnist, against a ViT of its
                sizes with a class token, without a teacher

The encoder and the teacher are of one seed. A run that is there already, in --runs, is not done again. Means are over
the seeds; their 95 % intervals are the bootstrap's, over seeds and over pictures.
"""

import argparse
import contextlib
import json
import time
from dataclasses import fields, replace
from pathlib import Path

import jax
from arms import SeedScores, finished, mean_and_interval, predictions_of

from t5x_lite.cli.arguments import load_config
from t5x_lite.models import ViTConfig
from t5x_lite.objectives import ImageClassification
from t5x_lite.training import Experiment, Logging
from t5x_lite.training.initialization import FromModel, FromScratch

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
STUDIES = {
    "vit": ("vit",),
    "few_labels": ("1,000 labels, from scratch", "1,000 labels, after MAE"),
    "distillation": ("ViT, labels alone", "DeiT, labels and a ResNet"),
}
"""Of each study the arms, the one that the others are compared with first."""
OTHERS = 1000
"""Seed of the training pictures that the learning rate is chosen on."""


def config(name: str, seed: int = 0, start: Path | None = None) -> Experiment:
    """A config of the study, evaluated at its end."""
    experiment = load_config(str(CONFIGS / f"{name}.py"))
    experiment = replace(experiment, seed=seed, logging=Logging(every=200))
    if start:
        experiment = replace(experiment, start=FromModel(str(start)))
    return replace(experiment, evaluation=replace(experiment.evaluation, every=0, rows=1 << 30))


def few_labels(pretrained: Path | None, seed: int, rate: float, choose: bool = False) -> Experiment:
    """Of 1,000 labels, from an encoder or from random parameters, with the config's learning rate times `rate`."""
    experiment = config("mae_fashion_mnist_finetune", seed, pretrained)
    schedule, source = experiment.optimizer.schedule, experiment.data.source
    optimizer = replace(experiment.optimizer, schedule=replace(schedule, peak=schedule.peak * rate))
    if pretrained is None:
        optimizer = replace(optimizer, layerwise_decay=1.0)
        experiment = replace(experiment, start=FromScratch())
    data = replace(experiment.data, source=replace(source, seed=seed))
    if choose:
        data = replace(data, held_out_source=replace(source, seed=OTHERS))
    return replace(experiment, data=data, optimizer=optimizer)


def distilled(teacher: Path | None, seed: int) -> Experiment:
    """A DeiT that learns from a teacher too, or a ViT of its sizes that does not."""
    experiment = config("deit_fashion_mnist_distilled", seed)
    objective, model = experiment.objective, experiment.model
    if teacher:
        return replace(experiment, objective=replace(objective, teacher=str(teacher)))
    sizes = {field.name: getattr(model, field.name) for field in fields(model) if field.name != "heads"}
    plain = ImageClassification(objective.augmentation, objective.canvas_size, objective.num_channels)
    return replace(experiment, model=ViTConfig(**sizes), objective=plain)


def runs_of(study: str, seeds: int, runs: Path) -> dict[str, list[Path]]:
    """By arm the folder of each seed's run."""
    if study == "vit":
        return {"vit": [finished(config("vit_fashion_mnist", seed), runs / f"vit-{seed}") for seed in range(seeds)]}
    if study == "distillation":
        teacher = finished(config("resnet_fashion_mnist"), runs / "resnet")
        print(f"the teacher: {json.loads((teacher / 'held_out.json').read_text())}", flush=True)
        return {
            arm: [finished(distilled(start, seed), runs / f"{name}-{seed}") for seed in range(seeds)]
            for arm, start, name in zip(STUDIES[study], (None, teacher), ("plain", "distilled"), strict=True)
        }
    encoder = finished(config("mae_fashion_mnist"), runs / "mae")
    folders = {}
    for arm, start, name in zip(STUDIES[study], (None, encoder), ("scratch", "after_mae"), strict=True):
        right = {}
        for rate in (1.0, 3.0):
            folder = finished(few_labels(start, 0, rate, choose=True), runs / f"{name}-rate{rate:g}")
            right[rate] = json.loads((folder / "held_out.json").read_text())["accuracy"]
        print(f"{arm}: accuracy by times the rate {right}", flush=True)
        rate = max(right, key=right.get)
        folders[arm] = [finished(few_labels(start, seed, rate), runs / f"{name}-{seed}") for seed in range(seeds)]
    return folders


def table_rows(study: str, folders: dict[str, list[Path]]) -> list[str]:
    """Markdown: of each arm the mean of its seeds, lowest and highest, and the difference from the first."""
    scores = {arm: SeedScores("accuracy", "accuracy", list(map(predictions_of, some))) for arm, some in folders.items()}
    rows, base = [], None
    for arm, one in scores.items():
        (mean, (low, high)), each = mean_and_interval(one), one.all
        row = f"| {arm} | {one.count:,} | {mean:.2f} ({low:.2f} to {high:.2f}) | {min(each):.2f} to {max(each):.2f} |"
        if base is None:
            rows.append(f"{row} |")
        else:
            gain, (low, high) = mean_and_interval(one, base)
            rows.append(f"{row} {gain:+.2f} ({low:+.2f} to {high:+.2f}) |")
        base = base or one
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with fashion_mnist.npz")
    parser.add_argument("--runs", type=Path, default=Path("runs/pictures"), help="where the runs go")
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    runs = options.runs.resolve()
    runs.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(runs / "compiled"))
    rows = [
        "| arm | test pictures | accuracy, % (95 % interval) | lowest to highest seed | difference (95 % interval) |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    with contextlib.chdir(options.data):
        for study in options.studies:
            begin = time.perf_counter()
            rows += table_rows(study, runs_of(study, options.seeds, runs))
            print(f"{study}: {(time.perf_counter() - begin) / 60:.0f} minutes", flush=True)
    print("\n".join(rows))


if __name__ == "__main__":
    main()
