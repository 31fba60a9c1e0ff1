"""REALM: a retriever of passages, and a reader of the passages that it finds (Guu et al. 2020; Lee et al. 2019)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.layers.dense import Dense, make_norm
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Architecture, Hidden, Ids, ModelConfig, Valid
from t5x_lite.models.bert import BertConfig
from t5x_lite.models.encoder import Encoder, EncoderConfig
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NonNegative, Positive

_INIT = nn.initializers.truncated_normal(0.02)
_ANSWER_EPSILON = 1e-3


@dataclass(frozen=True)
class RealmConfig(ModelConfig):
    """The architecture of a retriever and, where it has one, its reader. The defaults are base, without a reader."""

    encoder: BertConfig = field(default_factory=BertConfig)
    """Of questions and of passages. Needs a pooler."""
    shared: bool = False
    """Whether questions and passages are read by one encoder, as the released code pretrains it, or each by its own. A
    model with two can begin with one that shares."""
    projection_dim: Positive = 128
    """Width of the vectors that are compared."""
    reader: BertConfig | None = None
    """Reads a question and a passage as one row; None: a retriever alone, as `InverseCloze` trains it. Pretraining
    needs its head masked_lm."""
    answer_dim: NonNegative = 0
    """Width of the layer that scores spans of a passage as answers; 0: there is none, and questions have no answer."""

    architecture: ClassVar[Architecture | None] = "retriever"
    below_layers: ClassVar[tuple[str, ...]] = (
        "question_encoder/encoder/embeddings",
        "passage_encoder/encoder/embeddings",
        "reader/embeddings",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.encoder.pooler:
            raise InputError("encoder.pooler=False leaves a text without the vector that is projected; set it to True")
        if self.encoder.heads:
            raise InputError(f"encoder.heads={self.encoder.heads} would not be trained; set it to ()")
        if self.reader is not None and self.reader.vocab_size != self.encoder.vocab_size:
            raise InputError(
                f"reader.vocab_size={self.reader.vocab_size} is not encoder.vocab_size={self.encoder.vocab_size}; "
                "choose one value, since they have one tokenizer"
            )
        if self.answer_dim and self.reader is None:
            raise InputError(f"answer_dim={self.answer_dim} needs a reader, which finds the answers; give one, or 0")

    @property
    def vocab_size(self) -> int:
        return self.encoder.vocab_size

    @property
    def max_length(self) -> int:
        """Positions of the longest question or passage."""
        return self.encoder.max_length

    @property
    def sharded_sizes(self) -> dict[str, int]:
        networks = {"encoder": self.encoder, "reader": self.reader}
        return {f"{name}.num_heads": one.num_heads for name, one in networks.items() if one is not None}

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.encoder.check_vocabulary(vocabulary)

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2), jnp.int32),) * 2

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "Realm":
        return Realm(self, dtype=dtype, remat=remat)


class TextEncoder(nn.Module):
    """A vector for a text: `norm(dense(pooled))` of BERT (Lee et al. 2019, section 3; the norm is the released
    code's)."""

    config: EncoderConfig
    projection_dim: int
    dtype: Any = jnp.float32
    remat: Remat = "none"

    @nn.compact
    def __call__(self, ids: Ids, *, inputs_valid: Valid = None, deterministic: bool = True) -> Float[Array, "B E"]:
        """Vectors, float32."""
        c = self.config
        encoder = Encoder(c, self.dtype, self.remat, name="encoder")
        pooled = encoder(ids, inputs_valid=inputs_valid, deterministic=deterministic)["pooled"]
        x = Dense(self.projection_dim, ("embed", "hidden"), True, jnp.float32, _INIT, name="dense")(pooled)
        return make_norm("layer", epsilon=c.norm_epsilon, dtype=jnp.float32, name="norm")(x)


class AnswerScores(nn.Module):
    """How well each span of a passage answers: `dense(norm(relu(s(begin) + e(end))))` (Lee et al. 2019, section 3; the
    norm is the released code's)."""

    features: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, hidden: Hidden, inside: Bool[Array, "B L"], longest: int) -> Float[Array, "B L W"]:
        """Logits of the spans that begin at each position and have 1 to W = `longest` tokens; `MASKED_LOGIT` of those
        that are not all `inside`."""
        both = Dense(2 * self.features, ("embed", "hidden"), True, self.dtype, _INIT, name="ends")(hidden)
        begins, ends = jnp.split(both, 2, axis=-1)
        # Of each position the ends 0, 1, ... tokens later; those beyond the row are outside.
        later = jnp.arange(hidden.shape[1])[:, None] + jnp.arange(longest)[None]
        there, later = later < hidden.shape[1], jnp.minimum(later, hidden.shape[1] - 1)
        x = jax.nn.relu(begins[:, :, None] + ends[:, later])
        x = make_norm("layer", epsilon=_ANSWER_EPSILON, dtype=self.dtype, name="norm")(x)
        logits = Dense(1, ("embed", "classes"), True, jnp.float32, _INIT, name="scores")(x)[..., 0]
        return jnp.where(inside[:, :, None] & inside[:, later] & there[None], logits, MASKED_LOGIT)


