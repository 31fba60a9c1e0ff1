"""`convert SRC DST`."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from t5x_lite.cli.arguments import parse
from t5x_lite.convert import export_folder
from t5x_lite.data import Bytes, Data, SentencePiece
from t5x_lite.data.tokenizers import SentencePieceTokenizer
from t5x_lite.errors import InputError
from t5x_lite.objectives import SpanCorruption
from t5x_lite.pretrained import Pretrained, load
from t5x_lite.training.checkpoints import write_checkpoint
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.optimizers import Adafactor
from t5x_lite.training.workdir import tokenizer_files, write_atomically


@dataclass(frozen=True)
class Convert:
    """A run into a Hugging Face folder, or a Hugging Face folder (or hub name) into a run's folder."""

    src: tyro.conf.Positional[str]
    """What there is: a run, one of its checkpoints, a Hugging Face folder or hub name."""
    dst: tyro.conf.Positional[str]
    """The new folder; it must not exist or be empty."""


def run(arguments: list[str]) -> None:
    command = parse(Convert, arguments, prog="t5x-lite convert")
    dst = Path(command.dst).expanduser()
    if dst.exists() and not dst.is_dir():
        raise InputError(f"dst={dst} is a file; choose a folder")
    if dst.is_dir() and any(dst.iterdir()):
        raise InputError(f"dst={dst} is not empty; choose another folder, nothing is overwritten")
    model = load(command.src)
    if model.experiment is not None:
        export_folder(dst, model.config, model.params, model.tokenizer)
        print(f"{dst}: config.json, model.safetensors; open it with transformers or t5x_lite.load")
        return
    _write_run(dst.absolute(), model)
    print(f"{dst}: a run's folder with the parameters at step 0; open it with t5x_lite.load")


def _write_run(folder: Path, model: Pretrained) -> None:
    """A run's folder as if the run stood before its first step, without an optimizer's state."""
    tokenizer, files = SentencePiece(), {}
    folder.mkdir(parents=True, exist_ok=True)
    if model.tokenizer is not None:
        model.tokenizer.save(folder / "tokenizer")
        files = tokenizer_files(folder / "tokenizer")
        own = model.tokenizer
        if isinstance(own, SentencePieceTokenizer):
            tokenizer = SentencePiece(model_file=str(folder / "tokenizer" / "spiece.model"), extra_ids=own.extra_ids)
        else:
            tokenizer = Bytes(own.extra_ids)
    experiment = Experiment(
        model=model.config,
        objective=SpanCorruption(),
        data=Data(tokenizer=tokenizer),
        optimizer=Adafactor(),
        steps=1,
        batch_size=8,
    )
    write_checkpoint(folder / "checkpoints", 0, experiment, files, model.params)
    write_atomically(folder / "experiment.json", experiment.to_json() + "\n")
