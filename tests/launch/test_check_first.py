"""The check before machines are asked for: a command of the checkout, and what stops for it."""

import pytest

TRAIN = ["configs/t5_base.py", "--workdir", "gs://bucket/run"]


@pytest.mark.parametrize("status", [0, 2])
def test_the_check_is_a_command_of_the_checkout(script, stand_ins, monkeypatch, status):
    module = script("check_first")
    stand_ins.add("python", does=f"sys.exit({status})")
    monkeypatch.setattr(module.sys, "executable", str(stand_ins.folder / "python"))
    command = module.check_command("v5p:2x2x4", 2, TRAIN)
    if status:
        with pytest.raises(module.Refusal, match="no machines were asked for; --no-check"):
            module.check_run(command)
    else:
        module.check_run(command)
    [call] = stand_ins.calls
    options = ["--topology", "v5p:2x2x4", "--slices", "2", *TRAIN[1:]]
    assert call == ["python", "-m", "t5x_lite", "check", TRAIN[0], *options]
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(module.Refusal, match=r"has no t5x_lite to check the run with; install it"):
        module.check_run(command)
