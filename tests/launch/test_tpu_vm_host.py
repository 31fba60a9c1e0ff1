"""What a host does with the checkout: run in an empty home, with programs that stand in for sudo, systemctl and uv."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

HOST = Path(__file__).resolve().parents[2] / "launch/tpu_vm_host.sh"
TRAIN = ["configs/t5_base.py", "--workdir", "gs://bucket/a b", "--data.source.name", "it's $HOME `x` \\ %h\n2"]


@pytest.fixture
def home(tmp_path, monkeypatch, stand_ins):
    home = tmp_path / "home"
    (home / "t5x_lite").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    stand_ins.add("systemctl", "journalctl", "curl", "sleep")
    # The unit's file is written to the home instead of /etc.
    stand_ins.add("tee", does=f"open({str(home / 'unit')!r}, 'w').write(stdin)", reads=True)
    stand_ins.add("sudo", does="os.execvp(sys.argv[1], sys.argv[1:])")
    return home


def host(*arguments):
    return subprocess.run([HOST, *arguments], capture_output=True, text=True)


def test_start_is_a_service_that_runs_train_with_these_very_arguments(home, stand_ins):
    assert host("start", *TRAIN).returncode == 0
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(home / "unit")
    service = dict(unit["Service"])
    assert service["ExecStart"] == f"/bin/bash {home}/t5x_lite_run.sh"
    # The restarts that launch/README.md promises.
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert (unit["Unit"]["StartLimitIntervalSec"], unit["Unit"]["StartLimitBurst"]) == ("1h", "4")
    assert service["Environment"] == "T5X_LITE_SUPERVISED=1"
    assert unit["Install"]["WantedBy"] == "multi-user.target", "it comes back after a reboot"
    message = [call[1:] for call in stand_ins.calls if call[0] == "systemctl"]
    assert message == [["daemon-reload"], ["enable", "--quiet", "t5x_lite"], ["restart", "t5x_lite"]]

    python = home / "t5x_lite_venv/bin/python"
    python.parent.mkdir(parents=True)
    stand_ins.add("python", does=f"open({str(home / 'where')!r}, 'w').write(os.getcwd())")
    (stand_ins.folder / "python").rename(python)
    stand_ins.log.unlink()
    subprocess.run(["/bin/bash", home / "t5x_lite_run.sh"], check=True)
    assert stand_ins.calls == [["python", "-u", "-m", "t5x_lite", "train", *TRAIN]]
    assert (home / "where").read_text() == str(home / "t5x_lite")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_no_fault_with_the_unit(home, tmp_path):
    assert host("start", *TRAIN).returncode == 0
    unit = tmp_path / "t5x_lite.service"
    unit.write_text((home / "unit").read_text())
    result = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    complaints = [line for line in result.stderr.splitlines() if unit.name in line]
    assert complaints == []


def test_install_makes_an_environment_of_its_own(home, stand_ins):
    stand_ins.add("uv")
    (home / ".local/bin").mkdir(parents=True)
    (stand_ins.folder / "uv").rename(home / ".local/bin/uv")
    assert host("install").returncode == 0
    venv, pip = [call for call in stand_ins.calls if call[0] == "uv"]
    assert venv[1] == "venv"
    assert venv[-1] == str(home / "t5x_lite_venv")
    assert pip[1:3] == ["pip", "install"]
    assert pip[-2:] == ["-e", f"{home}/t5x_lite[tpu]"]


def test_follow_shows_the_log_until_the_run_ends(home, stand_ins):
    states = home / "states"
    states.write_text("running auto-restart running failed")
    message = f"""
file = {str(states)!r}
now, *then = open(file).read().split()
open(file, "w").write(" ".join(then))
print(now)"""
    stand_ins.add("systemctl", does=message)
    stand_ins.add("journalctl", does="print('step 7', flush=True)\n__import__('time').sleep(60)")
    result = subprocess.run([HOST, "follow"], capture_output=True, text=True, timeout=30)
    assert states.read_text() == "", "polled until it failed, no longer"
    assert result.stdout == "step 7\n"
    assert ["journalctl", "--unit=t5x_lite", "--output=cat", "--lines=50", "--follow"] in stand_ins.calls


@pytest.mark.parametrize("arguments", [[], ["train"]])
def test_usage(arguments):
    result = host(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: tpu_vm_host.sh")
