"""Masked autoencoding: three quarters of a picture's patches are hidden, and the model fills them in.

He et al. 2022, Masked Autoencoders Are Scalable Vision Learners.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Key, Shaped, UInt8

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.images import Images
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.layers.patches import patchify
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.mae import MAEConfig, mae_loss, predicted_images
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Objective, Row, row_weights
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import Positive

GREY = 128
"""Of hidden patches, in pictures."""


def hide_patches(
    image: UInt8[np.ndarray, "H W C"],
    is_hidden: Bool[np.ndarray, "h w"],
    others: UInt8[np.ndarray, "H W C"] | None = None,
) -> UInt8[np.ndarray, "H W C"]:
    """A picture with some patches grey, or as they are in another one; `is_hidden` by row and column of patches."""
    pixels = is_hidden
    for axis in (0, 1):
        pixels = np.repeat(pixels, image.shape[axis] // is_hidden.shape[axis], axis)
    return np.where(pixels[..., None], np.uint8(GREY) if others is None else others, image)


@dataclass(frozen=True)
class MaskedAutoencoding(Objective):
    """A masked autoencoder learns the pixels of hidden patches from those that it sees; labels are not read.

    Features are `images` [H W C], augmented and normalized, and `noise` [P], a number in [0, 1) for each patch: the
    model sees the patches with the least, `1 - model.mask_ratio` of them.

    The loss is the mean squared error of the hidden patches, each of them normalized if `model.norm_pix`. All pictures
    hide as many, so that their mean over pictures is that over patches.
    """

    augmentation: Augmentation = field(default_factory=lambda: Augmentation(area=(0.2, 1.0)))
    """Of training, by default a random crop and flip (He et al. 2022, appendix A.1); in evaluation
    `augmentation.for_evaluation()`."""
    canvas_size: tuple[int, int] = (256, 256)
    """Height and width to which pictures are stretched when they are read, before `augmentation` crops them."""
    num_channels: Literal[1, 3] = 3
    """1 is grey, 3 is RGB."""
    patch_size: Positive = 16
    """The model's: each patch of this side in pixels has its noise."""

    reads_text: ClassVar[bool] = False
    unit: ClassVar[str] = "example"

    def __post_init__(self) -> None:
        super().__post_init__()
        height, width = self.augmentation.image_size
        if height % self.patch_size or width % self.patch_size:
            raise InputError(
                f"objective.patch_size={self.patch_size} does not divide objective.augmentation.image_size="
                f"{(height, width)}; choose the model's patch_size and image_size"
            )

    @cached_property
    def layout(self) -> Layout:
        return Images(*self.canvas_size, self.num_channels, labels=False)

    def for_evaluation(self) -> Self:
        """With the center of each picture; what is hidden is drawn from the key as in training."""
        return replace(self, augmentation=self.augmentation.for_evaluation())

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        self.check_row(row)
        augmentation_key, noise_key = jax.random.split(key)
        height, width = self.augmentation.image_size
        num_patches = (height // self.patch_size) * (width // self.patch_size)
        images = self.augmentation(augmentation_key, row["image"], row["size"])
        return {"images": images, "noise": jax.random.uniform(noise_key, (num_patches,))}

    def features_on_host(self, features: Features) -> Features:
        """The mean and the variance of each patch, and the noise."""
        patches = patchify(features["images"], self.patch_size)
        return {"means": patches.mean(axis=-1), "variances": patches.var(axis=-1), "noise": features["noise"]}

    def forward(
        self, model: nn.Module, features: Features, key: DropoutKey
    ) -> tuple[Float[Array, "B P"], Float[Array, "B P"]]:
        """(the squared error of each hidden patch, 0 for the others; 1 for hidden patches, 0 for the others)."""
        images = features["images"]
        predicted, mask = model.reconstruct(images, features["noise"], deterministic=key is None)
        return mae_loss(predicted, images, mask, model.config.norm_pix), mask

    def loss_of(self, outputs: tuple[Float[Array, "B P"], Float[Array, "B P"]], features: Features, whole: Any) -> Loss:
        losses, mask = outputs
        weights = row_weights(features)
        loss = (losses.sum(axis=1) / mask.sum(axis=1) * weights).sum()
        return loss, weights.sum(), {"loss": loss}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B P F"]:
        """The pixels of all patches as the decoder gives them: normalized by patch if the model has `norm_pix`."""
        options = {"deterministic": True, "method": "reconstruct"}
        return module.apply({"params": params}, features["images"], features["noise"], **options)[0]

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        """Of each picture the mean squared error of its hidden patches as `loss`, 1 or 0 for each patch, `hidden` or
        not, and as normalized pixels what it is (`images`) and what the decoder makes of it (`predicted`)."""
        images, norm_pix = features["images"], module.config.norm_pix
        options = {"deterministic": True, "method": "reconstruct"}
        predicted, mask = module.apply({"params": params}, images, features["noise"], **options)
        losses = mae_loss(predicted, images, mask, norm_pix)
        predicted = predicted_images(predicted, images, self.patch_size, norm_pix)
        return {"loss": losses.sum(1) / mask.sum(1), "hidden": mask, "images": images, "predicted": predicted}

    def sample_pictures(self, row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The original, what the model sees of it, and that with the hidden patches as they are predicted."""
        original, decoded = (self.augmentation.to_pixels(row[name]) for name in ("images", "predicted"))
        is_hidden = self.on_grid(row["hidden"]) > 0
        masked, reconstruction = hide_patches(original, is_hidden), hide_patches(original, is_hidden, decoded)
        return {"original": original, "masked": masked, "reconstruction": reconstruction}

    def on_grid(self, patches: Shaped[np.ndarray, "P"]) -> Shaped[np.ndarray, "h w"]:
        """Figures of the patches by row and column."""
        return patches.reshape(self.augmentation.image_size[0] // self.patch_size, -1)

    def format_sample(
        self, row: dict[str, np.ndarray], tokenizer: Tokenizer | None, labels: tuple[str, ...] | None
    ) -> str:
        """How many patches of a picture are hidden, and how well they are filled in."""
        hidden = row["hidden"]
        return f"hidden: {hidden.sum():.0f} of {hidden.size} patches\nmodel:  squared error {row['loss']:.3f}\n"

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best reconstruction that is the same for all pictures, one shade in each patch.

        It is the mean of the pictures' patches at that position. With `norm_pix` it is 0, and its loss 1 - 1 / F for
        the F numbers of a patch, less where patches are of one color, which have no deviation to divide by.
        """
        variances = features["variances"].astype(np.float64)
        if model.norm_pix:
            size = self.patch_size**2 * self.num_channels
            losses = variances / (variances * size / (size - 1) + 1e-6)
        else:
            losses = variances + (features["means"] - features["means"].mean(axis=0, keepdims=True)) ** 2
        ranks = features["noise"].argsort(axis=1).argsort(axis=1)
        return float(losses[ranks >= model.num_visible(model.grid)].mean())

    def in_nats(self, model: ModelConfig) -> bool:
        return False

    def check_model(self, model: ModelConfig) -> None:
        name = type(self).__name__
        if not isinstance(model, MAEConfig):
            raise InputError(f"model is a {type(model).__name__}, which fills in no patches; give {name} an MAEConfig")
        if tuple(model.image_size) != tuple(self.augmentation.image_size):
            raise InputError(
                f"model.image_size={model.image_size} is not that of the pictures, objective.augmentation.image_size="
                f"{self.augmentation.image_size}; choose the same"
            )
        for field_name in ("patch_size", "num_channels"):
            theirs, ours = getattr(model, field_name), getattr(self, field_name)
            if theirs != ours:
                raise InputError(f"model.{field_name}={theirs} is not objective.{field_name}={ours}; choose the same")
