"""What every model of the zoo has: a frozen config that builds a pure Linen module. What the models of texts share."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.errors import InputError
from t5x_lite.layers.decoding_cache import DecodingCache
from t5x_lite.layers.dense import Dropout, LayerConfig
from t5x_lite.layers.embedding import Embedding, LazyLogits, Unembedding, vocabulary_logits
from t5x_lite.layers.heads import Classifier, at_end
from t5x_lite.layers.parameters import parameter
from t5x_lite.layers.transformer import Remat
from t5x_lite.parallel.mesh import STATISTICS
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import MOST_INT, Validated

Architecture = Literal[
    "encoder", "decoder", "encoder-decoder", "images", "images and texts", "detection", "words", "retriever"
]
Positions = Literal["learned", "sinusoidal", "relative"]
"""How a text model represents positions: vectors added to the embeddings, or T5's bias of the attention."""
Pretraining = Literal[
    "span corruption",
    "denoising",
    "sequence to sequence",
    "causal language model",
    "masked language model",
    "masked language model, next sentence",
    "masked language model, sentence order",
    "permutation language model",
    "bidirectional language model",
]
Ids = Int[Array, "B L"]
Valid = Bool[Array, "B L"] | None
"""True where ids are not padding; None means everywhere."""
Hidden = Float[Array, "B L D"]
TaskHead = Literal["classification", "multiple_choice", "tagging", "question_answering"]
TASK_HEADS = ("classification", "multiple_choice", "tagging", "question_answering")
"""The heads of tasks, which pretraining knows nothing of: see `TextModel`."""


@dataclass(frozen=True)
class ModelConfig(Validated, ABC):
    """The architecture of a model: sizes and choices, no behaviour. A family is a class that derives from it.

    What the rest of the package has to know of a family are class attributes here; its sizes under their
    published names are `PRESETS` in the module of the class, and Hugging Face's names, where there are any, a module of
    `t5x_lite.convert`.
    """

    task_heads: ClassVar[tuple[str, ...]] = ()
    """The heads of tasks that it can have: see `TextModel`."""
    architecture: ClassVar[Architecture | None] = None
    """How `pretrained.load` opens it; None: as a model of which only the parameters are known."""
    networks: ClassVar[tuple[str, ...]] = ()
    """The networks in it by their names in the parameters, the one that is kept first; () where it is one."""
    upper_bounds: ClassVar[dict[str, float]] = {}
    """Parameters that are kept at or below a bound after each update, by their names joined by /."""
    packs_rows: ClassVar[bool] = True
    """Whether it reads rows of several texts that do not see each other."""
    below_layers: ClassVar[tuple[str, ...]] = ()
    """What the first layer reads, by its name in the parameters; what is neither this nor a layer is a head."""

    @abstractmethod
    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The arrays that the module's `init` is called with, of any batch size and length."""

    @abstractmethod
    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> nn.Module:
        """The module of this architecture, computing in `dtype` rematerialised by `remat`."""

    @property
    def reads_ids(self) -> bool:
        """Whether its tokenizer's ids are what it reads; ELMo's are those of the words that it learns to predict."""
        return True

    @property
    def vocab_size(self) -> int | None:
        """Rows of the token embedding, at least as many as the tokenizer has ids; None where no ids are read."""
        return None

    @property
    def sharded_sizes(self) -> dict[str, int]:
        """The sizes, by their names, that the mesh's axis `tensor` has to divide."""
        return {}

    @property
    def pretraining(self) -> Pretraining | None:
        """What the published models, or the heads that this one has, were trained by; None where nothing is known."""
        return None

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raises `InputError` where the model gives a special id of it another meaning."""

    def decoder_start_id(self, *, pad_id: int, eos_id: int) -> int:
        """What a decoder reads before its first token; it means nothing to an encoder."""
        return pad_id


class TaskModelConfig(ModelConfig):
    """The architecture of one model of texts that heads of tasks can read: see `TextModel`.

    What only some families choose is a constant or a property here, and a field in theirs.
    """

    known_heads: ClassVar[tuple[str, ...]] = ()
    """The heads that the family was pretrained with."""
    row_activation: ClassVar[str] = ""
    """Activation of the dense layer that heads on rows begin with; empty: they have none."""
    drops_first: ClassVar[bool] = False
    """Whether such a head has dropout before its dense layer too."""
    classes_have_bias: ClassVar[bool] = True
    """Whether the logits of classification have a bias."""

    def question_answering_head(self, dtype: Any) -> nn.Module:
        """What scores the two ends of an answer. Neither the papers' code nor Transformers drops anything there."""
        return Classifier(2, dropout_rate=0.0)

    texts_begin_with_cls: ClassVar[bool] = False
    """The published models read the vocabulary's [CLS] with each text: in front of it, or as the vocabulary has it."""

    # Fields of some families, documented there.
    heads: ClassVar[tuple[str, ...]] = ()
    num_classes: ClassVar[int] = 2
    head_dropout_rate: ClassVar[float] = 0.0
    max_length: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (*self.known_heads, *self.task_heads)
        for head in self.heads:
            if head not in known:
                raise InputError(
                    f"heads={self.heads}: {head!r} is not a head of {type(self).__name__}; choose among "
                    f"{', '.join(known)}"
                )
        if len(set(self.heads)) < len(self.heads):
            raise InputError(f"heads={self.heads} names one of them twice; name each once")

    def check_length(self, length: int) -> None:
        """Raises `InputError` for rows longer than `max_length`, if there is one."""
        most = self.max_length
        if most is not None and length > most:
            raise InputError(
                f"the rows have length {length}, the model has positions for max_length={most}; "
                f"cut them to {most} ids or choose a model with more positions"
            )

    def reads_pooled(self, head: str) -> bool:
        """Whether a head reads the pooler's vector, and not the last layer's output."""
        return False


