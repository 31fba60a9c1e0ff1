"""Runs the command that is named; bad input ends in one sentence and exit status 2."""

import difflib
import errno
import importlib
import importlib.util
import logging
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import t5x_lite
from t5x_lite.cache import cache_folder
from t5x_lite.cli.processes import collect_garbage_rarely, keep_memory
from t5x_lite.errors import InputError

_MARKED = re.compile(r'^@subcommand\ndef (\w+)\(.*\n    """(.+?): (.+)"""$', re.MULTILINE)
_USAGE = """t5x_lite {version}: T5, BERT, ELECTRA, BART, GPT and related models in JAX, from text to checkpoints

usage: python -m t5x_lite COMMAND ...

{commands}

"COMMAND --help" lists a command's options; for train, inspect and plan "COMMAND CONFIG --help" lists every field of the
experiment, each of which can be overridden (--steps 200 --objective.input-length 128). Behind any command
"--import FILE_OR_MODULE" imports your own classes first: a run that was trained with them opens only then.

RUN is a run's folder or any other model that opens, such as a Hugging Face folder. Three small ones come with t5x_lite:
  t5x-lite generate demo/de-en "Wo ist der Bahnhof?"
  t5x-lite fill_mask demo/bert-novels "Captain [MASK] stood on the deck."
  t5x-lite fill_blanks demo/t5-novels "He opened the <extra_id_0> and went out."
"""


def find_commands() -> dict[str, tuple[str, str, str]]:
    """(module, usage, summary) by command, from the sources in `cli/commands`: nothing is imported."""
    files = sorted((Path(__file__).parent / "commands").glob("*.py"))
    found = [(file.stem, match) for file in files for match in _MARKED.finditer(file.read_text(encoding="utf-8"))]
    return {match[1]: (module, match[2], match[3]) for module, match in sorted(found, key=lambda each: each[1][1])}


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns the exit status.

    0 is success, 1 a run that failed, 2 bad input, 75 a run on several hosts that a signal stopped, or one of whose
    hosts hangs or is gone, and that a supervisor should start again.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        found = [(usage, summary) for _, usage, summary in find_commands().values()]
        width = max(len(usage) for usage, _ in found) + 2
        lines = [f"  {usage:<{width}}{summary}" for usage, summary in found]
        print(_USAGE.format(version=t5x_lite.__version__, commands="\n".join(lines)), end="")
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"t5x_lite {t5x_lite.__version__}")
        return 0
    command, arguments, commands = argv[0].replace("-", "_"), argv[1:], find_commands()
    if command not in commands:
        near = difflib.get_close_matches(command, commands, n=1)
        meant = f"; perhaps you meant {near[0]}" if near else ""
        return _fail(f"command {argv[0]!r} is not known{meant}; choose one of {', '.join(commands)}", 2)
    try:
        status = _run(command, commands[command][0], arguments)
    except Exception:
        if not _is_distributed():
            raise
        traceback.print_exc()
        status = 1
    if status and _is_distributed():
        from t5x_lite.parallel import hosts

        hosts.leave(status)
    return status


def run_and_exit() -> NoReturn:
    """Runs the command of this process and ends the process: after a failure at once, since threads of Orbax's then
    wait for minutes for files that nobody writes, and the interpreter for them."""
    # TensorStore's native threads report here, of no object, what they cannot hand to a task that a failed write ended.
    sys.unraisablehook = lambda error: None if error.object is None else sys.__unraisablehook__(error)
    if sys.stdout and sys.stdout.errors == "strict":  # as stderr: names of files may have bytes that are not UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = 1
    if not status:
        sys.exit()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the caller closed it
        stream.flush()
    os._exit(status)


