from dataclasses import replace

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.training import Experiment
from t5x_lite.training.experiment import differences
from t5x_lite.training.start import FromModel, FromRun, overlay


def tree(layers: int, width: int = 3, **others):
    """A stack, an embedding, and what else there is, every value another one."""
    kernel = np.arange(layers * width * width, dtype=np.float32).reshape(layers, width, width)
    return {"encoder": {"layers": {"kernel": kernel}}, "embedding": np.full((7, width), 5.0), **others}


def test_what_both_have_is_taken_and_the_rest_is_named():
    ours = tree(2, head={"bias": np.zeros(4)}) | {"embedding": np.zeros((7, 3))}
    theirs = tree(2, pooler={"bias": np.ones(4)})
    found, fresh = overlay(ours, theirs)
    assert set(found) == {"encoder", "embedding", "head"}
    np.testing.assert_array_equal(found["embedding"], theirs["embedding"])
    np.testing.assert_array_equal(found["encoder"]["layers"]["kernel"], theirs["encoder"]["layers"]["kernel"])
    np.testing.assert_array_equal(found["head"]["bias"], np.zeros(4))
    assert fresh == ["head/bias"]


@pytest.mark.parametrize("layers", [(0, 2, 4), (5, 0, 1)])
def test_chosen_layers_come_in_their_order(layers):
    found, fresh = overlay(tree(3), tree(6), layers)
    np.testing.assert_array_equal(
        found["encoder"]["layers"]["kernel"], tree(6)["encoder"]["layers"]["kernel"][[*layers]]
    )
    np.testing.assert_array_equal(found["embedding"], tree(6)["embedding"])
    assert fresh == []


@pytest.mark.parametrize(
    ("theirs", "layers", "message"),
    [
        (tree(6), (), r"encoder/layers/kernel has shape \(6, 3, 3\) there, \(3, 3, 3\) here; choose another"),
        (tree(6), (0, 1), r"encoder/layers/kernel has shape \(2, 3, 3\) there, \(3, 3, 3\) here"),
        (tree(6), (0, 1, 6), r"start.layers=\(0, 1, 6\) names layers that it lacks; choose from 0..5"),
        (tree(6), (0, 1, -1), r"start.layers=\(0, 1, -1\) names layers that it lacks"),
        (tree(3, width=4), (), r"shape: .*\(3, 4, 4\) there.*; embedding has shape \(7, 4\) there, \(7, 3\) here"),
        ({"decoder": np.zeros(3)}, (), "shares no parameter with this one; choose its family"),
    ],
)
def test_models_that_do_not_fit(theirs, layers, message):
    with pytest.raises(InputError, match=message):
        overlay(tree(3), theirs, layers)


@pytest.mark.parametrize("start", [FromModel, FromRun])
def test_a_start_without_a_folder(start):
    with pytest.raises(InputError, match="start.folder='' names no folder"):
        start("")


def test_a_start_is_part_of_the_experiment(tiny):
    """It is written down, and another one is another run."""
    experiment = replace(tiny, start=FromModel("folder", layers=(1, 3)))
    assert Experiment.from_json(experiment.to_json()) == experiment
    changed = {field for field, _, _ in differences(experiment, replace(experiment, start=FromRun("folder")))}
    assert "start" in changed