class TextConfig(TaskModelConfig):
    """The architecture of one Transformer of texts, called with inputs and either decoder inputs or segments."""

    position_offset: ClassVar[int] = 0
    """Rows of the position table before that of the first position."""

    # Fields of some families, documented there.
    head_dim: ClassVar[int | None] = None
    norm_first: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length is not None and self.max_length + self.position_offset >= MOST_INT:
            raise InputError(
                f"max_length={self.max_length} and the {self.position_offset} rows before the first position are more "
                f"than arrays count; choose fewer than {MOST_INT - self.position_offset:,}"
            )
        if self.head_dim is None:
            check_heads(self)

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, 2), jnp.int32),) * 2

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"num_heads": self.num_heads}

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(0.02)

    def layer(self) -> LayerConfig:
        """The sizes and options of one layer."""
        return LayerConfig(
            num_heads=self.num_heads,
            head_dim=self.head_dim or self.embed_dim // self.num_heads,
            mlp_dim=self.mlp_dim,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
            norm_first=self.norm_first,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            query_init=self.kernel_init,
            kernel_init=self.kernel_init,
        )


class TextModel(nn.Module):
    """A model of texts with the heads of tasks that its config names.

    The heads read `hidden_states(inputs, segments, *, inputs_valid, deterministic)` [B L D], which every such module
    has, so that one objective trains them all.
    """

    config: TaskModelConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup_task_heads(self) -> None:
        """Makes the heads of tasks; a module's `setup` calls it."""
        c = self.config

        def on_rows(head: TaskHead, num_logits: int, use_bias: bool = True) -> Classifier:
            activation = "" if c.reads_pooled(head) else c.row_activation
            return Classifier(num_logits, activation, c.drops_first, c.head_dropout_rate, self.dtype, use_bias)

        if "classification" in c.heads:
            self.classification = on_rows("classification", c.num_classes, c.classes_have_bias)
        if "multiple_choice" in c.heads:
            self.multiple_choice = on_rows("multiple_choice", 1)
        if "tagging" in c.heads:
            self.tagging = Classifier(c.num_classes, dropout_rate=c.head_dropout_rate)
        if "question_answering" in c.heads:
            self.question_answering = c.question_answering_head(self.dtype)

    def row_vector(self, head: TaskHead, hidden: Hidden, inputs_valid: Valid) -> Float[Array, "B D"]:
        """The vector of a row that a head reads: that of its last token, which has seen all of it."""
        return at_end(hidden, inputs_valid)

    def classification_logits(
        self, hidden: Hidden, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "B C"]:
        """The logits of a row's classes; with one class, the number that is predicted."""
        vector = self.row_vector("classification", hidden, inputs_valid)
        return self.classification(vector, deterministic=deterministic)

    def multiple_choice_logits(
        self, hidden: Hidden, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "B"]:
        """How well a row, which holds one choice, answers; the softmax is over the rows of a question."""
        vector = self.row_vector("multiple_choice", hidden, inputs_valid)
        return self.multiple_choice(vector, deterministic=deterministic)[:, 0]

    def tagging_logits(
        self, hidden: Hidden, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "B L C"]:
        """The logits of each token's tags."""
        return self.tagging(hidden, deterministic=deterministic)

    def question_answering_logits(
        self, hidden: Hidden, *, inputs_valid: Valid = None, deterministic: bool = True
    ) -> Float[Array, "B L 2"]:
        """Where an answer begins (0) and which is its last token (1)."""
        return self.question_answering(hidden, deterministic=deterministic)


class GeneratorConfig(TextConfig):
    """The architecture of one Transformer that writes text: a decoder, with an encoder or without."""

    positions: ClassVar[Positions] = "learned"
    """Vectors added to the embeddings, fixed or learned for each position; or T5's bias of the attention."""
    output_dropout_rate: ClassVar[float] = 0.0
    """Dropout on what each stack ends with."""
    output_scale: ClassVar[float] = 1.0
    """Factor of what is projected to the vocabulary."""
    output_bias: ClassVar[bool] = False
    """A number for each token of the output, added as a checkpoint brings it: it is not trained."""

    @property
    def embedding_init(self) -> nn.initializers.Initializer:
        return nn.initializers.normal(0.02)

    @property
    def output_init(self) -> nn.initializers.Initializer:
        """Of the output, where it is not the embedding."""
        return nn.initializers.lecun_normal()


