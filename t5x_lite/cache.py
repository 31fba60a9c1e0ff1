"""The folder for tokenizers, token stores and compiled programs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$T5X_LITE_CACHE, else ~/.cache/t5x_lite; all of its content can be made again."""
    return Path(os.environ.get("T5X_LITE_CACHE") or "~/.cache/t5x_lite").expanduser()
