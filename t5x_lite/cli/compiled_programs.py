"""Compiled programs are kept from one command to the next."""

import os
import sys

from t5x_lite.cache import cache_folder


def keep_compiled_programs() -> None:
    """Has JAX look for a program in the cache folder before it compiles it, and leave there what took long.

    A run that is started again, or goes on, then begins at once. Call it before jax is imported, which reads where from
    the environment; whoever set $JAX_COMPILATION_CACHE_DIR is obeyed, and an empty one means to keep nothing.
    """
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder() / "compiled"))
