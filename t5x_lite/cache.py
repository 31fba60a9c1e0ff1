"""Where what was made once is kept on this machine."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$T5X_LITE_CACHE, else ~/.cache/t5x_lite; nothing that is kept there cannot be made again."""
    return Path(os.environ.get("T5X_LITE_CACHE") or "~/.cache/t5x_lite").expanduser()
