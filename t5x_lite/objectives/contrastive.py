"""Pictures and their texts: each picture is to be nearest to its own text among those of the batch, and each text to
its picture.

Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision (CLIP); Zhai et al. 2023,
Sigmoid Loss for Language Image Pre-Training (SigLIP).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.image_texts import ImageTexts
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.image_text import ImageTextConfig, ImageTextVectors
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Predictions, Row, row_weights
from t5x_lite.objectives.losses import most_likely
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.parallel.partitioning import sum_over_pairs
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import Positive

_QUERIES = 4096
"""Of a block of products."""


def contrastive_loss(
    images: Float[Array, "B E"], texts: Float[Array, "B E"], scale: Float[Array, ""], weights: Float[Array, "B"]
) -> Loss:
    """The mean of the cross entropies of each picture's text among all and of each text's picture among all
    (Radford et al. 2021, figure 3), over the whole batch whatever devices hold it.

    Each device scores its rows against those of all devices: [B / devices, B] logits twice, never [B, B].

    Args:
      images: vectors of length 1.
      texts: those of their texts, in the same order.
      scale: the inverse of the temperature.
      weights: 1 for each row; rows of weight 0 are not compared with.
    """

    def on_rows(rows: tuple[Array, ...], others: tuple[Array, ...], scale: Array, first: Array | int) -> Any:
        (images, texts, weights), (every_image, every_text, compared) = rows, others
        of_images = own_among_all(images, texts, weights, every_text, compared, scale, first)
        return of_images, own_among_all(texts, images, weights, every_image, compared, scale, first)

    rows = (images, texts, weights)
    (of_images, images_correct), (of_texts, texts_correct) = sum_over_pairs(on_rows, rows, rows, scale)
    loss = (of_images + of_texts) / 2
    metrics = {"loss": loss, "text_accuracy": images_correct, "image_accuracy": texts_correct}
    return loss, weights.sum(), metrics


def own_among_all(
    queries: Float[Array, "B E"],
    own: Float[Array, "B E"],
    weights: Float[Array, "B"],
    others: Float[Array, "C E"],
    compared: Float[Array, "C"],
    scale: Float[Array, ""],
    first: Array | int,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(the sum of the cross entropies of each query's own vector among all, how many own ones are the nearest).

    Args:
      own: of each query, also the vector `first` + its number of the others.
      weights: of the queries in the sums.
      compared: 0 of vectors that are not compared with.
      scale: the inverse of the temperature.
    """
    logits = scale * jnp.einsum("be,ce->bc", queries, others, precision=jax.lax.Precision.HIGHEST)
    logits = jnp.where(compared[None] > 0, logits, MASKED_LOGIT)
    loss = jax.nn.logsumexp(logits, axis=1) - scale * (queries * own).sum(axis=1)
    correct = most_likely(logits) == first + jnp.arange(len(queries))
    return (loss * weights).sum(), (correct * weights).sum()


def sigmoid_loss(vectors: ImageTextVectors, weights: Float[Array, "B"]) -> Loss:
    """The mean over pictures of the sum over texts of each pair's binary cross entropy, its own text being the one that
    belongs to a picture (Zhai et al. 2023, equation 1), over the whole batch whatever devices hold it.

    Each device scores its pictures against all texts: [B / devices, B] logits, never [B, B].

    Args:
      vectors: of pictures and their texts, in the same order.
      weights: 1 for each row; rows of weight 0 are in no pair.
    """

    def on_rows(rows: tuple[Array, ...], others: tuple[Array, ...], shared: tuple[Array, ...], first: Any) -> Any:
        (images, own, weights), (texts, is_row), (scale, bias) = rows, others, shared
        logits = scale * jnp.einsum("be,ce->bc", images, texts, precision=jax.lax.Precision.HIGHEST) + bias
        # Of negatives, and what makes the positive one of it: softplus(-x) = softplus(x) - x.
        loss = (jax.nn.softplus(logits) * is_row[None]).sum(axis=1) - scale * (images * own).sum(axis=1) - bias
        best = most_likely(jnp.where(is_row[None] > 0, logits, MASKED_LOGIT))
        correct = best == first + jnp.arange(len(images))
        return (loss * weights).sum(), (correct * weights).sum()

    images, texts, scale, bias = vectors
    loss, correct = sum_over_pairs(on_rows, (images, texts, weights), (texts, weights), (scale, bias))
    return loss, weights.sum(), {"loss": loss, "text_accuracy": correct}


