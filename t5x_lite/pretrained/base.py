"""What every model in a notebook has: weights, tables of tokens and positions, and clear errors."""

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Column, Table

from t5x_lite.convert import export_folder
from t5x_lite.convert.origin import Origin
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_new
from t5x_lite.layers.positions import sinusoidal_positions
from t5x_lite.models import ModelConfig
from t5x_lite.models.electra import Part
from t5x_lite.objectives import Classification, ImageClassification
from t5x_lite.pictures import model_title
from t5x_lite.tokenizers.base import format_token
from t5x_lite.training.experiment import Experiment

if TYPE_CHECKING:
    from t5x_lite.pictures.drawing import Picture


class Neighbour(NamedTuple):
    """A token with a similar vector."""

    token: str
    similarity: float


_METHODS = (
    *("attention", "generate", "generate_ids", "fill_blanks", "score", "encode", "encode_words", "fill_mask"),
    *("detect_replacements", "classify", "choose", "tag", "answer", "reconstruct"),
    *("zero_shot", "embed_images", "embed_texts", "search", "detect", "retrieve", "with_texts"),
)
_OF_TRANSFORMERS = {
    "save_pretrained": "export(folder)",
    "to": "t5x_lite.load(path, device=...)",
    "cuda": "t5x_lite.load(path, device='gpu')",
    "half": "t5x_lite.load(path, dtype='bfloat16')",
    "num_parameters": "summary()",
}
"""What does here what a method of Transformers' models does."""


def float_dtype(dtype: Any) -> np.dtype | None:
    """The type of parameters that a user names; None stays None. Raises `InputError` for other types."""
    try:
        named = None if dtype is None else jnp.dtype(dtype)
    except TypeError:
        raise InputError(f"dtype={dtype!r} is not a type; choose float32, bfloat16 or float16") from None
    if named is not None and not jnp.issubdtype(named, jnp.floating):
        raise InputError(f"dtype={named} is not a type of parameters; choose float32, bfloat16 or float16")
    return named


