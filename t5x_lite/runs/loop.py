"""Training, from an experiment to a folder with checkpoints and figures. The only place with I/O and time."""

from collections.abc import Sequence
from contextlib import closing
from os import PathLike
from typing import Any

import jax
from etils import epath
from rich.console import Console

from t5x_lite.data import batches, prefetch
from t5x_lite.evaluation.evaluator import held_out_of
from t5x_lite.parallel import batch_sharding, hosts, make_mesh
from t5x_lite.parallel.mesh import BatchRows, to_devices
from t5x_lite.parallel.preemption import StopSignals
from t5x_lite.runs import report
from t5x_lite.runs.checkpoints import Checkpoints
from t5x_lite.runs.preparation import Prepared, check_mesh, first_state, prepare
from t5x_lite.runs.records import NoRecords, Records
from t5x_lite.runs.workdir import open_workdir, remove_if_empty, tokenizer_files
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.step import Program, TrainState


class NonFiniteError(RuntimeError):
    """The loss or its gradient became infinite or no number."""


def train(
    experiment: Experiment,
    workdir: str | PathLike[str],
    console: Console | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> bool:
    """Runs the experiment to its end, or to the signal that stops it; goes on where the folder's last run stopped.

    Every process of a run calls it; only the first one writes and tells what goes on: to standard output unless a
    `console` is given, such as `Console(quiet=True)`. `devices` are all there are unless given. Returns whether it came
    to its end.

    Raises `InputError` for an experiment that does not fit its data, its devices or the folder, before anything in the
    folder is touched that was there; `NonFiniteError` after writing `workdir/nonfinite` to look into.
    """
    workdir = epath.Path(workdir)
    if not hosts.is_first():
        console = Console(quiet=True)
    elif console is None:
        console = Console()
        if console.is_jupyter:
            # There rich would make an output of every line, and a notebook's standard output is no place for bars.
            console = Console(force_jupyter=False, force_terminal=False)
    with StopSignals() as stop:
        mesh = make_mesh(experiment.mesh, devices)
        check_mesh(experiment, mesh)
        open_workdir(workdir, experiment)
        try:
            prepared = prepare(experiment, console, workdir)
        except BaseException:
            remove_if_empty(workdir)
            raise
        program = Program(experiment, prepared.objective, mesh)
        with Checkpoints(workdir / "checkpoints", experiment.checkpoints) as checkpoints:
            stop.start_loop()
            run = _Run(program, prepared, checkpoints, workdir, console, stop)
            state = run.steps(run.start())
        step = int(jax.device_get(state.step))
        if step < experiment.steps:
            message = f"stopped at step {step}; the same command goes on from there"
            console.print(message, highlight=False, soft_wrap=True)
            return False
        report.finish(run.held_out, state.params_to_use, prepared.store, workdir, console)
        return True


class _Run:
    """One process's part in a run: what the steps share."""

    def __init__(
        self,
        program: Program,
        prepared: Prepared,
        checkpoints: Checkpoints,
        workdir: epath.Path,
        console: Console,
        stop: StopSignals,
    ):
        self.program, self.prepared, self.checkpoints = program, prepared, checkpoints
        self.store = prepared.store
        self.workdir, self.console, self.stop = workdir, console, stop
        self.experiment = program.experiment
        self.tokenizer_files = tokenizer_files(workdir / "tokenizer")
        self.held_out = held_out_of(program, self.store)

    def start(self) -> TrainState:
        """The state of the last checkpoint, or the one that the run begins with."""
        latest = self.checkpoints.latest
        if latest is None:
            state = first_state(self.program, self.prepared, self.console)
        else:
            state = self.checkpoints.restore(latest, self.program.abstract_state)
            self.console.print(f"resuming from step {latest}", highlight=False, soft_wrap=True)
        if not self.program.trained.is_whole:
            message = self.program.trained.describe(state.params)
            self.console.print(message, highlight=False, markup=False, soft_wrap=True)
        if decay := self.experiment.average.decay:
            message = (
                f"held-out figures are of the average of the parameters (decay {decay:g}), and so is what is loaded"
            )
            self.console.print(message, highlight=False, soft_wrap=True)
        if self.prepared.teacher is None:
            return state
        return state.replace(frozen=to_devices(self.prepared.teacher.params, self.program.state_shardings.frozen))

    def steps(self, state: TrainState) -> TrainState:
        """Trains until the last step, or until all are asked to stop; what it returns is saved."""
        experiment, first = self.experiment, int(jax.device_get(state.step))
        rows = BatchRows(batch_sharding(self.program.mesh), experiment.batch_size)
        data = batches(
            self.store.train, batch_size=experiment.batch_size, seed=experiment.seed, local=rows.numbers.tolist()
        )
        tokens = experiment.batch_size * self.program.objective.layout.num_ids
        kept = Records if hosts.is_first() else NoRecords
        records = kept(self.workdir, self.console, first_step=first, steps=experiment.steps, tokens_per_step=tokens)
        with records, closing(prefetch(data, first)) as host_batches:
            metrics = None
            for step in range(first, experiment.steps):
                if self.stop.should_stop(step):
                    break
                batch = next(host_batches)
                # Dispatch this step, then look at the one before while the devices work.
                with jax.transfer_guard("disallow"):
                    state, following = self.program.train_step(state, rows.to_devices(batch))
                self.log_step(step, metrics, state, records)
                metrics = following
                if self.should_act(step + 1):
                    self.log_step(step + 1, metrics, state, records)
                    metrics = None
                    self.evaluate_and_save(step + 1, state, records)
            self.log_step(int(jax.device_get(state.step)), metrics, state, records)
            self.save(state)
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
        records.advance(step)
        if step % self.experiment.logging.every == 0 or step == self.experiment.steps:
            records.train(step, {name: float(value) for name, value in figures.items()})

    def should_act(self, step: int) -> bool:
        """Whether something is to be done with the state after `step` updates beside training on."""
        return step == self.experiment.steps or self.should_save(step) or self.should_evaluate(step)

    def should_save(self, step: int) -> bool:
        every = self.experiment.checkpoints.every
        return step == self.experiment.steps or bool(every and step % every == 0)

    def should_evaluate(self, step: int) -> bool:
        every, best = self.experiment.evaluation.every, self.experiment.checkpoints.keep_best
        # The best checkpoints can only be known if each is evaluated.
        return (
            step == self.experiment.steps or bool(every and step % every == 0) or bool(best and self.should_save(step))
        )

    def evaluate_and_save(self, step: int, state: TrainState, records: Records) -> None:
        loss = None
        if self.should_evaluate(step):
            scores = self.held_out.evaluate(state.params_to_use)
            records.held_out(step, scores)
            loss = scores.figures["loss"]
        if self.should_save(step):
            self.save(state, loss)

    def save(self, state: TrainState, held_out_loss: float | None = None) -> None:
        """Starts to write the state, unless it was."""
        self.checkpoints.save(state, self.experiment, self.tokenizer_files, held_out_loss)
