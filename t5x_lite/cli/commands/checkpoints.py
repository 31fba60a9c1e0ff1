"""`average` and `convert`: checkpoints out of checkpoints."""

from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from rich.console import Console

from t5x_lite.cli.arguments import parse, subcommand
from t5x_lite.data import Data
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_new, write_atomically
from t5x_lite.models import ModelConfig
from t5x_lite.models.electra import Part
from t5x_lite.objectives import (
    BartDenoising,
    CausalLanguageModel,
    MaskedLanguageModel,
    NextSentencePrediction,
    Objective,
    SentenceOrderPrediction,
    SequenceToSequence,
    SpanCorruption,
)
from t5x_lite.objectives.base import NoObjective
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained import Pretrained, load
from t5x_lite.runs.checkpoints import is_checkpoint, write_checkpoint
from t5x_lite.runs.open_model import average_checkpoints, last_checkpoints
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import saved_config
from t5x_lite.training.experiment import Experiment

LAST = 5


@dataclass(frozen=True)
class Average:
    """The mean of the parameters of several checkpoints, as a checkpoint that load, evaluate, generate and convert
    open. Of a run that keeps a moving average, it is the mean of that."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """A run, of which the last checkpoints are taken; or several runs or checkpoints, of which all together are."""
    last: int | None = None
    """Checkpoints of each run; 5 if not given."""
    output: str = ""
    """The new folder; if not given, averaged/last-N in the folder of the one run."""


@subcommand
def average(arguments: list[str]) -> None:
    """average RUN --last 5: the mean of a run's last checkpoints, as a new checkpoint"""
    command = parse(Average, arguments, prog="t5x-lite average")
    sources = [Path(name).expanduser() for name in command.runs]
    if not sources:
        raise InputError("the run is missing; write t5x-lite average RUN --last 5")
    if command.last is not None and command.last < 1:
        raise InputError(f"last={command.last} is too small; choose 1 or more")
    if missing := [source for source in sources if not source.is_dir()]:
        raise InputError(f"{missing[0]} is not a folder; name a run's folder, or folders of checkpoints")
    single = [source for source in sources if is_checkpoint(source)]
    if command.last is not None and len(single) == len(sources):
        raise InputError(f"last={command.last} counts the checkpoints of a run, and {single[0]} is one; leave it out")
    last = command.last or LAST
    folders = [
        folder for source in sources for folder in ([source] if source in single else last_checkpoints(source, last))
    ]
    output = Path(command.output).expanduser() if command.output else _default_output(sources, single, last)
    console = Console(stderr=True)
    average_checkpoints(
        folders, output, lambda folder: console.print(f"reading {folder}", highlight=False, soft_wrap=True)
    )
    print(f"{output}: the mean of {len(folders)} checkpoints ({', '.join(folder.name for folder in folders)})")


def _default_output(sources: list[Path], single: list[Path], last: int) -> Path:
    if len(sources) > 1 or single:
        raise InputError("output='' leaves open where the mean of named checkpoints goes; give --output FOLDER")
    return sources[0] / "averaged" / f"last-{last}"


@dataclass(frozen=True)
class Convert:
    """A run into a Hugging Face folder, or a Hugging Face folder (or hub name) into a run's folder."""

    src: tyro.conf.Positional[str]
    """What there is: a run, one of its checkpoints, a Hugging Face folder or hub name."""
    dst: tyro.conf.Positional[str]
    """The new folder; it must not exist or be empty."""
    part: Part | None = None
    """Which of ELECTRA's two networks goes to Hugging Face; the discriminator if not given."""


@subcommand
def convert(arguments: list[str]) -> None:
    """convert SRC DST: a run into a Hugging Face folder, or the other way round"""
    command = parse(Convert, arguments, prog="t5x-lite convert")
    dst = Path(command.dst).expanduser()
    check_is_new(dst, "dst")
    model = load(command.src)
    if command.part and not model.config.networks:
        raise InputError(f"part={command.part}: {command.src} holds one network, no pair; leave --part out")
    if model.experiment is None:
        _write_run(dst.absolute(), model)
        print(f"{dst}: a run's folder with the parameters at step 0; open it with t5x_lite.load")
        return
    model.export(dst, part=command.part)
    left_out = _left_out(model.config, command.part or "discriminator")
    without = f"; left out: {left_out}" if left_out else ""
    print(f"{dst}: config.json, model.safetensors; open it with transformers or t5x_lite.load{without}")


def _left_out(model: ModelConfig, part: Part) -> str:
    """What of the model no class of Transformers has a place for."""
    if model.networks:
        other = "generator" if part == "discriminator" else "discriminator"
        return f"the {other}, which --part {other} converts"
    return "the span-boundary head" if "span_boundary" in getattr(model, "heads", ()) else ""


def objective_for(model: ModelConfig) -> Objective:
    """The objective that the model was made with, or that trains the heads which it has; tasks need data for theirs."""
    longest = getattr(model, "max_length", None) or 1024
    length = min(512, longest)
    match model.pretraining:
        case "span corruption":
            return SpanCorruption()
        case "causal language model":
            return CausalLanguageModel(min(1024, longest))
        case "denoising":
            return BartDenoising(length)
        case "sequence to sequence":
            return SequenceToSequence(length, length)
        case "masked language model":
            return MaskedLanguageModel(length)
        case "masked language model, next sentence":
            return NextSentencePrediction(length)
        case "masked language model, sentence order":
            return SentenceOrderPrediction(length)
    return NoObjective()


def _write_run(folder: Path, model: Pretrained) -> None:
    """A run's folder as if the run stood before its first step, without an optimizer's state."""
    data, files, generation = Data(), {}, model.generation
    folder.mkdir(parents=True, exist_ok=True)
    if model.tokenizer is not None:
        model.tokenizer.save(folder / "tokenizer")
        files = tokenizer_files(folder / "tokenizer")
        data = Data(tokenizer=saved_config(model.tokenizer, folder / "tokenizer"))
    else:
        generation = replace(generation, pad_id=model.known_vocabulary.pad_id, eos_id=model.known_vocabulary.eos_id)
    experiment = Experiment(
        model=model.config,
        objective=objective_for(model.config),
        data=data,
        optimizer=Adafactor(),
        steps=1,
        batch_size=8,
        generation=generation,
    )
    write_checkpoint(folder / "checkpoints", 0, experiment, files, model.params)
    write_atomically(folder / "experiment.json", experiment.to_json() + "\n")
