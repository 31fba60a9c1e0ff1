"""A run small enough to be made many times, and its compiled program, shared."""

import copy
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from rich.console import Console

from t5x_lite.cli.commands import evaluate
from t5x_lite.data import ByteLevelBPE, Bytes, Data, TextFiles, TextPairs, Vocabulary, WordPiece
from t5x_lite.data.stored_rows import stack
from t5x_lite.models import (
    AlbertConfig,
    BertConfig,
    BigBird,
    DistilBertConfig,
    ElectraConfig,
    ElectraPairConfig,
    GptConfig,
    Linformer,
    RobertaConfig,
    T5Config,
    TransformerConfig,
)
from t5x_lite.objectives import (
    CausalLanguageModel,
    Distillation,
    MaskedLanguageModel,
    NextSentencePrediction,
    Objective,
    ReplacedTokenDetection,
    SentenceOrderPrediction,
    SequenceToSequence,
    SpanBoundary,
    SpanCorruption,
)
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import make_mesh
from t5x_lite.runs import loop
from t5x_lite.runs.records import Records
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.initialization import FromModel
from t5x_lite.training.step import Program

from .programs import new_state

VOCABULARY = Vocabulary(size=259, first_sentinel_id=258, num_sentinels=100)
WORDS = Vocabulary(
    size=101,
    pad_id=1,
    eos_id=2,
    unk_id=3,
    cls_id=0,
    sep_id=2,
    mask_id=100,
    continuations=np.packbits(np.arange(101) >= 60).tobytes(),
)

ENCODER = {
    "vocab_size": 104,
    "embed_dim": 16,
    "num_heads": 4,
    "mlp_dim": 24,
    "num_layers": 1,
    "max_length": 24,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
}
DROPOUT = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1}
MASKED, PAIRED = {"heads": ("masked_lm",)}, {"heads": ("masked_lm", "sentence_pair")}
STUDENT, TEACHER = DistilBertConfig(**ENCODER, **MASKED), BertConfig(**ENCODER | {"num_layers": 2}, **MASKED)
GENERATOR = ElectraConfig(**ENCODER | {"embed_dim": 8, "num_heads": 2, "mlp_dim": 12}, token_embed_dim=8, **MASKED)
DISCRIMINATOR = ElectraConfig(**ENCODER, token_embed_dim=8, heads=("replaced_token",))
ENCODERS = {
    "BERT": (NextSentencePrediction(24), BertConfig(**ENCODER, **PAIRED)),
    "SpanBERT": (SpanBoundary(24), BertConfig(**ENCODER, heads=("masked_lm", "span_boundary"))),
    "RoBERTa": (MaskedLanguageModel(24, whole_words=True), RobertaConfig(**ENCODER | DROPOUT, **MASKED)),
    "ALBERT": (SentenceOrderPrediction(24), AlbertConfig(**ENCODER | {"num_layers": 2}, token_embed_dim=8, **PAIRED)),
    "ELECTRA": (ReplacedTokenDetection(24), ElectraPairConfig(GENERATOR, DISCRIMINATOR)),
    "Linformer": (MaskedLanguageModel(24), BertConfig(**ENCODER | DROPOUT, **MASKED, attention=Linformer(8, "none"))),
    "BigBird": (MaskedLanguageModel(24), BertConfig(**ENCODER | DROPOUT, **MASKED, attention=BigBird(2, 1))),
    "DistilBERT": (Distillation(24, teacher="folder").for_teacher(TEACHER, STUDENT), STUDENT),
}
"""Every family with the objective that made it; one with dropout, which parts of a batch have of their own."""

STACKS = {name: value for name, value in ENCODER.items() if name != "num_layers"}
STACKS |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
WRITERS = {
    "packed pairs": (SequenceToSequence(24, 16, label_smoothing=0.1), TransformerConfig(**STACKS)),
    "GPT": (CausalLanguageModel(24, within_documents=True), GptConfig(**ENCODER, embedding_dropout_rate=0.0)),
}
"""Models that write text, each with an objective."""

AROUND_THE_STEP = {"data", "steps", "evaluation", "generation", "checkpoints", "logging", "start"}
"""Fields of an experiment that its compiled program does not depend on."""


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> str:
    """A text file of distinct sentences."""
    rng = np.random.default_rng(0)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    lines = [f"{index}: " + " ".join(rng.choice(words, 12)) for index in range(400)]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(scope="session")
