"""A run as one value."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from t5x_lite.convert.origin import Origin
from t5x_lite.data import Data, Mixture
from t5x_lite.decoding import BeamSearch, GenerationDefaults, Greedy, Method
from t5x_lite.errors import InputError
from t5x_lite.layers.transformer import Remat
from t5x_lite.metrics.scores import Metrics, PartMetrics, check_metrics
from t5x_lite.models import ModelConfig
from t5x_lite.objectives import Objective
from t5x_lite.objectives.task import TextTask
from t5x_lite.optim.optimizers import Optimizer, ParameterAverage
from t5x_lite.parallel import MeshShape
from t5x_lite.training import serialization
from t5x_lite.training.initialization import FromScratch, Start
from t5x_lite.training.writers import BY_NAME, TensorBoard, Writer
from t5x_lite.validation import NonNegative, Positive, Seed, check_fields


@dataclass(frozen=True)
class Precision:
    """Types of the computation. Parameters, optimizer, softmax, loss and norms' statistics are always float32."""

    compute: Literal["float32", "bfloat16"] = "float32"
    """Type of activations and matrix products (bfloat16 on TPU and GPU).

    On several devices the gradients of matrices are added up in it too; parts of a batch (`accumulation`) in float32.
    """


@dataclass(frozen=True)
class Evaluation:
    """Loss, accuracy and perplexity on held-out text while training, and scores of generated texts."""

    every: NonNegative = 1000
    """Steps between evaluations; 0 evaluates at the end alone."""
    rows: Positive = 256
    """Held-out rows to evaluate on, at most: the first ones; of data that is sorted by its labels, choose all."""
    metrics: Metrics = ()
    """Metrics of predictions: names, or your `Metric`. Of a head: accuracy, top_5_accuracy, f1, macro_f1, matthews for
    labels; pearson, spearman for numbers; accuracy, entities, strict_entities for tags; squad, squad2 for answers.
    Of pictures with texts: retrieval. Of texts generated
    from held-out inputs: bleu, chrf, rouge, exact_match; of tasks f1, macro_f1, matthews, pearson, spearman, squad,
    tags, entities, strict_entities, group_match, referent; empty decodes nothing."""
    part_metrics: tuple[PartMetrics, ...] = ()
    """Metrics of some components of a mixture instead of `metrics`; not used without a mixture."""
    num_texts: Positive = 256
    """Held-out inputs to decode, at most; a packed row holds several."""
    num_beams: Positive = 1
    """Beams to decode with; 1 decodes greedily."""
    alpha: float = 0.6
    """Exponent of the length penalty of the beams (Wu et al. 2016, equation 14)."""
    max_length: NonNegative = 0
    """Tokens of an answer, at most; 0: fifty more than the longest input, and no more than a row of targets."""

    @property
    def method(self) -> Method:
        """How inputs are decoded."""
        return Greedy() if self.num_beams == 1 else BeamSearch(num_beams=self.num_beams, alpha=self.alpha)


@dataclass(frozen=True)
class Checkpointing:
    """When the state is saved, and which checkpoints are kept."""

    every: NonNegative = 1000
    """Steps between checkpoints; 0 saves at the end alone."""
    keep_last: Positive = 2
    """Latest checkpoints to keep."""
    keep_best: NonNegative = 1
    """Checkpoints with the lowest held-out loss to keep too; 0 keeps none for their loss."""


