"""ELECTRA, BERT and RoBERTa-style pretraining at equal compute: what their encoders are worth afterwards.

    python benchmarks/encoders.py --text NOVELS... --polarity sentence_polarity.zip [--teraflops 6] [--seeds 3]

Pretrains encoders of one size on the same text with the same tokenizer, each for as many steps as the same number of
floating-point operations allows (counted from the matrix products of a step, forward and backward). Then, on the
sentence polarity data (Pang and Lee 2005): a linear probe on the frozen mean of the last layer, and fine-tuning. An
encoder with random parameters stands beside them. Prints mean and standard deviation over the seeds; every seed has its
own pretraining and its own split of the data.
"""

import argparse
import json
import os
import random
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from rich.console import Console
from rich.table import Table
from turns import mean_and_deviation

import t5x_lite
from t5x_lite.cli.processes import keep_memory
from t5x_lite.data import Data, TextFiles, WordPiece, batches
from t5x_lite.models import BertConfig, ElectraConfig, ElectraPairConfig
from t5x_lite.objectives import MaskedLanguageModel, NextSentencePrediction, ReplacedTokenDetection
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.runs.loop import train
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging

LENGTH, BATCH, VOCABULARY = 64, 32, 4000
SIZE = {"embed_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2, "max_length": LENGTH}
SENTENCE_LENGTH, EPOCHS, FINE_TUNING_BATCH, FINE_TUNING_RATE = 64, 2, 32, 5e-4


def methods() -> dict[str, tuple[Any, Any]]:
    """(model, objective) by name."""
    bert = BertConfig(vocab_size=VOCABULARY, heads=("masked_lm", "sentence_pair"), **SIZE)
    electra = ElectraConfig(vocab_size=VOCABULARY, token_embed_dim=128, heads=("replaced_token",), **SIZE)
    small = {"embed_dim": 32, "num_heads": 1, "mlp_dim": 128}
    pair = ElectraPairConfig(generator=replace(electra, heads=("masked_lm",), **small), discriminator=electra)
    return {
        "ELECTRA": (pair, ReplacedTokenDetection(LENGTH, "segment-pair")),
        "BERT (masked LM, next sentence, 10 static masks)": (bert, NextSentencePrediction(LENGTH, static_masks=10)),
        "RoBERTa-style (full sentences, dynamic masks)": (
            replace(bert, heads=("masked_lm",), pooler=False, num_segments=1),
            MaskedLanguageModel(LENGTH, "full-sentences"),
        ),
    }


def encoder_flops(config: Any, tokens: int) -> float:
    """Of the forward pass: every matrix product counts two operations a number."""
    d, f, length = config.embed_dim, config.mlp_dim, LENGTH
    layer = 2 * (4 * d * d + 2 * d * f) + 2 * 2 * length * d
    projection = 0 if config.token_embed_dim == d else 2 * config.token_embed_dim * d
    return tokens * (config.num_layers * layer + projection)


def step_flops(model: Any, objective: Any) -> float:
    """Of one training step: forward, and backward at twice the price."""
    tokens, predictions = BATCH * LENGTH, BATCH * objective.num_predictions

    def language_model(config: Any) -> float:
        return predictions * (2 * config.embed_dim * config.token_embed_dim + 2 * config.token_embed_dim * VOCABULARY)

    if isinstance(model, ElectraPairConfig):
        generator, discriminator = model.generator, model.discriminator
        forward = encoder_flops(generator, tokens) + language_model(generator)
        forward += encoder_flops(discriminator, tokens) + tokens * 2 * discriminator.embed_dim**2
    else:
        forward = encoder_flops(model, tokens) + language_model(model)
        forward += BATCH * 2 * model.embed_dim**2 if "sentence_pair" in model.heads else 0
    return 3 * forward


def pretrain(model: Any, objective: Any, text: list[str], steps: int, seed: int, folder: Path) -> Any:
    """The trained model."""
    experiment = Experiment(
        model=model,
        objective=objective,
        data=Data(TextFiles(tuple(text)), WordPiece(VOCABULARY), held_out=0.02),
        optimizer=AdamW(LinearDecay(1e-3, max(steps // 10, 1), steps + 1), clip_norm=1.0),
        steps=steps,
        batch_size=BATCH,
        seed=seed,
        evaluation=Evaluation(every=0, rows=256),
        checkpoints=Checkpointing(every=0, keep_last=1),
        logging=Logging(every=100),
    )
    with open(os.devnull, "w") as nowhere:
        train(experiment, folder, Console(file=nowhere))
    return t5x_lite.load(folder)


def sentences(path: str, seed: int) -> dict[str, tuple[list[str], np.ndarray]]:
    """(texts, labels) of a shuffled train and test part, nine to one."""
    rows = []
    with zipfile.ZipFile(path) as archive:
        for label, ending in enumerate(("neg", "pos")):
            lines = archive.read(f"sentence_polarity/rt-polarity.{ending}").decode("latin-1").splitlines()
            rows += [(line.strip(), label) for line in lines if line.strip()]
    random.Random(seed).shuffle(rows)
    cut = len(rows) // 10
    parts = {"test": rows[:cut], "train": rows[cut:]}
    return {name: ([text for text, _ in part], np.array([label for _, label in part])) for name, part in parts.items()}


def token_ids(model: Any, texts: list[str]) -> np.ndarray:
    """`[CLS] text [SEP]`, cut and padded to one length."""
    vocabulary, room = model.tokenizer.vocabulary, SENTENCE_LENGTH - 2
    rows = np.full((len(texts), SENTENCE_LENGTH), vocabulary.pad_id, np.int32)
    for row, text in zip(rows, texts, strict=True):
        ids = [vocabulary.cls_id, *model.tokenizer.encode(text)[:room], vocabulary.sep_id]
        row[: len(ids)] = ids
    return rows


def sentence_vectors(model: Any, params: Any, ids: jax.Array, key: jax.Array | None = None) -> jax.Array:
    """Mean of the last layer over the real tokens; of a pair of networks the discriminator's."""
    valid = ids != model.tokenizer.vocabulary.pad_id

    def encode(module: Any) -> jax.Array:
        encoder = getattr(module, "discriminator", module)
        return encoder.hidden_states(ids, inputs_valid=valid, deterministic=key is None)

    hidden = model.module.apply({"params": params}, method=encode, rngs=None if key is None else {"dropout": key})
    return (hidden * valid[..., None]).sum(axis=1) / valid.sum(axis=1)[:, None]


def probe(model: Any, ids: dict[str, np.ndarray], labels: dict[str, np.ndarray]) -> float:
    """Test accuracy of logistic regression on the frozen vectors."""
    encode = jax.jit(lambda params, rows: sentence_vectors(model, params, rows))
    vectors = {
        name: jnp.concatenate([encode(model.params, part) for part in np.array_split(rows, 20)])
        for name, rows in ids.items()
    }
    mean, deviation = vectors["train"].mean(axis=0)[None], vectors["train"].std(axis=0)[None] + 1e-6
    x = {name: (value - mean) / deviation for name, value in vectors.items()}

    def loss(w: dict[str, jax.Array]) -> jax.Array:
        logits = x["train"] @ w["kernel"] + w["bias"]
        penalty = 1e-3 * (w["kernel"] ** 2).sum()
        return optax.sigmoid_binary_cross_entropy(logits, labels["train"]).mean() + penalty

    solver, weights = optax.lbfgs(), {"kernel": jnp.zeros(x["train"].shape[1]), "bias": jnp.zeros(())}
    state = solver.init(weights)

    @jax.jit
    def step(weights: Any, state: Any) -> tuple[Any, Any]:
        value, grads = optax.value_and_grad_from_state(loss)(weights, state=state)
        updates, state = solver.update(grads, state, weights, value=value, grad=grads, value_fn=loss)
        return optax.apply_updates(weights, updates), state

    for _ in range(100):
        weights, state = step(weights, state)
    return float(((x["test"] @ weights["kernel"] + weights["bias"] > 0) == labels["test"]).mean())


def fine_tune(model: Any, ids: dict[str, np.ndarray], labels: dict[str, np.ndarray], seed: int) -> float:
    """Test accuracy after two epochs over all parameters and a new output."""
    columns = zip(ids["train"], labels["train"], strict=True)
    rows = [{"ids": row, "label": np.int32(label)} for row, label in columns]
    steps = EPOCHS * len(rows) // FINE_TUNING_BATCH
    rate = optax.warmup_cosine_decay_schedule(0.0, FINE_TUNING_RATE, steps // 10, steps)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))
    width = jax.eval_shape(lambda params: sentence_vectors(model, params, ids["test"][:1]), model.params).shape[-1]
    output = {"kernel": jnp.zeros(width), "bias": jnp.zeros(())}
    weights = {"model": model.params, "output": output}
    state, key = optimizer.init(weights), jax.random.key(seed)

    def logits(weights: Any, ids: jax.Array, key: jax.Array | None) -> jax.Array:
        vectors = sentence_vectors(model, weights["model"], ids, key)
        return vectors @ weights["output"]["kernel"] + weights["output"]["bias"]

    @jax.jit
    def step(weights: Any, state: Any, rows: dict[str, jax.Array], key: jax.Array) -> tuple[Any, Any]:
        def loss(weights: Any) -> jax.Array:
            return optax.sigmoid_binary_cross_entropy(logits(weights, rows["ids"], key), rows["label"]).mean()

        updates, state = optimizer.update(jax.grad(loss)(weights), state, weights)
        return optax.apply_updates(weights, updates), state

    data = batches(rows, batch_size=FINE_TUNING_BATCH, seed=seed)
    for index in range(steps):
        weights, state = step(weights, state, data[index], jax.random.fold_in(key, index))
    predict = jax.jit(lambda weights, rows: logits(weights, rows, None) > 0)
    predictions = np.concatenate([predict(weights, part) for part in np.array_split(ids["test"], 10)])
    return float((predictions == labels["test"]).mean())


def downstream(model: Any, polarity: str, seed: int) -> dict[str, float]:
    data = sentences(polarity, seed)
    ids = {name: token_ids(model, texts) for name, (texts, _) in data.items()}
    labels = {name: values for name, (_, values) in data.items()}
    return {"probe": probe(model, ids, labels), "fine-tuned": fine_tune(model, ids, labels, seed)}


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--polarity", required=True)
    parser.add_argument("--teraflops", type=float, default=6.0, help="10^12 operations of each pretraining")
    parser.add_argument("--seeds", type=int, default=3, help="one gives no deviation")
    arguments = parser.parse_args()
    budget, figures = 1e12 * arguments.teraflops, {}
    steps = {name: round(budget / step_flops(*method)) for name, method in methods().items()}
    for seed in range(arguments.seeds):
        for name, (model, objective) in methods().items():
            with tempfile.TemporaryDirectory() as folder:
                trained = pretrain(model, objective, arguments.text, steps[name], seed, Path(folder) / "run")
                figures.setdefault(name, []).append(downstream(trained, arguments.polarity, seed))
            print(json.dumps({"seed": seed, "method": name, "steps": steps[name]} | figures[name][-1]), flush=True)
        start = trained.module.init(jax.random.key(seed), jnp.zeros((1, 2), jnp.int32), jnp.zeros((1, 2), jnp.int32))
        untrained = replace(trained, params=jax.tree.map(jnp.asarray, nn.unbox(start["params"])))
        figures.setdefault("no pretraining", []).append(downstream(untrained, arguments.polarity, seed))
        print(json.dumps({"seed": seed, "method": "no pretraining"} | figures["no pretraining"][-1]), flush=True)

    title = f"accuracy on sentence polarity, mean ± standard deviation of {arguments.seeds} seeds"
    table = Table("pretraining", "steps", "linear probe (%)", "fine-tuned (%)", title=title)
    for name, rows in figures.items():
        columns = [[100 * row[column] for row in rows] for column in ("probe", "fine-tuned")]
        table.add_row(name, f"{steps.get(name, 0):,}", *(mean_and_deviation(column, ".1f") for column in columns))
    Console().print(table)


if __name__ == "__main__":
    main()
