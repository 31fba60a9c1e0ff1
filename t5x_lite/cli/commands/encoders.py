"""`fill_mask` and `probe`: suggestions for masks, and linear classifiers on an encoder's layers."""

import dataclasses
import functools
import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console

from t5x_lite.cli.arguments import OfModel, parse, subcommand, table_or_json
from t5x_lite.data.records.formats import ConllFiles, JsonlFiles, ParallelFiles, TableFiles
from t5x_lite.data.records.input_files import check_paths
from t5x_lite.errors import InputError
from t5x_lite.pretrained import Suggestion, load
from t5x_lite.pretrained.encoder import Pooling
from t5x_lite.pretrained.probing import (
    Labeled,
    Probes,
    Tagged,
    format_layers,
    labeled_examples,
    probe_tags,
    probe_texts,
    split,
    tagged_examples,
)
from t5x_lite.runs.records import print_line
from t5x_lite.validation import Range

Examples = Annotated[int, Range(ge=0, remedy="choose 1 or more, or 0 for all")]


@dataclass(frozen=True)
class FillMask(OfModel):
    """The likeliest tokens for each mask of a text: probability, token, and the text with the token in it."""

    text: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[TEXT ...]")]
    """One or more texts with masks ([MASK] or <mask>, as the tokenizer has it): "Captain [MASK] stood on the deck.\""""
    top_k: int = 5
    """Tokens for each mask."""


FILL_MASK_EXAMPLES = ('fill_mask demo/bert-novels "Captain [MASK] stood on the deck." --top-k 3',)


@subcommand
def fill_mask(arguments: list[str]) -> None:
    """fill_mask RUN TEXT: suggest tokens for each [MASK] of a text"""
    command = parse(FillMask, arguments, prog="t5x-lite fill_mask", examples=FILL_MASK_EXAMPLES)
    if not command.text:
        raise InputError(f'text is missing; write t5x-lite fill_mask {command.run} "a text with a [MASK] in it"')
    answers = load(command.run).fill_mask(list(command.text), top_k=command.top_k)
    masks = [mask for answer in answers for mask in ([answer] if isinstance(answer[0], Suggestion) else answer)]
    blocks = []
    for suggestions in masks:
        width = max(len(one.token) for one in suggestions)
        blocks.append("\n".join(f"{one.probability:6.1%}  {one.token:<{width}}  {one.text}" for one in suggestions))
    print("\n\n".join(blocks))


@dataclass(frozen=True)
class Probe(OfModel):
    """How well a linear classifier reads labels off the layers of a model that stays as it is, with 95 % intervals: the
    feature-based approach of BERT's paper (Devlin et al. 2019, table 7). Texts and pairs of texts come from .tsv, .csv,
    .jsonl (and .gz) or from parallel files, tagged words from CoNLL files."""

    train: tuple[str, ...]
    """Files, globs or folders with the examples that the classifier is fitted to."""
    test: tuple[str, ...] = ()
    """Those that it is measured on; if not given, a part of the others."""
    held_out: float = 0.2
    """The share of the examples that is the test where none is given."""
    texts: tuple[str, ...] = ("text",)
    """The field of the text, or the two of a pair."""
    label: str = "label"
    """The field of the label."""
    layers: tuple[str, ...] = ()
    """Choices of layers: last, second_to_last, sum_last_4, concat_last_4, sum_all, mean, or a number from 0, the
    embeddings; if not given, those of the paper's table that the model has."""
    pooling: Pooling = "mean"
    """How a text's tokens become one vector: mean, or cls, that of the first one."""
    json: bool = False
    """Print the figures as JSON."""
    num_train: Examples = 0
    """Examples to fit, at most, drawn at random; 0 takes all."""
    num_test: Examples = 0
    """Examples to measure, at most."""
    tagged: bool = False
    """The files are CoNLL: a word and its tag on each line, a blank line behind each sentence. Entities count as
    conlleval.pl counts them."""
    token_column: int = 0
    """Of the word in CoNLL files, from 0; 1 in CoNLL-U."""
    tag_column: int = -1
    """Of the tag, from the end by a negative number; 3 for the parts of speech of CoNLL-U."""
    columns: tuple[str, ...] = ()
    """Names of the columns of tables whose first line is an example already."""
    fields: tuple[str, ...] = ()
    """Names of the fields where each has a file of its own, line by line: --train and --test are those files."""
    left_out: tuple[str, ...] = ()
    """Labels whose examples are left out; one that begins with a dash as --left-out=-."""
    l2: float = 1.0
    """What half the sum of the classifier's squared weights counts beside its summed loss."""
    seed: int = 0
    """Of what is drawn: the examples, and the bootstrap's."""


