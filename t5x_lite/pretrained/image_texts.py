"""A model that compares pictures with texts, in a notebook: classes by their names alone, vectors, search."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, UInt8

from t5x_lite.data.layouts.image_texts import text_ends
from t5x_lite.errors import InputError
from t5x_lite.images.preparation import Image, prepare_image
from t5x_lite.pretrained.batches import power
from t5x_lite.pretrained.images import DrawnResult, ReadsImages
from t5x_lite.pretrained.task_heads import LikelyClass

if TYPE_CHECKING:
    from t5x_lite.pictures.drawing import Picture

PHOTO = ("a photo of a {}.",)
"""The template that is used for want of others (Radford et al. 2021, section 3.1.4)."""
_ROWS = 64  # texts of a batch


class FoundImage(NamedTuple):
    """A picture among those that were searched."""

    index: int
    """In the list."""
    similarity: float
    """The cosine of its vector and the text's."""


@dataclass(frozen=True, repr=False)
class ImageSearch(DrawnResult):
    """The pictures nearest to each text, the nearest first."""

    texts: tuple[str, ...]
    found: tuple[tuple[FoundImage, ...], ...]
    """Of each text."""
    pixels: dict[int, UInt8[np.ndarray, "H W C"]]
    """Of each picture that was found, as the model reads it."""
    model: str = ""
    """The model's name, for the title."""

    def __repr__(self) -> str:
        lines = (
            f"  {text!r:.60}: " + ", ".join(f"{one.index} ({one.similarity:.3f})" for one in found)
            for text, found in zip(self.texts, self.found, strict=True)
        )
        return "\n".join(("ImageSearch: the numbers of pictures, with cosines", *lines))

    def picture(self) -> "Picture":
        """A row of pictures for each text."""
        from t5x_lite.pictures.drawing import Tile, draw_image_grid

        rows = []
        for text, found in zip(self.texts, self.found, strict=True):
            captions = [f"{one.similarity:.3f}" for one in found]
            captions[0] = f"{textwrap.shorten(text, 24, placeholder='…')}\n{captions[0]}"
            rows.append([Tile(self.pixels[one.index], caption) for one, caption in zip(found, captions, strict=True)])
        return draw_image_grid(rows, [str(place) for place in range(1, len(rows[0]) + 1)], self.model)


