"""A model of pictures in a notebook: classes, vectors, reconstructions, and where the model looks."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, UInt8

from t5x_lite.convert.huggingface import default_processor
from t5x_lite.errors import InputError
from t5x_lite.images.preparation import (
    EvaluationPreparation,
    Image,
    ImagePreparation,
    prepare_image,
    read_processor,
)
from t5x_lite.models.mae import MAEConfig, predicted_images
from t5x_lite.models.vit import ImageTransformerConfig
from t5x_lite.objectives.masked_autoencoding import hide_patches
from t5x_lite.objectives.task import TOP
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.batches import power
from t5x_lite.pretrained.encoder import Layers, check_layers, choose_layers
from t5x_lite.pretrained.task_heads import LikelyClass

if TYPE_CHECKING:
    from t5x_lite.pictures.drawing import Picture

ImagePooling = Literal["cls", "mean", "patches"]
"""The class token's vector; the mean of the patches; or a vector for each patch, row by row."""

_ROWS = 16  # pictures of a batch


class DrawnResult(ABC):
    """A result that a notebook shows as a picture."""

    @abstractmethod
    def picture(self) -> "Picture":
        """The result, drawn."""

    def save(self, path: str | Path, dpi: float = 120) -> None:
        """Writes a PNG file; `InputError` for a name that does not end in .png, or a folder that is missing."""
        self.picture().save(path, dpi)

    def _repr_png_(self) -> bytes:
        return self.picture()._repr_png_()


@dataclass(frozen=True, repr=False)
class Reconstruction(DrawnResult):
    """A picture as a masked autoencoder sees it, and what it makes of that. Pixels are those that the model reads."""

    original: UInt8[np.ndarray, "H W C"]
    masked: UInt8[np.ndarray, "H W C"]
    """The original, its hidden patches grey."""
    predicted: UInt8[np.ndarray, "H W C"]
    """What the decoder gives for every patch; no loss trains it on those that are seen."""
    reconstruction: UInt8[np.ndarray, "H W C"]
    """The original, its hidden patches as they are predicted."""
    is_hidden: Bool[np.ndarray, "h w"]
    """By row and column of patches."""
    model: str = ""
    """The model's name, for the title."""

    def __repr__(self) -> str:
        height, width, channels = self.original.shape
        return (
            f"Reconstruction: {height} x {width} x {channels} pixels, {self.is_hidden.sum()} of {self.is_hidden.size} "
            "patches were hidden"
        )

    def picture(self) -> "Picture":
        """Three pictures side by side: original, masked, reconstruction."""
        from t5x_lite.pictures.drawing import draw_images

        share = f"masked, {self.is_hidden.mean():.0%}"
        images = {"original": self.original, share: self.masked, "reconstruction": self.reconstruction}
        return draw_images(images, self.model)


@dataclass(frozen=True, repr=False)
class AttentionRollout(DrawnResult):
    """How much of each patch reaches the vector that stands for a picture (Abnar and Zuidema 2020, section 4)."""

    original: UInt8[np.ndarray, "H W C"]
    """The pixels that the model reads."""
    weights: Float[np.ndarray, "h w"]
    """By row and column of patches; with what reaches it from special tokens they sum to one."""
    model: str = ""
    """The model's name, for the title."""

    def __repr__(self) -> str:
        rows, columns = self.weights.shape
        return f"AttentionRollout: {rows} x {columns} patches, weights from {self.weights.min():.2g} to " + (
            f"{self.weights.max():.2g}"
        )

    def picture(self) -> "Picture":
        """The picture, and the weights laid over it."""
        from t5x_lite.pictures.drawing import draw_rollout

        return draw_rollout(self.original, self.weights, self.model)