class TextGenerator(TextModel):
    """The token table, the output over the vocabulary, and the step of decoding, of a module that writes text."""

    config: GeneratorConfig

    def setup_output(self) -> None:
        """Makes the token table and what follows the last layer; a module's `setup` calls it."""
        c = self.config
        self.token_embedding = Embedding(c.vocab_size, c.embed_dim, self.dtype, c.embedding_init)
        self.output_dropout = Dropout(c.output_dropout_rate, c.layer().positions_share_dropout)
        if not c.tied:
            self.output = Unembedding(c.vocab_size, self.dtype, c.output_init)
        if c.output_bias:
            self.output_bias = parameter(self, "output_bias", nn.initializers.zeros, ("vocab",), (c.vocab_size,))
        self.setup_task_heads()

    def __call__(self, *ids: Int[Array, "B _"] | None, **options: Any) -> Float[Array, "B L V"]:
        """Logits of the token that follows each: see `scores`, which takes the same."""
        return self.scores(*ids, **options).dense()

    def decode_step(
        self, decoder_inputs: Int[Array, "R L"], cache: DecodingCache, index: Int[Array, ""]
    ) -> tuple[Float[Array, "R L V"], DecodingCache]:
        """Logits after the decoder inputs at positions `index, index + 1, ...`, given what the cache holds before."""
        x, cache = self.decode_hidden(decoder_inputs, cache, index)
        logits = vocabulary_logits(x * self.config.output_scale, cache.output, self.dtype)
        bias = self._untrained_bias()
        return (logits if bias is None else logits + bias[None, None]), cache

    def output_scores(self, hidden: Hidden) -> LazyLogits:
        """The scores of the vocabulary, from what the last layer gives."""
        if self.is_initializing():  # what a module's call gives is its output alone: so each head makes its parameters
            for head in self.config.heads:
                getattr(self, f"{head}_logits")(hidden)
        hidden *= self.config.output_scale
        scores = self.output_table.scores(hidden) if self.config.tied else self.output(hidden)
        return replace(scores, bias=self._untrained_bias())

    @property
    def output_table(self) -> Embedding:
        """The token table that the output is tied to."""
        return self.token_embedding

    def output_kernel(self) -> Float[Array, "D V"]:
        return (self.output_table if self.config.tied else self.output).output_kernel()

    def _untrained_bias(self) -> Float[Array, "V"] | None:
        return jax.lax.stop_gradient(self.output_bias) if self.config.output_bias else None


@functools.lru_cache(maxsize=512)
def abstract_params(config: ModelConfig) -> Any:
    """Shapes, dtypes and logical axes of the parameters; nothing is allocated.

    Every leaf is a `nn.LogicallyPartitioned` around a `jax.ShapeDtypeStruct`. The tree is kept for the next call, which
    must not find it changed.
    """
    return jax.eval_shape(config.build().init, jax.random.key(0), *config.abstract_inputs())["params"]


def init_params(config: ModelConfig, key: Key[Array, ""]) -> Any:
    """The parameters of a new model, plain arrays on one device.

    >>> from t5x_lite.models.gpt import GptConfig
    >>> config = GptConfig(vocab_size=10, embed_dim=4, num_heads=2, mlp_dim=6, num_layers=1, max_length=8)
    >>> init_params(config, jax.random.key(0))["token_embedding"]["embedding"].shape
    (10, 4)
    """
    module = config.build()

    def init(key: Key[Array, ""]) -> Any:
        inputs = [jnp.zeros(array.shape, array.dtype) for array in config.abstract_inputs()]
        return nn.unbox(module.init(key, *inputs)["params"])

    return jax.jit(init)(key)


def num_params(config: ModelConfig) -> int:
    """The number of parameters, without running statistics.

    >>> from t5x_lite.models.t5 import PRESETS
    >>> f"{num_params(PRESETS['t5-11b']):,}"
    '11,307,321,344'
    """
    leaves = jax.tree.leaves(abstract_params(config), is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned))
    return sum(nn.unbox(leaf).size for leaf in leaves if leaf.names != (STATISTICS,))


def check_heads(config: Any, field: str = "num_heads") -> None:
    """Raises `InputError` where the number of heads in `field` does not divide `embed_dim`."""
    heads = getattr(config, field)
    if config.embed_dim % heads:
        nearest = max(1, round(config.embed_dim / heads)) * heads
        raise InputError(
            f"{field}={heads} does not divide embed_dim={config.embed_dim}; choose a multiple of "
            f"{heads} (e.g. {nearest})"
        )
