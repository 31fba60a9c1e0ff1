"""Movie reviews, a sentence each, good or bad (Pang and Lee 2005): fine-tuning configs/gutenberg_bert.py.

    unzip sentence_polarity.zip
    for kind in neg pos; do iconv -f LATIN1 -t UTF-8 sentence_polarity/rt-polarity.$kind > rt-polarity.$kind; done
    python -m t5x_lite train configs/sentence_polarity.py --start.folder runs/gutenberg_bert
    python -m t5x_lite evaluate runs/sentence_polarity --out answers

A tenth of the 10,662 sentences is held out.

Measured, three seeds: accuracy 73.1 % (72.5 to 73.7) from configs/gutenberg_bert.py, 77.5 % (76.7 to 78.0) from
random parameters; the difference is -4.5 points, its 95 % interval -6.7 to -2.2 (benchmarks/fine_tuning.py).
"""

from dataclasses import replace

from gutenberg_bert import fine_tuning

from t5x_lite.data import ClassFiles, LabeledTexts
from t5x_lite.objectives import Classification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay

LABELS = ("negative", "positive")

experiment = replace(
    fine_tuning,
    model=replace(fine_tuning.model, heads=("classification",), num_classes=2),
    objective=Classification(input_length=64),
    data=replace(
        fine_tuning.data,
        source=LabeledTexts(ClassFiles(LABELS, ("rt-polarity.neg", "rt-polarity.pos")), labels=LABELS),
        held_out=0.1,
    ),
    optimizer=AdamW(LinearDecay(peak=3e-4, warmup_steps=60, total_steps=601), clip_norm=1.0),
)
