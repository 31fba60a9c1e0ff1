"""GPT, Transformer-XL, XLNet, ELMo and BERT on the same novels at equal compute: what each can be compared by.

    python benchmarks/language_models.py --text NOVELS... --held-out NOVEL --polarity sentence_polarity.zip
        [--teraflops 8] [--seeds 2]

Models of one size, each trained for as many steps as the same number of floating-point operations of the model allows
(as a run counts them). What each was trained for, on the novel that is held out:

- bits a byte from left to right, of those whose tokens are all predicted so: GPT, and Transformer-XL with its memory;
- nats of what each predicts, and those of the best guess without any context: its own tokens, at the places that its
  objective hides.

What all of them can be compared by: a linear probe of a sentence's polarity (Pang and Lee 2005) on the mean of its
vectors, beside that of random parameters. A run that was cut short goes on with the same --out.
"""

import argparse
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from encoders import probe, sentences
from flax import linen as nn
from rich.console import Console
from rich.table import Table

import t5x_lite
from t5x_lite.cli.processes import keep_memory
from t5x_lite.data import (
    Data,
    SentencePiece,
    TextFiles,
    TokenizerConfig,
    WordCharacters,
    WordPiece,
    Words,
    make_tokenizer,
)
from t5x_lite.data.layouts.base import SpecialIds
from t5x_lite.models import BertConfig, ElmoConfig, GptConfig, TransformerXLConfig, XLNetConfig
from t5x_lite.objectives import (
    BidirectionalLanguageModel,
    CausalLanguageModel,
    MaskedLanguageModel,
    PermutationLanguageModel,
    SegmentLanguageModel,
)
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.runs.loop import train
from t5x_lite.tokenizers.config import expected_vocabulary
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.flops import step_flops

