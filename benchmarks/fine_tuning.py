"""What pretraining is worth on six tasks: the same small BERT, pretrained on novels or from scratch, three seeds.

    python -m t5x_lite train configs/gutenberg_bert.py --text novels/
    python benchmarks/fine_tuning.py --data FOLDER

FOLDER holds the files that the headers of the tasks' configs name, `runs/gutenberg_bert` (or --start) the pretrained
model. Either arm has the tokenizer of that model, the config's steps, and of the config's learning rate and three times
it the one with the lower loss, with seed 0, on a tenth of the training examples, held out for this choice alone. A run
that is there already, in --runs, is not done again.

The gain is the mean over the seeds of the difference between both arms' scores on the test examples; its 95 % interval
is the bootstrap's, over seeds and over examples.
"""

import argparse
import contextlib
import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from arms import SeedScores, finished, mean_and_interval, predictions_of

from t5x_lite.cli.arguments import load_config
from t5x_lite.data import WordPiece
from t5x_lite.objectives import Predictions
from t5x_lite.training import Evaluation, Experiment, Logging
from t5x_lite.training.initialization import FromModel, FromScratch

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
FIGURES = {
    "sentence_polarity": ("accuracy", "accuracy"),
    "snli": ("accuracy", "accuracy"),
    "banking77": ("accuracy", "accuracy"),
    "wikigold": ("entities", "entities_f1"),
    "ewt_tags": ("accuracy", "accuracy"),
    "xquad": ("squad", "squad_f1"),
}
"""Of each task: the metric, and the figure that is compared."""
TEST_FILES = {"ewt_tags": ("en_ewt-ud-test.conllu.gz",)}
"""Where the test examples are not those that the config holds out."""
ARMS = ("scratch", "pretrained")
SHARE_TO_CHOOSE = 0.1


def experiment_of(task: str, arm: str, seed: int, rate: float, pretrained: Path) -> Experiment:
    """A run: the config with another start, seed and learning rate."""
    config = load_config(str(CONFIGS / f"{task}.py"))
    schedule = config.optimizer.schedule
    tokenizer = WordPiece(file=str(pretrained / "tokenizer"))
    return replace(
        config,
        seed=seed,
        start=FromModel(str(pretrained)) if arm == "pretrained" else FromScratch(),
        data=replace(config.data, tokenizer=tokenizer),
        optimizer=replace(config.optimizer, schedule=replace(schedule, peak=schedule.peak * rate)),
        evaluation=Evaluation(every=0, rows=1 << 30),
        logging=Logging(every=200),
    )


def to_choose(experiment: Experiment) -> Experiment:
    """The run with a part of its training examples held out, in the place of the test examples."""
    part = SHARE_TO_CHOOSE
    if experiment.data.held_out_source is None:
        # What is held out by content is so again, with as much beside it.
        part += experiment.data.held_out
    return replace(experiment, data=replace(experiment.data, held_out_source=None, held_out=part))


def compare(task: str, predictions: dict[str, list[Predictions]]) -> dict[str, object]:
    """Scores of each arm by seed, and what pretraining gains, in hundredths, with its interval."""
    metric, figure = FIGURES[task]
    scores = {arm: SeedScores(metric, figure, predictions[arm]) for arm in ARMS}
    gain, interval = mean_and_interval(scores["pretrained"], scores["scratch"])
    return {
        "task": task,
        "figure": figure,
        "examples": scores["scratch"].count,
        **{arm: one.all for arm, one in scores.items()},
        "gain": gain,
        "interval": interval,
    }


def table(results: list[dict]) -> str:
    """The results as Markdown."""
    rows = [
        "| task | figure | test examples | from scratch | pretrained | gain (95 % interval) |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for one in results:
        arms = [f"{np.mean(one[arm]):.1f} ({min(one[arm]):.1f} to {max(one[arm]):.1f})" for arm in ARMS]
        low, high = one["interval"]
        rows.append(
            f"| {one['task']} | {one['figure']} | {one['examples']:,} | {arms[0]} | {arms[1]} | "
            f"{one['gain']:+.1f} ({low:+.1f} to {high:+.1f}) |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the tasks' files")
    parser.add_argument("--start", type=Path, default=Path("runs/gutenberg_bert"), help="the pretrained model's run")
    parser.add_argument("--runs", type=Path, default=Path("runs/fine_tuning"), help="where the runs go")
    parser.add_argument("--tasks", nargs="+", default=list(FIGURES), choices=FIGURES)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    pretrained, runs = options.start.resolve(), options.runs.resolve()
    runs.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(runs / "compiled"))
    results = []
    with contextlib.chdir(options.data):
        for task in options.tasks:
            predictions: dict[str, list[Predictions]] = {}
            for arm in ARMS:
                losses = {}
                for rate in (1.0, 3.0):
                    experiment = to_choose(experiment_of(task, arm, 0, rate, pretrained))
                    folder = finished(experiment, runs / f"{task}-{arm}-rate{rate:g}")
                    losses[rate] = json.loads((folder / "held_out.json").read_text())["loss"]
                rate = min(losses, key=losses.get)
                print(f"{task} {arm}: losses by times the rate {losses}", flush=True)
                folders = [
                    finished(experiment_of(task, arm, seed, rate, pretrained), runs / f"{task}-{arm}-{seed}")
                    for seed in range(options.seeds)
                ]
                predictions[arm] = [predictions_of(folder, TEST_FILES.get(task, ())) for folder in folders]
            results.append(compare(task, predictions))
            print(json.dumps(results[-1]), flush=True)
    (runs / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