@dataclass(frozen=True, repr=False)
class ReadsImages(Pretrained):
    """What models that read pictures share: how these are prepared, and batches of them.

    Pictures are a path, the bytes of a file (JPEG, PNG, WebP, GIF, BMP), a Pillow picture, or a uint8 array [H, W] or
    [H, W, C] of 1, 3 or 4 channels: one, or a list of them. They become grey or RGB as the model has them, upright as
    EXIF says, with white behind what is transparent.

    They are prepared as the model was trained: a run's as its evaluation prepares them, those of a Hugging Face folder
    as its preprocessor_config.json says. A folder without that file, and a run whose objective says nothing, get what
    the published models of the family have at the config's image_size (ViT: pixels from -1 to 1; DeiT and MAE:
    ImageNet's mean and deviation; ResNet: these, and the center of 256 pixels cut to 224; CLIP: its own mean and
    deviation, the center), which may be another preparation than that of the training: the representation then says
    "by default".
    """

    @cached_property
    def preparation(self) -> ImagePreparation:
        """What prepares pictures. Raises `InputError` for a preprocessor_config.json that is not one that we have."""
        channels = self._image_config.num_channels
        if channels not in (1, 3):
            raise InputError(
                f"num_channels={channels}: pictures have 1 or 3; apply the module to arrays, model.module.apply"
            )
        if self._is_prepared_by_run:
            objective = self.experiment.objective
            return EvaluationPreparation(objective.augmentation.for_evaluation(), objective.canvas_size, channels)
        return read_processor(default_processor(self.config, self.origin), channels)

    def prepare(self, images: Image | list[Image]) -> Float[np.ndarray, "*B H W C"]:
        """What the model reads of pictures, normalized: [B H W C] for a list, [H W C] for one.

        Raises `InputError` for a file that is missing or not a picture, arrays of other shapes or types, and a list
        whose pictures are prepared to different sizes.
        """
        prepared = [prepare_image(self.preparation, image, name) for name, image in named_images(images)]
        if len({one.shape for one in prepared}) > 1:
            raise InputError("images have different sizes after their preparation; prepare them one by one")
        return np.stack(prepared) if isinstance(images, list | tuple) else prepared[0]

    @property
    def _image_config(self) -> Any:
        """The architecture of what reads pictures."""
        return self.config

    @property
    def _is_prepared_by_run(self) -> bool:
        return self.experiment is not None and hasattr(self.experiment.objective, "augmentation")

    @property
    def _image_processor(self) -> dict[str, Any] | None:
        return self.preparation.processor if self._is_prepared_by_run else None

    @property
    def _reads(self) -> dict[str, str]:
        if self._is_prepared_by_run:
            by = f"as the run's evaluation, {self.experiment.objective.augmentation.image_size}"
        elif self.origin and self.origin.processor:
            by = f"as preprocessor_config.json says, size {self.origin.processor.get('size')}"
        else:
            by = f"by default, size {default_processor(self.config, self.origin).get('size')}"
        return {"  pictures": f"{self._image_config.num_channels} channels, prepared {by}"}

    def _require(self, method: str) -> None:
        if method not in self.abilities:
            self._refuse(method)

    def _apply(self, function: Callable[..., Array], images: Image | list[Image], *options: Any) -> list[np.ndarray]:
        """What `function(module, images, *options)` gives for each picture, in batches that are powers of two."""
        named, results = named_images(images), []
        for start in range(0, len(named), _ROWS):
            prepared = [prepare_image(self.preparation, one, name) for name, one in named[start : start + _ROWS]]
            outputs: list[Any] = [None] * len(prepared)
            # One batch unless the preparation leaves pictures their sizes.
            for shape in dict.fromkeys(one.shape for one in prepared):
                indices = [index for index, one in enumerate(prepared) if one.shape == shape]
                batch = np.stack([prepared[index] for index in indices])
                batch = np.pad(batch, [(0, power(len(batch), 1) - len(batch)), *[(0, 0)] * 3])
                given = np.asarray(_apply_function(self.module, function, options, self.params, batch), np.float32)
                for index, output in zip(indices, given, strict=False):
                    outputs[index] = output
            results += outputs
        return results


