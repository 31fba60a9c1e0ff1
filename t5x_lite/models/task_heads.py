"""The heads of tasks: their names, and what a module that can have them offers, so that one objective trains them all.

    hidden_states(inputs, segments, *, inputs_valid, deterministic)     hidden [B L D]: what the heads stand on
    classification_logits(hidden, *, inputs_valid, deterministic)       [B C]
    multiple_choice_logits(hidden, *, inputs_valid, deterministic)      [B], one choice a row
    tagging_logits(hidden, *, inputs_valid, deterministic)              [B L C]
    question_answering_logits(hidden, *, inputs_valid, deterministic)   [B L 2]: where an answer begins, its last token

`inputs_valid` is true where `inputs` is no padding: models that read from left to right have heads on the end of a row.
"""

from typing import Any, Literal

from flax import linen as nn
from jaxtyping import Array, Bool, Float

from t5x_lite.errors import InputError
from t5x_lite.layers.heads import at_end

TaskHead = Literal["classification", "multiple_choice", "tagging", "question_answering"]
"""What a task can ask of a model."""

TASK_HEADS = ("classification", "multiple_choice", "tagging", "question_answering")
"""All of them, which pretraining knows nothing of."""


def check_head_names(config: Any, known: tuple[str, ...]) -> None:
    """Raises `InputError` for a head that is not known, and for one that is named twice."""
    for head in config.heads:
        if head not in known:
            raise InputError(
                f"heads={config.heads}: {head!r} is no head of {type(config).__name__}; choose among {', '.join(known)}"
            )
    if len(set(config.heads)) < len(config.heads):
        raise InputError(f"heads={config.heads} names one of them twice; name each once")


class TokenHeads(nn.Module):
    """What heads on each token say, whichever way a module reads.

    A module derives from this, and makes in its `setup` those heads that its config names.
    """

    def tagging_logits(
        self,
        hidden: Float[Array, "B L D"],
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L C"]:
        """Which tag each token has."""
        return self.tagging(hidden, deterministic=deterministic)

    def question_answering_logits(
        self,
        hidden: Float[Array, "B L D"],
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B L 2"]:
        """Where an answer begins (0) and which is its last token (1)."""
        return self.question_answering(hidden, deterministic=deterministic)


class LastTokenHeads(TokenHeads):
    """What heads say in modules that read from left to right, where the last token of a row has seen all of it."""

    def classification_logits(
        self,
        hidden: Float[Array, "B L D"],
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B C"]:
        """Which class a row is of, from its last token; with one class, the number that is predicted."""
        return self.classification(at_end(hidden, inputs_valid), deterministic=deterministic)

    def multiple_choice_logits(
        self,
        hidden: Float[Array, "B L D"],
        *,
        inputs_valid: Bool[Array, "B L"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B"]:
        """How well a row, which holds one choice, answers; the softmax is over the rows of a question."""
        return self.multiple_choice(at_end(hidden, inputs_valid), deterministic=deterministic)[:, 0]

    def init_heads(self, hidden: Float[Array, "B L D"]) -> None:
        """Where parameters are made, has each head make its own: what a module's call gives is its output alone."""
        if self.is_initializing():
            for head in self.config.heads:
                getattr(self, f"{head}_logits")(hidden)
