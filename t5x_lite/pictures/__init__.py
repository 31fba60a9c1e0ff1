"""Pictures of attention, positions, corruption, augmentation and learning curves.

Every `draw_*` of `drawing`, `corruption` and `augmentation` takes plain arrays and returns a `Picture`: a matplotlib
figure that shows itself in a notebook, without pyplot and its global state, and that `save` writes to a file. Those
three modules load matplotlib and are imported by code that draws; `attention` is not one of them.
"""


def model_title(name: str, config: object) -> str:
    """A model in titles: the name of its run or folder, and its family in brackets.

    >>> from t5x_lite.models import T5Config
    >>> model_title("runs/t5_tiny", T5Config()), model_title("", T5Config())
    ('runs/t5_tiny (T5)', 'T5')
    """
    family = type(config).__name__.removesuffix("Config")
    return f"{name} ({family})" if name else family
