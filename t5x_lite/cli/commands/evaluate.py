"""`evaluate`: a run on held-out data."""

import itertools
import json
from dataclasses import dataclass, replace
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console

from t5x_lite.cli.arguments import (
    DataOptions,
    Templates,
    image_files,
    of_part,
    parse,
    subcommand,
    text_templates,
    with_examples,
)
from t5x_lite.data import Data, Images, ImageSource, TextToText, Tokenizer
from t5x_lite.data.passage_rows import PassageRows
from t5x_lite.data.splits import Documents, format_overlap, overlap
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.evaluation.evaluator import held_out_of
from t5x_lite.evaluation.figures import describe
from t5x_lite.evaluation.predictions import BatchGenerator, questions_of
from t5x_lite.evaluation.reports import task_report, text_report, write_predictions
from t5x_lite.evaluation.submissions import Submission, submission_of
from t5x_lite.metrics.scores import Metrics
from t5x_lite.models.image_text import ImageTextConfig
from t5x_lite.objectives import NoObjective, SequenceToSequence
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.pretrained import with_methods
from t5x_lite.pretrained.foreign import experiment_for, image_experiment_for, zero_shot_experiment
from t5x_lite.pretrained.image_texts import PHOTO
from t5x_lite.retrieval import Corpus, ParamsAndCorpus
from t5x_lite.runs.open_model import OpenedModel, open_model
from t5x_lite.runs.preparation import corpus_on_devices
from t5x_lite.runs.records import print_line
from t5x_lite.runs.report import preparation
from t5x_lite.training.experiment import Evaluation, Experiment
from t5x_lite.training.step import Program
from t5x_lite.validation import NonNegative, Positive


@dataclass(frozen=True)
class Evaluate:
    """Loss, token accuracy and perplexity of a run on held-out text, beside the best model without context; what else
    its objective asks: sentence pairs, span boundaries, replaced tokens; scores of what it writes to inputs; and of
    tasks, classes of pictures among them, the scores of its answers to all held-out examples, with bootstrap 95 %
    intervals."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The folder of a run or of one of its checkpoints; or, with --text, --pairs or --images, another model that load
    opens."""
    text: tuple[str, ...] = ()
    """Other text: files, globs or folders."""
    pairs: tuple[str, ...] = ()
    """Other pairs, such as a test set: .tsv or .jsonl, and their .gz; all of them, and their targets as they stand
    there are the references. Else references are held-out targets as the tokenizer gives them back."""
    examples: tuple[str, ...] = ()
    """Other examples of the run's task, such as a test set, in files like those of its data."""
    images: str = ""
    """Other pictures: a folder of classes, a table (.csv, .tsv, .jsonl, .parquet) or arrays (.npz). A model of pictures
    and texts (CLIP) knows their classes by name alone: zero-shot classification."""
    templates: Templates = ()
    """For that, texts with {} where a name is put, whose vectors are averaged, or a .txt with one a line; if not given,
    "a photo of a {}."."""
    out: str = ""
    """A folder to write to: the answers to the examples of a task or to inputs, and scores.json."""
    json: bool = False
    """Print the figures as JSON."""
    rows: Positive | None = None
    """Rows to evaluate on, at most; if not given, as in the run, and of tasks all."""
    metrics: Metrics | None = None
    """What predictions of a head, or decoded texts, are scored by (see `Evaluation`); if not given, as in the run, and
    of a head what is usual."""
    num_beams: int | None = None
    """Beams to decode with; as in the run if not given."""
    max_length: int | None = None
    """Tokens of an answer, at most; as in the run if not given."""
    num_texts: int | None = None
    """Inputs to decode, at most; as in the run if not given."""
    alpha: float | None = None
    """Exponent of the beams' length penalty; as in the run if not given."""
    memory_length: NonNegative | None = None
    """Tokens of memory before a segment, of models that have one (Transformer-XL); if not given, as in the run."""
    split: str = ""
    """Another split of the run's dataset of TensorFlow Datasets, such as test."""
    part: str = ""
    """Of a mixture, this part alone, by its name."""
    unlabeled: bool = False
    """The examples have no labels: predictions are made of them, and no figures."""
    submission: Submission | None = None
    """Format of the answers: jsonl, glue, superglue, squad, conll; if not given, squad of questions and conll of tags
    where a head answers, and else jsonl."""


