"""Training, from an experiment to a folder with checkpoints and figures. The only room with I/O and time."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

import jax
from etils import epath
from rich.console import Console

from t5x_lite.data import TokenStore, batches, prefetch
from t5x_lite.evaluation.evaluator import Evaluator, MixtureEvaluator, held_out_of
from t5x_lite.files import local_or_bucket
from t5x_lite.parallel import batch_sharding, hosts, make_mesh
from t5x_lite.parallel.mesh import BatchRows
from t5x_lite.parallel.preemption import StopSignals
from t5x_lite.runs import report
from t5x_lite.runs.checkpoints import Checkpoints, leave_damaged
from t5x_lite.runs.goodput import RunTimes
from t5x_lite.runs.pace import StepClock
from t5x_lite.runs.preparation import check_memory, check_mesh, prepare, start_or_resume
from t5x_lite.runs.profiling import Profiler, ProfileSteps
from t5x_lite.runs.records import Callback, Records, print_line, standard_output
from t5x_lite.runs.usage import describe_run, usage_of
from t5x_lite.runs.workdir import open_workdir, tokenizer_files
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.step import Program, TrainState


class NonFiniteError(RuntimeError):
    """The loss or its gradient became infinite or NaN."""


def train(
    experiment: Experiment,
    workdir: str | PathLike[str],
    console: Console | None = None,
    devices: Sequence[jax.Device] | None = None,
    callbacks: Sequence[Callback] = (),
    profile: ProfileSteps | None = None,
    started: float | None = None,
) -> bool:
    """What `t5x_lite.train` documents; returns whether the run came to its end.

    Every process of a run calls it; only process 0 writes and prints. `started` is when the process began, in seconds
    since 1970, by default now; `profile` are the steps to trace.
    """
    workdir = epath.Path(local_or_bucket(workdir, "workdir"))
    console = Console(quiet=True) if not hosts.is_first() else console or standard_output()
    with StopSignals() as stop, ExitStack() as opened:
        times = RunTimes(started)
        mesh = make_mesh(experiment.mesh, devices)
        check_mesh(experiment, mesh)
        check_memory(experiment, mesh)
        for writer in experiment.logging.writers:
            writer.check()
        opened.enter_context(open_workdir(workdir, experiment))
        for remark in leave_damaged(workdir):
            print_line(console, f"WARNING: {remark}")
        prepared = prepare(experiment, console, workdir)
        opened.enter_context(prepared.store)
        program = Program(experiment, prepared.objective, mesh)
        with Checkpoints(workdir / "checkpoints", experiment.checkpoints) as checkpoints:
            stop.start_loop()
            evaluator = held_out_of(program, prepared.store)
            state = start_or_resume(program, prepared, checkpoints, console)
            if hosts.is_first():
                opened.enter_context(times).open(workdir, int(jax.device_get(state.step)))
            tools = (checkpoints, workdir, console, stop, callbacks, times, profile)
            state = _Run(experiment, program, prepared.store, evaluator, *tools).train_steps(state)
        step = int(jax.device_get(state.step))
        if finished := step == experiment.steps:
            with times.phase("evaluation"):
                report.finish(evaluator, state.evaluated, prepared.store, workdir, console)
        times.write(step)
        report.print_goodput(workdir, console)
        if not finished:
            print_line(console, f"stopped at step {step}; the same command goes on from there")
        return finished


@dataclass(frozen=True)
class _Run:
    experiment: Experiment
    program: Program
    store: TokenStore
    evaluator: Evaluator | MixtureEvaluator
    checkpoints: Checkpoints
    workdir: epath.Path
    console: Console
    stop: StopSignals
    callbacks: Sequence[Callback]
    times: RunTimes
    profile: ProfileSteps | None

    def train_steps(self, state: TrainState) -> TrainState:
        """Trains until the last step, or until all processes stop; the state that it returns is saved."""
        experiment, first = self.experiment, int(jax.device_get(state.step))
        rows = BatchRows(batch_sharding(self.program.mesh), experiment.batch_size)
        local = rows.numbers.tolist()
        data = batches(self.store.train, **experiment.batch_order, local=local)
        throughput = self.program.objective.layout.throughput(experiment.batch_size)
        is_first = hosts.is_first()
        if is_first:
            print_line(self.console, describe_run(self.program, experiment, str(self.workdir), first))
        writers = experiment.logging.writers if is_first else ()
        usage = usage_of(self.program, experiment) if is_first else lambda seconds: {}
        clock = StepClock(self.times, lambda message: print_line(self.console, f"WARNING: {message}"))
        profiler = Profiler(self.profile, first, self.workdir, self.times, partial(print_line, self.console))
        records = Records(
            self.workdir if is_first else None,
            self.console,
            first=first,
            last=experiment.steps,
            throughput=throughput,
            callbacks=self.callbacks,
            writers=[writer.open(self.workdir, experiment, first) for writer in writers],
            usage=lambda seconds: usage(seconds) | clock.figures(seconds),
            times=self.times,
        )
        with clock, profiler, records, closing(prefetch(data, first)) as host_batches:
            metrics = None
            self.times.switch("steps")
            for step in range(first, experiment.steps):
                if self.stop.should_stop(step):
                    break
                if profiler.begins_or_ends(step + 1, metrics):
                    clock.settled()
                batch = clock.next_batch(host_batches)
                # Dispatch this step, then log the one before while the devices work.
                with jax.transfer_guard("disallow"), jax.profiler.StepTraceAnnotation("train", step_num=step + 1):
                    state, next_metrics = clock.dispatch(self.program.train_step, state, rows.to_devices(batch))
                self.log_step(step, metrics, state, records)
                metrics, done = next_metrics, step + 1
                saves, loss = self.should_act(experiment.checkpoints.every, done), None
                # The best checkpoints can only be known if each is evaluated.
                for_best = saves and experiment.checkpoints.keep_best > 0
                evaluates = for_best or self.should_act(experiment.evaluation.every, done)
                if evaluates or saves:
                    self.log_step(done, metrics, state, records)
                    metrics = None
                    clock.settled()
                if evaluates:
                    with self.times.phase("evaluation"):
                        scores = self.evaluator.evaluate(state.evaluated)
                    records.held_out(done, scores)
                    loss = scores.figures["loss"]
                if saves:
                    self.save(state, loss)
            profiler.end(metrics)
            self.log_step(int(jax.device_get(state.step)), metrics, state, records)
            self.save(state)
            with self.times.phase("saves"):
                self.checkpoints.wait()
            records.saved(self.checkpoints.finished())
        return state

    def log_step(self, step: int, metrics: Any, state: TrainState, records: Records) -> None:
        """Fetches and records the figures of the update number `step`; stops the run if they are not finite."""
        records.saved(self.checkpoints.finished())
        if metrics is None:
            return
        figures = jax.device_get(metrics)
        if not figures.pop("finite"):
            folder = report.write_nonfinite(self.workdir, self.program, state, figures, self.store)
            raise NonFiniteError(
                f"the loss or its gradient is not finite at step {step}; {folder} holds the batch and the state before "
                f"it, and the last checkpoint is of step {self.checkpoints.latest or 'none'}"
            )
        figures = {name: float(value) for name, value in figures.items()}
        records.advance(step, figures)
        if step % self.experiment.logging.every == 0 or step == self.experiment.steps:
            records.train(step, figures)
            self.times.write_sometimes(step)

    def should_act(self, every: int, step: int) -> bool:
        """Whether what happens after each `every` steps (0: never) and after the last one happens now."""
        return step == self.experiment.steps or bool(every and step % every == 0)

    def save(self, state: TrainState, held_out_loss: float | None = None) -> None:
        with self.times.phase("saves"):
            self.times.write(int(jax.device_get(state.step)))  # what a later process goes on from
            files = tokenizer_files(self.workdir / "tokenizer")
            self.checkpoints.save(state, self.experiment, files, held_out_loss)
