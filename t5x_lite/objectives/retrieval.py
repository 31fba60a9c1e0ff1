"""REALM's pretraining: a masked name or date is predicted from passages that the model looks up (Guu et al. 2020)."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import linen as nn
from jaxtyping import Array, Float, Int, Integer, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.passages import Passages
from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.realm import RealmConfig, join, passage_vectors, question_vectors
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Mean, Objective, Row, row_weights
from t5x_lite.objectives.masked_language_model import gather_positions
from t5x_lite.retrieval.index import PASSAGE_AXES, Corpus, Index, empty_index, encode_all, padded_size, refresh
from t5x_lite.retrieval.inner_products import search
from t5x_lite.validation import NonNegative, Positive, Range


class Retrieved(NamedTuple):
    """The passages of each question, the best first."""

    passages: Int[Array, "B k L"]
    """Ids, without special ids."""
    scores: Float[Array, "B k"]
    """Inner products with the question, with gradients; `MASKED_LOGIT` where there is no passage."""
    numbers: Int[Array, "B k"]
    """Which of the corpus's passages they are."""


@dataclass(frozen=True)
class Retrieval(Objective):
    """Base of objectives whose model looks up passages of `data.corpus`."""

    passage_length: Annotated[int, Range(ge=4)] = 288
    """Ids of a passage, without special ones; a passage is as many whole sentences as fit."""
    num_retrieved: Positive = 8
    """k: passages that are read with each question."""
    refresh_every: NonNegative = 500
    """Steps in which all passages are encoded once more, by the encoder as it was when these steps began; 0: never, so
    that the passages' encoder is not trained either (Lee et al. 2019), and the vectors stay those that it makes."""
    index_size: NonNegative = 0
    """Passages that the index has room for; 0: as many as the corpus has, which a run counts and a plan does not."""
    approximate_search: bool = False
    """Search by `jax.lax.approx_max_k`, faster on a TPU, which misses one in twenty."""

    corpus_size: tyro.conf.Suppress[int] = field(default=0, kw_only=True)
    """Passages of the corpus: see `for_corpus`."""

    roles: ClassVar[tuple[str, ...]] = ("cls", "sep")

    @cached_property
    def corpus_layout(self) -> Layout:
        return Passages(self.passage_length)

    def for_corpus(self, num_passages: int) -> Self:
        if 0 < self.index_size < num_passages:
            raise InputError(
                f"objective.index_size={self.index_size} has no room for the {num_passages} passages of the corpus; "
                "choose more, or 0"
            )
        least = self.num_retrieved + self.leaves_out_own
        if num_passages < least:
            raise InputError(
                f"the corpus has {num_passages} passages of {self.passage_length} ids, and objective.num_retrieved="
                f"{self.num_retrieved} needs {least}; give more text, shorter passages, or retrieve fewer"
            )
        return replace(self, corpus_size=num_passages)

    @property
    def untrained(self) -> tuple[str, ...]:
        return () if self.refresh_every else ("passage_encoder/*",)

    leaves_out_own: ClassVar[bool] = False
    """Whether a row's own passage is not to be found."""

    @property
    def num_passages(self) -> int:
        """Of the corpus; in a plan, of a full index."""
        return self.corpus_size or self.index_size

    @property
    def num_rows(self) -> int:
        """Of the index, those that fill it up included."""
        if not self.num_passages:
            raise InputError(
                "objective.index_size=0 leaves the index to the size of the corpus, which only a run reads; give the "
                "number of passages to plan for"
            )
        return padded_size(self.index_size or self.corpus_size, self.refresh_every)

    def abstract_frozen(self, model: ModelConfig) -> Any:
        small = model.vocab_size <= np.iinfo(np.uint16).max
        ids = jax.ShapeDtypeStruct((self.num_rows, self.passage_length), np.uint16 if small else np.int32)
        return nn.LogicallyPartitioned(ids, PASSAGE_AXES)

    def first_index(self, model: RealmConfig, params: Any) -> Index:
        encoder = params["passage_encoder"]
        return empty_index(self.num_rows, model.projection_dim, encoder, refreshed=self.refresh_every > 0)

    def encode_corpus(self, module: nn.Module, params: Any, ids: Integer[Array, "P L"]) -> Float[Array, "P E"]:
        def encode(params: Any, ids: Int[Array, "B L"]) -> Float[Array, "B E"]:
            return module.apply({"params": params}, method=lambda model: self.embed_passages(model, ids, None))

        return encode_all(encode, params, ids, self.refresh_every)

    def next_index(
        self, module: nn.Module, index: Index, params: Any, ids: Integer[Array, "P L"], step: Int[Array, ""]
    ) -> Index:
        if not self.refresh_every:
            return index

        def encode(encoder: Any, ids: Int[Array, "B L"]) -> Float[Array, "B E"]:
            variables = {"params": {"passage_encoder": encoder}}
            return module.apply(variables, method=lambda model: self.embed_passages(model, ids, None))

        return refresh(encode, index, params["passage_encoder"], ids, step, self.refresh_every)

    def embed_passages(self, model: nn.Module, passages: Int[Array, "B L"], key: DropoutKey) -> Float[Array, "B E"]:
        """The vectors of passages without special ids."""
        return passage_vectors(model, passages, self.known_vocabulary, deterministic=key is None)

    def embed_questions(self, model: nn.Module, ids: Int[Array, "B L"], key: DropoutKey) -> Float[Array, "B E"]:
        """The vectors of questions with their special ids."""
        return question_vectors(model, ids, self.known_vocabulary, deterministic=key is None)

    def retrieve(
        self,
        model: nn.Module,
        questions: Float[Array, "B E"],
        corpus: Corpus,
        key: DropoutKey,
        own: Int[Array, "B L"] | None = None,
    ) -> Retrieved:
        """The k passages that the index finds, scored by the passages' encoder as it is now, so that both encoders have
        gradients; without refreshments, by the vectors of the index.

        Args:
          questions: their vectors.
          own: passages that are left out, wherever they stand in the corpus.
        """
        k, count = self.num_retrieved, self.num_retrieved + (own is not None)
        found = search(
            jax.lax.stop_gradient(questions),
            corpus.vectors,
            count,
            num_passages=self.num_passages,
            approximate=self.approximate_search,
        )
        numbers = jnp.maximum(found.passages, 0)
        passages = corpus.ids[numbers].astype(jnp.int32)
        missing = ~jnp.isfinite(found.scores)
        if own is not None:
            missing |= (passages == own[:, None]).all(axis=-1)
            order = jnp.argsort(missing, axis=1, stable=True)[:, :k]
            numbers, missing = (jnp.take_along_axis(x, order, axis=1) for x in (numbers, missing))
            passages = jnp.take_along_axis(passages, order[..., None], axis=1)
        if self.refresh_every:
            vectors = self.embed_passages(model, passages.reshape(-1, passages.shape[-1]), key)
            vectors = vectors.reshape(*numbers.shape, -1)
        else:
            vectors = corpus.vectors[numbers]
        scores = jnp.einsum("be,bke->bk", questions, vectors, precision=jax.lax.Precision.HIGHEST)
        return Retrieved(passages, jnp.where(missing, MASKED_LOGIT, scores), numbers)

    def joined(self, questions: Int[Array, "B Q"], passages: Int[Array, "B k L"]) -> Any:
        """A row for each question with each of its passages, those of a question together: see `models.realm.join`."""
        k = passages.shape[1]
        return join(jnp.repeat(questions, k, axis=0), passages.reshape(-1, passages.shape[-1]), self.known_vocabulary)

    def check_model(self, model: ModelConfig) -> None:
        name = type(self).__name__
        if not isinstance(model, RealmConfig):
            raise InputError(f"model is a {type(model).__name__}, which retrieves nothing; give {name} a RealmConfig")
        if model.shared and not self.refresh_every:
            raise InputError(
                "objective.refresh_every=0 keeps the passages' vectors, whose encoder the questions train where "
                "model.shared=True; choose False, or steps after which they are made anew"
            )
        if self.passage_length + 2 > model.encoder.max_length:
            raise InputError(
                f"objective.passage_length={self.passage_length} and two special ids exceed model.encoder.max_length="
                f"{model.encoder.max_length}; choose shorter passages or more positions"
            )

    def check_reader(self, model: RealmConfig, question_length: int) -> None:
        """Raises `InputError` where the model has no reader, or one with too few positions."""
        if model.reader is None:
            raise InputError(
                f"model.reader=None reads no passages; give the RealmConfig a reader for {type(self).__name__}"
            )
        if question_length > model.encoder.max_length:
            raise InputError(
                f"objective.input_length={question_length} exceeds model.encoder.max_length="
                f"{model.encoder.max_length}; choose shorter questions or more positions"
            )
        if question_length + self.passage_length + 1 > model.reader.max_length:
            raise InputError(
                f"objective.input_length={question_length} and objective.passage_length={self.passage_length} do not "
                f"fit into model.reader.max_length={model.reader.max_length}; choose shorter ones or more positions"
            )