def _is_distributed() -> bool:
    """Whether this process is one of several, which wait for it when the interpreter ends."""
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def _run(command: str, module: str, arguments: list[str]) -> int:
    """Runs a command; returns its exit status, after one sentence about an error that the user can correct."""
    # Orbax's threads and tasks would log errors with a traceback before.
    from absl import logging as absl_logging

    absl_logging.set_verbosity(absl_logging.FATAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
    try:
        if nul := [argument for argument in arguments if "\0" in argument]:
            raise InputError(f"argument {nul[0]!r} has a NUL in it, which ends the name of a file; leave it out")
        arguments = import_modules(arguments)
        collect_garbage_rarely()
        if command in ("train", "generate"):
            keep_memory()
        if command != "plan":  # which says how long the compiler takes
            keep_compiled_programs()
        return getattr(importlib.import_module(f"t5x_lite.cli.commands.{module}"), command)(arguments) or 0
    except InputError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        os._exit(1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except Exception as error:
        if disk := _disk_problem(error):
            problem, _, remedy = disk
            where = f" at {error.filename}" if isinstance(error, OSError) and error.filename else ""
            saved = f"all checkpoints saved before are complete: {remedy} and run it again"
            return _fail(f"the disk is {problem}{where}; {saved}", 2)
        if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError | FileExistsError):
            path = error.filename or "a file"
            return _fail(f"{path}: {error.strerror}; choose another path or change its permissions", 2)
        if "embedded null" in str(error):  # of a config
            return _fail("the name of a file has a NUL in it, which ends names; correct the config", 2)
        if type(error).__name__ in ("NonFiniteError", "OtherProcessError"):
            return _fail(str(error), 1)
        raise


def keep_compiled_programs() -> None:
    """Keeps compiled programs in the cache folder from one command to the next.

    Call it before jax is imported, which reads the folder from the environment. A $JAX_COMPILATION_CACHE_DIR that
    is set already stays; an empty one keeps nothing.
    """
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder() / "compiled"))


def share_compiled_programs(workdir: str) -> None:
    """Keeps compiled programs beside a run in a bucket, where all of its hosts find them, and those that come after.

    Process 0 alone writes them, so that on its disk nobody else would. A $JAX_COMPILATION_CACHE_DIR of the user's own
    stays. Call it before anything is compiled.
    """
    import jax

    if os.environ.get("JAX_COMPILATION_CACHE_DIR") == str(cache_folder() / "compiled"):
        jax.config.update("jax_compilation_cache_dir", f"{workdir.rstrip('/')}/compiled")
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # XLA itself reads no bucket


def import_modules(arguments: list[str]) -> list[str]:
    """Imports the file or module after each `--import`; returns the other arguments.

    Raises `InputError` for one that is missing or fails. Nothing that a run's folder names is imported by itself.
    """
    rest, names = list(arguments), []
    while "--import" in rest:
        index = rest.index("--import")
        if index + 1 == len(rest):
            raise InputError("--import names nothing; give it a Python file or a module")
        names.append(rest[index + 1])
        del rest[index : index + 2]
    for name in names:
        file = Path(name).expanduser()
        try:
            if file.suffix == ".py":
                load_module(file)
            else:
                sys.path.insert(0, os.getcwd())
                importlib.import_module(name)
        except Exception as error:
            raise InputError(
                f"--import={name} cannot be imported ({type(error).__name__}: {error}); give a Python file or a module "
                "that runs by itself"
            ) from None
    return rest


def load_module(file: Path) -> ModuleType:
    """Runs a Python file as a module, called as the file is unless another module is: `json.py` does not hide json."""
    try:
        known = importlib.util.find_spec(file.stem)
    except (ImportError, ValueError):  # no module has a name such as `t5.small`
        known = None
    is_other = known is not None and known.origin != str(file.resolve())
    name = f"loaded_{file.stem}" if is_other or file.stem in sys.modules else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    # tyro looks up the source of a class, for its help texts, through the module's name.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent.absolute()))  # it may import the files beside it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.pop(0)
    return module


_DISKS = {
    errno.ENOSPC: ("full", "No space left", "free some space"),
    errno.EROFS: ("read-only", "Read-only file system", "make it writable"),
}
"""What may be wrong with a disk, how messages say it, and what to do."""


def _disk_problem(error: BaseException | None) -> tuple[str, str, str] | None:
    # TensorStore reports it as a ValueError; asynchronous writes wrap whatever happened.
    while error is not None:
        for number, problem in _DISKS.items():
            if (isinstance(error, OSError) and error.errno == number) or problem[1] in str(error):
                return problem
        error = error.__cause__ or error.__context__
    return None


def _fail(message: str, status: int) -> int:
    print(f"t5x-lite: {message}", file=sys.stderr)
    return status