EXAMPLES = (
    "evaluate runs/t5_tiny",
    "evaluate runs/bert_base_mnli --examples test.tsv --out scores",
    "evaluate openai/clip-vit-base-patch32 --images imagenet/val --json",
)


@subcommand
def evaluate(arguments: list[str]) -> None:
    """evaluate RUN [options]: loss, BLEU or the scores of a task on held-out data, and predictions"""
    command = parse(Evaluate, arguments, prog="t5x-lite evaluate", examples=EXAMPLES)
    if command.unlabeled and not ((command.examples or command.split) and command.out):
        raise InputError("--unlabeled makes predictions of examples; give --examples FILE or --split and --out FOLDER")
    if command.submission and not command.out:
        raise InputError(f"--submission={command.submission} is the format of files; give --out FOLDER")
    opened = open_model(command.run)
    has_objective = opened.experiment and not isinstance(opened.experiment.objective, NoObjective)
    if zero_shot := bool(command.images) and isinstance(opened.config, ImageTextConfig):
        opened, whole, has_objective = *_as_zero_shot(opened, command), False
    else:
        whole = opened.experiment if has_objective else _experiment_without_run(opened, command)
    if command.templates and not zero_shot:
        raise InputError(
            f"--templates={' '.join(command.templates)} is for classes that a model of pictures and texts knows by "
            "their names; give such a model and --images, or leave it out"
        )
    trained = of_part(whole, command.part) if command.part else whole
    experiment = _with_memory(_on_other_data(trained, command, opened.classes), command.memory_length)
    source = experiment.data.held_out_source or experiment.data.source
    submission = submission_of(experiment.objective, source, command.submission)
    of_task = isinstance(experiment.objective, TaskObjective)
    experiment = replace(experiment, evaluation=_settings(experiment.evaluation, command, of_task=of_task))
    _check_decoding_options(experiment, command)
    tokenizer = opened.tokenizer
    if tokenizer is None and experiment.data.tokenizer is not None:
        raise InputError(f"{command.run} came without a tokenizer; evaluation of text needs one")
    console = Console(stderr=True)
    if command.unlabeled and not of_task:
        if not isinstance(source, TextToText):
            raise InputError(f"--unlabeled is for examples of tasks, and the run has {type(source).__name__}; drop it")
        program, params = _on_one_device(experiment, tokenizer, opened.params)
        prompts = questions_of((example for _, example in source.eval_records(unlabeled=True)), tokenizer)
        generator = BatchGenerator(program, prompts, tokenizer, experiment.evaluation)
        if remark := write_predictions(generator, params, source, command.out, submission):
            print_line(console, remark)
        print(f"answers are in {command.out}")
        return
    with preparation(console) as progress:
        store = experiment.data.prepare(experiment.objective.layout, tokenizer=tokenizer, progress=progress)
        remarks = store.remarks if experiment.data is trained.data else store.too_long
        if has_objective and experiment.data is not trained.data:
            progress("compare with the training data", None)
            remarks = [*remarks, *_in_training(whole.data, experiment)]
    known = opened.origin.labels if opened.origin and command.images and not has_objective else ()
    if known and store.classes != known:
        first, last = (f"{store.classes[n]!r} is the model's {known[n]!r}" for n in (0, -1))
        remarks = [*remarks, f"classes go by their order: {first}, ..., {last}"]
    for remark in remarks:
        print_line(console, remark)
    questions = None
    if command.pairs and experiment.evaluation.metrics:
        examples = itertools.islice(experiment.data.source.eval_examples(), experiment.evaluation.num_texts)
        questions = questions_of(examples, tokenizer)
    passages = None
    if (layout := experiment.objective.corpus_layout) is not None:
        # Those that the run has, whatever it is evaluated on.
        with preparation(console) as progress:
            rows = experiment.objective.layout
            passages = trained.data.prepare_corpus(layout, rows, tokenizer=tokenizer, progress=progress)
    program, params = _on_one_device(experiment, tokenizer, opened.params, passages)
    with store:
        held_out = held_out_of(program, store, questions, trained.data.source.classes or ())
        if not of_task:
            figures, metrics = text_report(held_out, params, folder=command.out, submission=submission)
        else:
            figures, metrics = task_report(held_out, params, folder=command.out, submission=command.submission)
    described = describe(figures, metrics) if figures else f"answers are in {command.out}"
    print(json.dumps(figures) if command.json else described)


