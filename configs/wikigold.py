"""Names of persons, places, organisations and others in Wikipedia (Balasuriya et al. 2009): fine-tuning
configs/gutenberg_bert.py.

    python -m t5x_lite train configs/wikigold.py --start.folder runs/gutenberg_bert
    python -m t5x_lite evaluate runs/wikigold --out answers

wikigold.conll.txt has a word and its tag a line; a fifth of the 1,696 sentences is held out.

Measured, three seeds: entity F1 33.3 % (32.2 to 34.1) from configs/gutenberg_bert.py, 26.2 % (25.3 to 27.2) from
random parameters; the difference is +7.1 points, its 95 % interval +3.5 to +11.0 (benchmarks/fine_tuning.py).
"""

from dataclasses import replace

from gutenberg_bert import fine_tuning

from t5x_lite.data import ConllFiles, TaggedWords
from t5x_lite.objectives import Tagging
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Evaluation

experiment = replace(
    fine_tuning,
    model=replace(fine_tuning.model, heads=("tagging",), num_classes=5),
    objective=Tagging(input_length=64),
    data=replace(
        fine_tuning.data,
        source=TaggedWords(ConllFiles(("wikigold.conll.txt",)), ("O", "I-PER", "I-LOC", "I-ORG", "I-MISC")),
        held_out=0.2,
    ),
    optimizer=AdamW(LinearDecay(peak=5e-4, warmup_steps=40, total_steps=401), clip_norm=1.0),
    steps=400,
    evaluation=Evaluation(every=200, rows=4096, metrics=("entities",)),
)
