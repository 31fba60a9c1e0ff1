"""T5's baseline: noise tokens drawn one by one, neighbours replaced by one sentinel (Raffel et al. 2020, 3.1.4)."""

from dataclasses import dataclass
from typing import ClassVar, Self

from jaxtyping import Array, Int, Key

from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives.base import Features
from t5x_lite.objectives.span_corruption import replace_spans
from t5x_lite.objectives.token_noise import TokenNoise


@dataclass(frozen=True)
class ReplaceSpans(TokenNoise):
    """Noise tokens that stand together become one sentinel in the input; the target lists each sentinel and what it
    stands for ("i.i.d. noise, replace spans" in table 3).

    The number of spans differs from row to row, so rows end with padding.
    """

    input_length: int = 512
    """Ids of the input at most, sentinels and EOS included."""

    targets_are_text: ClassVar[bool] = False

    @property
    def most_sentinels(self) -> int:
        """Sentinels in a row where no two noise tokens stand together, the one that closes the target included."""
        noise = self.num_noise_tokens
        return min(noise, self.raw_length - noise) + 1

    @property
    def target_length(self) -> int:
        return self.num_noise_tokens + self.most_sentinels + 1

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        if self.most_sentinels > vocabulary.num_sentinels:
            raise InputError(
                f"input_length={self.input_length} with noise_density={self.noise_density} takes up to "
                f"{self.most_sentinels} sentinels but the tokenizer has {vocabulary.num_sentinels}; raise "
                "tokenizer.extra_ids"
            )
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """`raw_length` ids to `inputs` [input_length] and `targets` [target_length]."""
        self.check_row(raw)
        noise, lengths = self.noise_mask(key, raw), (self.input_length, self.target_length)
        inputs, targets = replace_spans(raw, noise, self.known_vocabulary, *lengths)
        return {"inputs": inputs, "targets": targets}