def _experiment_without_run(opened: OpenedModel, command: Evaluate) -> Experiment:
    """The experiment of another model than a run's: with its pretraining objective, or as a classifier of pictures, and
    no data but what is given."""
    if command.images:
        source = _numbered_as(opened, image_files(command.images))
        return image_experiment_for(opened, command.run, Data(source, tokenizer=None, held_out_source=source))
    if not opened.config.vocab_size:
        raise InputError(f"{command.run} is not a run, and came without data; give --images")
    if opened.experiment:
        return opened.experiment  # without an objective, as it says when it is asked
    if not (command.text or command.pairs):
        raise InputError(f"{command.run} is not a run, and came without data; give --text or --pairs")
    return replace(experiment_for(opened.config, Data()), generation=opened.generation)


def _with_memory(experiment: Experiment, length: int | None) -> Experiment:
    """The experiment evaluated with so many tokens of memory."""
    if length is None:
        return experiment
    if not hasattr(experiment.objective, "evaluation_memory_length"):
        raise InputError(
            f"--memory-length={length} is for models with a memory, and {type(experiment.objective).__name__} has no "
            "memory; leave it out"
        )
    return replace(experiment, objective=replace(experiment.objective, evaluation_memory_length=length))


def _as_zero_shot(opened: OpenedModel, command: Evaluate) -> tuple[OpenedModel, Experiment]:
    """A model of pictures and texts as a classifier of the given pictures, and its evaluation."""
    source = image_files(command.images)
    data = Data(source, tokenizer=None, held_out_source=source)
    model = with_methods(opened, command.run)
    experiment, params = zero_shot_experiment(model, command.run, data, text_templates(command.templates) or PHOTO)
    return OpenedModel(experiment.model, params, None, None, GenerationDefaults(), None), experiment


def _numbered_as(opened: OpenedModel, source: ImageSource) -> ImageSource:
    """The pictures with their classes numbered as the model's: by their names, or where none of these is one of the
    model's and there are as many, in their order."""
    names, known = source.read_classes(), opened.origin.labels if opened.origin else ()
    if set(names) <= set(known):
        return replace(source, class_names=known)
    count = getattr(opened.config, "num_classes", 0)
    if len(names) == count and not set(names) & set(known):
        return source
    raise InputError(
        f"--images={source.path} has the {len(names)} classes {', '.join(names[:5])}{', ...' * (len(names) > 5)}, and "
        f"the model {count}{': ' * bool(known)}{', '.join(known[:5])}{', ...' * (len(known) > 5)}; name those of the "
        "pictures as the model does"
    )