@dataclass(frozen=True)
class RetrievalMaskedLanguageModel(Retrieval):
    """A sentence in which one name or date is hidden, and the passages that are to tell it (Guu et al. 2020, 3.1-3.4).

    The loss is the negative logarithm of the probability of the hidden tokens, over the k passages found and the empty
    one: ``p(y | x) = sum_z p(z | x) p(y | x, z)``, where ``p(z | x)`` is the softmax of the inner products. A row's own
    passage is left out. Names and dates are found by rules: see `data.layouts.salient_spans`; where a passage has none,
    a token of it is hidden.

    Features are `inputs` [L], `positions` [T] and `targets` [T], and `own` [P], the passage of the sentence.
    """

    input_length: Annotated[int, Range(ge=8)] = 64
    """Ids of a sentence, special ones and padding included; of a longer one the part around what is hidden."""
    span_length: Positive = 10
    """Tokens of a name or date that are hidden, at most."""
    marginal: Literal["span", "token"] = "span"
    """Whether passages are summed over for all hidden tokens together, as the paper has it (equations 1 and 2), or for
    each of them, as the released code does."""

    roles: ClassVar[tuple[str, ...]] = ("mask", "cls", "sep")
    leaves_out_own: ClassVar[bool] = True

    @property
    def layout(self) -> Layout:
        return self.corpus_layout

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One passage to a sentence of it with something hidden.

        >>> from t5x_lite.data import Vocabulary
        >>> objective = RetrievalMaskedLanguageModel(6, input_length=8, span_length=2)
        >>> objective = objective.for_vocabulary(Vocabulary(99, cls_id=3, sep_id=4, mask_id=5, eos_id=4))
        >>> row = {"ids": jnp.array([10, 11, 12, 20, 21, 0]), "sentences": jnp.array([1, 1, 1, 2, 2, 0])}
        >>> row = objective.corrupt(jax.random.key(0), row | {"spans": jnp.array([0, 0, 0, 0, 1, 0])})
        >>> {name: row[name].tolist() for name in ("inputs", "positions", "targets")}
        {'inputs': [3, 20, 5, 4, 0, 0, 0, 0], 'positions': [2, 0], 'targets': [21, 0]}
        """
        self.check_row(row)
        vocabulary, room = self.known_vocabulary, self.input_length - 2
        ids, sentences, spans = row["ids"], row["sentences"], row["spans"]
        index, size = jnp.arange(len(ids)), (row["sentences"] > 0).sum()
        span_key, token_key = jax.random.split(key)
        number = jax.random.randint(span_key, (), 1, jnp.maximum(spans.max(), 1) + 1)
        token = jax.random.randint(token_key, (), 0, jnp.maximum(size, 1))
        hidden = jnp.where(spans.max() > 0, spans == number, index == token)
        first = jnp.argmax(hidden)
        hidden &= index < first + min(self.span_length, room)
        inside = sentences == sentences[first]
        begin, end = jnp.argmax(inside), len(ids) - jnp.argmax(inside[::-1])
        # The part of a long sentence that has what is hidden near its middle.
        start = jnp.clip(first - room // 2, begin, jnp.maximum(begin, end - room))
        taken = start + jnp.arange(room)
        there, at = taken < end, jnp.minimum(taken, len(ids) - 1)
        shown = jnp.where(hidden[at], vocabulary.mask_id, ids[at])
        length = there.sum()
        inputs = jnp.full(self.input_length, vocabulary.pad_id, jnp.int32).at[0].set(vocabulary.cls_id)
        inputs = inputs.at[1:-1].set(jnp.where(there, shown, vocabulary.pad_id)).at[length + 1].set(vocabulary.sep_id)
        offsets = jnp.arange(self.span_length)
        used = offsets < hidden.sum()
        positions = jnp.where(used, first - start + 1 + offsets, 0)
        targets = jnp.where(used, ids[jnp.minimum(first + offsets, len(ids) - 1)], vocabulary.pad_id)
        return {"inputs": inputs, "positions": positions, "targets": targets, "own": ids}

    def loss(
        self,
        module: nn.Module,
        params: Any,
        features: Features,
        key: DropoutKey,
        *,
        whole: Features | None = None,
        frozen: Any = None,
    ) -> Loss:
        """Metrics: `accuracy` of the likeliest tokens, each over all passages; `null_probability`, the probability of
        the empty passage; and `retrieval_utility`, by how many nats a passage found makes what is hidden likelier than
        the empty passage does (Guu et al. 2020, section 4.3), on average."""
        log_passages, log_tokens = self.probabilities(module, params, features, frozen, key)
        targets = features["targets"]
        used = (targets != self.known_vocabulary.pad_id).astype(jnp.float32)
        weights = row_weights(features)
        own = jnp.take_along_axis(log_tokens, targets[:, None, :, None], axis=-1)[..., 0] * used[:, None]
        total = -(marginal_likelihood(log_passages, own, by=self.marginal) * weights).sum()
        over_passages = jax.nn.logsumexp(jax.lax.stop_gradient(log_passages[..., None, None] + log_tokens), axis=1)
        correct = (over_passages.argmax(axis=-1) == targets) * used * weights[:, None]
        rows, spans = weights.sum(), own.sum(axis=-1)
        utility = (spans[:, :-1] - spans[:, -1:]).mean(axis=1)
        metrics = {
            "loss": total,
            "accuracy": correct.sum(),
            "null_probability": Mean((jnp.exp(log_passages[:, -1]) * weights).sum(), rows),
            "retrieval_utility": Mean((utility * weights).sum(), rows),
        }
        return total, (used * weights[:, None]).sum(), metrics

    def probabilities(
        self, module: nn.Module, params: Any, features: Features, corpus: Corpus, key: DropoutKey
    ) -> tuple[Float[Array, "B z"], Float[Array, "B z T V"]]:
        """The logarithms of the probabilities of each passage, the empty one last, and of each token given it."""

        def compute(model: nn.Module) -> tuple[Array, Array]:
            inputs = features["inputs"]
            questions = self.embed_questions(model, inputs, key)
            found = self.retrieve(model, questions, corpus, key, features["own"])
            empty = jnp.full((1, self.passage_length), self.known_vocabulary.pad_id)
            null = questions @ self.embed_passages(model, empty, key)[0]
            passages = jnp.pad(found.passages, ((0, 0), (0, 1), (0, 0)), constant_values=self.known_vocabulary.pad_id)
            log_passages = jax.nn.log_softmax(jnp.concatenate([found.scores, null[:, None]], axis=1))
            hidden = model.read(self.joined(inputs, passages), deterministic=key is None)
            positions = jnp.repeat(features["positions"], passages.shape[1], axis=0)
            logits = model.masked_lm_scores(gather_positions(hidden, positions)).dense()
            return log_passages, jax.nn.log_softmax(logits).reshape(*log_passages.shape, *logits.shape[1:])

        rngs = None if key is None else {"dropout": key}
        return module.apply({"params": params}, method=compute, rngs=rngs)

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """The likeliest token at each hidden position, over all passages; `params` are `ParamsAndCorpus`."""
        log_passages, log_tokens = self.probabilities(module, params.params, features, params.corpus, None)
        ids = jax.nn.logsumexp(log_passages[..., None, None] + log_tokens, axis=1).argmax(axis=-1)
        pad_id = self.known_vocabulary.pad_id
        return jnp.where(features["targets"] != pad_id, ids, pad_id)

    def check_model(self, model: ModelConfig) -> None:
        super().check_model(model)
        self.check_reader(model, self.input_length)
        if "masked_lm" not in model.reader.heads:
            raise InputError(
                f"model.reader.heads={model.reader.heads} lacks masked_lm, which {type(self).__name__} trains; set "
                "model.reader.heads to ('masked_lm',)"
            )


def marginal_likelihood(
    log_passages: Float[Array, "B z"], log_tokens: Float[Array, "B z T"], *, by: Literal["span", "token"]
) -> Float[Array, "B"]:
    """The logarithm of the probability of tokens, over the passages that they are read with; of the tokens together
    (`by="span"`), or of each, added up.

    >>> half = jnp.log(jnp.full((1, 2), 0.5))
    >>> tokens = jnp.log(jnp.array([[[0.5, 0.5], [0.1, 0.9]]]))
    >>> [round(float(jnp.exp(marginal_likelihood(half, tokens, by=by))[0]), 3) for by in ("span", "token")]
    [0.17, 0.21]
    """
    if by == "span":
        return jax.nn.logsumexp(log_passages + log_tokens.sum(axis=-1), axis=1)
    return jax.nn.logsumexp(log_passages[..., None] + log_tokens, axis=1).sum(axis=-1)
