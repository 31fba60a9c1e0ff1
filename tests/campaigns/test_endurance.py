"""Runs that go on and on, and one that breaks: nothing grows, and what broke can be seen again."""

import os
import re
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_lite
from t5x_lite.optim.schedules import Constant, Schedule
from t5x_lite.runs import loop
from t5x_lite.training import Checkpointing, Evaluation, Logging

pytestmark = [pytest.mark.slow, pytest.mark.least(1)]

WHOLE = float(os.environ.get("T5X_LITE_CAMPAIGN_MINUTES", "0")) >= 5
STEPS, CALLS = (10_000, 1_000) if WHOLE else (800, 120)
MOST_GROWTH = 16 << 20  # bytes


@dataclass(frozen=True)
class Leap(Schedule):
    """A learning rate that takes the parameters beyond what float32 can multiply, once."""

    at: int = 1

    def learning_rate(self, step):
        return jnp.where(step == self.at, 1e30, 1e-3)


def test_what_is_not_finite_is_seen_again(tiny, train, tmp_path, draws, make_program):
    for number, draw in enumerate(draws):
        workdir, step = tmp_path / str(number), draw.randrange(1, tiny.steps - 1)
        experiment = replace(tiny, optimizer=replace(tiny.optimizer, schedule=Leap(step)), seed=draw.randrange(1000))
        with pytest.raises(loop.NonFiniteError, match=rf"not finite at step {step + 1};"):
            train(experiment, workdir)
        folder = workdir / "nonfinite"
        params = t5x_lite.load(folder / "model").params
        batch = dict(np.load(folder / "batch.npz"))
        program = make_program(experiment)

        def finite(params, step, program=program, batch=batch):
            state = program.init()
            state = state.replace(params=jax.tree.map(jnp.array, params), step=jnp.int32(step))
            return bool(program.train_step(state, batch)[1]["finite"])

        assert not finite(params, step)
        assert finite(program.init().params, step), "the parameters make it so, not the batch"


class Use:
    """What this process holds: resident bytes, open files, threads."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int, int]] = []

    def sample(self) -> None:
        resident = re.search(r"VmRSS:\s*(\d+) kB", Path("/proc/self/status").read_text())
        self.samples.append((1024 * int(resident[1]), len(os.listdir("/proc/self/fd")), threading.active_count()))

    def check_flat(self) -> None:
        """From the second quarter, when all is warm, to the last."""
        quarters = [np.mean(part, axis=0) for part in np.array_split(np.array(self.samples), 4)]
        growth = quarters[3] - quarters[1]
        figures = ["{:,.0f} MB, {:.1f} files, {:.1f} threads".format(each[0] / 1e6, *each[1:]) for each in quarters]
        print(figures)
        assert growth[0] < MOST_GROWTH and growth[1] < 4 and growth[2] < 4, figures


def test_steps(tiny, train, tmp_path, monkeypatch):
    use, log_step, every = Use(), loop._Run.log_step, STEPS // 40

    def logged(run, step, metrics, *args):
        log_step(run, step, metrics, *args)
        if step % every == 0 and metrics is not None:
            use.sample()

    monkeypatch.setattr(loop._Run, "log_step", logged)
    experiment = replace(
        tiny,
        steps=STEPS,
        optimizer=replace(tiny.optimizer, schedule=Constant(1e-3)),
        evaluation=Evaluation(every=every, rows=10),
        checkpoints=Checkpointing(every=every, keep_last=2, keep_best=0),
        logging=Logging(every=every // 2),
    )
    train(experiment, tmp_path, report=False)
    use.check_flat()


def test_generated_texts(tiny, train, tmp_path, draws):
    train(tiny, tmp_path)
    model, use, draw = t5x_lite.load(tmp_path), Use(), next(draws)
    for _ in range(CALLS):
        texts = ["a" * draw.randrange(1, 63) for _ in range(draw.randrange(1, 3))]
        model.generate(texts, max_length=draw.randrange(1, 65), **draw.choice([{}, {"temperature": 0.7}]))
        use.sample()
    use.check_flat()
