"""How long a user waits: for `import t5x_lite`, for --help, and from the command to the first finished step.

    python benchmarks/startup.py [CONFIG]

The first run of CONFIG (default: configs/t5_tiny.py) fills the caches and does not count. Medians over whole processes,
with the lowest and highest.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROUNDS = 5


def process_seconds(*arguments: str) -> float:
    """Seconds of a whole Python process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def first_step_seconds(config: str, environment: dict[str, str]) -> float:
    """Seconds until the figures of step 1 stand in metrics.jsonl."""
    with tempfile.TemporaryDirectory() as workdir:
        options = ["--workdir", workdir, "--logging.every", "1"]
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "t5x_lite", "train", config, *options], env=environment, stdout=subprocess.DEVNULL
        )
        try:
            while process.poll() is None:
                records = Path(workdir, "metrics.jsonl")
                if records.exists() and records.read_text().endswith("\n"):
                    json.loads(records.read_text().splitlines()[0])
                    return time.perf_counter() - start
                time.sleep(0.02)
            raise RuntimeError(f"train {config} ended without a step")
        finally:
            process.kill()
            process.wait()


def main() -> None:
    config = sys.argv[1] if len(sys.argv) > 1 else "configs/t5_tiny.py"
    table = Table("what", "seconds", "lowest to highest", title="startup")
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"T5X_LITE_CACHE": cache}
        work = {
            "python -c pass": lambda: process_seconds("-c", "pass"),
            "import t5x_lite": lambda: process_seconds("-c", "import t5x_lite"),
            "t5x_lite --help": lambda: process_seconds("-m", "t5x_lite", "--help"),
            f"train {config}, to the first step": lambda: first_step_seconds(config, environment),
        }
        for name, measure in work.items():
            measure()
            seconds = [measure() for _ in range(ROUNDS)]
            spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
            table.add_row(name, f"{statistics.median(seconds):.2f}", spread)
    Console().print(table)


if __name__ == "__main__":
    main()