def _on_one_device(
    experiment: Experiment, tokenizer: Tokenizer | None, params: Any, passages: PassageRows | None = None
) -> tuple[Program, Any]:
    """The run's program and what it evaluates on one device: those of this machine need not divide the run's batch."""
    one_device = make_mesh(MeshShape(), jax.local_devices()[:1])
    objective = experiment.objective.for_vocabulary(tokenizer.vocabulary) if tokenizer else experiment.objective
    objective = objective if passages is None else objective.for_corpus(len(passages))
    program = Program(replace(experiment, mesh=MeshShape()), objective, one_device)
    params = jax.device_put(params, program.state_shardings.params)
    if passages is None:
        return program, params
    ids = corpus_on_devices(program, passages)
    return program, ParamsAndCorpus(params, Corpus(ids, program.encode_corpus(params, ids)))


def _in_training(data: Data, experiment: Experiment) -> list[str]:
    """How many of the given examples the run was trained on, as a sentence; empty where it was on none."""
    layout = experiment.objective.layout
    if not layout.has_examples:
        return []
    given = Documents(experiment.data.source, layout, data.sentences)
    try:
        counts = overlap([Documents(source, layout, data.sentences) for source in data.training_sources], given)
    except InputError as error:
        return [
            f"whether these {layout.unit_name} are in the training data is not known, which cannot be read: {error}"
        ]
    if not counts.in_training:
        return []
    location, has_answers = given.source.location(counts.first), experiment.data.source.has_answers
    return [format_overlap(counts, layout.unit_name, location, has_answers=has_answers)]


def _on_other_data(experiment: Experiment, command: Evaluate, classes: tuple[str, ...]) -> Experiment:
    """The experiment with all of the given text, pairs, examples or pictures held out."""
    if command.examples and command.split:
        raise InputError("--examples and --split are two sets of examples; give one of them")
    other = bool(command.examples or command.split)
    if other:
        experiment = with_examples(experiment, command.examples, split=command.split, unlabeled=command.unlabeled)
    if command.images and isinstance(experiment.objective.layout, Images):
        like = experiment.data.held_out_source or experiment.data.source
        source = image_files(command.images, like, classes or like.classes or ())
        data = replace(experiment.data, source=source, held_out_source=source, prepared="")
        experiment = replace(experiment, data=data)
    elif command.images:
        name = type(experiment.objective).__name__
        raise InputError(f"--images={command.images} is for models of pictures, and this run has {name}; leave it out")
    experiment = DataOptions(text=command.text, pairs=command.pairs).apply(experiment)
    if command.text or command.pairs:
        experiment = replace(experiment, data=replace(experiment.data, held_out_source=experiment.data.source))
    if (command.pairs or other) and isinstance(experiment.objective, SequenceToSequence):
        # What is longer than a row has no loss, and a remark says so; it is decoded all the same.
        experiment = replace(experiment, objective=replace(experiment.objective, too_long="skip"))
    return experiment


def _check_decoding_options(experiment: Experiment, command: Evaluate) -> None:
    """Raises `InputError` for options that nothing would use."""
    evaluation = experiment.evaluation
    decodes = command.unlabeled or evaluation.metrics or evaluation.part_metrics
    for name in ("num_texts", "num_beams", "alpha", "max_length"):
        option, value = f"--{name.replace('_', '-')}", getattr(command, name)
        if value is not None and not (experiment.objective.asks_for_text and decodes):
            raise InputError(f"{option}={value} is for decoded texts, and no metric asks for any; leave it out")
    if command.alpha is not None and evaluation.num_beams == 1:
        raise InputError(f"--alpha={command.alpha} is for beams, and num_beams is 1; give --num-beams, or leave it out")


def _settings(evaluation: Evaluation, command: Evaluate, *, of_task: bool) -> Evaluation:
    """The run's settings with those of the command; all rows of given pairs and examples, and of tasks."""
    if command.pairs or command.examples or command.split or command.images or of_task:
        evaluation = replace(evaluation, rows=1 << 30, num_texts=1 << 30)
    options = ("rows", "metrics", "num_texts", "num_beams", "alpha", "max_length")
    settings = {name: getattr(command, name) for name in options}
    return replace(evaluation, **{name: value for name, value in settings.items() if value is not None})
