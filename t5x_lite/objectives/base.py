"""What every objective is: two pure functions, `corrupt` and `loss`, and the layout of the rows that they need."""

import math  # noqa: F401 (read by doctests)
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import linen as nn
from jaxtyping import Array, Float, Int, Integer, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import PixelStatistics
from t5x_lite.models.base import ModelConfig, abstract_params
from t5x_lite.parallel.mesh import STATISTICS
from t5x_lite.retrieval.index import Index
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Validated

Row = Mapping[str, Any]
"""One row of the data, by column: see `objective.layout`."""

Features = dict[str, Array]
"""What the model reads and what it is to predict, each with a leading row dimension once `corrupt` is vmapped."""


DropoutKey = Key[Array, ""] | None
"""Drives dropout; None means deterministic."""


class Mean(NamedTuple):
    """A sum and its weight, where that is not the weight of the loss."""

    sum: Float[Array, ""]
    weight: Float[Array, ""]


Metrics = dict[str, Float[Array, ""] | Mean]
"""Figures: sums which divided by the weight of the loss are means, or a `Mean` with another weight. The one that is
called `STATISTICS` holds a tree of running statistics, which become parameters, and the one that is called `MEMORY` the
next `Objective.memory`."""

MEMORY = "memory"
"""The feature, and the metric, of what rows in order leave to those that go on from them."""

Loss = tuple[Float[Array, ""], Float[Array, ""], Metrics]
"""(sum, weight, metrics): see `Objective.loss`."""


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for examples, in their order, and what is correct: metrics compare the two."""

    type: str
    """What is predicted: "classes", "numbers", "tags", "spans" (of a text) or "texts"; or another type."""
    predicted: Sequence[Any]
    """By example: the number of a class or choice, a number, the list of the tags of words, or a text."""
    references: Sequence[Any]
    """What is correct, in the same form; of spans and texts all correct ones, none where a question has no answer."""
    names: Sequence[Any] = ()
    """Of the examples, as a benchmark has them; empty: 0, 1, 2 ..."""
    no_answer: Sequence[float] | None = None
    """Of spans: how much better no answer fits than the predicted one, in nats."""
    words: tuple[str, ...] = ()
    """Of texts: what is written for each class, in their order; empty where there are no classes."""
    groups: Sequence[str] = ()
    """The name of each example's group; empty where there are none."""
    ranked: Sequence[Sequence[int]] | None = None
    """Of classes: the likeliest ones of each example, best first; None where these are not known."""

    def take(self, numbers: Int[np.ndarray, "M"]) -> "Predictions":
        """Some of the examples by their numbers, without their names."""
        columns = {name: getattr(self, name) for name in ("predicted", "references", "ranked", "no_answer", "groups")}
        taken = {name: values and [values[n] for n in numbers.tolist()] for name, values in columns.items()}
        return replace(self, names=(), **taken)