class Joint(NamedTuple):
    """A question and a passage in a row each: `[CLS] question [SEP] passage [SEP] pad ...`."""

    ids: Int[Array, "B L"]
    segments: Int[Array, "B L"]
    valid: Bool[Array, "B L"]

    def in_passage(self) -> Bool[Array, "B L"]:
        """True at the tokens of the passage, its separator apart."""
        following = jnp.pad(self.valid[:, 1:], ((0, 0), (0, 1)))
        return (self.segments == 1) & following


def join(
    questions: Int[Array, "B Q"],
    passages: Int[Array, "B P"],
    vocabulary: Vocabulary,
) -> Joint:
    """Questions, with their special ids, and passages, without; both padded at their ends.

    >>> vocabulary = Vocabulary(20, cls_id=2, sep_id=3, eos_id=3)
    >>> joint = join(jnp.array([[2, 10, 3, 0]]), jnp.array([[11, 12, 0]]), vocabulary)
    >>> joint.ids.tolist(), joint.segments.tolist()
    ([[2, 10, 3, 11, 12, 3, 0, 0]], [[0, 0, 0, 1, 1, 1, 0, 0]])
    """
    pad_id = vocabulary.pad_id
    index = jnp.arange(questions.shape[1] + passages.shape[1] + 1)[None]
    first = (questions != pad_id).sum(axis=1, keepdims=True)
    second = (passages != pad_id).sum(axis=1, keepdims=True)
    questions = jnp.pad(questions, ((0, 0), (0, passages.shape[1] + 1)))
    from_passage = jnp.clip(index - first, 0, passages.shape[1] - 1)
    ids = jnp.where(index < first, questions, jnp.take_along_axis(passages, from_passage, axis=1))
    ids = jnp.where(index == first + second, vocabulary.sep_id, ids)
    valid = index <= first + second
    ids = jnp.where(valid, ids, pad_id)
    return Joint(ids, ((index >= first) & valid).astype(jnp.int32), valid)


def closed(passages: Int[Array, "B P"], vocabulary: Vocabulary) -> Int[Array, "B L"]:
    """Passages between their special ids, as their encoder reads them.

    >>> closed(jnp.array([[11, 12, 0]]), Vocabulary(20, cls_id=2, sep_id=3, eos_id=3)).tolist()
    [[2, 11, 12, 3, 0]]
    """
    length = (passages != vocabulary.pad_id).sum(axis=1, keepdims=True)
    ids = jnp.pad(passages, ((0, 0), (1, 1)), constant_values=vocabulary.pad_id)
    ids = jnp.where(jnp.arange(ids.shape[1])[None] == length + 1, vocabulary.sep_id, ids)
    return ids.at[:, 0].set(vocabulary.cls_id)


