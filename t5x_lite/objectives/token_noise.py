"""T5's objectives whose noise is drawn token by token (Raffel et al. 2020, section 3.3)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.data.formats import Stream
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives import masking
from t5x_lite.objectives.text_to_text import TextToText, closed


@dataclass(frozen=True)
class TokenNoise(TextToText):
    """Noise tokens lie anywhere in a row, each set of them as likely as any other.

    A row has exactly `num_noise_tokens` of them, where the paper's code draws for each token whether it is one. Special
    ids, such as the EOS between two documents, are none; a row of hardly any text has as much noise as it has text.
    """

    noise_density: float = 0.15
    """Share of the raw ids that is noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.noise_density < 1.0:
            raise InputError(f"noise_density={self.noise_density} is not between 0 and 1; choose e.g. 0.15")

    @property
    def row_format(self) -> Stream:
        return Stream(self.raw_length)

    @property
    def raw_length(self) -> int:
        """The most raw ids that can become an input of `input_length`."""
        return self.input_length - 1

    @property
    def num_noise_tokens(self) -> int:
        return self._noise_in(self.raw_length)

    def _noise_in(self, length: int) -> int:
        """Noise tokens in `length` raw ids: at least one, and not all."""
        return min(max(round(length * self.noise_density), 1), length - 1)

    def noise_mask(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Bool[Array, "R"]:
        """Which raw ids are noise."""
        text = ~masking.is_special(raw, self.known_vocabulary)
        return masking.choose_tokens(key, text, jnp.int32(self.num_noise_tokens))


def mask_token_id(vocabulary: Vocabulary) -> int:
    """The vocabulary's mask token, or the first sentinel where it has none, as T5's have."""
    if vocabulary.mask_id is not None:
        return vocabulary.mask_id
    if not vocabulary.num_sentinels:
        raise InputError("the tokenizer has no mask token and no sentinels; set tokenizer.extra_ids to 1 or more")
    return vocabulary.sentinel_id(0)


def mask_tokens(
    raw: Int[Array, "R"], noise: Bool[Array, "R"], vocabulary: Vocabulary, shown: Int[Array, "R"] | None = None
) -> tuple[Int[Array, "R1"], Int[Array, "R1"]]:
    """(inputs, targets) of one row under a noise mask: a token in the place of each noise token, and the row as it was,
    both closed by EOS. `shown` says which token at each place; None means the mask token everywhere.

    The row "MASS-style" of the paper's table 3:

    >>> words = "Thank you for inviting me to your party last week .".split()
    >>> noise = jnp.array([word in ("for", "inviting", "last") for word in words])
    >>> inputs, targets = mask_tokens(jnp.arange(10, 21), noise, Vocabulary(size=22, mask_id=21))
    >>> " ".join("<M>" if i == 21 else words[i - 10] for i in inputs.tolist() if i > 1)
    'Thank you <M> <M> me to your party <M> week .'
    >>> " ".join(words[i - 10] for i in targets.tolist() if i > 1)
    'Thank you for inviting me to your party last week .'
    """
    shown = jnp.int32(mask_token_id(vocabulary)) if shown is None else shown
    return closed(jnp.where(noise, shown, raw).astype(raw.dtype), vocabulary), closed(raw, vocabulary)