PROBE_EXAMPLES = (
    "probe demo/bert-novels --train sample_data/authors_train.tsv --label author",
    "probe runs/bert_tiny --tagged --train train.conllu --token-column 1 --tag-column 3",
)


@subcommand
def probe(arguments: list[str]) -> None:
    """probe RUN --train FILES: what a linear classifier reads off each layer of a frozen model"""
    command = parse(Probe, arguments, prog="t5x-lite probe", examples=PROBE_EXAMPLES)
    layers = tuple(int(name) if name.lstrip("-").isdigit() else name for name in command.layers)
    train = _read(command, command.train, "train")
    if command.test:
        test = _read(command, command.test, "test")
    else:
        train, test = split(train, command.held_out, command.seed)
    train, test = _some(train, command.num_train, command.seed), _some(test, command.num_test, command.seed)
    console = Console(stderr=True)
    options = {
        "layers": layers,
        "l2": command.l2,
        "seed": command.seed,
        "tell": functools.partial(print_line, console),
    }
    model = load(command.run)
    if command.tagged:
        probes = probe_tags(model, train, test, **options)
    else:
        probes = probe_texts(model, train, test, pooling=command.pooling, **options)
    print(json.dumps(dataclasses.asdict(probes)) if command.json else table(probes))


def table(probes: Probes) -> str:
    """A line for each choice of layers, every figure with its interval, and remarks."""
    names = list(probes.probed[0].figures)
    lines = [["layers", "features", *(name.replace("_", " ") for name in names)]]
    for one in probes.probed:
        ends = {name: (100 * low, 100 * high) for name, (low, high) in one.intervals.items()}
        cells = ["{:.1%} ({:.1f}-{:.1f})".format(one.figures[name], *ends[name]) for name in names]
        lines.append([format_layers(one.layers), f"{one.num_features:,}", *cells])
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    template = "  ".join([f"{{:<{first}}}", *(f"{{:>{width}}}" for width in others)])
    remark = (
        f"{probes.num_train:,} examples of training, {probes.num_test:,} of the test, whose 95 % intervals stand in "
        f"parentheses; the most frequent label alone: accuracy {probes.guess:.1%}; l2={probes.l2:g} on features of "
        "mean 0 and variance 1"
    )
    return "\n".join([*(template.format(*line) for line in lines), "", remark, *probes.remarks])


def _read(command: Probe, paths: tuple[str, ...], option: str) -> list[Labeled] | list[Tagged]:
    """The examples in files whose format the command's options give, or else their names."""
    check_paths(paths, option)
    if command.tagged:
        return tagged_examples(ConllFiles(paths, command.token_column, command.tag_column))
    texts = {"texts": command.texts, "label": command.label, "left_out": command.left_out}
    if command.fields:
        return labeled_examples(ParallelFiles(command.fields, paths), **texts)
    is_json = table_or_json(option, paths) is JsonlFiles
    return labeled_examples(JsonlFiles(paths) if is_json else TableFiles(paths, command.columns or None), **texts)


def _some(examples: list, most: int, seed: int) -> list:
    """All examples, or `most` of them, drawn at random and in their order."""
    drawn = np.sort(np.random.default_rng(seed).permutation(len(examples))[: most or None])
    return [examples[number] for number in drawn.tolist()]
