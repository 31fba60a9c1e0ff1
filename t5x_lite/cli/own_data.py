"""One's own text or pairs in place of a config's."""

from dataclasses import fields, replace

from t5x_lite.data import JsonlPairs, PairSource, Source, TextFiles, TsvPairs
from t5x_lite.data.input_files import JSON_ENDINGS, expand
from t5x_lite.data.pair_sources import TSV_ENDINGS
from t5x_lite.errors import InputError
from t5x_lite.training.experiment import Experiment

Paths = tuple[str, ...]


def with_data(experiment: Experiment, *, text: Paths = (), pairs: Paths = (), held_out_pairs: Paths = ()) -> Experiment:
    """The experiment on other data, so far as paths are given; then a part of it is held out, unless pairs to hold out
    are given too. Raises `InputError` for text and pairs at once."""
    data = experiment.data
    if text and (pairs or held_out_pairs):
        raise InputError("--text and --pairs are two corpora; give --pairs to objectives on pairs, else --text")
    if text:
        data = replace(data, source=TextFiles(text), held_out_source=None)
    if pairs:
        data = replace(data, source=pair_files("--pairs", pairs, data.source), held_out_source=None)
    if held_out_pairs:
        data = replace(data, held_out_source=pair_files("--held-out-pairs", held_out_pairs, data.source))
    return replace(experiment, data=data)


def with_examples(experiment: Experiment, paths: Paths, *, unlabeled: bool = False) -> Experiment:
    """The experiment on other examples of its task, all of them held out; `InputError` where it has no such task."""
    source = experiment.data.source
    examples = getattr(source, "examples", None)
    if examples is None or not hasattr(examples, "paths"):
        raise InputError(
            f"--examples goes with tasks over files, and this run has {type(source).__name__}; give --text or --pairs"
        )
    source = replace(source, examples=replace(examples, paths=paths))
    if unlabeled:
        known = {"label", "tags", "answers"} & {field.name for field in fields(source)}
        source = replace(source, **dict.fromkeys(known, ""))
    return replace(experiment, data=replace(experiment.data, source=source, held_out_source=source))


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