@dataclass(frozen=True)
class Objective(Validated, ABC):
    """How rows become features, and the loss of a model on them. A new objective is a file beside this one."""

    vocabulary: tyro.conf.Suppress[Vocabulary | None] = field(default=None, kw_only=True)
    """The special ids of the tokenizer: see `for_vocabulary`."""

    roles: ClassVar[tuple[str, ...]] = ()
    """The special tokens that the tokenizer must have."""
    asks_for_text: ClassVar[bool] = False
    """Whether the model writes `targets` given `inputs`, so that what it writes can be scored."""
    targets_are_text: ClassVar[bool] = False
    """Whether `targets` read as running text, of which there is a perplexity by word."""
    reads_text: ClassVar[bool] = True
    """Whether `format_sample` needs a tokenizer; without it arrays are shown by shape and range."""
    unit: ClassVar[Literal["token", "word", "example", "window"]] = "token"
    """What the loss is a mean over: predicted tokens, or of a task words, examples, or windows of a text."""
    compares_rows: ClassVar[bool] = False
    """Whether the loss of a row depends on the other rows of its batch, all of which are to be there at once. The
    features that `baseline_loss` reads then have `rows` too: of each row how many there are in its batch."""
    # Without an annotation, under which a field of that name would be the first of all.
    teacher = ""
    """The folder of a model that the loss reads and that is not trained: a field of objectives with one."""

    def predicts(self, model: ModelConfig) -> str | None:
        """The type of the `Predictions` that a model makes; None where there is nothing to score beside the loss."""
        return "texts" if self.asks_for_text else None

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """How the examples of a source become rows."""

    @abstractmethod
    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row of the data to one row of features; pure, with static shapes."""

    def corrupt_batch(self, key: Key[Array, ""], features: Features) -> Features:
        """The features of a batch, each row by `corrupt`, to those of the loss: for what mixes rows, such as mixup."""
        return features

    def memory(self, model: ModelConfig, batch_size: int, dtype: Any) -> Any:
        """What a batch of rows in order leaves to the next: a tree of arrays [B ...], as it is before the first, 0.

        Of such an objective `loss` finds it in the features, as `MEMORY`, all 0 for a row that goes on from none; and
        returns the next one among the metrics, by the same name. None: rows stand for themselves.
        """
        return None

    def features_on_host(self, features: Features) -> Features:
        """Those that `baseline_loss` and `predictions` read; by default all."""
        return features

    def for_evaluation(self) -> Self:
        """The objective that held-out rows are scored by: without augmentation, where the objective has any."""
        return self

    def loss(
        self,
        module: nn.Module,
        params: Any,
        features: Features,
        key: DropoutKey,
        *,
        whole: Features | None = None,
        frozen: Any = None,
    ) -> Loss:
        """(sum, weight, metrics) over the features of a batch; the caller divides the sum by the weight.

        By default `loss_of` what `forward` gives; an objective defines these two, or `loss` itself.

        Args:
          features: where they have `valid` [B], rows for which it is false have no weight (they fill up the last batch
            of an evaluation).
          whole: the features of the whole batch where `features` are some of its rows: a loss of several means (of
            tokens, of sentence pairs) needs their weights over the whole batch for the sums to add up.
          frozen: the parameters of `frozen_model`; None leaves out what needs them. Of an objective with a corpus, a
            `retrieval.Corpus`.
        """
        outputs, statistics = self.apply_in_training(module, params, features, key)
        total, weight, metrics = self.loss_of(outputs, features, features if whole is None else whole)
        return total, weight, metrics | statistics

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Any:
        """What `loss_of` needs of the model, which is bound to its parameters."""
        raise NotImplementedError(f"{type(self).__name__} defines neither loss nor forward, one of which trains it")

    def loss_of(self, outputs: Any, features: Features, whole: Features) -> Loss:
        """`loss`, given what `forward` returns."""
        raise NotImplementedError(f"{type(self).__name__} defines forward, and no loss_of for what it returns")

    def apply(self, module: nn.Module, params: Any, features: Features, key: DropoutKey = None) -> Any:
        """`forward` of the model with these parameters."""
        rngs = None if key is None else {"dropout": key}
        return module.apply({"params": params}, method=lambda model: self.forward(model, features, key), rngs=rngs)

    def apply_in_training(
        self, module: nn.Module, params: Any, features: Features, key: DropoutKey
    ) -> tuple[Any, Metrics]:
        """(what `apply` gives, the next running statistics of the model as a metric `STATISTICS`, if it has any)."""
        rngs = None if key is None else {"dropout": key}
        outputs, variables = module.apply(
            {"params": params},
            method=lambda model: self.forward(model, features, key),
            rngs=rngs,
            mutable=[] if key is None else [STATISTICS],
        )
        return outputs, {name: Mean(tree, 1.0) for name, tree in variables.items()}

    @abstractmethod
    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """What the model predicts, as ids that compare with `features["targets"]`."""

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        """What a run shows at its end: by default the features, and as `answers` what `predict` gives."""
        return features | {"answers": self.predict(module, params, features)}

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """One row of `samples` as lines of text: the input, the target, and what the model answers.

        Single tokens are separated by commas, in the order of their positions; some of them the model sees as they are
        or as another token. `labels` are the names of the data's classes.
        """
        targets = row["targets"]

        def text(ids: Int[np.ndarray, "T"]) -> str:
            if "positions" not in row:
                return tokenizer.decode(ids)
            predicted = ids[targets != tokenizer.vocabulary.pad_id]
            return ", ".join(tokenizer.decode([token]).strip() or "(none)" for token in predicted)

        return f"input:  {tokenizer.decode(row['inputs'])}\ntarget: {text(targets)}\nmodel:  {text(row['answers'])}\n"

    def sample_pictures(self, row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Pictures of one row of `samples`, uint8 [H W C] by their titles, which a run draws side by side at its end;
        by default none."""
        return {}

    def check_row(self, row: Row) -> None:
        """Raises ValueError for a row whose columns do not have the names and shapes of the layout's `spec`."""
        shapes, spec = {n: x.shape for n, x in row.items()}, {n: tuple(c.shape) for n, c in self.layout.spec.items()}
        if shapes != spec:
            raise ValueError(f"the row has columns {shapes}; {type(self).__name__} takes {spec}")

    @property
    def untrained(self) -> tuple[str, ...]:
        """Parameters of the model that are to stay as they are, by patterns over their paths: the optimizer leaves them
        out, weight decay included. Those that merely have no gradient here need no pattern."""
        return ()

    @property
    def frozen_model(self) -> ModelConfig | None:
        """A model that the loss reads and that is not trained; None for most objectives."""
        return None

    @property
    def corpus_layout(self) -> Layout | None:
        """How the texts of `data.corpus` become the passages that the model looks up; None for most objectives."""
        return None

    def for_corpus(self, num_passages: int) -> Self:
        """This objective with the size of its corpus. Raises `InputError` where that is too small."""
        raise NotImplementedError(f"{type(self).__name__} reads no corpus")

    def abstract_frozen(self, model: ModelConfig) -> Any:
        """The shapes, with logical axes, of what the loss of this model reads and no step changes: the parameters of
        `frozen_model`, or the passages of a corpus; None for most objectives."""
        return None if self.frozen_model is None else abstract_params(self.frozen_model)

    def first_index(self, model: ModelConfig, params: Any) -> Index | None:
        """An index of the corpus without vectors, for parameters with logical axes; None for most objectives."""
        return None

    def encode_corpus(self, module: nn.Module, params: Any, ids: Integer[Array, "P L"]) -> Float[Array, "P E"]:
        """The vectors of all passages of the corpus."""
        raise NotImplementedError(f"{type(self).__name__} reads no corpus")

    def next_index(
        self, module: nn.Module, index: Index, params: Any, ids: Integer[Array, "P L"], step: Int[Array, ""]
    ) -> Index:
        """The index after a step that leaves these parameters; see `retrieval.refresh`."""
        return index

    def for_teacher(self, teacher: ModelConfig, student: ModelConfig, statistics: PixelStatistics | None) -> Self:
        """This objective with its teacher as `frozen_model`. Raises `InputError` where it cannot teach the student.

        Args:
          teacher: the architecture of the model in the folder `teacher`.
          student: that of the model which is trained.
          statistics: what normalizes the teacher's pictures; None where it reads none or the folder does not have them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no teacher")

    def check_model(self, model: ModelConfig) -> None:
        """Raises `InputError` where the model is too short for the rows or lacks what the loss needs."""

    def check_labels(self, model: ModelConfig, labels: tuple[str, ...] | None) -> None:
        """Raises `InputError` where the classes of the data, None in data without labels, do not go with the model."""

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best model that ignores the inputs: here it knows the frequency of each token."""
        targets = features["targets"]
        return entropy(targets[targets != self.known_vocabulary.pad_id])

    def in_nats(self, model: ModelConfig) -> bool:
        """Whether the loss is a cross entropy, not a squared error."""
        return True

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """This objective with its vocabulary. Raises `InputError` where the two do not fit."""
        for role in self.roles:
            if getattr(vocabulary, f"{role}_id") is None:
                raise InputError(
                    f"the tokenizer has no {role} token, which {type(self).__name__} needs; "
                    "use WordPiece, ByteLevelBPE or SentencePiece with layout albert, xlm-roberta or xlnet"
                )
        return replace(self, vocabulary=vocabulary)

    @property
    def known_vocabulary(self) -> Vocabulary:
        """The vocabulary; a ValueError before `for_vocabulary` was called."""
        if self.vocabulary is None:
            raise ValueError(
                "this objective does not know its vocabulary yet; call for_vocabulary(tokenizer.vocabulary)"
            )
        return self.vocabulary


