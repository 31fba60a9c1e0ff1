"""MASS in miniature, fine-tuned on pairs (Song et al. 2019, section 4.2): few pairs, after much text of both languages.

    python -m t5x_lite train configs/mass_tiny.py --text sides.txt
    python -m t5x_lite train configs/mass_tiny_finetune.py --pairs pairs.tsv

`sides.txt` holds sentences of both languages, a line each, which need not be translations.
"""

from dataclasses import replace

from mass_tiny import experiment as pretraining
from transformer_tiny import experiment as base

from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    start=FromModel("runs/mass_tiny"),
    model=replace(pretraining.model, dropout_rate=0.1),
    objective=replace(base.objective, input_length=96, target_length=96),
)