@dataclass(frozen=True, repr=False)
class Pretrained:
    """A model with its weights and its tokenizer, on one device or sharded over several.

    `module.apply({"params": params}, ...)` is its pure function. A method that only other models have raises an
    `InputError` that names those of this one.
    """

    config: ModelConfig
    module: nn.Module
    params: Any
    tokenizer: Tokenizer | None
    experiment: Experiment | None = None
    """The run that made it; None for a Hugging Face folder."""
    known_vocabulary: Vocabulary | None = None
    """Its special ids, where they are known without a tokenizer."""
    generation: GenerationDefaults = GenerationDefaults()
    """How the model generates, by the Hugging Face folder that it comes from."""
    origin: Origin | None = None
    """That folder, in its own words; None for a run that did not begin as one."""
    name: str = ""
    """The folder of the run or checkpoint, or the hub name."""
    classes: tuple[str, ...] = ()
    """The names of the classes of the run's data, where they are known from the data alone."""

    @property
    def abilities(self) -> tuple[str, ...]:
        """The methods that the model's heads allow; for other models than text models none of these."""
        return ("module.apply",)

    @property
    def title(self) -> str:
        """The model in titles of pictures: its folder, and its family in brackets."""
        return model_title(self.name, self.config)

    def __repr__(self) -> str:
        leaves, config = jax.tree.leaves(self.params), vars(self.config)
        types = Counter(str(leaf.dtype) for leaf in leaves).most_common()
        devices = sorted({str(device) for leaf in leaves for device in leaf.devices()})
        sizes = {name: value for name, value in config.items() if type(value) is int}
        lines = {
            type(self).__name__: type(self.config).__name__,
            "  sizes": ", ".join(f"{name}={value}" for name, value in sizes.items()) or str(self.config),
            "  parameters": f"{sum(leaf.size for leaf in leaves):,} of {types[0][0]} on {', '.join(devices)}",
            **self._reads,
            "  methods": ", ".join((*self.abilities, "export", "summary")),
        }
        return "\n".join(f"{name}: {textwrap.shorten(line, 100, placeholder=' ...')}" for name, line in lines.items())

    def summary(self) -> None:
        """Prints every parameter with its shape, type and count, and how many numbers they hold together."""
        table = Table(Column("parameter", overflow="fold"), "shape", "type", Column("count", justify="right"), box=None)
        leaves = jax.tree_util.tree_leaves_with_path(self.params)
        for path, leaf in leaves:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            table.add_row(name, " x ".join(map(str, leaf.shape)), str(leaf.dtype), f"{leaf.size:,}")
        table.add_row("all", "", "", f"{sum(leaf.size for _, leaf in leaves):,}", style="bold")
        Console().print(table)

    def export(self, folder: str | Path, *, part: Part | None = None, dtype: Any = None) -> None:
        """Writes a Hugging Face folder, which `t5x_lite.load` and Transformers' `from_pretrained` open. A tokenizer of
        your own is left out.

        Args:
          folder: must not exist, or be empty.
          part: the one of ELECTRA's two networks to write; by default the discriminator.
          dtype: of the numbers in the file, such as `"bfloat16"`, which halves it; by default float32.

        Raises `InputError` for a folder that is not empty, a model that Transformers has no class for, and a type that
        is not one of parameters.
        """
        dtype = float_dtype(dtype)
        folder = Path(folder).expanduser()
        check_is_new(folder, "folder")
        if part and not self.config.networks:
            raise InputError(f"part={part!r}: a {type(self.config).__name__} is one network, no pair; leave part out")
        export_folder(
            folder,
            self.config,
            self.params,
            self.tokenizer,
            vocabulary=self._vocabulary,
            generation=self.generation,
            origin=self.origin,
            labels=self._class_names,
            image_processor=self._image_processor,
            independent_classes=self._trained_classes_are_independent,
            part=part or "discriminator",
            dtype="float32" if dtype is None else dtype.name,
        )

    def push_to_hub(
        self,
        repo_id: str,
        *,
        part: Part | None = None,
        dtype: Any = None,
        private: bool | None = None,
        license: str = "",
        held_out: Mapping[str, Any] | None = None,
    ) -> str:
        """Uploads what `export` writes, with a card made from the run, to the Hugging Face hub; returns its address.

        Args:
          repo_id: `user/name`; made where it does not exist.
          part, dtype: as in `export`.
          private: who can see a new repository; None leaves it to the account's settings.
          license: for the card, as the hub names licenses, such as `apache-2.0`.
          held_out: figures for the card, such as `Run.held_out`.

        Raises `InputError` where the hub refuses it: without a login, or for a name that is not one's own.
        """
        from t5x_lite.pretrained.hub import push

        return push(self, repo_id, part=part, dtype=dtype, private=private, license=license, held_out=held_out)

    def neighbours(self, text: str, k: int = 10) -> list[Neighbour]:
        """The `k` tokens whose input embeddings are nearest to that of `text` by cosine, the nearest first.

        The vector of a text of several tokens is their mean, and none of them is among the results. In vocabularies
        where a blank begins a word, such as GPT-2's, the blank has to stand in the text.
        """
        tokenizer, params = self._tokenizer(), self.params
        embeddings = params.get("token_embedding", params.get("embeddings", {}).get("token"))
        if embeddings is None:
            self._refuse("neighbours")
        table, size = np.asarray(embeddings["embedding"]), tokenizer.vocabulary.size
        ids = tokenizer.encode(text) if isinstance(text, str) else []
        if not ids:
            raise InputError(f"text={text!r} holds no token; give a word")
        if not 1 <= k <= size - len(set(ids)):
            raise InputError(f"k={k} is out of range; choose 1 to {size - len(set(ids))}")
        vector, table = table[ids].mean(axis=0), table[:size]
        lengths = np.linalg.norm(table, axis=1) * np.linalg.norm(vector)
        cosines = table @ vector / np.maximum(lengths, 1e-30)
        others = [token_id for token_id in np.argsort(-cosines, kind="stable").tolist() if token_id not in ids][:k]
        return [Neighbour(format_token(tokenizer, token_id), float(cosines[token_id])) for token_id in others]

    def plot_positions(self) -> "Picture":
        """What the model knows of positions: vectors and their cosines, or T5's bias by distance."""
        from t5x_lite.pictures.drawing import RelativeBias, draw_positions, draw_relative_bias

        config, params = self.config, self.params
        biases = {
            name.removesuffix("position_bias").strip("_") or config.architecture: RelativeBias(
                np.asarray(params[name]["bias"]),
                bidirectional=name == "encoder_position_bias"
                or config.architecture == "encoder"
                or getattr(config, "full_prefix", False),
                max_distance=config.relative_max_distance,
            )
            for name in ("encoder_position_bias", "decoder_position_bias", "position_bias")
            if name in params
        }
        if biases:
            return draw_relative_bias(biases, self.title)
        if getattr(config, "positions", None) == "sinusoidal":
            table = sinusoidal_positions(config.max_length, config.embed_dim)
            return draw_positions({"both stacks": table}, self.title)
        if "position" in params:
            stacks = {"decoder": params}
        elif "embeddings" in params:
            stacks = {"encoder": params["embeddings"]}
        elif "encoder_embeddings" in params:
            stacks = {name: params[f"{name}_embeddings"] for name in ("encoder", "decoder")}
        else:
            raise InputError(f"a {type(config).__name__} has no vectors of positions; load another model")
        # Some families have rows before that of the first position.
        most = getattr(getattr(config, "discriminator", config), "max_length", 0)
        return draw_positions(
            {name: np.asarray(below["position"]["embedding"])[-most:] for name, below in stacks.items()}, self.title
        )

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        """A method that other models have; calling it raises an `InputError` that names those of this one."""
        if name not in _METHODS:
            remedy = f"; use {_OF_TRANSFORMERS[name]}" if name in _OF_TRANSFORMERS else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{remedy}")

        def unavailable(*args: Any, **kwargs: Any) -> NoReturn:
            self._refuse(name)

        return unavailable

    def _refuse(self, method: str) -> NoReturn:
        *others, last = self.abilities
        model, can = type(self.config).__name__, f"{', '.join(others)} and {last}" if others else last
        article = "an" if model[0] in "AEIOU" else "a"
        raise InputError(f"{article} {model} has no {method}; use {can}, or load another model")

    def _tokenizer(self) -> Tokenizer:
        if self.config.vocab_size is None:
            raise InputError(f"a {type(self.config).__name__} reads no tokens; load a model of texts")
        if self.tokenizer is None:
            raise InputError("this checkpoint came without a tokenizer; give ids instead of text")
        return self.tokenizer

    @property
    def _class_names(self) -> tuple[str, ...]:
        """The names of the classes, as the data of the run writes them or the folder that the model came from."""
        known = self.classes or (self.experiment.data.source.classes if self.experiment else None)
        return known or (self.origin.labels if self.origin else ())

    @property
    def _trained_classes_are_independent(self) -> bool | None:
        """What the run that trained the classes says of them; None without one."""
        objective = self.experiment.objective if self.experiment else None
        learns_classes = isinstance(objective, Classification | ImageClassification)
        return objective.has_independent_classes if learns_classes else None

    def _class_probabilities(self, logits: Float[Array | np.ndarray, "*B C"]) -> Float[np.ndarray, "*B C"]:
        """Their softmax; where a picture or a text may have several classes, each one's sigmoid: as the run has it that
        trained them, and else the Hugging Face folder that the model came from."""
        independent = self._trained_classes_are_independent
        if independent is None:
            independent = self.origin is not None and self.origin.has_independent_classes
        return np.asarray((jax.nn.sigmoid if independent else jax.nn.softmax)(logits), np.float32)

    @property
    def _reads(self) -> dict[str, str]:
        """Lines of the representation: what the model reads."""
        if not self.config.vocab_size:
            return {}
        tokenizer = f"none; {self.config.vocab_size} ids"
        if self.tokenizer:
            tokenizer = f"{type(self.tokenizer).__name__} of {self._vocabulary.size:,} ids"
        return {"  tokenizer": tokenizer}

    @property
    def _image_processor(self) -> dict[str, Any] | None:
        """The preprocessor_config.json of an export; None for that of the published models, if they have one."""
        return None

    @property
    def _vocabulary(self) -> Vocabulary | None:
        """The special ids; None where no ids are read."""
        if self.tokenizer:
            return self.tokenizer.vocabulary
        return self.known_vocabulary or (Vocabulary(self.config.vocab_size) if self.config.vocab_size else None)
