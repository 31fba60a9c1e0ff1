"""Arguments that several commands have: configs, models, and the data of their runs."""

import difflib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import tyro

from t5x_lite.cli.main import load_module
from t5x_lite.cli.parsing import format_examples, parse, subcommand  # noqa: F401 (most commands need both files)
from t5x_lite.data import (
    ImageArrays,
    ImageFolder,
    ImageSource,
    ImageSubset,
    ImageTable,
    JsonlFiles,
    Mixture,
    Source,
    TableFiles,
    TextFiles,
    TextTemplate,
    TextToText,
    Tfds,
)
from t5x_lite.data.records.columnar import COLUMNAR_ENDINGS
from t5x_lite.data.records.formats import TABLE_ENDINGS
from t5x_lite.data.records.input_files import JSON_ENDINGS, expand
from t5x_lite.data.records.tfds import datasets_in, with_datasets
from t5x_lite.errors import InputError
from t5x_lite.evaluation.evaluator import part_metrics
from t5x_lite.files import read_bytes
from t5x_lite.training.experiment import Experiment

Paths = tuple[str, ...]

# --model.gated False, as in the config, rather than --model.no-gated
ExperimentOptions = Annotated[Experiment, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
"""An experiment as a field of a command, each of whose fields is an option."""


def load_config(path: str) -> Experiment:
    """The `experiment` that a config file binds. Raises `InputError` for a file that is missing or does not."""
    file = Path(path)
    if not file.is_file():
        near = difflib.get_close_matches(file.name, [one.name for one in file.parent.glob("*.py")], 1)
        remedy = (
            f"perhaps you meant {file.parent / near[0]}" if near else "name a Python file such as configs/t5_tiny.py"
        )
        raise InputError(f"config {path} is not a file; {remedy}")
    try:
        experiment = getattr(load_module(file), "experiment", None)
    except InputError:
        raise
    except Exception as error:
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = getattr(error, "lineno", None) or (inside[-1].lineno if inside else None)
        where = f" at line {line}" if line else ""
        raise InputError(f"config {path} fails{where} ({type(error).__name__}: {error}); correct it") from error
    if not isinstance(experiment, Experiment):
        bound = "no name `experiment`" if experiment is None else f"`experiment` to a {type(experiment).__name__}"
        raise InputError(f"config {path} binds {bound}; it must bind experiment = Experiment(...)")
    return experiment


def take_config(arguments: list[str], prog: str, usage: str) -> tuple[str, list[str]]:
    """The config's path, which comes first, and the other arguments."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        raise SystemExit(0 if arguments else 2)
    if arguments[0].startswith("-"):
        raise InputError(f"{arguments[0]} stands where the config belongs; write {prog} CONFIG {arguments[0]} ...")
    return arguments[0], arguments[1:]


@dataclass(frozen=True)
class OfModel:
    """The first argument of commands that load a model."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The folder of a run or of one of its checkpoints, a Hugging Face folder, or a Hugging Face hub name."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options that replace the data of a config by files."""

    text: Paths = ()
    """Files, globs or folders (.txt, .jsonl, .gz) to take the rows from instead of the config's source."""
    pairs: Paths = ()
    """The same for objectives on pairs: .tsv, .csv or .jsonl, and their .gz, read as the config reads its pairs."""
    held_out_pairs: Paths = ()
    """Pairs to evaluate on, instead of a share of the others."""
    examples: Paths = ()
    """Files with the examples of a task, like those of the config."""
    held_out_examples: Paths = ()
    """Examples to evaluate on, instead of a share of the others."""
    corpus: Paths = ()
    """Files, globs or folders of texts to look passages up in, for a model that does so."""

    def apply(self, experiment: Experiment) -> Experiment:
        """The experiment on this data, a share of which is held out unless pairs or examples to hold out are given.

        Raises `InputError` for two corpora at once, for pairs where the objective has no use for them, and for examples
        where there is no task.
        """
        data = experiment.data
        kinds = {
            "--text": self.text,
            "--pairs": self.pairs or self.held_out_pairs,
            "--examples": self.examples or self.held_out_examples,
        }
        if len(given := [option for option, paths in kinds.items() if paths]) > 1:
            raise InputError(
                f"{' and '.join(given)} are two corpora; give --pairs to objectives on pairs, --examples to tasks, "
                "else --text"
            )
        if kinds["--pairs"] and not experiment.objective.layout.has_examples:
            raise InputError(
                f"--pairs goes with objectives on pairs, and this is {type(experiment.objective).__name__}; give --text"
            )
        if self.text:
            data = replace(data, source=TextFiles(self.text), held_out_source=None)
        if self.pairs:
            data = replace(data, source=pair_files("--pairs", self.pairs, data.source), held_out_source=None)
        if self.held_out_pairs:
            data = replace(data, held_out_source=pair_files("--held-out-pairs", self.held_out_pairs, data.source))
        like = data.held_out_source or data.source
        if self.examples:
            data = replace(data, source=example_files("--examples", self.examples, data.source), held_out_source=None)
        if self.held_out_examples:
            data = replace(data, held_out_source=example_files("--held-out-examples", self.held_out_examples, like))
        if self.corpus:
            if experiment.objective.corpus_layout is None:
                name = type(experiment.objective).__name__
                raise InputError(f"--corpus={self.corpus[0]} is for models that look passages up, not {name}; drop it")
            data = replace(data, corpus=TextFiles(self.corpus))
        return replace(experiment, data=data)


def of_part(experiment: Experiment, name: str) -> Experiment:
    """The experiment on one part of its mixture; `InputError` where it has no such part."""
    source = experiment.data.source
    parts = {part.name: part for part in source.parts} if isinstance(source, Mixture) else {}
    if name not in parts:
        remedy = f"choose one of {', '.join(parts)}" if parts else f"the run has {type(source).__name__}; leave it out"
        raise InputError(f"--part={name} is not a part of a mixture; {remedy}")
    data = replace(experiment.data, source=parts[name].source, held_out_source=parts[name].held_out_source)
    evaluation = replace(experiment.evaluation, metrics=part_metrics(experiment.evaluation, name), part_metrics=())
    return replace(experiment, data=data, evaluation=evaluation)


def with_examples(experiment: Experiment, paths: Paths = (), *, split: str = "", unlabeled: bool = False) -> Experiment:
    """The experiment on other examples of its task, in files or of another split of its dataset, all of them held out;
    `InputError` where it has no such task."""
    like = experiment.data.held_out_source or experiment.data.source
    if not split:
        source = example_files("--examples", paths, like)
    elif isinstance(like, Tfds):
        source = replace(like, split=split)
    elif datasets_in(getattr(like, "examples", None)):
        source = replace(like, examples=with_datasets(like.examples, split=split))
    else:
        raise InputError(
            f"--split={split} is of a dataset of TensorFlow Datasets, and this run has {type(like).__name__} of other "
            "data; give --examples, --pairs or --text"
        )
    if unlabeled:
        known = {"label", "tags", "answers"} & {field.name for field in fields(source)}
        source = replace(source, **dict.fromkeys(known, ""))
    return replace(experiment, data=replace(experiment.data, source=source, held_out_source=source))


def example_files(option: str, paths: Paths, like: Source) -> Source:
    """A task's source with other files."""
    examples = getattr(like, "examples", None)
    if isinstance(like, ImageSource):
        raise InputError(
            f"{option} goes with tasks of texts, and this config has {type(like).__name__}; give --images to evaluate, "
            "and --data.source.path to other commands"
        )
    if examples is None or not hasattr(examples, "paths"):
        raise InputError(
            f"{option} goes with tasks over files, and this config has {type(like).__name__}; give --text or --pairs"
        )
    return replace(like, examples=replace(examples, paths=paths))


def image_files(path: str, like: Source | None = None, class_names: tuple[str, ...] = ()) -> ImageSource:
    """The pictures at a path: arrays in .npz, a table, or a folder of classes; with the columns or the names of arrays
    of another source of that type, and the classes by number where they are known."""
    while isinstance(like, ImageSubset):
        like = like.images
    lower = path.lower()
    is_table = lower.endswith((*TABLE_ENDINGS, *JSON_ENDINGS, *COLUMNAR_ENDINGS))
    kind = ImageArrays if lower.endswith(".npz") else ImageTable if is_table else ImageFolder
    names = class_names or tuple(getattr(like, "class_names", ()))
    return replace(like, path=path, class_names=names) if isinstance(like, kind) else kind(path, class_names=names)


Templates = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TEXT|FILE ...]")]
"""Texts with {} where a name is put, or files of them that end in .txt."""


