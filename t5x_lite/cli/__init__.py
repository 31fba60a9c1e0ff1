"""The shell's door: `python -m t5x_lite` and `t5x-lite`."""

from t5x_lite.cli.main import main

__all__ = ["main"]
