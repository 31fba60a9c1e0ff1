"""ELMo in a notebook: vectors of words, by layer."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Float

from t5x_lite.errors import InputError
from t5x_lite.pretrained.task_heads import TaskHeads
from t5x_lite.tokenizers.characters import PAD_CHARACTER, word_characters


@dataclass(frozen=True, repr=False)
class PretrainedElmo(TaskHeads):
    """ELMo: `encode_words` gives vectors of the words of sentences; with heads of tasks `classify`, `choose`, `tag` and
    `answer`."""

    @property
    def abilities(self) -> tuple[str, ...]:
        return "encode_words", *self.task_methods

    def encode_words(self, sentences: list[list[str]], *, batch_size: int = 32) -> list[Float[np.ndarray, "N W E"]]:
        """For each sentence, given as its words, the vector of each word in each layer: those of the words by
        themselves first, then what the language models of both directions make of them, side by side.

        Tasks mix the layers by learned weights (Peters et al. 2018, equation 1); their mean is a good beginning. A
        sentence does not depend on the others.

        Raises `InputError` for a sentence that is no list of words, or an empty one.
        """
        for number, words in enumerate(sentences):
            if not isinstance(words, list | tuple) or not words or not all(isinstance(word, str) for word in words):
                raise InputError(
                    f"sentences[{number}]={words!r:.60} is not a list of words; give e.g. ['Two', 'words']"
                )
        vectors: list[Any] = [None] * len(sentences)
        by_length = sorted(range(len(sentences)), key=lambda n: len(sentences[n]))
        for start in range(0, len(by_length), batch_size):
            numbers = by_length[start : start + batch_size]
            layers = self._layers([sentences[n] for n in numbers])
            for row, number in enumerate(numbers):
                vectors[number] = layers[:, row, 1 : 1 + len(sentences[number])]
        return vectors

    def _layers(self, sentences: list[list[str]]) -> Float[np.ndarray, "N B L E"]:
        most = self.config.max_characters
        # Lengths and rows are multiples, so that few programs are compiled.
        length = -(-max(len(words) + 2 for words in sentences) // 16) * 16
        rows = 1 << (len(sentences) - 1).bit_length()
        characters = np.full((rows, length, most), PAD_CHARACTER, np.int32)
        valid = np.zeros((rows, length), bool)
        for row, words in enumerate(sentences):
            spelled = [word_characters(word, most) for word in ("<S>", *words, "</S>")]
            characters[row, : len(spelled)], valid[row, : len(spelled)] = spelled, True
        return np.asarray(_apply(self.module, self.params, jnp.asarray(characters), jnp.asarray(valid)))


@partial(jax.jit, static_argnums=0)
def _apply(module: nn.Module, params: Any, characters: Any, valid: Any) -> Any:
    return module.apply({"params": params}, characters, valid)
