"""An encoder in a notebook: tokens for masks, vectors of texts and words, probabilities of replaced tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.layers.heads import at_end
from t5x_lite.layers.linformer import Linformer
from t5x_lite.pictures.attention import AttentionMaps, make_map, sown_weights
from t5x_lite.pretrained.batches import (
    Batch,
    Row,
    Text,
    apply_model,
    check_ids,
    cut_rows,
    is_one,
    named_texts,
    pad_rows,
    padded_row,
    power,
    word_rows,
)
from t5x_lite.pretrained.task_heads import TaskHeads, head_logits, network_of
from t5x_lite.tokenizers.base import format_tokens

NamedLayers = Literal["last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all", "mean"]
Layers = NamedLayers | int
"""The last layer's output, that of the one before, the sum or the concatenation of the last four, the sum of all layers
(Devlin et al. 2019, table 7), their mean, or the output of one layer: 1 is the first, 0 the embeddings, -1 the last."""

TABLE_7: tuple[Layers, ...] = (0, "second_to_last", "last", "sum_last_4", "concat_last_4", "sum_all")
"""The rows of the feature-based approach in that table, in its order; its weighted sums are plain ones here."""

Pooling = Literal["mean", "cls", "tokens"]
"""The mean of a text's tokens, special ones included; the vector of [CLS], which is the first one, and XLNet's last; or
one for each token."""

NAMED_LAYERS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "last": (1, lambda outputs: outputs[-1]),
    "second_to_last": (2, lambda outputs: outputs[-2]),
    "sum_last_4": (4, lambda outputs: outputs[-4:].sum(axis=0)),
    "concat_last_4": (4, lambda outputs: jnp.concatenate(outputs[:-5:-1], axis=-1)),
    "sum_all": (1, lambda outputs: outputs[1:].sum(axis=0)),
    "mean": (1, lambda outputs: outputs[1:].mean(axis=0)),
}
"""By name (the layers that a model needs for it, one vector a token from the embeddings and the layers' outputs)."""


def check_layers(layers: Layers, num_layers: int) -> None:
    """Raises `InputError` for a choice that a model of `num_layers` lacks."""
    if isinstance(layers, int) and not isinstance(layers, bool):
        if not -num_layers - 1 <= layers <= num_layers:
            raise InputError(
                f"layers={layers} is not a layer of this model; choose 0 (embeddings) to {num_layers}, or -1"
            )
    elif layers not in NAMED_LAYERS:
        raise InputError(f"layers={layers!r} is unknown; choose one of {', '.join(NAMED_LAYERS)}, or a number")
    elif num_layers < NAMED_LAYERS[layers][0]:
        least = {2: "two", 4: "four"}[NAMED_LAYERS[layers][0]]
        raise InputError(f"layers={layers!r} needs {least} layers and this model has {num_layers}; choose last or mean")


def check_pooling(pooling: Pooling) -> None:
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling={pooling!r} is unknown; choose one of {', '.join(get_args(Pooling))}")


def choose_layers(outputs: Float[Array, "N1 B L D"], layers: Layers) -> Float[Array, "B L _"]:
    """One vector a token from the embeddings (the first of `outputs`) and the output of each layer after it.

    `concat_last_4` gives 4 D features, the last layer's first; all others give D.
    """
    return outputs[layers] if isinstance(layers, int) else NAMED_LAYERS[layers][1](outputs)


def pool(
    vectors: Float[Array, "B L D"], valid: Bool[Array, "B L"], pooling: Pooling | Literal["last"]
) -> Float[Array, "B D"] | Float[Array, "B L D"]:
    """One vector a text: the mean over its tokens, without padding, the first, or the last; with "tokens" all."""
    if pooling == "tokens":
        return vectors
    if pooling == "cls":
        return vectors[:, 0]
    if pooling == "last":
        return at_end(vectors, valid)
    weights = valid.astype(vectors.dtype)[..., None]
    return (vectors * weights).sum(axis=1) / weights.sum(axis=1)


class Suggestion(NamedTuple):
    """A token for a mask."""

    token: str
    probability: float
    text: str
    """The whole text with the token at this position; other masks stay."""


class Detection(NamedTuple):
    """A token of a text."""

    token: str
    probability: float
    """That it replaces the original token, between 0 and 1."""


@dataclass(frozen=True, repr=False)
class PretrainedEncoder(TaskHeads):
    """`fill_mask` for hidden tokens, `encode` for vectors, `detect_replacements` with a discriminator; with heads of
    tasks `classify`, `choose`, `tag` and `answer`.

    Texts are tokenized as `[CLS] text [SEP]`, pairs `(a, b)` as `[CLS] a [SEP] b [SEP]`, with two separators between
    them where the tokenizer is RoBERTa's, and [CLS] last where it is XLNet's. Of ELECTRA's two networks the generator
    fills in and the discriminator does the rest.
    """

    @property
    def abilities(self) -> tuple[str, ...]:
        return "encode", *self.task_methods

    def __call__(
        self,
        texts: Text | list[Text] | Int[Array, "B L"],
        segments: Int[Array, "B L"] | None = None,
        *,
        valid: Bool[Array, "B L"] | None = None,
    ) -> dict[str, Any]:
        """Every output for a batch: `hidden` [B L D], `pooled` [B D] where there is a pooler, `<head>_logits`.

        Texts are padded to the longest. Of ids, those count as padding where `valid` is false, by default those equal
        to the padding id, and `segments` are 0 unless given. Of ELECTRA's pair there are two such dictionaries,
        `generator` and `discriminator`.
        """
        if isinstance(texts, str | tuple | list) and (is_one(texts) or not texts or isinstance(texts[0], str | tuple)):
            inputs, segments, valid = pad_rows(self._rows(texts), self._pad_id)
        else:
            inputs, most = check_ids(texts, self._network.vocab_size), max(self._network.num_segments, 1)
            if segments is None:
                segments = np.zeros_like(inputs)
            segments = check_ids(segments, most, name="segments", shape=inputs.shape)
            valid = inputs != self._pad_id if valid is None else np.asarray(valid, bool)
        return apply_model(self.module, self.params, inputs, segments, inputs_valid=valid)

    def fill_mask(self, texts: Text | list[Text], *, top_k: int = 5) -> list[Any]:
        """The likeliest tokens for each mask, best first.

        One text with one mask gives `top_k` suggestions, with several masks a list of these in their order; a list of
        texts gives a list. Special tokens are not suggested; probabilities are those among all tokens.

        Raises `InputError` for a text without a mask, and a model without a masked LM head.
        """
        self._require_head("fill_mask")
        tokenizer, vocabulary = self._tokenizer(), self._tokenizer().vocabulary
        num_allowed = vocabulary.size - len(vocabulary.special_ids)
        if not 1 <= top_k <= num_allowed:
            raise InputError(f"top_k={top_k} is out of range; choose 1 to {num_allowed}")
        rows = self._rows(texts)
        masks = [np.flatnonzero(np.array(row.ids) == vocabulary.mask_id).tolist() for row in rows]
        for name, positions in zip(named_texts(texts, pairs=True), masks, strict=True):
            if not positions:
                raise InputError(f"{name} has no mask; write {tokenizer.mask_token} where a token is to be filled in")
        best = self._apply(_best_tokens, rows, vocabulary, power(max(map(len, masks)), 1), top_k)
        decode, answers = tokenizer.decode, []
        for row, positions, (ids, probabilities) in zip(rows, masks, best, strict=True):
            by_mask = [
                [
                    Suggestion(decode([token]), share, decode([*row.ids[:position], token, *row.ids[position + 1 :]]))
                    for token, share in zip(tokens, shares, strict=True)
                ]
                for position, tokens, shares in zip(positions, ids.tolist(), probabilities.tolist(), strict=False)
            ]
            answers.append(by_mask[0] if len(by_mask) == 1 else by_mask)
        return answers[0] if is_one(texts) else answers

    def encode(
        self, texts: Text | list[Text], *, layers: Layers = "last", pooling: Pooling = "mean"
    ) -> Float[np.ndarray, "..."] | list[Float[np.ndarray, "L D"]]:
        """Vectors of texts: [B D] for a list, [D] for one; the same whatever texts stand beside them.

        Args:
          layers: last, second_to_last, sum_last_4, concat_last_4 (4 D features), sum_all, mean, or a layer's number,
            from 1; 0 is the embeddings, -1 the last layer.
          pooling: mean over a text's tokens, special ones included; cls, the first one's vector; tokens, a list of
            [L D] (one text: [L D]), special tokens included.
        """
        check_pooling(pooling)
        answers = self._features(self._rows(texts), (layers,), pooling)[layers]
        if is_one(texts):
            return answers[0]
        return answers if pooling == "tokens" else np.stack(answers)

    def encode_words(self, sentences: list[list[str]], *, layers: Layers = "last") -> list[Float[np.ndarray, "W D"]]:
        """For each sentence, given as its words, a vector for each word: that of its first piece (Devlin et al. 2019,
        section 5.3). A sentence of more tokens than the model takes is read in parts."""
        return self.features_of_words(sentences, (layers,))[0][layers]

    def features_of_texts(
        self, texts: list[Text], choices: tuple[Layers, ...], pooling: Pooling
    ) -> tuple[dict[Layers, Float[np.ndarray, "B D"]], int]:
        """(what `encode` gives for each of several choices of layers, all from one pass; how many texts were cut to the
        tokens that the model takes)."""
        rows, num_cut = cut_rows(self._tokenizer(), texts, self._longest, self._special_ids)
        return {layers: np.stack(one) for layers, one in self._features(rows, choices, pooling).items()}, num_cut

    def features_of_words(
        self, sentences: list[list[str]], choices: tuple[Layers, ...]
    ) -> tuple[dict[Layers, list[Float[np.ndarray, "W D"]]], int]:
        """(what `encode_words` gives for each of several choices of layers; parts beyond one a sentence)."""
        rows, positions = word_rows(self._tokenizer(), sentences, self._longest, self._special_ids)
        vectors = {
            layers: [np.stack([tokens[row][position] for row, position in words]) for words in positions]
            for layers, tokens in self._features(rows, choices, "tokens").items()
        }
        return vectors, len(rows) - len(sentences)

    def _features(
        self, rows: list[Row], choices: tuple[Layers, ...], pooling: Pooling
    ) -> dict[Layers, list[Float[np.ndarray, "..."]]]:
        """By choice of layers, the vector [D] of each row, or those [L D] of its tokens."""
        for layers in choices:
            check_layers(layers, self._network.num_layers)
        where = "last" if pooling == "cls" and self._special_ids.cls_last else pooling
        by_row = self._apply(_vectors, rows, choices, where)
        if pooling == "tokens":
            by_row = [[vectors[: len(row.ids)] for vectors in some] for row, some in zip(rows, by_row, strict=True)]
        return dict(zip(choices, map(list, zip(*by_row, strict=True)), strict=True))

    def detect_replacements(self, texts: Text | list[Text]) -> list[Any]:
        """For each token of a text but the special ones, the probability that it replaces the original one.

        A list of texts gives a list. Raises `InputError` for a model that is not a discriminator.
        """
        self._require_head("detect_replacements")
        tokenizer, rows = self._tokenizer(), self._rows(texts)
        around = (tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id)
        by_row = [np.asarray(jax.nn.sigmoid(row)) for row in self._apply(head_logits, rows, "replaced_token")]
        answers = [
            [
                Detection(tokenizer.decode([token]), float(probability))
                for token, probability in zip(row.ids, probabilities, strict=False)
                if token not in around
            ]
            for row, probabilities in zip(rows, by_row, strict=True)
        ]
        return answers[0] if is_one(texts) else answers

    def attention(self, texts: Text | list[Text]) -> Any:
        """The attention of the tokens of each text: an `AttentionMaps`, or a list of them for a list.

        Its one map is called `self`; of ELECTRA's pair there are `discriminator` and `generator`, of the same tokens.
        """
        if isinstance(self._network.attention, Linformer):
            raise InputError(
                f"model.attention={self._network.attention}: its weights are those of sums of tokens; a map is of a "
                "model whose tokens attend to each other"
            )
        tokenizer, answers = self._tokenizer(), []
        for text, row in zip(named_texts(texts, pairs=True).values(), self._rows(texts), strict=True):
            batch = padded_row(row, self._pad_id, self._network.max_length)
            sown = sown_weights(self.module, self.params, batch.ids, batch.segments, inputs_valid=batch.valid)
            stacks = {network: sown[network] for network in self.config.networks} or {"self": sown}
            words = format_tokens(tokenizer, row.ids)
            start = self._network.num_global_tokens
            maps = tuple(make_map(kind, words, words, part["encoder"], start=start) for kind, part in stacks.items())
            answers.append(AttentionMaps(maps, self.title, text if isinstance(text, str) else " | ".join(text)))
        return answers[0] if is_one(texts) else answers

    @property
    def num_layers(self) -> int:
        return self._network.num_layers


def _best_tokens(
    module: nn.Module, batch: Batch, vocabulary: Vocabulary, num_masks: int, top_k: int
) -> tuple[Int[Array, "B P K"], Float[Array, "B P K"]]:
    """(ids, probabilities) of the likeliest tokens that stand for text, at the first `num_masks` masks of each row."""
    find_masks = partial(jnp.flatnonzero, size=num_masks, fill_value=0)
    positions = jax.vmap(find_masks)(batch.ids == vocabulary.mask_id)
    model = network_of(module, "fill_mask")
    hidden = model.hidden_states(batch.ids, batch.segments, inputs_valid=batch.valid)
    logits = model.masked_lm_logits(jnp.take_along_axis(hidden, positions[..., None], axis=1))
    allowed = jnp.arange(logits.shape[-1]) < vocabulary.size
    allowed = allowed.at[jnp.array(vocabulary.special_ids)].set(False)
    best, ids = jax.lax.top_k(jnp.where(allowed[None, None], jax.nn.softmax(logits), -1.0), top_k)
    return ids, best


def _vectors(
    module: nn.Module, batch: Batch, choices: tuple[Layers, ...], pooling: Pooling | Literal["last"]
) -> list[Float[Array, "..."]]:
    """By each choice of layers, [B D] or [B L D]."""
    outputs = network_of(module).encode_layers(batch.ids, batch.segments, inputs_valid=batch.valid)
    return [pool(choose_layers(outputs, layers), batch.valid, pooling) for layers in choices]
