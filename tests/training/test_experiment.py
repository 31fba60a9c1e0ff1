import json
from dataclasses import dataclass, replace

import pytest

from t5x_lite.data import PythonDocs
from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape
from t5x_lite.training import Evaluation, Experiment
from t5x_lite.training.experiment import differences
from t5x_lite.training.optimizers import Adafactor, Adam
from t5x_lite.training.schedules import InverseSqrt, Schedule


@pytest.mark.parametrize("optimizer", [Adam(InverseSqrt(64, 10)), Adafactor()])
def test_json_round_trip(tiny, optimizer):
    experiment = replace(tiny, optimizer=optimizer)
    assert Experiment.from_json(experiment.to_json()) == experiment


def test_json_rebuilds_known_classes_only(tiny):
    text = tiny.to_json().replace('"class": "T5Config"', '"class": "Path"')
    with pytest.raises(InputError, match=r"Path.*T5Config"):
        Experiment.from_json(text)


def test_a_class_of_another_kind_is_not_known_there(tiny):
    text = tiny.to_json().replace('"class": "Constant"', '"class": "T5Config"')
    with pytest.raises(InputError, match=r"schedule.*'T5Config'.*known are"):
        Experiment.from_json(text)


def test_a_users_own_class_is_known_once_it_is_defined(tiny):
    @dataclass(frozen=True)
    class MySchedule(Schedule):
        rate: float = 2.0

        def learning_rate(self, step):
            return self.rate

    experiment = replace(tiny, optimizer=Adam(MySchedule(3.0)))
    assert Experiment.from_json(experiment.to_json()) == experiment


def test_unknown_fields_and_truncated_text(tiny):
    data = json.loads(tiny.to_json())
    data["model"]["warp"] = 9
    with pytest.raises(InputError, match="warp"):
        Experiment.from_json(json.dumps(data))
    with pytest.raises(InputError, match="no JSON"):
        Experiment.from_json(tiny.to_json()[:100])


def test_absent_fields_keep_their_defaults(tiny):
    data = json.loads(replace(tiny, seed=0).to_json())
    del data["seed"]
    assert Experiment.from_json(json.dumps(data)) == tiny


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": "many"}, "steps='many'"),
        ({"steps": True}, "steps=True"),
        ({"batch_size": 8, "accumulation": 3}, "accumulation=3"),
        ({"seed": -1}, "seed=-1"),
        ({"remat": "some"}, "remat='some'"),
        ({"evaluation": Evaluation(rows=0)}, r"evaluation.rows=0"),
        ({"model": PythonDocs()}, "model is a PythonDocs"),
        ({"mesh": 8}, "mesh=8"),
    ],
)
def test_bad_fields_are_named_with_their_value(tiny, change, named):
    with pytest.raises(InputError, match=named):
        replace(tiny, **change)


def test_only_mathematics_counts_as_a_difference(tiny):
    elsewhere = replace(tiny, mesh=MeshShape(fsdp=2), steps=99, evaluation=Evaluation(every=7), remat="full")
    assert differences(tiny, elsewhere) == []
    changed = replace(tiny, seed=5, objective=replace(tiny.objective, noise_density=0.3))
    assert differences(tiny, changed) == [("objective.noise_density", 0.15, 0.3), ("seed", 0, 5)]
    other = differences(tiny, replace(tiny, optimizer=Adafactor()))
    assert ("optimizer", "AdamW", "Adafactor") in other