def tiny(text_file, tmp_path_factory) -> Experiment:
    """Two layers over bytes; dropout on, so that keys matter."""
    return Experiment(
        model=T5Config(
            vocab_size=264,
            embed_dim=16,
            num_heads=4,
            head_dim=4,
            mlp_dim=24,
            num_encoder_layers=1,
            num_decoder_layers=2,
            gated=True,
            tied=False,
            dropout_rate=0.1,
        ),
        objective=SpanCorruption(input_length=24),
        data=Data(TextFiles((text_file,)), Bytes(), held_out=0.1, cache_dir=str(tmp_path_factory.mktemp("cache"))),
        optimizer=AdamW(Constant(3e-3), clip_norm=1.0),
        steps=6,
        batch_size=8,
        evaluation=Evaluation(every=3, rows=10),
        checkpoints=Checkpointing(every=2, keep_last=10, keep_best=0),
        logging=Logging(every=1),
    )


@pytest.fixture(scope="session")
def make_program():
    """Programs by experiment and number of devices, each compiled once a session."""
    programs: dict = {}

    def make(experiment: Experiment, devices: int = 1) -> Program:
        if (experiment, devices) not in programs:
            mesh = make_mesh(experiment.mesh, jax.devices()[:devices])
            vocabulary = VOCABULARY if isinstance(experiment.objective, SpanCorruption) else WORDS
            objective = experiment.objective.for_vocabulary(vocabulary)
            programs[experiment, devices] = Program(experiment, objective, mesh)
        return programs[experiment, devices]

    return make


@pytest.fixture(scope="session")
def raw(tiny) -> dict[str, np.ndarray]:
    """A batch of ids."""
    shape = (tiny.batch_size, tiny.objective.raw_length)
    return {"ids": np.random.default_rng(1).integers(3, 200, shape).astype(np.int32)}


@pytest.fixture(scope="session")
def without_dropout(tiny) -> Experiment:
    return replace(tiny, model=replace(tiny.model, dropout_rate=0.0))


@pytest.fixture(scope="session", params=ENCODERS)
def encoder(request, tiny) -> Experiment:
    """An encoder and the objective that made it, one family after the other."""
    objective, model = ENCODERS[request.param]
    return replace(tiny, model=model, objective=objective)


