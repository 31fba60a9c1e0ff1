"""The workload of XPK: its options, and the JobSet that XPK itself makes of them where it is installed."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
TRAIN = ["configs/t5_base.py", "--workdir", "gs://bucket/a b", "--data.source.name", "it's $HOME `x`"]
RUN = ["t5", "cluster", "v5p-32", "us-docker.pkg.dev/p/i/t5x_lite:1"]


def launch(*arguments):
    return subprocess.run([CHECKOUT / "launch/xpk.sh", *arguments], capture_output=True, text=True)


def test_xpk_is_called_after_the_check_as_the_dry_run_prints(stand_ins):
    stand_ins.add("xpk", "python")
    options = ["--project=p", "--zone=z", "--num-slices=2", "--priority=high"]
    printed = launch("--dry-run", *options, *RUN, *TRAIN)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert stand_ins.calls == [], "nothing was called"
    assert launch(*options, *RUN, *TRAIN).returncode == 0
    assert [shlex.split(line) for line in printed.stdout.splitlines()] == stand_ins.calls
    check, call = stand_ins.calls
    topology = ["--topology", "v5p-32", "--slices", "2"]
    assert check == ["python", "-m", "t5x_lite", "check", TRAIN[0], *topology, *TRAIN[1:]]
    assert call[:7] == ["xpk", "workload", "create", *options]
    assert {"--workload=t5", "--cluster=cluster", "--tpu-type=v5p-32", f"--docker-image={RUN[3]}"} < set(call)
    assert "--env=T5X_LITE_SUPERVISED=1" in call


def test_the_command_has_these_very_arguments(stand_ins):
    stand_ins.add("xpk", "python")
    launch("--no-check", *RUN, *TRAIN)
    [call] = stand_ins.calls
    [command] = [word.removeprefix("--command=") for word in call if word.startswith("--command=")]
    stand_ins.log.unlink()
    subprocess.run(["bash", "-c", command], check=True)  # as XPK's container does
    assert stand_ins.calls == [["python", "-u", "-m", "t5x_lite", "train", *TRAIN]]


def test_a_run_that_could_not_begin_gets_no_machines(stand_ins):
    stand_ins.add("xpk")
    stand_ins.add("python", does="sys.exit(2)")
    result = launch(*RUN, *TRAIN)
    assert result.returncode == 2
    assert (
        result.stderr == "xpk: the run could not begin, see above, and no machines were asked for; --no-check does so\n"
    )
    assert [call[0] for call in stand_ins.calls] == ["python"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "usage: launch/xpk.sh"),
        (RUN, "usage: launch/xpk.sh"),
        ([*RUN, "configs/t5_base.py"], "the workdir is lost with the pods"),
        ([*RUN, "configs/t5_base.py", "--workdir", "runs/a"], "choose a bucket"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(stand_ins, arguments, expected):
    stand_ins.add("xpk", "python")
    result = launch(*arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
    assert stand_ins.calls == []


@pytest.mark.skipif(not shutil.which("xpk"), reason="xpk is not installed (pip install xpk)")
def test_the_jobset_that_xpk_makes(tmp_path):
    printed = launch("--dry-run", "--no-check", "--project=p", "--zone=us-east5-a", "--num-slices=2", *RUN, *TRAIN)
    manifest = tmp_path / "jobset.yaml"
    own = ["--dry-run", "--skip-validation", f"--output-manifest-file={manifest}"]
    environment = os.environ | {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path)}
    subprocess.run([*shlex.split(printed.stdout), *own], env=environment, capture_output=True, check=True)
    spec = yaml.safe_load(manifest.read_text())["spec"]
    [slices] = spec["replicatedJobs"]
    job = slices["template"]["spec"]
    assert (slices["replicas"], job["parallelism"], spec["failurePolicy"]["maxRestarts"]) == (2, 4, 10)
    [rule] = job["podFailurePolicy"]["rules"]
    codes = rule["onExitCodes"]
    assert (rule["action"], codes["operator"]) == ("FailJob", "NotIn")
    assert {1, 75, 137, 143} < set(codes["values"])
    assert 2 not in codes["values"], "bad input ends the run"
    pod = job["template"]["spec"]
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x2x4"
    assert pod["terminationGracePeriodSeconds"] == 600
    assert {"name": "T5X_LITE_SUPERVISED", "value": "1"} in pod["containers"][0]["env"]
