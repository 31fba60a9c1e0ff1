"""`python -m t5x_lite`."""

from t5x_lite.cli import run_and_exit

run_and_exit()
