"""`prepare`: the tokenizer and the rows of a config, for runs that only read them."""

import os
from dataclasses import dataclass
from typing import Annotated

import tyro
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
from t5x_lite.errors import InputError
from t5x_lite.files import local_or_bucket
from t5x_lite.runs.preparation import given_tokenizer, open_models, vocabulary_check
from t5x_lite.runs.records import print_line
from t5x_lite.runs.report import preparation
from t5x_lite.validation import Positive

PROG = "t5x-lite prepare"
EXAMPLES = (
    "prepare configs/t5_base.py --out gs://my-bucket/c4 --workers 32",
    "prepare configs/t5_tiny.py --text sample_data/novel.txt --out prepared",
)
USAGE = f"""usage: {PROG} CONFIG --out FOLDER [options]

Makes the tokenizer and the rows of CONFIG, which `train` with "--data.prepared FOLDER" then only reads, row by row, on
any number of hosts. It needs no accelerator: run it on a machine with many cores near the text. A call that was
interrupted is gone on with by the same command, and the rows are the same for any number of workers.

  --out FOLDER         for tokenizer and rows, on a disk or in a bucket (gs://, s3://); others' may be there too
  --workers N          processes that read the files of the corpus side by side (default: the cores of this machine)
  --text PATH ...      and the other options of "train" that name data: --pairs, --examples and those held out

and every field of the experiment; those of data, of the tokenizer and of rows have to be the same in "train".

{format_examples(EXAMPLES)}"""


@dataclass(frozen=True)
class _Prepared:
    experiment: ExperimentOptions
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """For tokenizer and rows, on a disk or in a bucket such as gs://bucket/data."""
    workers: Positive = os.cpu_count() or 1
    """Processes that read the files of the corpus side by side."""


@dataclass(frozen=True)
class Prepare(DataOptions, _Prepared):
    """Make the tokenizer and the rows of a config, for runs that only read them."""


@subcommand
def prepare(arguments: list[str]) -> None:
    """prepare CONFIG --out FOLDER: make its tokenizer and rows once, in a bucket too, for runs on many hosts to read"""
    config, arguments = take_config(arguments, PROG, USAGE)
    default = Prepare(load_config(config))
    command = parse(Prepare, arguments, prog=f"{PROG} {config}", default=default, examples=EXAMPLES)
    if not command.out:
        raise InputError("--out is missing; name a folder for the rows, or one in a bucket such as gs://bucket/data")
    experiment, folder, console = command.apply(command.experiment), local_or_bucket(command.out, "--out"), Console()
    objective, *models = open_models(experiment)
    tokenizer, workers = given_tokenizer(experiment.model, None, *models), command.workers
    check = vocabulary_check(experiment.model, objective.layout)
    with preparation(console) as progress:
        data, layout = experiment.data, objective.layout
        store = data.prepare_in(
            folder, layout, tokenizer=tokenizer, check_tokenizer=check, progress=progress, workers=workers
        )
        if data.corpus is not None and objective.corpus_layout is not None:
            options = {"tokenizer": store.tokenizer, "progress": progress, "workers": workers}
            data.of_corpus.prepare_in(folder, objective.corpus_layout, **options)
    for remark in store.remarks:
        print_line(console, remark)
    for split, figures in store.figures.items():
        tokens = f"of {figures.tokens:,} tokens in" if layout.num_ids else "of"
        counts = f"{figures.rows:,} rows {tokens} {figures.documents:,} {layout.unit_name}"
        print_line(console, f"{split.replace('held_out', 'held-out')}: {counts}")
    print_line(console, f"train with --data.prepared {command.out}")
