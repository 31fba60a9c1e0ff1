"""The baseline of the T5 paper to the letter (Raffel et al. 2020, section 3.1.4): noise drawn token by token.

    python -m t5x_lite train configs/t5_base_replace_spans.py

Neighbours among the noise tokens share a sentinel. The rest is configs/t5_base.py, which says what it needs; its spans
are those of the paper's section 3.3.4.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.objectives import ReplaceSpans

experiment = replace(base, objective=ReplaceSpans(input_length=512, noise_density=0.15))