LENGTH, VOCABULARY = 128, 4000
SIZE = {"vocab_size": VOCABULARY, "embed_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2}


@dataclass(frozen=True)
class Method:
    """A model as it is pretrained, and as heads of tasks read it."""

    model: Any
    objective: Any
    tokenizer: TokenizerConfig
    batch_size: int
    reader: Any
    """The same architecture for tasks."""
    reads: TokenizerConfig | None = None
    """What numbers the texts of tasks; None: what numbered those of pretraining."""
    text_length: int = 64
    """Ids of a sentence."""


def methods() -> dict[str, Method]:
    """By name."""
    pieces = WordPiece(VOCABULARY, lowercase=False)
    gpt = GptConfig(**SIZE, max_length=LENGTH)
    xl = TransformerXLConfig(**SIZE, cutoffs=(), shared_biases=False, dropout_rate=0.1)
    bert = BertConfig(**SIZE, max_length=LENGTH, heads=("masked_lm",), pooler=False)
    xlnet = XLNetConfig(**SIZE, heads=("permutation_lm",))
    elmo = ElmoConfig(
        filters=((1, 16), (2, 16), (3, 32), (4, 64), (5, 64)),
        num_highway_layers=1,
        units=512,
        projection=128,
        max_characters=20,
        num_words=8000,
        dropout_rate=0.1,
    )
    tasks = {"heads": (), "head_dropout_rate": 0.1, "num_classes": 2}
    return {
        "GPT": Method(gpt, CausalLanguageModel(LENGTH), pieces, 8, gpt),
        "Transformer-XL": Method(xl, SegmentLanguageModel(64, memory_length=64), pieces, 16, xl),
        "XLNet": Method(
            xlnet,
            PermutationLanguageModel(LENGTH, reused_length=LENGTH // 2, memory_length=64),
            SentencePiece(VOCABULARY, layout="xlnet", character_coverage=1.0),
            8,
            replace(xlnet, **tasks),
        ),
        "ELMo": Method(
            elmo,
            BidirectionalLanguageModel(20, max_characters=20, num_samples=1024),
            Words(8000, split="punctuation"),
            32,
            replace(elmo, num_words=0, **tasks | {"heads": ("classification",)}),
            WordCharacters(),
            192,
        ),
        "BERT": Method(bert, MaskedLanguageModel(LENGTH), pieces, 8, replace(bert, **tasks)),
    }


def experiment(method: Method, arguments: argparse.Namespace, seed: int, steps: int) -> Experiment:
    """Its pretraining."""
    return Experiment(
        model=method.model,
        objective=method.objective,
        data=Data(TextFiles(tuple(arguments.text)), method.tokenizer, held_out_source=TextFiles((arguments.held_out,))),
        optimizer=AdamW(LinearDecay(1e-3, max(steps // 10, 1), steps + 1), clip_norm=1.0),
        steps=steps,
        batch_size=method.batch_size,
        seed=seed,
        evaluation=Evaluation(every=0, rows=4096),
        checkpoints=Checkpointing(every=200, keep_last=1),
        logging=Logging(every=100),
    )


def run(one: Experiment, folder: Path) -> dict[str, float]:
    """Its held-out figures, after it was trained where that is not done yet."""
    with open(os.devnull, "w") as nowhere:
        if not train(one, folder, Console(file=nowhere)):
            raise SystemExit("stopped before the end of a run; the same command goes on from there")
    return json.loads((folder / "held_out.json").read_text())


def read_text(path: str) -> str:
    with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
        return file.read()


def reader_of(method: Method, trained: Any, seed: int, *, is_random: bool) -> Any:
    """The trained model, or one of random parameters, as tasks read it."""
    module = method.reader.build()
    start = nn.unbox(module.init(jax.random.key(seed), *zeros_of(method.reader))["params"])
    params = {name: start[name] if is_random else trained.params.get(name, start[name]) for name in start}
    tokenizer = trained.tokenizer if method.reads is None else make_tokenizer(method.reads, lambda: iter(()))
    params = jax.tree.map(jnp.asarray, params)
    return replace(trained, config=method.reader, module=module, params=params, tokenizer=tokenizer)


def zeros_of(config: Any) -> list[jax.Array]:
    return [jnp.zeros(array.shape, array.dtype) for array in config.abstract_inputs()]


def token_ids(method: Method, model: Any, texts: list[str]) -> np.ndarray:
    """Each text as the model reads texts, cut and padded to one length."""
    vocabulary, length = model.tokenizer.vocabulary, method.text_length
    special = SpecialIds.of(vocabulary) if vocabulary.cls_id is not None else SpecialIds(None, vocabulary.eos_id, 0)
    room = length - special.count(1)
    return np.stack([special.join(length, ids[:room]) for ids in model.tokenizer.encode_batch(texts)])


def polarity(method: Method, model: Any, path: str, seed: int) -> float:
    """Accuracy of the probe."""
    data = sentences(path, seed)
    ids = {name: token_ids(method, model, texts) for name, (texts, _) in data.items()}
    labels = {name: values for name, (_, values) in data.items()}
    return probe(model, ids, labels)


def figures_of(name: str, method: Method, arguments: argparse.Namespace, seed: int, steps: int) -> dict[str, float]:
    """All figures of one method with one seed."""
    folder = Path(arguments.out) / f"{name}-{seed}"
    held_out = run(experiment(method, arguments, seed, steps), folder)
    trained = t5x_lite.load(folder)
    figures = {"loss": held_out["loss"], "a guess": held_out["unigram_loss"], "accuracy": held_out["accuracy"]}
    if name in ("GPT", "Transformer-XL"):
        text = read_text(arguments.held_out)
        tokens = sum(map(len, trained.tokenizer.encode_batch(text.splitlines())))
        figures["bits a byte"] = held_out["loss"] * tokens / len(text.encode()) / np.log(2)
    for name, is_random in (("probe", False), ("probe, random", True)):
        model = reader_of(method, trained, seed, is_random=is_random)
        figures[name] = polarity(method, model, arguments.polarity, seed)
    return figures


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True)
    for name in ("--held-out", "--polarity"):
        parser.add_argument(name, required=True)
    parser.add_argument("--teraflops", type=float, default=8.0, help="10^12 operations of each pretraining")
    parser.add_argument("--seeds", type=int, default=2, help="one gives no deviation")
    parser.add_argument("--out", default="runs/language_models", help="a folder for the runs and their figures")
    parser.add_argument("--only", nargs="*", default=(), help="these methods alone")
    arguments = parser.parse_args()
    chosen = {name: one for name, one in methods().items() if not arguments.only or name in arguments.only}
    steps, found = {}, {}
    for name, method in chosen.items():
        objective = method.objective.for_vocabulary(expected_vocabulary(method.tokenizer, method.model.vocab_size))
        flops = step_flops(method.model, objective, method.batch_size)
        steps[name] = max(1, round(1e12 * arguments.teraflops / flops))
    for seed in range(arguments.seeds):
        for name, method in chosen.items():
            file = Path(arguments.out) / f"{name}-{seed}" / "figures.json"
            if not file.exists():
                figures = figures_of(name, method, arguments, seed, steps[name])
                file.write_text(json.dumps(figures))
            found.setdefault(name, []).append(json.loads(file.read_text()))
            print(json.dumps({"method": name, "seed": seed, "steps": steps[name]} | found[name][-1]), flush=True)
    print_table(found, steps, arguments)


COLUMNS: dict[str, Callable[[float], str]] = {
    "bits a byte": "{:.3f}".format,
    "loss": "{:.2f}".format,
    "a guess": "{:.2f}".format,
    "probe": lambda share: f"{100 * share:.1f}",
    "probe, random": lambda share: f"{100 * share:.1f}",
}


def print_table(found: dict[str, list[dict[str, float]]], steps: dict[str, int], arguments: argparse.Namespace) -> None:
    title = f"{arguments.teraflops:g} x 10^12 operations, mean ± standard deviation of {arguments.seeds} seeds"
    table = Table("method", "steps", *COLUMNS, title=title)
    for name, rows in found.items():
        cells = []
        for column, written in COLUMNS.items():
            values = np.array([row[column] for row in rows if column in row])
            spread = f" ± {written(values.std(ddof=1))}" if len(values) > 1 else ""
            cells.append(f"{written(values.mean())}{spread}" if len(values) else "")
        table.add_row(name, f"{steps[name]:,}", *cells)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
