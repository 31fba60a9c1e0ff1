"""`convert SRC DST`."""

from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from t5x_lite.cli.arguments import parse
from t5x_lite.data import Data
from t5x_lite.errors import InputError
from t5x_lite.models import (
    AlbertConfig,
    BartConfig,
    DecoderConfig,
    ElectraPairConfig,
    EncoderDecoderConfig,
    ModelConfig,
    T5Config,
)
from t5x_lite.models.electra import Part
from t5x_lite.objectives import (
    BartDenoising,
    CausalLanguageModel,
    MaskedLanguageModel,
    NextSentencePrediction,
    Objective,
    SentenceOrderPrediction,
    SequenceToSequence,
    SpanCorruption,
)
from t5x_lite.objectives.base import NoObjective
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained import Pretrained, load
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.files import check_is_new, write_atomically
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import saved_config
from t5x_lite.training.experiment import Experiment


@dataclass(frozen=True)
class Convert:
    """A run into a Hugging Face folder, or a Hugging Face folder (or hub name) into a run's folder."""

    src: tyro.conf.Positional[str]
    """What there is: a run, one of its checkpoints, a Hugging Face folder or hub name."""
    dst: tyro.conf.Positional[str]
    """The new folder; it must not exist or be empty."""
    part: Part | None = None
    """Which of ELECTRA's two networks goes to Hugging Face; the discriminator if not given."""


def run(arguments: list[str]) -> None:
    command = parse(Convert, arguments, prog="t5x-lite convert")
    dst = Path(command.dst).expanduser()
    check_is_new(dst, "dst")
    model = load(command.src)
    is_pair = isinstance(model.config, ElectraPairConfig)
    if command.part and not is_pair:
        raise InputError(f"part={command.part}: {command.src} holds one network, no pair; leave --part out")
    if model.experiment is None:
        _write_run(dst.absolute(), model)
        print(f"{dst}: a run's folder with the parameters at step 0; open it with t5x_lite.load")
        return
    model.export(dst, part=command.part)
    left_out = _left_out(model.config, command.part or "discriminator")
    without = f"; left out: {left_out}" if left_out else ""
    print(f"{dst}: config.json, model.safetensors; open it with transformers or t5x_lite.load{without}")


def _left_out(model: ModelConfig, part: Part) -> str:
    """What of the model no class of Transformers has a place for."""
    if isinstance(model, ElectraPairConfig):
        other = "generator" if part == "discriminator" else "discriminator"
        return f"the {other}, which --part {other} converts"
    return "the span-boundary head" if "span_boundary" in getattr(model, "heads", ()) else ""


def objective_for(model: ModelConfig) -> Objective:
    """The objective that the model was made with, or that trains the heads which it has; tasks need data for theirs."""
    if isinstance(model, T5Config):
        return SpanCorruption()
    if isinstance(model, DecoderConfig):
        return CausalLanguageModel(min(1024, model.max_length or 1024))
    length = min(512, model.max_length)
    if isinstance(model, BartConfig):
        return NoObjective() if model.heads else BartDenoising(length)
    if isinstance(model, EncoderDecoderConfig):
        return SequenceToSequence(length, length)
    if "masked_lm" not in model.heads:
        return NoObjective()
    if "sentence_pair" not in model.heads:
        return MaskedLanguageModel(length)
    return SentenceOrderPrediction(length) if isinstance(model, AlbertConfig) else NextSentencePrediction(length)


def _write_run(folder: Path, model: Pretrained) -> None:
    """A run's folder as if the run stood before its first step, without an optimizer's state."""
    data, files, generation = Data(), {}, model.generation
    folder.mkdir(parents=True, exist_ok=True)
    if model.tokenizer is not None:
        model.tokenizer.save(folder / "tokenizer")
        files = tokenizer_files(folder / "tokenizer")
        data = Data(tokenizer=saved_config(model.tokenizer, folder / "tokenizer"))
    else:
        generation = replace(generation, pad_id=model.known_vocabulary.pad_id, eos_id=model.known_vocabulary.eos_id)
    experiment = Experiment(
        model=model.config,
        objective=objective_for(model.config),
        data=data,
        optimizer=Adafactor(),
        steps=1,
        batch_size=8,
        generation=generation,
    )
    write_checkpoint(folder / "checkpoints", 0, experiment, files, model.params)
    write_atomically(folder / "experiment.json", experiment.to_json() + "\n")
