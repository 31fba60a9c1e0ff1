"""Which command is meant, and what becomes of its errors: one sentence and exit status 2 for bad input."""

import errno
import importlib
import logging
import os
import sys
import traceback
import warnings

import t5x_lite
from t5x_lite.cli.allocator import keep_memory
from t5x_lite.cli.compiled_programs import keep_compiled_programs
from t5x_lite.errors import InputError

COMMANDS = {
    "train": "train CONFIG [options]     pretrain or fine-tune, on one host or many; goes on from its own checkpoints",
    "inspect": "inspect CONFIG [options]   parameters, learning rate, batch shapes, and three real rows",
    "plan": "plan CONFIG --topology T   memory, collectives and speed on a TPU pod, before anyone pays for it",
    "evaluate": "evaluate RUN [options]     loss, BLEU or the scores of a task on held-out data, and the answers",
    "average": "average RUN --last 5       the mean of a run's last checkpoints, as a checkpoint of its own",
    "generate": "generate RUN TEXT...       what a model writes: blanks filled in, translations, continuations",
    "score": "score RUN PROMPT ANSWER... how likely answers are behind a prompt",
    "fill_mask": "fill_mask RUN TEXT         suggest tokens for each [MASK] of a text",
    "attention": "attention RUN TEXT         where a model looks: a page to click through, or a picture",
    "neighbours": "neighbours RUN WORD...     the tokens whose embeddings are nearest to a word's",
    "positions": "positions RUN              what a model knows of positions, as a picture",
    "plot": "plot RUN RUN ...           learning curves of several runs in one picture",
    "probe": "probe RUN --train FILES    what a linear classifier reads off each layer of a frozen model",
    "convert": "convert SRC DST            a run into a Hugging Face folder, or the other way round",
}

_PLACES_THAT_REFUSE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)

USAGE = f"""t5x_lite {t5x_lite.__version__}: T5, BERT, ELECTRA, BART, GPT and their kin in JAX, from text to checkpoints

usage: python -m t5x_lite COMMAND ...

  {(chr(10) + "  ").join(COMMANDS.values())}

"COMMAND --help" lists a command's options; for train, inspect and plan "COMMAND CONFIG --help" lists every field of the
experiment, each of which can be overridden (--steps 200 --objective.input-length 128).
"""


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns the exit status.

    0, 1 for a run that failed, 2 for bad input; 75 for a run on several hosts that was asked to stop, for a supervisor
    to start it again.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"t5x_lite {t5x_lite.__version__}")
        return 0
    command, *arguments = argv
    if command not in COMMANDS:
        return _fail(f"command {command!r} is not known; choose one of {', '.join(COMMANDS)}", 2)
    if command != "train":
        return _status_of(command, arguments)
    try:
        status = _status_of(command, arguments)
    except Exception:
        if not _others_wait():
            raise
        traceback.print_exc()
        status = 1
    if status and _others_wait():
        from t5x_lite.parallel import hosts

        hosts.leave(status)
    return status


def _others_wait() -> bool:
    """Whether this process is still one of several, which would wait for it at the end of the interpreter."""
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def _status_of(command: str, arguments: list[str]) -> int:
    try:
        _silence_background_tasks()
        # Imported for its command alone: --help of one does not pay for the libraries of another.
        if command in ("train", "generate"):
            keep_memory()
        if command != "plan":  # which says how long the compiler takes
            keep_compiled_programs()
        return importlib.import_module(f"t5x_lite.cli.{command}").run(arguments) or 0
    except InputError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        os._exit(1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _disk_full(error.filename)
        if error.errno not in _PLACES_THAT_REFUSE:
            raise
        return _fail(f"{error.filename or 'a file'}: {error.strerror}; choose another place or change its rights", 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except Exception as error:
        if _says_disk_full(error):
            return _disk_full(None)
        if type(error).__name__ in ("NonFiniteError", "OtherProcessError"):
            return _fail(str(error), 1)
        raise


def _silence_background_tasks() -> None:
    # What goes wrong is said here, in one sentence; Orbax's threads and tasks log it with a traceback each before.
    from absl import logging as absl_logging  # Orbax's

    absl_logging.set_verbosity(absl_logging.FATAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)


def _says_disk_full(error: BaseException | None) -> bool:
    # TensorStore reports a full disk as a ValueError; asynchronous writes wrap whatever happened.
    while error is not None:
        if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _disk_full(file: str | None) -> int:
    where = f" at {file}" if file else ""
    return _fail(
        f"the disk is full{where}; all checkpoints saved before are complete: free some space and run it again",
        2,
    )


def _fail(message: str, status: int) -> int:
    print(f"t5x-lite: {message}", file=sys.stderr)
    return status
