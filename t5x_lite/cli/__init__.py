"""The shell's door: `python -m t5x_lite` and `t5x-lite`."""

from t5x_lite.cli.main import main, run_and_exit

__all__ = ["main", "run_and_exit"]