def question_vectors(
    model: "Realm", ids: Ids, vocabulary: Vocabulary, *, deterministic: bool = True
) -> Float[Array, "B E"]:
    """The vectors of questions with their special ids, padded at their ends."""
    return model.embed_questions(ids, inputs_valid=ids != vocabulary.pad_id, deterministic=deterministic)


def passage_vectors(
    model: "Realm", passages: Int[Array, "B P"], vocabulary: Vocabulary, *, deterministic: bool = True
) -> Float[Array, "B E"]:
    """The vectors of passages without special ids, padded at their ends."""
    ids = closed(passages, vocabulary)
    return model.embed_passages(ids, inputs_valid=ids != vocabulary.pad_id, deterministic=deterministic)


class Realm(nn.Module):
    """`passage_encoder`, `question_encoder` where it is another one, and `reader`. Used inside `apply` through the
    methods below."""

    config: RealmConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.passage_encoder = TextEncoder(c.encoder, c.projection_dim, self.dtype, self.remat)
        if not c.shared:
            self.question_encoder = TextEncoder(c.encoder, c.projection_dim, self.dtype, self.remat)
        if c.reader is not None:
            self.reader = Encoder(c.reader, self.dtype, self.remat)
        if c.answer_dim:
            self.answers = AnswerScores(c.answer_dim, self.dtype)

    def __call__(self, questions: Ids, passages: Int[Array, "P M"]) -> Float[Array, "B P"]:
        """The inner products of questions with passages, both with their special ids and without padding."""
        if self.is_initializing() and self.config.reader is not None:
            outputs = self.reader(questions)
            if self.config.answer_dim:
                self.answers(outputs["hidden"], jnp.ones(questions.shape, bool), 1)
        return self.embed_questions(questions) @ self.embed_passages(passages).T

    def embed_questions(self, ids: Ids, *, inputs_valid: Valid = None, deterministic: bool = True) -> Array:
        """Vectors [B E] of questions, float32."""
        encoder = self.passage_encoder if self.config.shared else self.question_encoder
        return encoder(ids, inputs_valid=inputs_valid, deterministic=deterministic)

    def embed_passages(self, ids: Ids, *, inputs_valid: Valid = None, deterministic: bool = True) -> Array:
        """Vectors [B E] of passages, float32."""
        return self.passage_encoder(ids, inputs_valid=inputs_valid, deterministic=deterministic)

    def read(self, joint: Joint, *, deterministic: bool = True) -> Hidden:
        """The reader's last layer."""
        options = {"inputs_valid": joint.valid, "deterministic": deterministic}
        return self.reader.hidden_states(joint.ids, joint.segments, **options)

    def masked_lm_scores(self, hidden: Float[Array, "B P D"]) -> LazyLogits:
        """The scores of the token at each of some positions."""
        return self.reader.masked_lm_scores(hidden)

    def answer_scores(self, hidden: Hidden, inside: Bool[Array, "B L"], longest: int) -> Float[Array, "B L W"]:
        """The logits of the spans of passages: see `AnswerScores`."""
        return self.answers(hidden, inside, longest)


_READER = BertConfig(heads=("masked_lm",), activation="gelu_tanh")
_ENCODER = BertConfig(activation="gelu_tanh")

PRESETS: dict[str, ModelConfig] = {
    "realm-embedder": RealmConfig(_ENCODER, shared=True),
    "realm-retriever": RealmConfig(_ENCODER),
    "realm": RealmConfig(_ENCODER, reader=_READER),
    "realm-reader": RealmConfig(_ENCODER, reader=BertConfig(activation="gelu_tanh"), answer_dim=256),
}
"""The published size: one encoder for questions and passages, one for each, and two with the reader of pretraining, or
with that of questions."""
