"""One's own text or pairs in place of a config's."""

from dataclasses import fields, replace

from t5x_lite.data import JsonlPairs, Mixture, PairSource, Source, TextFiles, Tfds, TfdsPairs, TsvPairs
from t5x_lite.data.records.input_files import JSON_ENDINGS, expand
from t5x_lite.data.records.pairs import TSV_ENDINGS
from t5x_lite.data.records.tfds import datasets_in, with_datasets
from t5x_lite.errors import InputError
from t5x_lite.evaluation.evaluator import metrics_of
from t5x_lite.training.experiment import Experiment

Paths = tuple[str, ...]


def with_data(
    experiment: Experiment,
    *,
    text: Paths = (),
    pairs: Paths = (),
    held_out_pairs: Paths = (),
    examples: Paths = (),
    held_out_examples: Paths = (),
) -> Experiment:
    """The experiment on other data, so far as paths are given; then a part of it is held out, unless pairs or examples
    to hold out are given too. Raises `InputError` for two corpora at once, and examples where there is no task."""
    data = experiment.data
    kinds = {"--text": text, "--pairs": pairs or held_out_pairs, "--examples": examples or held_out_examples}
    if len(given := [option for option, paths in kinds.items() if paths]) > 1:
        raise InputError(
            f"{' and '.join(given)} are two corpora; give --pairs to objectives on pairs, --examples to tasks, else "
            "--text"
        )
    if text:
        data = replace(data, source=TextFiles(text), held_out_source=None)
    if pairs:
        data = replace(data, source=pair_files("--pairs", pairs, data.source), held_out_source=None)
    if held_out_pairs:
        data = replace(data, held_out_source=pair_files("--held-out-pairs", held_out_pairs, data.source))
    held_out = data.held_out_source or data.source
    if examples:
        data = replace(data, source=example_files("--examples", examples, data.source), held_out_source=None)
    if held_out_examples:
        other = example_files("--held-out-examples", held_out_examples, held_out)
        data = replace(data, held_out_source=other)
    return replace(experiment, data=data)


def of_part(experiment: Experiment, name: str) -> Experiment:
    """The experiment on one part of its mixture; `InputError` where it has no such part."""
    source = experiment.data.source
    parts = {part.name: part for part in source.parts} if isinstance(source, Mixture) else {}
    if name not in parts:
        remedy = f"choose one of {', '.join(parts)}" if parts else f"the run has {type(source).__name__}; leave it out"
        raise InputError(f"--part={name} is no part of a mixture; {remedy}")
    data = replace(experiment.data, source=parts[name].source, held_out_source=parts[name].held_out_source)
    evaluation = replace(experiment.evaluation, text_metrics=metrics_of(experiment.evaluation, name), part_metrics=())
    return replace(experiment, data=data, evaluation=evaluation)


def with_examples(experiment: Experiment, paths: Paths = (), *, split: str = "", unlabeled: bool = False) -> Experiment:
    """The experiment on other examples of its task, in files or of another split of its dataset, all of them held out;
    `InputError` where it has no such task."""
    like = experiment.data.held_out_source or experiment.data.source
    source = example_split(split, like) if split else example_files("--examples", paths, like)
    if unlabeled:
        known = {"label", "tags", "answers"} & {field.name for field in fields(source)}
        source = replace(source, **dict.fromkeys(known, ""))
    return replace(experiment, data=replace(experiment.data, source=source, held_out_source=source))


def example_files(option: str, paths: Paths, like: Source) -> Source:
    """A task's source with other files."""
    examples = getattr(like, "examples", None)
    if examples is None or not hasattr(examples, "paths"):
        raise InputError(
            f"{option} goes with tasks over files, and this config has {type(like).__name__}; give --text or --pairs"
        )
    return replace(like, examples=replace(examples, paths=paths))


def example_split(split: str, like: Source) -> Source:
    """A source over TensorFlow Datasets with another split of the same datasets."""
    if isinstance(like, Tfds | TfdsPairs):
        return replace(like, split=split)
    if not datasets_in(getattr(like, "examples", None)):
        raise InputError(
            f"--split={split} is of a dataset of TensorFlow Datasets, and this run has {type(like).__name__} of other "
            "data; give --examples, --pairs or --text"
        )
    return replace(like, examples=with_datasets(like.examples, split=split))


def pair_files(option: str, paths: Paths, like: Source) -> PairSource:
    """The pairs in files: JSON lines where their names say so, else tab-separated; with the columns or fields of
    another source of that kind, and with its prefix."""
    files = [file for path in paths for file in expand(path, (*TSV_ENDINGS, *JSON_ENDINGS), option)]
    kinds = {JsonlPairs if file.name.lower().endswith(JSON_ENDINGS) else TsvPairs for file in files}
    if len(kinds) > 1:
        raise InputError(f"{option} names files of JSON and others ({', '.join(paths)}); give files of one kind")
    (kind,) = kinds
    if isinstance(like, kind):
        return replace(like, paths=paths)
    return kind(paths, prefix=like.prefix, empty=like.empty) if isinstance(like, PairSource) else kind(paths)
