"""The picture of a learning rate, in the terminal and as a file."""

import numpy as np
import pytest

from t5x_lite.cli.commands.inspect import draw, rates, save
from t5x_lite.errors import InputError
from t5x_lite.optim.schedules import Constant, InverseSqrt, LinearDecay

BLOCKS = " ▁▂▃▄▅▆▇█"


def heights(picture: str) -> list[int]:
    """The bars of a picture, in eighths of a line."""
    lines = [line.split("|")[1] for line in picture.splitlines() if "|" in line]
    return [sum(BLOCKS.index(line[column]) for line in lines) for column in range(len(lines[0]))]


def test_bars_are_as_high_as_the_rates():
    """Each is the highest rate of its stretch, in eighths of a line of the highest of all."""
    schedule = InverseSqrt(embed_dim=64, warmup_steps=30)
    of_each = [min(step**-0.5, step * 30**-1.5) for step in range(1, 241)]
    stretches = np.reshape(of_each, (40, 6)).max(axis=1)
    assert heights(draw(schedule, 240, width=40, height=5)) == np.round(40 * stretches / max(of_each)).tolist()


def test_what_is_written_beside_it():
    schedule = LinearDecay(peak=2e-3, warmup_steps=100, total_steps=1100)
    head, first, *_, axis = draw(schedule, 1000, width=50).splitlines()
    assert head == "learning rate: 2.00e-03 at most, at step 100; 2.00e-04 at step 1,000"
    assert first.startswith("2.0e-03 |")
    assert axis.split() == ["1", "1,000"]
    assert axis.index("1") == first.index("|") + 1
    assert len(axis) == first.rindex("|")


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_fewer_steps_than_columns(steps):
    picture = draw(Constant(0.5), steps, height=3)
    assert heights(picture) == [24] * steps
    assert picture.splitlines()[-1].split() == {1: ["1", "to", "1"], 3: ["1", "3"], 7: ["1", "7"]}[steps]


def test_a_long_run_has_its_first_and_last_step():
    steps, values = rates(LinearDecay(1.0, 0, 10_000_000), 9_000_000)
    assert (steps[0], steps[-1]) == (1, 9_000_000)
    assert (np.diff(steps) > 0).all()
    assert values[[0, -1]] == pytest.approx([1.0, 0.1], rel=1e-5)


def test_the_picture_is_a_png(tmp_path):
    save(Constant(1e-3), 10, tmp_path / "rate.png")
    assert (tmp_path / "rate.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["rate.png"]
    with pytest.raises(InputError, match=r"schedule=.*rate.jpg is not the name of a picture; choose .* ends in .png"):
        save(Constant(1e-3), 10, tmp_path / "rate.jpg")
    with pytest.raises(InputError, match="lies in no folder"):
        save(Constant(1e-3), 10, tmp_path / "absent" / "rate.png")


def test_inspect_draws_it(run, experiments, write_config, tmp_path):
    config = write_config(experiments["roberta"], tmp_path / "config.py")
    status, out, err = run("inspect", config, "--schedule", tmp_path / "rate.png", "--optimizer.schedule.rate", "0.25")
    assert (status, err) == (0, "")
    assert "learning rate: 2.50e-01 at most, at step 1; 2.50e-01 at step 2\n2.5e-01 |██|" in out
    assert (tmp_path / "rate.png").exists()
    status, _, err = run("inspect", config, "--schedule", tmp_path / "rate")
    assert (status, err.count("\n")) == (2, 1)