@dataclass(frozen=True, repr=False)
class PretrainedImageText(ReadsImages):
    """`zero_shot` for classes by their names, `embed_images` and `embed_texts` for vectors of length 1 whose products
    are cosines, `search` for the pictures that texts describe (Radford et al. 2021).

    Pictures, and how they are prepared: see `ReadsImages`.
    """

    @property
    def abilities(self) -> tuple[str, ...]:
        return ("zero_shot", "embed_images", "embed_texts", "search")

    def embed_images(self, images: Image | list[Image]) -> Float[np.ndarray, "*B E"]:
        """Vectors of pictures: [B E] for a list, [E] for one."""
        vectors = np.stack(self._apply(_embed_images, images))
        return vectors if isinstance(images, list | tuple) else vectors[0]

    def embed_texts(self, texts: str | list[str]) -> Float[np.ndarray, "*B E"]:
        """Vectors of texts: [B E] for a list, [E] for one.

        Raises `InputError` for what is no text, and a text with more tokens than the model has positions for.
        """
        ids = self._framed(_texts_in(texts, "texts"))
        vectors = []
        for start in range(0, len(ids), _ROWS):
            batch = ids[start : start + _ROWS]
            longest = max(map(len, batch))
            text = self.config.text
            length = text.max_length if text.reads_full_rows else min(power(longest, 8), text.max_length)
            shape = (power(len(batch), 1), length)
            rows = np.full(shape, self.tokenizer.vocabulary.pad_id, np.int32)
            rows[:, 0] = batch[0][-1]  # a row that fills up the batch has an end too
            for row, one in zip(rows, batch, strict=False):
                row[: len(one)] = one
            vectors.append(np.asarray(_embed_texts(self.module, self.params, rows), np.float32)[: len(batch)])
        joined = np.concatenate(vectors)
        return joined[0] if isinstance(texts, str) else joined

    def zero_shot(
        self,
        images: Image | list[Image],
        labels: Sequence[str],
        *,
        templates: str | Sequence[str] = PHOTO,
        top_k: int | None = None,
    ) -> list[Any]:
        """The likeliest of the classes, which the model knows by their names alone, with their probabilities, best
        first; a list of pictures gives a list.

        Probabilities are a softmax over all classes; those of a SigLIP are sigmoids, each class has one of its own.

        Args:
          labels: the names.
          templates: see `class_vectors`.
          top_k: how many; by default all.

        Raises `InputError` as `class_vectors` does, and for a `top_k` that is out of range.
        """
        names = list(labels)
        classes = self.class_vectors(labels, templates=templates)
        top_k = len(names) if top_k is None else top_k
        if type(top_k) is not int or not 1 <= top_k <= len(names):
            raise InputError(f"top_k={top_k} is out of range; choose 1 to {len(names)}, the number of labels")
        scale, bias = _scale_and_bias(self.module, self.params)
        embedded = self.embed_images(images if isinstance(images, list | tuple) else [images])
        logits = scale * embedded @ classes.T + bias
        function = jax.nn.sigmoid if self.config.independent_pairs else partial(jax.nn.softmax, axis=1)
        answers = []
        for probabilities in np.asarray(function(logits)):
            best = np.argsort(-probabilities, kind="stable")[:top_k].tolist()
            answers.append([LikelyClass(names[number], float(probabilities[number])) for number in best])
        return answers if isinstance(images, list | tuple) else answers[0]

    def class_vectors(
        self, labels: Sequence[str], *, templates: str | Sequence[str] = PHOTO
    ) -> Float[np.ndarray, "K E"]:
        """A vector of length 1 for each class, by its name.

        Args:
          labels: the names.
          templates: texts with `{}`, where a name is put. A class has the mean of the vectors that its name has in
            all of them, scaled to length 1 (Radford et al. 2021, section 3.1.4); "{}" is the name alone.

        Raises `InputError` for no names, one twice, and a template without `{}`.
        """
        if isinstance(labels, str):
            raise InputError(f"labels={labels!r} is one text; give a list of names")
        names = _texts_in(list(labels), "labels")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"labels holds {twice!r} twice; name each class once")
        forms = [templates] if isinstance(templates, str) else _texts_in(list(templates), "templates")
        for form in forms:
            if form.count("{}") != 1:
                raise InputError(
                    f"templates: {form!r} does not hold {{}} once, where a name is put; such as {PHOTO[0]!r}"
                )
        # Not `format`, which would read other braces.
        vectors = self.embed_texts([form.replace("{}", name) for name in names for form in forms])
        classes = vectors.reshape(len(names), len(forms), -1).mean(axis=1)
        return classes / np.maximum(np.linalg.norm(classes, axis=1, keepdims=True), 1e-12)

    def search(self, texts: str | list[str], images: list[Image], *, top_k: int = 5) -> ImageSearch:
        """The pictures of a list that are nearest to each text, with their cosines; a notebook shows them.

        Args:
          top_k: how many of each text, at most all.

        Raises `InputError` for an empty list, and a `top_k` below 1.
        """
        wanted = _texts_in(texts, "texts")
        if not isinstance(images, list | tuple):
            raise InputError("images is one picture; give a list to search in")
        if type(top_k) is not int or top_k < 1:
            raise InputError(f"top_k={top_k} is out of range; choose 1 or more")
        cosines = self.embed_texts(wanted) @ self.embed_images(images).T
        found = []
        for row in cosines:
            best = np.argsort(-row, kind="stable")[:top_k].tolist()
            found.append(tuple(FoundImage(index, float(row[index])) for index in best))
        seen = {one.index for of_text in found for one in of_text}
        prepared = {index: prepare_image(self.preparation, images[index], f"images[{index}]") for index in sorted(seen)}
        pixels = {index: self.preparation.to_pixels(image) for index, image in prepared.items()}
        return ImageSearch(tuple(wanted), tuple(found), pixels, self.title)

    @property
    def _image_config(self) -> Any:
        return self.config.image

    @property
    def _reads(self) -> dict[str, str]:
        return {**super()._reads, **super(ReadsImages, self)._reads}

    def _framed(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text between those that begin and end it."""
        tokenizer = self._tokenizer()
        ends, most = text_ends(tokenizer.vocabulary), self.config.text.max_length
        framed = [[*ends[:-1], *ids.tolist(), ends[-1]] for ids in tokenizer.encode_batch(texts)]
        for text, ids in zip(texts, framed, strict=True):
            if len(ids) > most:
                raise InputError(
                    f"texts: {text!r:.60} has {len(ids)} tokens and the model positions for {most}; shorten it"
                )
        return framed


def _texts_in(texts: Any, name: str) -> list[str]:
    """One text or several as a list."""
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list | tuple) or not texts:
        raise InputError(f"{name}={texts!r:.60} is not a list of texts; give one or more")
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{name}[{number}]={text!r:.60} is not a text; write one")
    return list(texts)


def _embed_images(module: nn.Module, images: Float[Array, "B H W C"]) -> Float[Array, "B E"]:
    return module.embed_images(images)


def _scale_and_bias(module: nn.Module, params: Any) -> tuple[float, float]:
    scale, bias = module.apply({"params": params}, method="scale_and_bias")
    return float(scale), float(bias)


@partial(jax.jit, static_argnums=0)
def _embed_texts(module: nn.Module, params: Any, ids: Int[Array, "B L"]) -> Float[Array, "B E"]:
    return module.apply({"params": params}, ids, method="embed_texts")
