"""ELECTRA's objective: a generator fills in hidden tokens, a discriminator finds them (Clark et al. 2020)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import hashed
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Mean, Row
from t5x_lite.objectives.losses import most_likely, weighted_loss
from t5x_lite.objectives.masked_language_model import MaskedLanguageModel
from t5x_lite.validation import PositiveFloat, Share


@dataclass(frozen=True)
class ReplacedTokenDetection(MaskedLanguageModel):
    """Generator and discriminator trained together: masked LM loss + discriminator_weight * detection loss.

    Clark et al. 2020, section 2. The generator's samples pass no gradient; the two share their embeddings. A sample
    that equals the original counts as original. The authors' code shows the mask token in 85 % of the positions, the
    token itself in the rest.
    """

    mask_share: Share = 0.85
    random_share: Share = 0.0
    discriminator_weight: PositiveFloat = 50.0
    """Weight of the discriminator's loss, a mean over all tokens but padding."""
    temperature: PositiveFloat = 1.0
    """Of the generator's samples."""

    def check_model(self, model: ModelConfig) -> None:
        if not {"generator", "discriminator"} <= set(model.networks):
            raise InputError(
                f"model is a {type(model).__name__}; ReplacedTokenDetection trains an ElectraPairConfig, "
                "a generator and a discriminator"
            )
        super().check_model(model.generator)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """As the masked language model, and `sampling` [2]: the random bits of the generator's samples for the row."""
        mask_key, sampling_key = jax.random.split(key)
        return super().corrupt(mask_key, row) | {"sampling": jax.random.key_data(sampling_key)}

    def token_scores(self, model: nn.Module, features: Features, key: DropoutKey) -> LazyLogits:
        return super().token_scores(model.generator, features, key)

    def forward(
        self, model: nn.Module, features: Features, key: DropoutKey
    ) -> tuple[Float[Array, "B P V"], Bool[Array, "B L"], Float[Array, "B L"]]:
        """(the generator's logits, which tokens it replaced, the discriminator's logits)."""
        # The samples need all logits, so that the loss takes them as they are.
        logits = self.token_scores(model, features, key).dense()
        filled, replaced = self.fill_in(features, self.sample(logits, features["sampling"]))
        hidden = self.encode(model.discriminator, features, key, filled)
        return logits, replaced, model.discriminator.replaced_token_logits(hidden)

    def loss_of(self, outputs: tuple[Array, Array, Array], features: Features, whole: Features) -> Loss:
        logits, replaced, detection = outputs
        total, weight, metrics = weighted_loss(logits, features["targets"], self.prediction_weights(features))
        weights = self.token_weights(features)
        loss = -jax.nn.log_sigmoid(jnp.where(replaced, detection, -detection))
        loss = (loss * weights).sum()
        correct = (detection > 0) == replaced
        figures = {
            "detection_loss": loss,
            "detection_accuracy": (correct * weights).sum(),
            "replaced": (replaced * weights).sum(),
        }
        metrics |= {name: Mean(value, weights.sum()) for name, value in figures.items()}
        scale = self.predictions_per(self.token_weights(whole), whole)
        return total + self.discriminator_weight * loss * scale, weight, metrics

    def sample(self, logits: Float[Array, "B P V"], sampling: Array) -> Int[Array, "B P"]:
        """A token for each position from the generator's distribution (the Gumbel-max trick); no gradient passes.

        The noise is a hash of the row's bits, the position and the token: a device makes it for the tokens that it has.
        """
        low, high = jax.lax.bitcast_convert_type(sampling, jnp.int32).T[:, :, None, None]
        position, token = (jax.lax.broadcasted_iota(jnp.int32, (1, *logits.shape[1:]), axis) for axis in (1, 2))
        number = hashed((low, high), jnp.int32(0), jnp.int32(0), position, token)
        # Of numbers near 0, which give the largest noise, floats keep all bits.
        uniform = (number.astype(jnp.float32) + 0.5) * 2.0**-31
        noise = -jnp.log(-jnp.log1p(-uniform))
        return most_likely(jax.lax.stop_gradient(logits / self.temperature + noise))

    def filled(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B L"]:
        """What the discriminator reads: the rows with the generator's tokens at the predicted positions."""
        logits = module.apply({"params": params}, method=lambda pair: self.token_scores(pair, features, None).dense())
        return self.fill_in(features, self.sample(logits, features["sampling"]))[0]

    def fill_in(self, features: Features, tokens: Int[Array, "B P"]) -> tuple[Int[Array, "B L"], Bool[Array, "B L"]]:
        """(the rows with `tokens` at the predicted positions, where they differ from the text).

        >>> from t5x_lite.data import Vocabulary
        >>> objective = ReplacedTokenDetection(8).for_vocabulary(Vocabulary(20, cls_id=3, sep_id=4, mask_id=5))
        >>> features = {"inputs": jnp.array([[3, 5, 11, 5, 4]]), "positions": jnp.array([[1, 3]])}
        >>> features["targets"] = jnp.array([[10, 12]])
        >>> filled, replaced = objective.fill_in(features, jnp.array([[10, 19]]))
        >>> filled.tolist(), replaced.astype(int).tolist()
        ([[3, 10, 11, 19, 4]], [[0, 0, 0, 1, 0]])
        """
        inputs, targets = features["inputs"], features["targets"]
        used = targets != self.known_vocabulary.pad_id
        # Unused positions point past the end of the row, where nothing is written.
        positions = jnp.where(used, features["positions"], inputs.shape[1])
        rows = jnp.arange(inputs.shape[0])[:, None]
        text = inputs.at[rows, positions].set(targets.astype(inputs.dtype), mode="drop")
        filled = inputs.at[rows, positions].set(tokens.astype(inputs.dtype), mode="drop")
        return filled, filled != text