@pytest.fixture(scope="session")
def encoder_rows(encoder) -> dict[str, np.ndarray]:
    """A batch of rows of many lengths."""
    random, layout = np.random.default_rng(0), encoder.objective.layout
    builder = layout.start(WORDS)
    for _ in range(20):
        builder.add([random.integers(4, 100, random.integers(1, 12)).astype(np.int32) for _ in range(4)])
    builder.finish()
    rows = builder.take()
    return stack(rows[:: len(rows) // encoder.batch_size][: encoder.batch_size])


@pytest.fixture(scope="session", params=WRITERS)
def writer(request, tiny) -> Experiment:
    """A model that writes text and an objective for it, one after the other; the batch in two parts."""
    objective, model = WRITERS[request.param]
    return replace(tiny, model=model, objective=objective, accumulation=2)


@pytest.fixture(scope="session")
def writer_rows(writer) -> dict[str, np.ndarray]:
    """A batch of rows."""
    random, layout = np.random.default_rng(0), writer.objective.layout
    builder = layout.start(WORDS)
    parts = 2 if isinstance(layout, TextPairs) else 4 if layout.reads_sentences else 1
    for _ in range(40):
        builder.add([random.integers(4, 100, random.integers(1, 12)).astype(np.int32) for _ in range(parts)])
    builder.finish()
    return stack(builder.take()[: writer.batch_size])


@pytest.fixture(scope="session")
def console():
    with open(os.devnull, "w") as nowhere:
        yield Console(file=nowhere)


@pytest.fixture(scope="session")
def programs() -> dict[Experiment, Program]:
    """The programs of the runs below, by experiment; those on several devices are not among them."""
    return {}


@pytest.fixture(scope="session")
def share_program(programs) -> Callable[[Experiment, Objective, Mesh], Program]:
    """`Program`, of which those that compute the same share what is compiled."""
    compiled: dict[tuple, Program] = {}

    def share(experiment: Experiment, objective: Objective, mesh: Mesh) -> Program:
        step = tuple(value for name, value in vars(experiment).items() if name not in AROUND_THE_STEP)
        if (step, objective, mesh) not in compiled:
            compiled[step, objective, mesh] = Program(experiment, objective, mesh)
        program = copy.copy(compiled[step, objective, mesh])
        program.experiment = experiment
        if mesh.size == 1:
            programs[experiment] = program
        return program

    return share


@pytest.fixture(scope="module")
def shared_programs(share_program) -> Iterator[None]:
    """Commands run on one device, and share what is compiled where their experiments compute the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_mesh", lambda shape, devices: make_mesh(shape, jax.devices()[:1]))
        for module in (loop, evaluate):
            patch.setattr(module, "Program", share_program)
        yield


@pytest.fixture(scope="session")
def train(console, share_program) -> Callable[..., None]:
    """`train(experiment, workdir, devices=1, report=True, drawn=True, console=...)`: runs that compute the same share
    what is compiled; without `report` a run ends at its last step. New parameters are `new_state`'s, whose program is
    not compiled; without `drawn` those of another process with the same seed."""

    def run(
        experiment: Experiment,
        workdir: Path,
        devices: int = 1,
        report: bool = True,
        drawn: bool = True,
        console: Console = console,
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "Program", share_program)
            if drawn:
                patch.setattr(Program, "init", lambda self: new_state(self, self.experiment.seed).replace(frozen=None))
            if not report:
                patch.setattr(loop.report, "finish", lambda *args: None)
            loop.train(experiment, workdir, console, jax.devices()[:devices])

    return run


@pytest.fixture(scope="session")
def sentences(tmp_path_factory) -> Data:
    """Documents of two to six lines, each a sentence."""
    random = np.random.default_rng(0)
    syllables = ["al", "be", "gam", "del", "ep", "zet", "ta", "the", "io", "kap"]
    words = ["".join(random.choice(syllables, random.integers(1, 4))) for _ in range(60)]
    documents = [
        "\n".join(" ".join(random.choice(words, random.integers(3, 7))) for _ in range(random.integers(2, 7)))
        for _ in range(80)
    ]
    path = tmp_path_factory.mktemp("sentences") / "text.txt"
    path.write_text("\n\n".join(documents))
    cache = str(tmp_path_factory.mktemp("cache"))
    return Data(TextFiles((str(path),)), WordPiece(vocab_size=90), held_out=0.1, sentences="line", cache_dir=cache)


@pytest.fixture(scope="session")
def experiment_of(tiny, sentences, run_of) -> Callable[[str], Experiment]:
    """`experiment_of(family)`: a short run of it."""

    def make(family: str) -> Experiment:
        base = replace(tiny, data=sentences, checkpoints=Checkpointing(every=3, keep_last=10, keep_best=0))
        if family == "teacher":
            return replace(base, model=TEACHER, objective=MaskedLanguageModel(24))
        objective, model = ENCODERS[family]
        if family == "RoBERTa":
            model = replace(model, vocab_size=304)
            base = replace(base, data=replace(sentences, tokenizer=ByteLevelBPE(vocab_size=300)))
        if family == "DistilBERT":
            folder = str(run_of("teacher"))
            objective = Distillation(24, teacher=folder)
            base = replace(base, start=FromModel(folder, layers=(1,)))
        return replace(base, model=model, objective=objective)

    return make


@pytest.fixture(scope="session")
def run_of(request, tmp_path_factory, train) -> Callable[[str], Path]:
    """`run_of(family)`: the folder of its run, made once; with the report at its end, which takes its time, for two."""
    folders: dict[str, Path] = {}

    def run(family: str) -> Path:
        if family not in folders:
            experiment_of = request.getfixturevalue("experiment_of")
            folder = tmp_path_factory.mktemp(family)
            train(experiment_of(family), folder, report=family in ("BERT", "ELECTRA"))
            folders[family] = folder
        return folders[family]

    return run


@pytest.fixture
def stopped_after(monkeypatch) -> Callable[[int], AbstractContextManager[None]]:
    """`with stopped_after(3):`: runs in it are asked to end once the record of that step is written."""

    @contextmanager
    def stopped(last: int) -> Iterator[None]:
        record = Records.train

        def record_and_stop(self: Records, step: int, metrics: Any) -> None:
            record(self, step, metrics)
            if step == last:
                signal.raise_signal(signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(Records, "train", record_and_stop)
            yield

    return stopped
