"""The batch job, run with programs that stand in for srun, squeue and scontrol."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

SBATCH = Path(__file__).resolve().parents[2] / "launch/slurm.sbatch"
TRAIN = ["configs/t5_base.py", "--workdir", "/shared/a b"]


@pytest.fixture
def job(stand_ins, monkeypatch):
    """`job(status, state)`: the job's status when srun ends so, and the calls."""
    monkeypatch.setenv("SLURM_JOB_ID", "42")

    def job(status, state):
        stand_ins.add("srun", does=f"sys.exit({status} if os.environ.get('T5X_LITE_SUPERVISED') else 3)")
        stand_ins.add("squeue", does=f"print({state!r})")
        stand_ins.add("scontrol")
        result = subprocess.run([SBATCH, *TRAIN], capture_output=True, text=True)
        return result.returncode, stand_ins.calls

    return job


def directives():
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", SBATCH.read_text(), re.MULTILINE))


def test_one_process_a_gpu():
    options = directives()
    assert options["ntasks-per-node"] == options["gpus-per-node"]
    assert options["signal"] == "TERM@600", "to the processes, not to this script (B:), and while there is time to save"
    assert "requeue" in options
    assert options["open-mode"] == "append", "a requeued job goes on with the same log"


def test_srun_is_called_as_the_dry_run_prints(job, stand_ins):
    printed = subprocess.run([SBATCH, "--dry-run", *TRAIN], capture_output=True, text=True)
    assert printed.returncode == 0
    assert stand_ins.calls == []
    _, calls = job(0, "RUNNING")
    assert shlex.split(printed.stdout.splitlines()[0]) == calls[0]
    assert calls[0][-len(TRAIN) - 3 :] == ["-m", "t5x_lite", "train", *TRAIN]
    assert "scontrol requeue" in printed.stdout


@pytest.mark.parametrize(
    ("status", "state", "requeued"),
    [
        (75, "RUNNING", True),  # its time is nearly over
        (75, "COMPLETING", False),  # cancelled
        (75, "PENDING", False),  # preempted: SLURM has requeued it
        (2, "RUNNING", False),
        (1, "RUNNING", False),
        (0, "RUNNING", False),
    ],
)
def test_what_is_requeued(job, status, state, requeued):
    returned, calls = job(status, state)
    assert returned == status
    assert (["scontrol", "requeue", "42"] in calls) == requeued


def test_sigterm_lets_the_processes_save(stand_ins, monkeypatch):
    """SLURM may send it to the script too; it waits, and its children can receive the signal."""
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    saves = """
import signal, time
if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
    sys.exit("SIGTERM is ignored")
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(75)))
time.sleep(60)"""
    stand_ins.add("srun", does=saves)
    stand_ins.add("squeue", does="print('RUNNING')")
    stand_ins.add("scontrol")
    with subprocess.Popen([SBATCH, *TRAIN], start_new_session=True) as process:
        deadline = time.monotonic() + 20
        while not stand_ins.calls and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # from its note to its handler
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(20) == 75
    assert ["scontrol", "requeue", "42"] in stand_ins.calls


@pytest.mark.parametrize("arguments", [[], TRAIN])
def test_outside_of_slurm_or_without_a_config(stand_ins, monkeypatch, arguments):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    stand_ins.add("srun")
    result = subprocess.run([SBATCH, *arguments], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: sbatch launch/slurm.sbatch")
    assert stand_ins.calls == []
