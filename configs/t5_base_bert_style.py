"""T5's baseline with BERT's objective (Raffel et al. 2020, table 3): restore 15 % masked or replaced tokens.

    python -m t5x_lite train configs/t5_base_bert_style.py

The rest is configs/t5_base.py, which says what it needs.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.objectives import BertStyleDenoising

experiment = replace(base, objective=BertStyleDenoising(input_length=512, noise_density=0.15, random_share=0.1))