@dataclass(frozen=True, repr=False)
class PretrainedImageModel(ReadsImages):
    """`classify` for classes, `encode` for vectors, `reconstruct` with a masked autoencoder, `attention` for where a
    Transformer looks.

    Pictures, and how they are prepared: see `ReadsImages`.
    """

    @property
    def abilities(self) -> tuple[str, ...]:
        methods = {
            "classify": "classification" in getattr(self.config, "heads", ()),
            "encode": True,
            "reconstruct": isinstance(self.config, MAEConfig),
            "attention": self._is_transformer,
        }
        return tuple(name for name, has in methods.items() if has)

    def classify(self, images: Image | list[Image], *, top_k: int | None = None) -> list[Any]:
        """The likeliest classes of a picture with their probabilities, best first; a list of pictures gives a list.

        Probabilities are a softmax over all classes. Each class has one of its own, a sigmoid, in a run that was
        trained by binary cross entropies (`objective.loss_type`), and where a Hugging Face folder says that a picture
        may have several classes (`problem_type` "multi_label_classification"), as the export of such a run does.

        Args:
          top_k: how many; by default five, or all where there are fewer.

        Raises `InputError` for a model without a classification head, and a `top_k` that is out of range.
        """
        self._require("classify")
        count = self.config.num_classes
        top_k = min(TOP, count) if top_k is None else top_k
        if type(top_k) is not int or not 1 <= top_k <= count:
            raise InputError(f"top_k={top_k} is out of range; choose 1 to {count}, the classes of this model")
        names = self._class_names
        names = names if len(names) == count else tuple(map(str, range(count)))
        answers = []
        for logits in self._apply(_class_logits, images):
            probabilities = self._class_probabilities(logits)
            best = np.argsort(-probabilities, kind="stable")[:top_k].tolist()
            answers.append([LikelyClass(names[number], float(probabilities[number])) for number in best])
        return answers if isinstance(images, list | tuple) else answers[0]

    def encode(
        self, images: Image | list[Image], *, layers: Layers = "last", pooling: ImagePooling | None = None
    ) -> Float[np.ndarray, "..."]:
        """Vectors of pictures: [B D] for a list, [D] for one.

        Args:
          layers: as `PretrainedEncoder.encode` has them: last (after the final norm), second_to_last, sum_last_4,
            concat_last_4 (4 D features), sum_all, mean, or a layer's number, from 1; 0 is the embeddings. Of a ResNet
            the last alone.
          pooling: cls, the class token's vector, the default where there is one; mean, that of the patches, the default
            elsewhere; patches, one for each, [B P D]. Of a ResNet patches are the positions of its last feature map.

        A masked autoencoder's encoder sees all patches here. Raises `InputError` for layers that the model lacks, and
        for cls without a class token.
        """
        has_class_token = self._is_transformer and bool(self.config.special_tokens)
        pooling = pooling or ("cls" if has_class_token else "mean")
        if pooling not in get_args(ImagePooling):
            raise InputError(f"pooling={pooling!r} is unknown; choose one of {', '.join(get_args(ImagePooling))}")
        if pooling == "cls" and not has_class_token:
            raise InputError("pooling='cls' needs a class token, which this model lacks; choose mean or patches")
        if self._is_transformer:
            check_layers(layers, self.config.num_layers)
        elif layers != "last":
            raise InputError(f"layers={layers!r}: the layers of a ResNet differ in size; choose last")
        vectors = self._apply(_vectors, images, layers, pooling)
        if not isinstance(images, list | tuple):
            return vectors[0]
        if len({one.shape for one in vectors}) > 1:
            raise InputError("images have different sizes after their preparation; encode them one by one")
        return np.stack(vectors)

    def reconstruct(self, image: Image, *, mask_ratio: float | None = None, seed: int = 0) -> Reconstruction:
        """What a masked autoencoder makes of a picture most of whose patches are hidden (He et al. 2022).

        Where it predicts normalized pixels (`norm_pix`), each patch gets its own mean and deviation back, which the
        model does not know: they are those of the original.

        Args:
          mask_ratio: the share of the patches that are hidden, by default that of the training.
          seed: of the choice of patches; the same one hides the same.

        Raises `InputError` for another model, and a share that hides nothing or everything.
        """
        self._require("reconstruct")
        ratio = self.config.mask_ratio if mask_ratio is None else mask_ratio
        config = replace(self.config, mask_ratio=ratio)
        if type(seed) is not int or not 0 <= seed < 1 << 63:
            raise InputError(f"seed={seed} is out of range; choose one from 0 to 2**63 - 1")
        images = self._prepared_one(image)
        grid = config.grid_of(images.shape[1:3])
        if config.num_visible(grid) < 1:
            raise InputError(f"mask_ratio={ratio} hides all {grid[0] * grid[1]} patches; choose a smaller one")
        noise = jax.random.uniform(jax.random.key(seed), (1, grid[0] * grid[1]))
        module = self.module.clone(config=config)
        predicted, mask = jax.device_get(_reconstruct(module, self.params, images, noise))
        original, decoded = map(self.preparation.to_pixels, (images[0], predicted[0]))
        is_hidden = mask[0].reshape(grid) > 0
        masked, reconstruction = hide_patches(original, is_hidden), hide_patches(original, is_hidden, decoded)
        return Reconstruction(original, masked, decoded, reconstruction, is_hidden, self.title)

    def attention(self, image: Image) -> AttentionRollout:
        """Where a Transformer looks: attention rollout from the class token, or without one from the mean of the
        patches, to each patch (Abnar and Zuidema 2020, section 4).

        In each layer half of a token stays (the residual), and half is what its heads read, averaged. Of a masked
        autoencoder it is the encoder's attention to all patches.

        Raises `InputError` for a model without attention.
        """
        self._require("attention")
        images = self._prepared_one(image)
        num_special, grid = len(self.config.special_tokens), self.config.grid_of(images.shape[1:3])
        rollout = np.asarray(_rollout(self.module, self.params, images), np.float32)[0]
        reached = rollout[0] if num_special else rollout.mean(axis=0)
        original = self.preparation.to_pixels(images[0])
        return AttentionRollout(original, reached[num_special:].reshape(grid), self.title)

    def plot_positions(self) -> "Picture":
        if not self._is_transformer:
            self._refuse("plot_positions")
        return super().plot_positions()

    @property
    def _is_transformer(self) -> bool:
        return isinstance(self.config, ImageTransformerConfig)

    def _prepared_one(self, image: Image) -> Float[Array, "1 H W C"]:
        if isinstance(image, list | tuple):
            raise InputError(f"image is a list of {len(image)}; give one picture")
        images = jnp.asarray(prepare_image(self.preparation, image, "image")[None])
        self.config.check_images(images)
        return images


