"""Whether a sentence follows from another one (Bowman et al. 2015): fine-tuning configs/gutenberg_bert.py.

    python -m t5x_lite train configs/snli.py --start.folder runs/gutenberg_bert
    python -m t5x_lite evaluate runs/snli --out answers

Trained on the 9,842 pairs of the development set and evaluated on the 9,824 of the test set: the first sentences, the
second ones and the labels in a file each, a line for every pair.

Measured, three seeds: accuracy 56.2 % (55.4 to 56.7) from configs/gutenberg_bert.py, 51.8 % (51.6 to 52.1) from
random parameters; the difference is +4.4 points, its 95 % interval +3.1 to +5.7 (benchmarks/fine_tuning.py).
"""

from dataclasses import replace

from gutenberg_bert import fine_tuning

from t5x_lite.data import LabeledTexts, ParallelFiles
from t5x_lite.objectives import Classification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Evaluation

LABELS = ("entailment", "neutral", "contradiction")


def pairs(split: str) -> LabeledTexts:
    """The examples of a split."""
    files = tuple(f"{name}.{split}.gz" for name in ("s1", "s2", "labels"))
    examples = ParallelFiles(("premise", "hypothesis", "label"), files)
    return LabeledTexts(examples, ("premise", "hypothesis"), labels=LABELS)


experiment = replace(
    fine_tuning,
    model=replace(fine_tuning.model, heads=("classification",), num_classes=3),
    objective=Classification(input_length=64),
    data=replace(
        fine_tuning.data,
        source=pairs("dev"),
        held_out_source=pairs("test"),
    ),
    optimizer=AdamW(LinearDecay(peak=3e-4, warmup_steps=90, total_steps=901), clip_norm=1.0),
    steps=900,
    evaluation=Evaluation(every=300, rows=2048),
)
