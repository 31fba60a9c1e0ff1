"""`train`: a config, from text to checkpoints."""

import os
import platform
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from rich.console import Console

from t5x_lite.cli.arguments import (
    DataOptions,
    ExperimentOptions,
    format_examples,
    load_config,
    parse,
    subcommand,
    take_config,
)
from t5x_lite.cli.main import share_compiled_programs
from t5x_lite.cli.processes import process_started, run_local_processes
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, local_or_bucket
from t5x_lite.parallel import hosts
from t5x_lite.parallel.preemption import Stopped
from t5x_lite.parallel.processes import ProcessConfig
from t5x_lite.planning.topology import enlarge_stacks
from t5x_lite.runs import loop
from t5x_lite.runs.checkpoints import steps_of_run
from t5x_lite.runs.profiling import ProfileSteps
from t5x_lite.training.experiment import flat_fields
from t5x_lite.validation import Positive

PROG = "t5x-lite train"
EXAMPLES = (
    "train configs/t5_tiny.py --steps 200 --workdir runs/a",
    "train configs/t5_tiny.py --text sample_data/novel.txt --workdir runs/mine",
    "train configs/bert_tiny.py --optimizer.schedule.peak 1e-3 --batch-size 64",
)
USAGE = f"""usage: {PROG} CONFIG [options]

Trains what CONFIG describes, from text to checkpoints; CONFIG is a Python file that binds `experiment`. If the
workdir holds checkpoints of the same experiment, training goes on from the last one. SIGTERM and Ctrl-C save and exit.

  --workdir FOLDER     checkpoints, records and pictures go there, on a disk or in a bucket such as gs://bucket/run
                       (default: runs/<name of CONFIG>)
  --text PATH ...      train on these files, globs or folders (.txt, .jsonl, .gz) instead of the config's source
  --pairs PATH ...     the same for objectives on pairs: .tsv (source TAB target) or .jsonl, and their .gz
  --held-out-pairs PATH ...  pairs to evaluate on, instead of a part of the others
  --examples PATH ...  the same for tasks, whose files are like those of the config
  --held-out-examples PATH ...  examples to evaluate on

On several hosts run the same command on each. On a TPU pod, on GKE and in a SLURM step they find each other; elsewhere

  --coordinator HOST:PORT --num-processes N --process-id I   say where process 0 listens, and which one this is
  --join-timeout SECONDS     how long to wait for the others at the start (default: 300)
  --local-processes N        N processes on this machine's CPUs: a pod in miniature

A signal to one of them saves the same step on all and ends them with status 75, for a supervisor to start them again.
So does, without saving, one that hangs or whose host is gone.

--profile 100:5 writes a profile of steps 100 to 104, which TensorBoard and XProf show (tensorboard --logdir FOLDER).

and every field of the experiment, such as --steps 200 --objective.noise-density 0.3 --mesh.fsdp 4:
"{PROG} CONFIG --help" lists them with CONFIG's values.

{format_examples(EXAMPLES)}"""

PACKAGES = ("t5x_lite", "jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint", "grain", "numpy", "tokenizers")
"""Those whose version must be the same on all hosts."""


@dataclass(frozen=True)
class Run:
    """What is trained, and where."""

    experiment: ExperimentOptions
    workdir: str
    """Checkpoints, records and pictures go there, on a disk or in a bucket such as gs://bucket/run; if it holds
    checkpoints of this experiment, training goes on."""


@dataclass(frozen=True)
class Train(DataOptions, Run):
    """Train what the config describes, with these fields of the experiment changed."""

    profile: str = ""
    """START:STEPS, the steps to write a profile of, for TensorBoard or XProf: 100:5 are steps 100 to 104."""
    coordinator: str = ""
    """HOST:PORT of process 0, for several hosts; on a TPU pod, on GKE and in a SLURM step it is found."""
    num_processes: int = 0
    """Processes of the run, with --coordinator."""
    process_id: int = -1
    """Which of them this is, from 0, with --coordinator."""
    join_timeout: int = 300
    """Seconds to wait at the start for the other processes."""
    local_processes: Positive = 1
    """Processes to run on this machine's CPUs: a pod in miniature."""


@subcommand
def train(arguments: list[str]) -> int:
    """train CONFIG [options]: pretrain or fine-tune, on one host or many; goes on from its own checkpoints"""
    started = process_started()
    config, arguments = take_config(arguments, PROG, USAGE)
    default = Train(load_config(config), f"runs/{Path(config).stem}")
    command = parse(Train, arguments, prog=f"{PROG} {config}", default=default, examples=EXAMPLES)
    experiment = command.apply(command.experiment)
    profile = ProfileSteps.parse(command.profile, experiment.steps)
    if command.local_processes != 1:
        if command.coordinator:
            raise InputError("--local-processes and --coordinator are two ways to start; give one of them")
        return run_local_processes(command.local_processes, ["train", config, *arguments])
    console, process = Console(), _process_config(command)
    facts = {name: str(value) for name, value in flat_fields(experiment)} | {"--workdir": command.workdir} | _versions()
    enlarge_stacks()
    if is_in_bucket(command.workdir):
        share_compiled_programs(command.workdir)
    stopped = os.EX_TEMPFAIL if process is not None or os.environ.get("T5X_LITE_SUPERVISED") else 0
    try:
        remains = partial(_remains, command.workdir)
        with hosts.joined(process, facts, timeout=command.join_timeout, remains=remains):
            finished = loop.train(experiment, command.workdir, console, profile=profile, started=started)
    except Stopped:
        if process is None or hosts.is_first():
            console.print("stopped before the first step; there was nothing to save", highlight=False)
        return stopped
    return 0 if finished else stopped


def _remains(workdir: str) -> str:
    """What the same command would go on from."""
    if steps := steps_of_run(local_or_bucket(workdir)):
        return f"the last complete checkpoint is {steps[-1]}, and the same command goes on from there"
    return "there is no complete checkpoint yet, and the same command begins again"


def _process_config(command: Train) -> ProcessConfig | None:
    """This process among those of a run; None for a run of one process."""
    given = (bool(command.coordinator), command.num_processes > 0, command.process_id >= 0)
    if all(given):
        return ProcessConfig(command.coordinator, command.num_processes, command.process_id)
    if any(given):
        raise InputError(
            f"--coordinator {command.coordinator or '(none)'} --num-processes {command.num_processes} --process-id "
            f"{command.process_id} do not say which process this is; give all three, or none on a TPU pod, GKE or SLURM"
        )
    return hosts.detect_process(command.join_timeout)


def _versions() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions
