"""`average` and `convert`: new checkpoints made from others; `verify`: whether files are what was written."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from t5x_lite.checksums import file_names, find_damage, is_checked
from t5x_lite.cli.arguments import OfModel, parse, subcommand
from t5x_lite.convert.tokenizers import can_write
from t5x_lite.data import Data
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_new, local_or_bucket, read_json, write_atomically
from t5x_lite.models.electra import Part
from t5x_lite.pretrained import Pretrained, load
from t5x_lite.pretrained.foreign import experiment_for
from t5x_lite.runs.checkpoints import is_checkpoint, steps_of_run, write_checkpoint
from t5x_lite.runs.open_model import average_checkpoints, find_demo, last_checkpoints
from t5x_lite.runs.records import print_line
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import saved_config
from t5x_lite.validation import Positive


@dataclass(frozen=True)
class Average:
    """The mean of the parameters of several checkpoints, as a checkpoint that load, evaluate, generate and convert
    open. Of a run that keeps a moving average, it is the mean of that."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[RUN ...]")]
    """A run, of which the last checkpoints are taken; or several runs or checkpoints, of which all together are."""
    last: Positive | None = None
    """Checkpoints of each run; 5 if not given."""
    output: str = ""
    """The new folder; if not given, averaged/last-N in the folder of the one run."""


AVERAGE_EXAMPLES = (
    "average runs/t5_tiny --last 5",
    "average runs/a runs/b --last 1 --output runs/mean",
)


@subcommand
def average(arguments: list[str]) -> None:
    """average RUN --last 5: the mean of a run's last checkpoints, as a new checkpoint"""
    command = parse(Average, arguments, prog="t5x-lite average", examples=AVERAGE_EXAMPLES)
    sources = [Path(name).expanduser() for name in command.runs]
    if not sources:
        raise InputError("the run is missing; write t5x-lite average RUN --last 5")
    if missing := [source for source in sources if not source.is_dir()]:
        raise InputError(f"{missing[0]} is not a folder; name a run's folder, or folders of checkpoints")
    single = [source for source in sources if is_checkpoint(source)]
    if command.last is not None and len(single) == len(sources):
        raise InputError(f"last={command.last} counts the checkpoints of a run, and {single[0]} is one; leave it out")
    last, console = command.last or 5, Console(stderr=True)
    folders = [
        folder for source in sources for folder in ([source] if source in single else last_checkpoints(source, last))
    ]
    if command.output:
        output = Path(command.output).expanduser()
    elif len(sources) > 1 or single:
        raise InputError("output='' leaves open where the mean of named checkpoints goes; give --output FOLDER")
    else:
        output = sources[0] / "averaged" / f"last-{last}"
    average_checkpoints(folders, output, lambda folder: print_line(console, f"reading {folder}"))
    print(f"{output}: the mean of {len(folders)} checkpoints ({', '.join(folder.name for folder in folders)})")


@dataclass(frozen=True)
class Verify:
    """Whether the files of checkpoints, exported folders and token stores are what was written, by their checksums."""

    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FOLDER")]
    """A run, one of its checkpoints, a folder that `convert` or `export` made, or a token store."""


VERIFY_EXAMPLES = ("verify runs/t5_tiny",)


@subcommand
def verify(arguments: list[str]) -> None:
    """verify RUN: compare the files of a run's checkpoints with their checksums"""
    command = parse(Verify, arguments, prog="t5x-lite verify", examples=VERIFY_EXAMPLES)
    folder = find_demo(command.folder) or local_or_bucket(command.folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name a run, a checkpoint, an exported folder or a token store")
    folders = steps_of_run(folder) or [folder]
    damages = {
        one: find_damage(one) or ("" if file_names(one) and is_checked(one) else "files without a checksum")
        for one in folders
    }
    for one, damage in damages.items():
        print(f"{one}: {damage or 'as it was written'}")
    if any(damages.values()):
        good = [one for one, damage in damages.items() if not damage]
        listed = "; ".join(f"{one} is damaged: {damage}" for one, damage in damages.items() if damage)
        raise InputError(f"{listed}; use {f'{good[-1]}, the last one that is not' if good else 'a copy of it'}")


@dataclass(frozen=True)
class Convert:
    """A run into a Hugging Face folder; a Hugging Face folder (or hub name) or a checkpoint of T5X into a run."""

    src: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SRC")]
    """What there is: a run, one of its checkpoints, a Hugging Face folder or hub name, a checkpoint of T5X."""
    dst: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DST")]
    """The new folder; it must not exist or be empty."""
    part: Part | None = None
    """Which of ELECTRA's two networks goes to Hugging Face; the discriminator if not given."""
    tokenizer: str | None = None
    """The file of the tokenizer where SRC comes without one: a SentencePiece model or a tokenizer.json."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the numbers in a Hugging Face folder; a run's are float32."""


CONVERT_EXAMPLES = (
    "convert runs/t5_tiny my_hugging_face_folder",
    "convert google/t5-v1_1-small runs/t5_small",
    "convert runs/electra_tiny my_generator --part generator",
)


@subcommand
def convert(arguments: list[str]) -> None:
    """convert SRC DST: a run into a Hugging Face folder, or that or a checkpoint of T5X into a run"""
    command = parse(Convert, arguments, prog="t5x-lite convert", examples=CONVERT_EXAMPLES)
    dst = Path(command.dst).expanduser()
    check_is_new(dst, "dst")
    # Nothing is computed, and the host has more memory.
    model = load(command.src, device="cpu", tokenizer=command.tokenizer)
    if command.part and not model.config.networks:
        raise InputError(f"part={command.part}: {command.src} holds one network, no pair; leave --part out")
    if model.experiment is None:
        _write_run(dst.absolute(), model)
        print(f"{dst}: a run's folder with the parameters at step 0; open it with t5x_lite.load")
        return
    model.export(dst, part=command.part, dtype=command.dtype)
    left_out = ""  # what no class of Transformers holds
    if model.config.networks:
        other = "discriminator" if command.part == "generator" else "generator"
        left_out = f"; left out: the {other}, which --part {other} converts"
    elif "span_boundary" in getattr(model.config, "heads", ()):
        left_out = "; left out: the span-boundary head"
    if model.tokenizer is not None and not can_write(model.tokenizer):
        left_out += f"; left out: the tokenizer, as Transformers has no class for a {type(model.tokenizer).__name__}"
    print(f"{dst}: config.json, model.safetensors; open it with transformers or t5x_lite.load{left_out}")


@dataclass(frozen=True)
class Push(OfModel):
    """A model to the Hugging Face hub, as `convert` writes it, with a card made from its run."""

    repo_id: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="USER/NAME")]
    """The repository; made where it does not exist. Log in first: hf auth login."""
    private: bool = False
    """Of a new repository: only its owners see it."""
    license: str = ""
    """For the card, as the hub names licenses, such as apache-2.0."""
    part: Part | None = None
    """Which of ELECTRA's two networks; the discriminator if not given."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the numbers in the file."""


PUSH_EXAMPLES = (
    "push runs/t5_tiny user/t5-tiny --private",
    "push runs/translate_de_en user/translate-de-en --license cc-by-2.0 --dtype bfloat16",
)


@subcommand
def push(arguments: list[str]) -> None:
    """push RUN USER/NAME: a model with its card to the Hugging Face hub"""
    command = parse(Push, arguments, prog="t5x-lite push", examples=PUSH_EXAMPLES)
    figures = local_or_bucket(command.run) / "held_out.json"
    held_out = read_json(figures) if local_or_bucket(command.run).is_dir() else {}
    options = {"part": command.part, "dtype": command.dtype, "license": command.license, "held_out": held_out}
    print(load(command.run, device="cpu").push_to_hub(command.repo_id, private=command.private or None, **options))


def _write_run(folder: Path, model: Pretrained) -> None:
    """Writes the folder of a run before its first step, without an optimizer's state."""
    data, files, generation = Data(), {}, model.generation
    folder.mkdir(parents=True, exist_ok=True)
    if model.tokenizer is not None:
        model.tokenizer.save(folder / "tokenizer")
        files = tokenizer_files(folder / "tokenizer")
        data = Data(tokenizer=saved_config(model.tokenizer, folder / "tokenizer"))
    elif model.known_vocabulary is not None:
        generation = replace(generation, pad_id=model.known_vocabulary.pad_id, eos_id=model.known_vocabulary.eos_id)
    experiment = replace(experiment_for(model.config, data), generation=generation, origin=model.origin)
    write_checkpoint(folder / "checkpoints", 0, experiment, files, model.params)
    write_atomically(folder / "experiment.json", experiment.to_json() + "\n")
