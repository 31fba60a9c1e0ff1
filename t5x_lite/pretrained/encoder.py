"""An encoder in a notebook: masks filled in, vectors of texts, replaced tokens found, texts put into classes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from t5x_lite.data import LabeledTexts
from t5x_lite.data.spelling import spell_tokens
from t5x_lite.errors import InputError
from t5x_lite.models import ElectraPairConfig, EncoderConfig
from t5x_lite.pretrained.attention import AttentionMaps, make_map, self_weights, sown_weights
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.embeddings import Layers, Pooling, check_layers, check_pooling
from t5x_lite.pretrained.encoder_passes import (
    all_outputs,
    best_tokens,
    class_probabilities,
    replacement_probabilities,
    text_vectors,
)
from t5x_lite.pretrained.token_rows import Text, TokenBatch, is_one, padded, power, token_batches, token_rows


class Suggestion(NamedTuple):
    """What the model would put in the place of a mask."""

    token: str
    probability: float
    """Of this token in this place, between 0 and 1."""
    text: str
    """The whole text with the token in this place; other masks stay."""


class Detection(NamedTuple):
    """What the model thinks of a token that is there."""

    token: str
    probability: float
    """That another token stood here and was replaced, between 0 and 1."""


class LikelyClass(NamedTuple):
    """A class that a text may be of."""

    label: str
    """As it is written in the data that the model was fine-tuned on; its number where that is not known."""
    probability: float
    """That the text is of this class, between 0 and 1."""


@dataclass(frozen=True)
class PretrainedEncoder(Pretrained):
    """`fill_mask` for hidden tokens, `encode` for vectors, `detect_replacements` with a discriminator, `classify` with
    a head for it.

    Texts are tokenized as `[CLS] text [SEP]`, pairs `(a, b)` as `[CLS] a [SEP] b [SEP]`. Of ELECTRA's two networks the
    generator fills in and the discriminator does the rest.
    """

    @property
    def abilities(self) -> tuple[str, ...]:
        by_head = {
            "masked_lm": ("fill_mask", self._language_model),
            "replaced_token": ("detect_replacements", self._encoder),
            "classification": ("classify", self._encoder),
        }
        return "encode", *(method for head, (method, config) in by_head.items() if head in config.heads)

    def __call__(
        self, texts: Text | list[Text] | Int[Array, "B L"], segments: Int[Array, "B L"] | None = None
    ) -> dict[str, Any]:
        """Every output for a batch: `hidden` [B L D], `pooled` [B D] where there is a pooler, `<head>_logits`.

        Texts are padded to the longest; of ids, those equal to the padding id count as padding, and `segments` are 0
        unless given. Of ELECTRA's pair there are two such dictionaries, `generator` and `discriminator`.
        """
        if isinstance(texts, str | tuple | list) and (is_one(texts) or not texts or isinstance(texts[0], str | tuple)):
            batch = padded(self._rows(texts), self._pad_id)
            inputs, segments, valid = batch.inputs, batch.segments, batch.valid
        else:
            inputs = np.asarray(texts)
            if inputs.ndim != 2 or inputs.dtype.kind not in "iu":
                raise InputError(
                    f"ids of shape {inputs.shape} and type {inputs.dtype} are no rows; give integers [B, L]"
                )
            segments = np.zeros_like(inputs) if segments is None else np.asarray(segments)
            valid = inputs != self._pad_id
        return all_outputs(self.module, self.params, inputs, segments, valid)

    def fill_mask(self, texts: Text | list[Text], *, top_k: int = 5) -> list[Any]:
        """The likeliest tokens for each mask, best first.

        One text with one mask gives `top_k` suggestions, with several masks a list of these in their order; a list of
        texts gives a list. Only tokens that stand for text are suggested; their probabilities are those among all.

        Raises `InputError` for a text without a mask, and a model without a masked LM head.
        """
        config, tokenizer = self._language_model, self._tokenizer()
        if "masked_lm" not in config.heads:
            self._lacks_head("fill_mask", "masked_lm", config)
        allowed = np.zeros(config.vocab_size, bool)
        allowed[: tokenizer.vocabulary.size] = True
        allowed[list(tokenizer.vocabulary.special_ids)] = False
        if not 1 <= top_k <= allowed.sum():
            raise InputError(f"top_k={top_k} is out of range; choose 1 to {allowed.sum()}")
        rows = self._rows(texts)
        masks = [np.flatnonzero(np.array(row.ids) == tokenizer.vocabulary.mask_id) for row in rows]
        for index, found in enumerate(masks):
            if not len(found):
                name = "the text" if is_one(texts) else f"texts[{index}]"
                raise InputError(f"{name} has no mask; write {tokenizer.mask_token} where a token is to be filled in")
        answers: list[Any] = [None] * len(rows)
        for batch in token_batches(rows, self._pad_id, config.max_length):
            positions = np.zeros((len(batch.inputs), power(max(len(masks[i]) for i in batch.indices), 1)), np.int32)
            for row, index in enumerate(batch.indices):
                positions[row, : len(masks[index])] = masks[index]
            found = best_tokens(self.module, self.params, *_arrays(batch), positions, allowed, top_k)
            ids, probabilities = map(np.asarray, found)
            for row, index in enumerate(batch.indices):
                by_mask = [
                    [
                        self._suggestion(rows[index].ids, position, int(token), float(probability))
                        for token, probability in zip(ids[row, place], probabilities[row, place], strict=True)
                    ]
                    for place, position in enumerate(masks[index])
                ]
                answers[index] = by_mask[0] if len(by_mask) == 1 else by_mask
        return answers[0] if is_one(texts) else answers

    def encode(
        self, texts: Text | list[Text], *, layers: Layers = "last", pooling: Pooling = "mean"
    ) -> Float[np.ndarray, "..."] | list[Float[np.ndarray, "L D"]]:
        """Vectors of texts: [B D] for a list, [D] for one; the same whatever texts stand beside them.

        Args:
          layers: whose output: last, second_to_last, sum_last_4, concat_last_4 (4 D features), mean, or a layer's
            number, from 1; 0 is the embeddings, -1 the last layer.
          pooling: how a text's tokens become one vector. mean: over all of them, special ones included, padding left
            out; cls: the first one's; tokens: not at all, a list of [L D] (one text: [L D]), special tokens included.
        """
        config = self._encoder
        check_layers(layers, config.num_layers)
        check_pooling(pooling)
        rows = self._rows(texts)
        answers: list[Any] = [None] * len(rows)
        for batch in token_batches(rows, self._pad_id, config.max_length):
            vectors = np.asarray(text_vectors(self.module, self.params, *_arrays(batch), layers, pooling))
            for index, vector in zip(batch.indices, vectors, strict=False):
                answers[index] = vector[: len(rows[index].ids)] if pooling == "tokens" else vector
        if is_one(texts):
            return answers[0]
        return answers if pooling == "tokens" else np.stack(answers)

    def detect_replacements(self, texts: Text | list[Text]) -> list[Any]:
        """For each token of a text, special ones left out, how likely it is that it was put there in another's place.

        A list of texts gives a list. Raises `InputError` for a model that is no discriminator.
        """
        config, tokenizer = self._encoder, self._tokenizer()
        if "replaced_token" not in config.heads:
            self._lacks_head("detect_replacements", "replaced_token", config)
        rows = self._rows(texts)
        answers: list[Any] = [None] * len(rows)
        around = (tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id)
        for batch in token_batches(rows, self._pad_id, config.max_length):
            probabilities = np.asarray(replacement_probabilities(self.module, self.params, *_arrays(batch)))
            for index, row in zip(batch.indices, probabilities, strict=False):
                answers[index] = [
                    Detection(tokenizer.decode([token]), float(probability))
                    for token, probability in zip(rows[index].ids, row, strict=False)
                    if token not in around
                ]
        return answers[0] if is_one(texts) else answers

    def classify(self, texts: Text | list[Text]) -> list[Any]:
        """The classes that a text may be of, likeliest first; a list of texts gives a list of these.

        Raises `InputError` for a model without a classification head, and one whose head predicts a number.
        """
        config = self._encoder
        if "classification" not in config.heads:
            self._lacks_head("classify", "classification", config)
        if config.num_classes == 1:
            raise InputError(
                "classify needs several classes, and the head of this model predicts a number, which calling the model "
                "gives: model(texts)['classification_logits']"
            )
        source = self.experiment.data.source if self.experiment else None
        known = source.labels if isinstance(source, LabeledTexts) else ()
        labels = known if len(known) == config.num_classes else tuple(map(str, range(config.num_classes)))
        rows = self._rows(texts)
        answers: list[Any] = [None] * len(rows)
        for batch in token_batches(rows, self._pad_id, config.max_length):
            probabilities = np.asarray(class_probabilities(self.module, self.params, *_arrays(batch)))
            for index, row in zip(batch.indices, probabilities, strict=False):
                likely = map(LikelyClass, labels, row.tolist())
                answers[index] = sorted(likely, key=lambda each: -each.probability)
        return answers[0] if is_one(texts) else answers

    def attention(self, texts: Text | list[Text]) -> Any:
        """Where the tokens of each text look: an `AttentionMaps`, or a list of them for a list.

        Its one map is called `self`; of ELECTRA's pair there are `discriminator` and `generator`, of the same tokens.
        """
        tokenizer = self._tokenizer()
        answers = []
        for row in self._rows(texts):
            batch = next(token_batches([row], self._pad_id, self._encoder.max_length))
            sown = sown_weights(self.module, self.params, batch.inputs, batch.segments, inputs_valid=batch.valid)
            parts = {"self": sown}
            if isinstance(self.config, ElectraPairConfig):
                parts = {part: sown[part] for part in ("discriminator", "generator")}
            words = spell_tokens(tokenizer, row.ids)
            answers.append(
                AttentionMaps(
                    tuple(make_map(kind, words, words, self_weights(part["encoder"])) for kind, part in parts.items())
                )
            )
        return answers[0] if is_one(texts) else answers

    @property
    def _encoder(self) -> EncoderConfig:
        return self.config.discriminator if isinstance(self.config, ElectraPairConfig) else self.config

    @property
    def _language_model(self) -> EncoderConfig:
        return self.config.generator if isinstance(self.config, ElectraPairConfig) else self.config

    @property
    def _pad_id(self) -> int:
        # Without a tokenizer only those know it whose positions depend on it; in BERT's vocabularies it is 0.
        return self.tokenizer.vocabulary.pad_id if self.tokenizer else self._encoder.pad_id or 0

    def _rows(self, texts: Any) -> list[Any]:
        return token_rows(self._tokenizer(), texts, self._encoder.max_length)

    def _suggestion(self, ids: list[int], position: int, token: int, probability: float) -> Suggestion:
        decode = self.tokenizer.decode
        return Suggestion(decode([token]), probability, decode([*ids[:position], token, *ids[position + 1 :]]))

    def _lacks_head(self, method: str, head: str, config: EncoderConfig) -> None:
        raise InputError(
            f"{method} needs the head {head}, and this {type(config).__name__} has heads={config.heads}; "
            f"use {' and '.join(self.abilities)}, or load a model with that head"
        )


def _arrays(batch: TokenBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return batch.inputs, batch.segments, batch.valid