def named_images(images: Image | list[Image]) -> list[tuple[str, Image]]:
    """(the name in messages, the picture) of one or several."""
    if not isinstance(images, list | tuple):
        return [("image", images)]
    if not images:
        raise InputError("images is empty; give one or more")
    return [(f"images[{number}]", image) for number, image in enumerate(images)]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _apply_function(
    module: nn.Module, function: Callable[..., Array], options: tuple[Any, ...], params: Any, images: Array
) -> Array:
    return module.apply({"params": params}, images, *options, method=function)


def _class_logits(module: nn.Module, images: Float[Array, "B H W C"]) -> Float[Array, "B C"]:
    return module.class_logits(images).astype(jnp.float32)


def _vectors(
    module: nn.Module, images: Float[Array, "B H W C"], layers: Layers, pooling: ImagePooling
) -> Float[Array, "B *_"]:
    num_special = 0
    if isinstance(module.config, ImageTransformerConfig):
        num_special = len(module.config.special_tokens)
        tokens = choose_layers(module.encode_layers(images), layers)
    else:
        tokens = module.hidden_states(images)
    tokens = tokens.astype(jnp.float32)
    if pooling == "cls":
        return tokens[:, 0]
    patches = tokens[:, num_special:]
    return patches if pooling == "patches" else patches.mean(axis=1)


@partial(jax.jit, static_argnums=0)
def _reconstruct(
    module: nn.Module, params: Any, images: Float[Array, "B H W C"], noise: Float[Array, "B P"]
) -> tuple[Float[Array, "B H W C"], Float[Array, "B P"]]:
    predicted, mask = module.apply({"params": params}, images, noise, method="reconstruct")
    return predicted_images(predicted, images, module.config.patch_size, module.config.norm_pix), mask


@partial(jax.jit, static_argnums=0)
def _rollout(module: nn.Module, params: Any, images: Float[Array, "B H W C"]) -> Float[Array, "B L L"]:
    """The products of all layers' attention, each averaged over its heads and mixed with the identity."""
    options = {"mutable": ["intermediates"], "method": "hidden_states"}
    _, sown = module.apply({"params": params}, images, **options)
    weights = sown["intermediates"]["encoder"]["layers"]["self_attention"]["weights"][-1]  # [N B H L M]
    mixed = (weights.astype(jnp.float32).mean(axis=2) + jnp.eye(weights.shape[-1])[None, None]) / 2
    rollout = mixed[0]
    for layer in mixed[1:]:
        rollout = layer @ rollout
    return rollout
