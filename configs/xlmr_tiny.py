"""XLM-R in miniature: RoBERTa over SentencePiece, in fairseq's order of ids, on the documentation that Python carries.

python -m t5x_lite train configs/xlmr_tiny.py
"""

from dataclasses import replace

from roberta_tiny import experiment as base

from t5x_lite.data import SentencePiece

experiment = replace(base, data=replace(base.data, tokenizer=SentencePiece(vocab_size=2046, layout="xlm-roberta")))