@dataclass(frozen=True)
class ContrastiveLanguageImage(TaskObjective):
    """Two towers learn to give a picture and its text vectors of the same direction, unlike those of the other rows.

    Features are `images` [H W C], augmented and normalized, and `ids` [L] of one of the picture's texts, drawn by the
    row's key in training, the first in evaluation. `text_accuracy` and `image_accuracy` are the shares of pictures
    whose text is the likeliest of the batch, and of texts whose picture is: they depend on the batch's size. `evaluate`
    searches among all held-out rows (metric `retrieval`).
    """

    input_length: Positive = 77
    """Ids of a text, with those that begin and end it; longer texts are cut."""
    num_captions: Positive = 1
    """Texts of a picture that are kept, at most: the first ones."""
    augmentation: Augmentation = field(
        default_factory=lambda: Augmentation(area=None, position="random", flip=0.0, normalization="clip")
    )
    """Of training, by default a random square of the scaled picture alone (Radford et al. 2021, section 2.4); in
    evaluation `augmentation.for_evaluation()`."""
    canvas_size: tuple[int, int] = (256, 256)
    """Height and width to which pictures are stretched when they are read, before `augmentation` crops them."""
    num_channels: Literal[1, 3] = 3
    """1 is grey, 3 is RGB."""
    draws_captions: bool = True
    """Whether one of a picture's texts is drawn; otherwise it is the first."""

    compares_rows: ClassVar[bool] = True
    independent_pairs: ClassVar[bool] = False

    @cached_property
    def layout(self) -> Layout:
        return ImageTexts(
            *self.canvas_size, self.num_channels, length=self.input_length, num_captions=self.num_captions
        )

    def for_evaluation(self) -> Self:
        """With the center of each picture and its first text."""
        return replace(self, augmentation=self.augmentation.for_evaluation(), draws_captions=False)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        self.check_row(row)
        augmentation_key, caption_key = jax.random.split(key)
        drawn = jax.random.randint(caption_key, (), 0, row["num_captions"]) if self.draws_captions else 0
        images = self.augmentation(augmentation_key, row["image"], row["size"])
        return {"images": images, "ids": row["captions"][drawn]}

    def features_on_host(self, features: Features) -> Features:
        """The ids alone."""
        return {"ids": features["ids"]}

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> ImageTextVectors:
        return model(features["images"], features["ids"], deterministic=key is None)

    def loss_of(self, outputs: ImageTextVectors, features: Features, whole: Features) -> Loss:
        images, texts, scale, _ = outputs
        loss, weight, metrics = contrastive_loss(images, texts, scale, row_weights(features))
        return loss, weight, metrics | {"logit_scale": scale * weight}

    def logits(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B B"]:
        """Of each picture with each text of the batch."""
        return self.apply(module, params, features).logits()

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        return {"ids": features["ids"], "answers": features["ids"][self.predict(module, params, features)]}

    def predicts(self, model: ModelConfig) -> str:
        return "ranks"

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B 2 E"]:
        """The vectors of each picture and of its text."""
        vectors = self.apply(module, params, features)
        return jnp.stack([vectors.images, vectors.texts], axis=1)

    def predictions(
        self,
        outputs: Float[np.ndarray, "N 2 E"],
        features: Mapping[str, np.ndarray],
        documents: Iterable[Any],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        """Of each row how many texts are nearer to its picture than its own, and how many pictures to its text; of
        equal ones half count."""
        images, texts = outputs.swapaxes(0, 1)
        ranks = [list(pair) for pair in zip(_ranks(images, texts), _ranks(texts, images), strict=True)]
        return Predictions("ranks", ranks, [[0, 0]] * len(ranks))

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        return ("retrieval",)

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """A picture's text, and the one in the batch that the model finds nearest."""
        own, nearest = (tokenizer.decode(row[name]) for name in ("ids", "answers"))
        return f"text:    {own}\nnearest: {nearest}\n"

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of a model that finds all rows of a batch alike."""
        return float(np.log(features["rows"]).mean())

    def check_model(self, model: ModelConfig) -> None:
        name = type(self).__name__
        if not isinstance(model, ImageTextConfig) or model.independent_pairs != self.independent_pairs:
            wanted = "SiglipConfig" if self.independent_pairs else "ClipConfig"
            problem = (
                f"is not what {name} trains"
                if isinstance(model, ImageTextConfig)
                else ("does not compare pictures with texts")
            )
            raise InputError(f"model is a {type(model).__name__}, which {problem}; give {name} a {wanted}")
        if tuple(model.image.image_size) != tuple(self.augmentation.image_size):
            raise InputError(
                f"model.image.image_size={model.image.image_size} is not that of the pictures, objective.augmentation."
                f"image_size={self.augmentation.image_size}; choose the same"
            )
        if model.image.num_channels != self.num_channels:
            raise InputError(
                f"model.image.num_channels={model.image.num_channels} is not objective.num_channels="
                f"{self.num_channels}; choose the same, 1 for grey pictures and 3 for colors"
            )
        if self.input_length > model.text.max_length:
            raise InputError(
                f"objective.input_length={self.input_length} exceeds model.text.max_length={model.text.max_length}; "
                "choose shorter texts or more positions"
            )
        if model.text.reads_full_rows and self.input_length < model.text.max_length:
            raise InputError(
                f"objective.input_length={self.input_length} is less than model.text.max_length="
                f"{model.text.max_length}, the position at which a text is read; choose {model.text.max_length}"
            )


@dataclass(frozen=True)
class SigmoidLanguageImage(ContrastiveLanguageImage):
    """`ContrastiveLanguageImage` with a sigmoid for each pair of a picture and a text of the batch, instead of softmax
    over all texts and over all pictures (Zhai et al. 2023).

    Figures have `logit_scale` and `logit_bias`, and no `image_accuracy`, which would take the products once more.
    """

    input_length: Positive = 64
    """Ids of a text, with that which ends it and the padding up to the model's `max_length`; longer texts are cut."""
    augmentation: Augmentation = field(
        default_factory=lambda: Augmentation(area=None, resize="stretch", flip=0.0, normalization="inception")
    )
    """Of training, by default none: the whole picture, stretched; in evaluation `augmentation.for_evaluation()`."""

    independent_pairs: ClassVar[bool] = True

    def loss_of(self, outputs: ImageTextVectors, features: Features, whole: Features) -> Loss:
        loss, weight, metrics = sigmoid_loss(outputs, row_weights(features))
        return loss, weight, metrics | {"logit_scale": outputs.scale * weight, "logit_bias": outputs.bias * weight}

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of a model that gives all pairs of a batch the same probability, one in as many as there are."""
        rows = features["rows"].astype(np.float64)
        negatives = (rows - 1) * np.log1p(1 / np.maximum(rows - 1, 1))
        return float((np.log(rows) + negatives).mean())


def _ranks(queries: Float[np.ndarray, "N E"], others: Float[np.ndarray, "N E"]) -> list[float]:
    """Of each query how many others are nearer than the one of its own number, half of equal ones.

    >>> queries, others = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
    >>> _ranks(queries, others)
    [0.5, 0.0, 1.5]
    """
    ranks: list[float] = []
    for start in range(0, len(queries), _QUERIES):
        cosines = queries[start : start + _QUERIES] @ others.T
        own = cosines[np.arange(len(cosines)), start + np.arange(len(cosines))][:, None]
        equal = (cosines == own).sum(axis=1) - 1
        ranks += ((cosines > own).sum(axis=1) + equal / 2).tolist()
    return ranks
