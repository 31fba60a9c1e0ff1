"""REALM (Guu et al. 2020, sections 3 and 4): a masked name or date, and the passages of Wikipedia that tell it.

    python -m t5x_lite train configs/realm_base.py
    python -m t5x_lite plan configs/realm_base.py --topology v5p:4x4x4

512 rows a step, each read with seven passages and an empty one; 13,353,718 passages of 288 tokens (a larger dump needs
a larger `index_size`), all of which are encoded once more in 500 steps; a rate of 3e-5, 200,000 steps. It begins with
what configs/realm_ict.py has learned; the paper begins its reader with BERT. The text that is masked and the one that
is searched are English Wikipedia; the paper masks CC-News too. It needs accelerators and has not been run to its end by
us. To try it on a laptop: configs/realm_tiny.py.
"""

from dataclasses import replace

from realm_ict import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import RetrievalMaskedLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    model=PRESETS["realm"],
    objective=RetrievalMaskedLanguageModel(
        passage_length=288, num_retrieved=7, refresh_every=500, index_size=13_353_718, input_length=128
    ),
    optimizer=AdamW(LinearDecay(peak=3e-5, warmup_steps=10_000, total_steps=200_000), weight_decay=0.01),
    steps=200_000,
    batch_size=512,
    start=FromModel("runs/realm_ict"),
    remat="dots",
)
