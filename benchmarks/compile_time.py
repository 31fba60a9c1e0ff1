"""How the train step's compile time grows with depth: it should not, since the layers are scanned.

    python benchmarks/compile_time.py

Compiles the train step of a narrow T5 v1.1 with 2, 6, 12 and 24 layers on either side, in turns, each in a process of
its own (a process compiles the second program faster than the first), and prints medians and the growth over 2 layers.
"""

import statistics
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

from t5x_lite.data import Data, Vocabulary
from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.models import T5Config
from t5x_lite.objectives import SpanCorruption
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.parallel import make_mesh
from t5x_lite.training import Experiment
from t5x_lite.training.step import Program

DEPTHS, ROUNDS = (2, 6, 12, 24), 5


def compile_seconds(depth: int) -> float:
    """Seconds to lower and compile the step of a model with `depth` layers on either side."""
    model = T5Config(
        vocab_size=1024,
        embed_dim=64,
        mlp_dim=128,
        num_encoder_layers=depth,
        num_decoder_layers=depth,
        activation="gelu_tanh",
        gated=True,
        tied=False,
    )
    experiment = Experiment(model, SpanCorruption(128), Data(), AdamW(), steps=1, batch_size=8)
    vocabulary = Vocabulary(1024, first_sentinel_id=1023, num_sentinels=100)
    program = Program(experiment, experiment.objective.for_vocabulary(vocabulary), make_mesh(experiment.mesh))
    batch = abstract_batch(experiment.objective.layout.spec, 8)
    start = time.perf_counter()
    program.train_step.lower(program.abstract_state, batch).compile()
    return time.perf_counter() - start


def main() -> None:
    if len(sys.argv) > 1:
        print(compile_seconds(int(sys.argv[1])))
        return
    seconds: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    for _ in range(ROUNDS):
        for depth in DEPTHS:
            output = subprocess.run([sys.executable, __file__, str(depth)], capture_output=True, text=True, check=True)
            seconds[depth].append(float(output.stdout))
    table = Table("layers", "compile (s)", "lowest to highest", "over 2 layers", title="compile time of the train step")
    base = statistics.median(seconds[DEPTHS[0]])
    for depth, values in seconds.items():
        middle = statistics.median(values)
        table.add_row(
            f"{depth} + {depth}",
            f"{middle:.2f}",
            f"{min(values):.2f} to {max(values):.2f}",
            f"{middle / base - 1:+.1%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