@dataclass(frozen=True)
class Logging:
    """How often figures are written to the screen, to metrics.jsonl, and where else."""

    every: Positive = 10
    """Steps between records."""
    writers: Annotated[tuple[Writer, ...], BY_NAME] = (TensorBoard(),)
    """Where records go beside metrics.jsonl: TensorBoard(), Csv(), WeightsAndBiases(project=...), or your own. On the
    command line some of tensorboard, csv and wandb."""


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run: the same value runs on a laptop and on a pod."""

    model: ModelConfig
    objective: Objective
    data: Data
    optimizer: Optimizer
    steps: Positive
    """Updates of the parameters."""
    batch_size: Positive
    """Rows of the global batch."""
    accumulation: Positive = 1
    """Microbatches that a batch is split into to save memory; their gradients are added up."""
    average: ParameterAverage = ParameterAverage()
    """A moving average of the parameters, for evaluation and whatever opens a checkpoint."""
    start: Start = FromScratch()
    """The parameters before the first step: FromScratch, FromModel or FromRun."""
    seed: Seed = 0
    """Determines initial parameters, order of the data, corruption and dropout."""
    remat: Remat = "none"
    """What the backward pass computes again to save memory: none, dots (all but the outputs of dense layers), full; or
    offload, which is dots with these outputs in the host's memory (TPU and GPU). unroll is none without a loop over the
    layers: small models take shorter steps, and several times as long to compile (TPU and GPU)."""
    dropout_prng: Literal["threefry", "hash"] = "threefry"
    """The generator of dropout's masks: JAX's threefry, or a hash, which draws other masks of the same distribution, as
    reproducible. By plan the hash takes 1.4 of 84.1 ms off a step of BERT large (v5e:4x4, remat none), and makes the
    masks of eight layers of ViT-L/16 in 8.6 ms instead of 28.3 (64 pictures a chip, remat dots). Flash attention draws
    its dropout by such a hash under either."""
    precision: Precision = Precision()
    mesh: MeshShape = MeshShape()
    zero1: bool = False
    """Shards the optimizer's state over `mesh.data` too, where each device updates its share of the parameters and
    gathers the others (ZeRO's first stage: Rajbhandari et al. 2020, section 5.1)."""
    evaluation: Evaluation = Evaluation()
    generation: GenerationDefaults = GenerationDefaults()
    """The ids that begin and end generated texts, where they differ from the model's config and the tokenizer."""
    origin: Origin | None = None
    """The Hugging Face folder that `convert` made the run from, in its own words."""
    checkpoints: Checkpointing = Checkpointing()
    logging: Logging = Logging()

    def __post_init__(self) -> None:
        serialization.check_types(self)
        self.objective.check_model(self.model)
        self.effective_optimizer.check_model(self.model)
        for source in self.data.sources:
            self.objective.check_labels(self.model, source.classes)
        check_fields(self)
        for group in ("evaluation", "checkpoints", "logging"):
            check_fields(getattr(self, group), prefix=f"{group}.")
        predicts, objective = self.objective.predicts(self.model), type(self.objective).__name__
        check_metrics(self.evaluation.metrics, predicts, objective, "evaluation.metrics")
        for part in self.evaluation.part_metrics:
            check_metrics(part.metrics, predicts, objective, "evaluation.part_metrics")
        _check_mixture(self)
        if predicts == "texts" and (self.evaluation.metrics or self.evaluation.part_metrics):
            _check_generation(self.evaluation, self.model)
        check_fields(self.generation, prefix="generation.")
        for field in ("start_id", "forced_first_id", "forced_last_id", "pad_id", "eos_id"):
            token, size = getattr(self.generation, field), self.model.vocab_size
            if token is not None and size is not None and not 0 <= token < size:
                raise InputError(
                    f"generation.{field}={token} is not an id of model.vocab_size={size}; choose one below, or None"
                )
        if self.data.augmentation_repeats > self.batch_size:
            raise InputError(
                f"data.augmentation_repeats={self.data.augmentation_repeats} exceeds batch_size={self.batch_size}; "
                "choose fewer, such as 3"
            )
        mixes_rows = isinstance(self.data.source, Mixture) or self.data.augmentation_repeats > 1
        if mixes_rows and self.objective.layout.in_order:
            raise InputError(
                f"{type(self.objective).__name__} reads rows in order, which go with neither a Mixture nor "
                f"data.augmentation_repeats={self.data.augmentation_repeats}; choose one source, and 1"
            )
        if self.accumulation > 1 and self.objective.compares_rows:
            raise InputError(
                f"accumulation={self.accumulation} splits the batch, and {type(self.objective).__name__} compares all "
                "of its rows; choose 1, and remat='full' or more devices where memory is short"
            )
        if self.batch_size % self.accumulation:
            raise InputError(
                f"accumulation={self.accumulation} does not divide batch_size={self.batch_size}; "
                "choose one of its divisors"
            )

    @property
    def effective_optimizer(self) -> Optimizer:
        """The optimizer, with what the objective leaves untrained frozen too."""
        return self.optimizer.freezing(self.objective.untrained)

    @property
    def batch_order(self) -> dict[str, Any]:
        """The options of `data.batches` that determine the rows of each step."""
        return {
            "batch_size": self.batch_size,
            "seed": self.seed,
            "augmentation_repeats": self.data.augmentation_repeats,
            "in_order": self.objective.layout.in_order,
            "both_ways": self.objective.layout.both_ways,
        }

    def to_json(self) -> str:
        """The experiment as JSON, every dataclass with its class name."""
        return serialization.to_json(self)

    @staticmethod
    def from_json(text: str | bytes) -> "Experiment":
        """The experiment that `to_json` wrote. Raises `InputError` for unknown classes and fields."""
        return serialization.from_json(Experiment, text)


NOT_MATHEMATICS = (
    *("mesh", "zero1", "remat", "evaluation", "generation", "origin", "checkpoints", "logging", "steps"),
    *("data.cache_dir", "data.prepared"),
)
"""Fields that a resumed run may change: they do not change what a step computes."""


def differences(old: Experiment, new: Experiment) -> list[tuple[str, Any, Any]]:
    """(field, old, new) for each field that differs and changes the mathematics."""
    before, after = dict(flat_fields(old)), dict(flat_fields(new))
    return [
        (path, before.get(path), after.get(path))
        for path in before | after
        if before.get(path) != after.get(path)
        and not any(path == free or path.startswith(f"{free}.") for free in NOT_MATHEMATICS)
    ]


def flat_fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(field, value) for each field of a dataclass and of those inside it; a dataclass is given by its class name."""
    if dataclasses.is_dataclass(value):
        yield path or "experiment", type(value).__name__
        for field in dataclasses.fields(value):
            yield from flat_fields(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
    else:
        yield path, value


def _check_mixture(experiment: Experiment) -> None:
    source = experiment.data.source
    if not isinstance(source, Mixture):
        return
    if isinstance(experiment.objective, TextTask):
        raise InputError(
            f"data.source is a Mixture, and a head learns one task; give {type(experiment.objective).__name__} one, or "
            "train text to text by SequenceToSequence"
        )
    parts = [part.name for part in source.parts]
    if unknown := [one.part for one in experiment.evaluation.part_metrics if one.part not in parts]:
        raise InputError(
            f"evaluation.part_metrics has {unknown[0]!r}, which is not a part of data.source; its parts are "
            f"{', '.join(map(repr, parts))}"
        )


def _check_generation(evaluation: Evaluation, model: ModelConfig) -> None:
    evaluation.method  # noqa: B018 (checks its fields)
    if model.vocab_size is not None and evaluation.num_beams > model.vocab_size:
        raise InputError(
            f"evaluation.num_beams={evaluation.num_beams} is wider than the vocabulary of {model.vocab_size} ids; "
            f"choose {model.vocab_size} or fewer"
        )
    most = getattr(model, "max_length", None)
    if most is not None and evaluation.max_length > most:
        raise InputError(
            f"evaluation.max_length={evaluation.max_length} exceeds model.max_length={most}; choose {most} or less"
        )
