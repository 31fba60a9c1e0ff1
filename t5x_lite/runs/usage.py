"""What a run is and uses: the lines that it begins with, memory, and the share of the chips' peak."""

import functools
import os
from collections.abc import Callable

import jax
from jax.sharding import Mesh

from t5x_lite.evaluation.figures import Figures
from t5x_lite.models import num_params
from t5x_lite.parallel.chips import peak_flops
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.flops import step_flops
from t5x_lite.training.step import Program


def describe_run(program: Program, experiment: Experiment, workdir: str, first: int) -> str:
    """Parameters, devices, mesh, batch, steps and folder of a run that goes on from step `first`; its operations, and
    the least time that they take, where the peak of the devices is known."""
    mesh, (unit, count) = program.mesh, program.objective.layout.throughput(experiment.batch_size)
    device, processes = mesh.devices.flat[0], jax.process_count()
    shape = " ".join(f"{axis}={size}" for axis, size in mesh.shape.items() if size > 1) or "one device"
    rows = f"{experiment.batch_size:,} rows" + (f" ({count:,} {unit})" if count != experiment.batch_size else "")
    return (
        f"{type(experiment.model).__name__}: {num_params(experiment.model):,} parameters, computed in "
        f"{experiment.precision.compute}\n"
        f"{mesh.size} x {device.device_kind}, {processes} process{'es' * (processes > 1)}; mesh: {shape}\n"
        f"steps {first:,} to {experiment.steps:,} of {rows}; folder: {workdir}\n"
        f"{_describe_flops(program, experiment)}"
    )


_cached_flops = functools.lru_cache(maxsize=8)(step_flops)


def _step_flops(program: Program, experiment: Experiment) -> int:
    """Traced once for a run, which takes half a second."""
    arguments = (experiment.model, program.objective, experiment.batch_size)
    try:
        hash(arguments)
    except TypeError:  # an objective from outside, which holds a list or an array
        return step_flops(*arguments)
    return _cached_flops(*arguments)


def _describe_flops(program: Program, experiment: Experiment) -> str:
    flops = _step_flops(program, experiment)
    if None in (peaks := _peaks(program.mesh)):
        return f"a step: {flops:.3g} FLOPs of the model"
    seconds = flops / sum(peaks)
    least = f"{seconds:,.2f} s" if seconds >= 1 else f"{1000 * seconds:,.2f} ms"
    return (
        f"a step: {flops:.3g} FLOPs of the model, which take at least {least} at the devices' peak of "
        f"{peaks[0] / 1e12:,.0f} TFLOP/s each (bfloat16)"
    )


def _peaks(mesh: Mesh) -> list[float | None]:
    return [peak_flops(device.device_kind) for device in mesh.devices.flat]


def usage_of(program: Program, experiment: Experiment) -> Callable[[float], Figures]:
    """A function of the seconds that a step takes: `mfu`, the share of the devices' peak that the model's operations
    use (Chowdhery et al. 2022, appendix B), where that is known, and `memory_bytes` and `peak_memory_bytes`, of the
    fullest local device, or of this process on CPUs."""
    peaks = _peaks(program.mesh)
    flops = None if None in peaks else _step_flops(program, experiment)

    def usage(seconds: float) -> Figures:
        share = {} if flops is None else {"mfu": flops / (seconds * sum(peaks))}
        return share | memory(program.mesh)

    return usage


def memory(mesh: Mesh) -> Figures:
    """The bytes in use and their peak."""
    stats = [device.memory_stats() for device in mesh.local_devices]
    if all(stats):
        names = {"memory_bytes": "bytes_in_use", "peak_memory_bytes": "peak_bytes_in_use"}
        return {ours: float(max(one.get(theirs, 0) for one in stats)) for ours, theirs in names.items()}
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if os.uname().sysname == "Darwin" else 1024)
        with open("/proc/self/statm", "rb") as file:
            now = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {"memory_bytes": float(now), "peak_memory_bytes": float(max(now, peak))}
    except (ImportError, OSError):  # not Linux
        return {}