def row_weights(features: Features) -> Float[Array, "B"]:
    """1 for each row, 0 for those that fill up a batch."""
    valid = features.get("valid")
    return jnp.ones(len(next(iter(features.values())))) if valid is None else valid.astype(jnp.float32)


def with_memory(features: Features, batch: Row, memory: Any) -> Features:
    """The features of a batch with the memory that its rows go on from; without one as they are."""
    if memory is None:
        return features
    continues = jnp.asarray(batch["continues"])

    def kept(x: Array) -> Array:
        return jnp.where(continues.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros_like(x))

    return features | {MEMORY: jax.tree.map(kept, memory)}


def check_length(input_length: int, model: ModelConfig) -> None:
    """Raises `InputError` where rows are longer than the model takes."""
    if model.max_length is not None and input_length > model.max_length:
        raise InputError(
            f"objective.input_length={input_length} exceeds model.max_length={model.max_length}; "
            "choose shorter rows or more positions"
        )


def entropy(values: np.ndarray) -> float:
    """The entropy of the frequencies of some values, in nats.

    >>> entropy(np.array([1.0, 1.0, 1.0])), entropy(np.array([4, 5])) == math.log(2)
    (0.0, True)
    """
    _, counts = np.unique(values, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum()) + 0.0


def corrupt_rows(
    objective: Objective,
    key: Key[Array, ""],
    batch: Row,
    first_row: Int[Array, ""] | int = 0,
    stride: Int[Array, ""] | int = 1,
) -> Features:
    """Corrupts the rows `first_row, first_row + stride, ...` of the data, each under its key folded from `key`.

    `batch` holds each column with a leading dimension. `corrupt_batch` has a key that no row has.
    """
    batch = jax.tree.map(jnp.asarray, dict(batch))
    batch.pop("continues", None)
    rows = first_row + stride * jnp.arange(len(next(iter(batch.values()))))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
    features = jax.vmap(objective.corrupt)(keys, batch)
    return objective.corrupt_batch(jax.random.fold_in(key, jnp.uint32(2**32 - 1)), features)


@dataclass(frozen=True)
class NoObjective(Objective):
    """Of a model that came from elsewhere without the heads of any objective: every method raises `InputError`."""

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise InputError(
            "this model came without the heads of an objective, so there is nothing to ask it; train it with a config "
            "that has an objective and start=FromModel(its folder)"
        )

    layout = property(_refuse)
    corrupt = loss = predict = _refuse
