"""Runs of every family as if they had been trained, on a text of sentences in paragraphs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax.numpy as jnp
import pytest

from t5x_lite.cli import main
from t5x_lite.data import Data, TextFiles, make_tokenizer
from t5x_lite.files import write_atomically
from t5x_lite.models import (
    AlbertConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    ElectraPairConfig,
    ModelConfig,
    RobertaConfig,
)
from t5x_lite.objectives import (
    MaskedLanguageModel,
    NextSentencePrediction,
    Objective,
    ReplacedTokenDetection,
    SentenceOrderPrediction,
    SpanBoundary,
)
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import ByteLevelBPE, SentencePiece, TokenizerConfig, WordPiece
from t5x_lite.training import Evaluation, Experiment

SIZES = {"vocab_size": 300, "embed_dim": 12, "num_heads": 3, "mlp_dim": 17, "num_layers": 2, "max_length": 40}
ELECTRA = ElectraConfig(**SIZES | {"num_heads": 2}, token_embed_dim=8, heads=("replaced_token",))
GENERATOR = ElectraConfig(**SIZES | {"num_heads": 2, "embed_dim": 6}, token_embed_dim=8, heads=("masked_lm",))
LENGTH = 32

FAMILIES: dict[str, tuple[ModelConfig, Objective, TokenizerConfig]] = {
    "bert": (
        BertConfig(**SIZES, heads=("masked_lm", "sentence_pair")),
        NextSentencePrediction(LENGTH),
        WordPiece(vocab_size=150),
    ),
    "spanbert": (
        BertConfig(**SIZES, pooler=False, heads=("masked_lm", "span_boundary")),
        SpanBoundary(LENGTH),
        WordPiece(vocab_size=150, lowercase=False),
    ),
    "roberta": (
        RobertaConfig(**SIZES, pooler=False, heads=("masked_lm",)),
        MaskedLanguageModel(LENGTH),
        ByteLevelBPE(vocab_size=290),
    ),
    "xlm-roberta": (
        RobertaConfig(**SIZES, pooler=False, heads=("masked_lm",)),
        MaskedLanguageModel(LENGTH, input_format="doc-sentences"),
        SentencePiece(vocab_size=50, layout="xlm-roberta", character_coverage=1.0),
    ),
    "albert": (
        AlbertConfig(**SIZES, token_embed_dim=8, heads=("masked_lm", "sentence_pair")),
        SentenceOrderPrediction(LENGTH),
        SentencePiece(vocab_size=50, layout="albert", character_coverage=1.0),
    ),
    "distilbert": (
        DistilBertConfig(**SIZES, heads=("masked_lm",)),
        MaskedLanguageModel(LENGTH),
        WordPiece(vocab_size=150),
    ),
    "electra": (
        ElectraPairConfig(GENERATOR, ELECTRA),
        ReplacedTokenDetection(LENGTH, input_format="segment-pair"),
        WordPiece(vocab_size=150),
    ),
}


def documents() -> Iterator[str]:
    """Paragraphs of two to six sentences."""
    things = ("bottle", "chair", "lamp", "cat", "river")
    for number in range(120):
        pairs = [(things[(number + index) % 5], things[index % 5]) for index in range(2 + number % 5)]
        yield " ".join(f"The {one} of number {number} stands on the wall and waits for {two}s." for one, two in pairs)


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(documents()))
    return path


@pytest.fixture(scope="session")
def experiments(text, tmp_path_factory) -> dict[str, Experiment]:
    """An experiment of each family on the text, with one cache for all."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return {
        name: Experiment(
            model=model,
            objective=objective,
            data=Data(TextFiles((str(text),)), tokenizer, held_out=0.2, cache_dir=cache),
            optimizer=AdamW(Constant(1e-3)),
            steps=2,
            batch_size=8,
            evaluation=Evaluation(rows=10),
        )
        for name, (model, objective, tokenizer) in FAMILIES.items()
    }


@pytest.fixture(scope="session")
def make_run(experiments, make_params, tmp_path_factory) -> Callable[[str], Path]:
    """The run of a family, made once: random parameters as its checkpoint of step 0."""
    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            folder, experiment = tmp_path_factory.mktemp(name), experiments[name]
            make_tokenizer(experiment.data.tokenizer, documents).save(folder / "tokenizer")
            ids = jnp.ones((1, 2), jnp.int32)
            params = make_params(experiment.model.build(), 0, ids, ids)
            write_checkpoint(folder / "checkpoints", 0, experiment, tokenizer_files(folder / "tokenizer"), params)
            write_atomically(folder / "experiment.json", experiment.to_json())
            folders[name] = folder
        return folders[name]

    return make


@pytest.fixture(scope="module", autouse=True)
def _shared_programs(shared_programs) -> None:
    """Everywhere in this folder."""


@pytest.fixture
def run(capsys) -> Callable[..., tuple[int, str, str]]:
    """`run(*arguments)`: (exit status, standard output, standard error) of a command."""

    def run_command(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code or 0
        return status, *capsys.readouterr()

    return run_command


@pytest.fixture(scope="session")
def write_config() -> Callable[[Experiment, Path], Path]:
    """`write_config(experiment, path)`: a config file that binds it."""

    def write(experiment: Experiment, path: Path) -> Path:
        path.write_text(
            "from t5x_lite.training.experiment import Experiment\n"
            f"experiment = Experiment.from_json({experiment.to_json()!r})\n"
        )
        return path

    return write