def text_templates(given: Sequence[str]) -> tuple[str, ...]:
    """The texts that are given, and the lines of the files among them."""
    templates: list[str] = []
    for one in given:
        if not one.endswith(".txt") or "{}" in one:
            templates.append(one)
            continue
        try:
            lines = read_bytes(Path(one).expanduser(), f"templates={one!r}").decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise InputError(f"templates={one!r} is not UTF-8; save it as such") from None
        if not any(map(str.strip, lines)):
            raise InputError(f"templates={one!r} is empty; write texts with {{}} into it, one a line")
        templates += [line.strip() for line in lines if line.strip()]
    return tuple(templates)


def table_or_json(option: str, paths: Paths) -> type[JsonlFiles] | type[TableFiles]:
    """What reads the files, by their names; `InputError` where some are JSON lines and others tables."""
    files = [file for path in paths for file in expand(path, (*TABLE_ENDINGS, *JSON_ENDINGS), option)]
    readers = {JsonlFiles if file.name.lower().endswith(JSON_ENDINGS) else TableFiles for file in files}
    if len(readers) > 1:
        raise InputError(f"{option} names files of JSON and others ({', '.join(paths)}); give files of one kind")
    return readers.pop()


def pair_files(option: str, paths: Paths, like: Source) -> TextToText:
    """The pairs in files: JSON lines with the keys `source` and `target` where their names say so, else tables whose
    first two columns they are; or with the columns, keys and template of another source of that type."""
    reader = table_or_json(option, paths)
    if isinstance(like, TextToText) and isinstance(like.examples, reader):
        return replace(like, examples=replace(like.examples, paths=paths))
    is_json = reader is JsonlFiles
    records, sides = (JsonlFiles(paths), ("source", "target")) if is_json else (TableFiles(paths, ()), "01")
    prompt = TextTemplate(*(f"{{{side}}}" for side in sides))
    options = {"prefix": like.prefix, "empty": like.empty} if isinstance(like, TextToText) else {}
    return TextToText(records, prompt, **options)
