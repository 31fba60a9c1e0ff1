"""Every field of an experiment on the command line, for every kind of model and objective."""

import functools
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from t5x_lite.cli.arguments import load_config, parse
from t5x_lite.cli.commands.train import Train
from t5x_lite.data import Mixture, Part, Proportional, TableFiles, TextTemplate, TextToText
from t5x_lite.errors import InputError
from t5x_lite.objectives import Distillation
from t5x_lite.training.initialization import FromModel

from ..slow import mostly_slow

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))
TINY = [path for path in CONFIGS if "tiny" in path.stem]


def parsed(experiment, *arguments):
    return parse(Train, list(arguments), prog="train", default=Train(experiment, "run")).experiment


def kinds(value):
    """The types in a config and where they stand, which its options are made of."""
    if is_dataclass(value):
        return type(value), *(kinds(getattr(value, field.name)) for field in fields(value))
    return tuple(map(kinds, value)) if isinstance(value, tuple) else type(value)


@functools.cache
def of_tiny_configs() -> set:
    experiments = [load_config(str(path)) for path in TINY]
    return {kinds(one) for one in experiments} | {type(one.objective) for one in experiments}


@pytest.fixture(scope="module")
def tried() -> set:
    """The kinds of configs whose options were read, and the objectives whose help was."""
    return set()


@pytest.mark.parametrize("path", mostly_slow(CONFIGS, *TINY), ids=lambda path: path.stem)
def test_every_config_takes_overrides(run, path, tried):
    experiment = load_config(str(path))
    if path not in TINY:
        tried |= of_tiny_configs()
    if kinds(experiment) in tried:
        return  # it differs in sizes from another one
    tried.add(kinds(experiment))
    changed = parsed(experiment, "--steps", "7", "--data.held-out", "0.1")
    assert changed == replace(experiment, steps=7, data=replace(experiment.data, held_out=0.1))
    if type(experiment.objective) in tried:
        return
    tried.add(type(experiment.objective))
    status, out, _ = run("train", path, "--help")
    assert status == 0
    reads_ids = experiment.objective.layout.num_ids
    assert ("--objective.input-length" if reads_ids else "--objective.canvas-size") in out
    assert not any(hidden in out for hidden in ("--objective.vocabulary", "teacher-model"))


def test_both_networks_of_a_pair(experiments):
    sizes = ("--model.generator.embed-dim", "4", "--model.discriminator.embed-dim", "16")
    model = parsed(experiments["electra"], *sizes).model
    assert (model.generator.embed_dim, model.discriminator.embed_dim) == (4, 16)
    assert model.generator.heads == ("masked_lm",)
    with pytest.raises(InputError, match="the two share their embeddings"):
        parsed(experiments["electra"], "--model.generator.vocab-size", "400")


def test_heads_start_and_teacher(experiments):
    bert = experiments["bert"]
    heads = ("masked_lm", "sentence_pair", "span_boundary")
    assert parsed(bert, "--model.heads", *heads).model.heads == heads
    student = replace(experiments["distilbert"], objective=Distillation(32, teacher="a"), start=FromModel("a"))
    options = ("--objective.teacher", "b", "--start.folder", "c", "--start.layers", "0", "2")
    changed = parsed(student, *options)
    assert changed.objective == replace(student.objective, teacher="b")
    assert changed.start == FromModel("c", layers=(0, 2))


def test_a_source_of_what_is_held_out(experiments):
    bert = experiments["bert"]
    assert parsed(bert).data.held_out_source is None
    held_out = TextToText(TableFiles(("a.tsv",), ("source", "target")))
    other = replace(bert, data=replace(bert.data, held_out_source=held_out))
    assert parsed(other) == other
    options = ("--data.held-out-source.examples.paths", "b.tsv", "c.tsv", "--data.held-out-source.prefix", "p")
    changed = parsed(other, *options)
    assert changed.data.held_out_source == TextToText(TableFiles(("b.tsv", "c.tsv"), ("source", "target")), prefix="p")


def test_the_parts_of_a_mixture_by_number(experiments):
    part = Part("one", TextToText(TableFiles(("a.tsv",)), TextTemplate("{a}", "{b}", replacements=(("x", "y"),))))
    mixture = Mixture(
        (part, Part("two", TextToText(TableFiles(("b.tsv",), ("source", "target"))))), Proportional(limit=9)
    )
    bert = replace(experiments["bert"], data=replace(experiments["bert"].data, source=mixture))
    assert parsed(bert) == bert
    options = ("--data.source.rates.temperature", "2", "--data.source.parts.1.source.examples.paths", "c.tsv", "d.tsv")
    changed = parsed(bert, *options).data.source
    assert changed.rates == Proportional(9, 2.0)
    assert changed.parts == (part, Part("two", TextToText(TableFiles(("c.tsv", "d.tsv"), ("source", "target")))))
