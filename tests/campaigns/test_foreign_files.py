"""Files that others wrote, or damaged: each is read, or refused in one sentence, soon."""

import json
import os
import shutil
import warnings
from pathlib import Path

import jax
import msgpack
import numpy as np
import pytest
from etils import epath
from flax import linen as nn
from jaxtyping import TypeCheckError

from t5x_lite.cli.commands.plot import plot
from t5x_lite.convert import export_folder, import_folder, import_t5x
from t5x_lite.data import ByteLevelBPE, Bytes, WordPiece
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, BertConfig, GptConfig, RobertaConfig, T5Config, abstract_params
from t5x_lite.runs.records import read_records
from t5x_lite.runs.workdir import open_workdir
from t5x_lite.tokenizers.config import load_tokenizer, make_tokenizer
from t5x_lite.training import Experiment

from ..t5x_checkpoints import WRITERS, tree
from .mutations import damaged, mutated

pytestmark = pytest.mark.slow

SIZES = {"vocab_size": 300, "embed_dim": 12, "num_heads": 3, "mlp_dim": 17}
TEXTS = [f"{number} green bottles are hanging on the wall and {number} fall" for number in range(60)]
MODELS = {
    "bert": (BertConfig(**SIZES, num_layers=2, max_length=20, heads=("masked_lm",)), WordPiece(vocab_size=120)),
    "roberta": (RobertaConfig(**SIZES, num_layers=1, max_length=20, heads=("classification",)), ByteLevelBPE(290)),
    "gpt2": (GptConfig(**SIZES, num_layers=1, max_length=20), ByteLevelBPE(290)),
    "t5": (T5Config(**SIZES, head_dim=5, num_encoder_layers=1, num_decoder_layers=1), Bytes()),
    "bart": (BartConfig(**SIZES, num_encoder_layers=1, num_decoder_layers=1, max_length=20), ByteLevelBPE(290)),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> dict[str, Path]:
    """A folder of each family."""
    folders = {}
    for name, (config, tokenizer) in MODELS.items():
        random = np.random.default_rng(0)
        shapes = nn.unbox(abstract_params(config))
        params = jax.tree.map(lambda leaf, random=random: random.normal(size=leaf.shape).astype(np.float32), shapes)
        folders[name] = tmp_path_factory.mktemp(name)
        export_folder(folders[name], config, params, make_tokenizer(tokenizer, lambda: iter(TEXTS)))
    return folders


@pytest.fixture(scope="module")
def finished(tiny, train, tmp_path_factory) -> Path:
    """A run that came to its end."""
    workdir = tmp_path_factory.mktemp("finished")
    train(tiny, workdir)
    return workdir


def damage(file: Path, draw) -> str:
    """Damages a file, by its meaning if it is JSON or by its bytes; says how."""
    if file.suffix == ".json" and draw.random() < 0.8:
        value, what = mutated(json.loads(file.read_text()), draw)
        file.write_text(json.dumps(value))
        return f"{file.name}: {what}"
    content, what = damaged(file.read_bytes(), draw)
    file.write_bytes(content)
    return f"{file.name}: {what}"


def attempt(read, what: str) -> None:
    """Reads something, which may be refused in one line; any other exception names what was damaged."""
    try:
        with warnings.catch_warnings(action="ignore"):
            read()
    except InputError as error:
        message = str(error)
        message.encode()
        assert message and len(message) < 6000, what
    except TypeCheckError:
        pass  # the tests' own checks of types answer before the class does
    except Exception as error:
        raise AssertionError(what) from error


def test_folders_of_transformers(exported, tmp_path, draws, within_time):
    for number, draw in enumerate(draws):
        folder = tmp_path / str(number)
        shutil.copytree(exported[name := draw.choice(list(exported))], folder)
        files = [file for file in sorted(folder.iterdir()) if not file.name.startswith("checksums")]
        what = f"{name}, {damage(draw.choice([*files, folder / 'config.json']), draw)}"
        with within_time():
            attempt(lambda folder=folder: import_folder(folder), what)
        shutil.rmtree(folder)


def test_checkpoints_of_t5x(tmp_path, draws, within_time):
    for number, draw in enumerate(draws):
        written = tmp_path / f"checkpoint_{number}"
        WRITERS[layout := draw.choice(list(WRITERS))](written, tree(gated=draw.random() < 0.5))
        files = sorted(path for path in written.rglob("*") if path.is_file()) or [written]
        checkpoint = files[-1] if files == [written] else written / "checkpoint"
        if layout != "file" and draw.random() < 0.5:
            value, what = mutated(msgpack.unpackb(checkpoint.read_bytes(), ext_hook=lambda *_: 0), draw)
            checkpoint.write_bytes(msgpack.packb(value, default=str, unicode_errors="surrogatepass"))
        else:
            what = damage(file := draw.choice([*files, checkpoint]), draw)
            if draw.random() < 0.05 and file != written:
                file.unlink()
                os.mkfifo(file)
        with within_time():
            attempt(lambda written=written: import_t5x(written), f"{layout}, {what}")
        shutil.rmtree(written) if written.is_dir() else written.unlink()


def opens(run: Path, experiment: Experiment) -> None:
    with open_workdir(epath.Path(run), experiment):
        pass


def test_the_files_of_a_run(tiny, finished, tmp_path, draws, within_time):
    for number, draw in enumerate(draws):
        run = tmp_path / str(number)
        shutil.copytree(finished, run, ignore=shutil.ignore_patterns("d", "ocdbt*", "tensorboard"))
        names = ["experiment.json", "store.json", "metrics.jsonl", *(f"tokenizer/{path}" for path in ("config.json",))]
        file = run / draw.choice([name for name in names if (run / name).exists()])
        if draw.random() < 0.1:
            file.unlink()
            odd = draw.choice((os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name)))
            odd(file)
            what = f"{file.name} is no file"
        else:
            what = damage(file, draw)
        with within_time():
            attempt(lambda run=run: opens(run, tiny), what)
            attempt(lambda run=run: read_records(run / "metrics.jsonl"), what)
            attempt(lambda run=run: load_tokenizer(run / "tokenizer"), what)
            attempt(lambda run=run, out=tmp_path / "curves.png": plot([str(run), "--out", str(out)]), what)
        shutil.rmtree(run)
