"""A functional model zoo and pretraining framework in JAX and Flax.

    import t5x_lite
    model = t5x_lite.load("demo/de-en")
    model.generate(["Wo ist der Bahnhof?"])

Everything else lives in the rooms: `layers`, `models`, `objectives`, `decoding`, `data`, `parallel`, `pictures`,
`training`, `convert`. Names below are imported when they are first used, so that `import t5x_lite` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_lite.data.samples import sample_data
    from t5x_lite.errors import InputError
    from t5x_lite.pretrained import Pretrained, load
    from t5x_lite.pretrained.run import Run, train
    from t5x_lite.runs.records import Callback
    from t5x_lite.training.experiment import Experiment

__version__ = "0.1.0"
__all__ = ["Callback", "Experiment", "InputError", "Pretrained", "Run", "load", "sample_data", "train"]

_HOMES = {
    "Callback": "t5x_lite.runs.records",
    "Experiment": "t5x_lite.training.experiment",
    "InputError": "t5x_lite.errors",
    "Pretrained": "t5x_lite.pretrained",
    "Run": "t5x_lite.pretrained.run",
    "load": "t5x_lite.pretrained",
    "sample_data": "t5x_lite.data.samples",
    "train": "t5x_lite.pretrained.run",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
