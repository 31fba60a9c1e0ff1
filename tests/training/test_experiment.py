import json
from dataclasses import dataclass, replace

import pytest

from t5x_lite.data import (
    Data,
    LabeledTexts,
    Mixture,
    Part,
    Proportional,
    PythonDocs,
    TableFiles,
    TextTemplate,
    TextToText,
)
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig
from t5x_lite.objectives import Classification, SequenceToSequence
from t5x_lite.optim.optimizers import Adafactor, Adam
from t5x_lite.optim.schedules import InverseSqrt, Schedule
from t5x_lite.parallel import MeshShape
from t5x_lite.training import Evaluation, Experiment, PartMetrics
from t5x_lite.training.experiment import differences


@pytest.mark.parametrize("optimizer", [Adam(InverseSqrt(64, 10)), Adafactor()])
def test_json_round_trip(tiny, optimizer):
    experiment = replace(tiny, optimizer=optimizer)
    assert Experiment.from_json(experiment.to_json()) == experiment


@pytest.fixture
def mixed(tiny):
    """Over a mixture, whose parts are dataclasses in a tuple, and tuples in a tuple in one of them."""
    prompt = TextTemplate("{a}", "{b}", replacements=(("<br>", " "), ("x", "y")))
    pairs = TextToText(TableFiles(("a.tsv",)), prompt)
    parts = (Part("one", pairs, pairs), Part("two", TextToText(TableFiles(("b.tsv",), ("source", "target")))))
    evaluation = Evaluation(part_metrics=(PartMetrics("one", ("bleu", "chrf")),))
    objective = SequenceToSequence(32, 16)
    return replace(tiny, objective=objective, data=Data(Mixture(parts, Proportional(9, 2.0))), evaluation=evaluation)


def test_tuples_of_dataclasses_and_of_tuples(mixed):
    assert Experiment.from_json(mixed.to_json()) == mixed
    data = json.loads(mixed.to_json())
    data["data"]["source"]["parts"][1]["source"]["class"] = "Path"
    with pytest.raises(InputError, match=r"experiment.data.source.parts\[1\].source is of class 'Path'"):
        Experiment.from_json(json.dumps(data))
    data["data"]["source"]["parts"][1] = 3
    with pytest.raises(InputError, match=r"experiment.data.source.parts\[1\]=3 is not of type Part"):
        Experiment.from_json(json.dumps(data))
    with pytest.raises(InputError, match="source is a Data; it must be a Source"):
        replace(mixed, data=Data(Mixture((Part("two", Data()),))))


def test_metrics_of_a_part_that_the_mixture_has_not(mixed):
    with pytest.raises(
        InputError, match="part_metrics has 'three', which is not a part of data.source; its parts are 'one'"
    ):
        replace(mixed, evaluation=Evaluation(part_metrics=(PartMetrics("three", ("bleu",)),)))


def test_a_head_learns_no_mixture(tiny):
    texts = LabeledTexts(TableFiles(("a.tsv",)), labels=("a", "b"))
    model = BertConfig(vocab_size=264, embed_dim=16, num_heads=4, mlp_dim=24, num_layers=1, heads=("classification",))
    with pytest.raises(InputError, match="data.source is a Mixture, and a head learns one task; give Classification"):
        replace(tiny, model=model, objective=Classification(16), data=Data(Mixture((Part("one", texts),))))


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
    text = experiment.to_json()
    assert Experiment.from_json(text) == experiment
    elsewhere = text.replace(f'"{__name__}:MySchedule"', '"schedules:MySchedule"')
    assert elsewhere != text
    assert Experiment.from_json(elsewhere) == experiment, "a file may be imported under another name"
    unknown = text.replace(f'"{__name__}:MySchedule"', '"schedules:YourSchedule"')
    message = "'YourSchedule' of the module 'schedules', which is not imported; import it first.*--import schedules or"
    with pytest.raises(InputError, match=message):
        Experiment.from_json(unknown)


@pytest.mark.parametrize("z_loss", [1, 10**30, 1e30])
def test_numbers_are_read_as_they_were_given(tiny, z_loss):
    experiment = replace(tiny, objective=replace(tiny.objective, z_loss=z_loss))
    assert Experiment.from_json(experiment.to_json()) == experiment


def test_of_two_classes_with_one_name_the_module_decides(tiny):
    def define(module: str) -> type[Schedule]:
        cls = type("TwiceSchedule", (Schedule,), {"learning_rate": lambda self, step: 1.0, "__module__": module})
        return dataclass(frozen=True)(cls)

    one, other = define("one"), define("other")
    for cls in (one, other):
        experiment = replace(tiny, optimizer=Adam(cls()))
        assert type(Experiment.from_json(experiment.to_json()).optimizer.schedule) is cls


def test_unknown_fields_and_truncated_text(tiny):
    data = json.loads(tiny.to_json())
    data["model"]["warp"] = 9
    with pytest.raises(InputError, match="warp"):
        Experiment.from_json(json.dumps(data))
    with pytest.raises(InputError, match="not valid JSON"):
        Experiment.from_json(tiny.to_json()[:100])


@pytest.mark.parametrize("field", ["seed", "dropout_prng"])
def test_absent_fields_keep_their_defaults(tiny, field):
    data = json.loads(replace(tiny, seed=0).to_json())
    del data[field]
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
        ({"dropout_prng": "rbg"}, "dropout_prng='rbg' is not of type one of 'threefry', 'hash'"),
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
    assert differences(tiny, replace(tiny, dropout_prng="hash")) == [("dropout_prng", "threefry", "hash")]
    changed = replace(tiny, seed=5, objective=replace(tiny.objective, noise_density=0.3))
    assert differences(tiny, changed) == [("objective.noise_density", 0.15, 0.3), ("seed", 0, 5)]
    other = differences(tiny, replace(tiny, optimizer=Adafactor()))
    assert ("optimizer", "AdamW", "Adafactor") in other
