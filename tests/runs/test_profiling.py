"""Which steps a profile has, and what is written."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from t5x_lite.errors import InputError
from t5x_lite.runs import loop
from t5x_lite.runs.profiling import FOLDER, ProfileSteps


def test_what_are_steps_of_a_run():
    assert ProfileSteps.parse("", 10) is None
    assert ProfileSteps.parse("1:10", 10) == ProfileSteps(1, 10)
    assert ProfileSteps(3, 4).last == 6
    for text in ("3", "a:b", "3:", ":3", "-1:3", "3:4:5", "1.5:2", " 3:4"):
        with pytest.raises(InputError, match="profile='.*' is not START:STEPS; give the first step"):
            ProfileSteps.parse(text, 10)
    for text in ("0:3", "3:0", "10:2", "11:1"):
        with pytest.raises(InputError, match=rf"profile={text} means steps .* and the run has steps 1 to 10"):
            ProfileSteps.parse(text, 10)


@pytest.fixture
def profiled(tiny, console, share_program, monkeypatch, tmp_path):
    """`profiled(steps)`: the folder of the run, with this profile."""
    monkeypatch.setattr(loop, "Program", share_program)
    monkeypatch.setattr(loop.report, "finish", lambda *args: None)

    def run(profile: ProfileSteps) -> Path:
        loop.train(tiny, tmp_path, console, jax.devices()[:1], profile=profile)
        return tmp_path / FOLDER

    return run


def steps_in(folder: Path) -> set[str]:
    """The steps that the trace in a folder has."""
    (path,) = folder.glob("*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return {event["args"]["step_num"] for event in events if event.get("name") == "train"}


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "steps"), [(ProfileSteps(2, 3), "234"), (ProfileSteps(6, 1), "6")])
def test_a_profile_has_its_steps(profiled, profile, steps):
    folder = profiled(profile)
    (session,) = folder.iterdir()
    assert session.name == f"steps_{profile.first}_to_{profile.last}"
    assert sorted(path.name.partition(".")[2] for path in session.iterdir()) == ["trace.json.gz", "xplane.pb"]
    assert steps_in(session) == {*steps}


@pytest.mark.slow
def test_a_run_that_goes_on_behind_the_steps_has_no_profile(profiled, tiny, train, tmp_path):
    train(replace(tiny, steps=3), tmp_path, report=False)
    assert not profiled(ProfileSteps(3, 2)).exists()
