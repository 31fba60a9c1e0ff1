"""What a model is trained to do: one file for each objective of the literature."""

from t5x_lite.objectives.bart_denoising import BartDenoising
from t5x_lite.objectives.base import Features, Mean, Metrics, Objective, corrupt_rows
from t5x_lite.objectives.bert_style_denoising import BertStyleDenoising
from t5x_lite.objectives.causal_classification import CausalClassification
from t5x_lite.objectives.causal_language_model import CausalLanguageModel
from t5x_lite.objectives.causal_multiple_choice import CausalMultipleChoice
from t5x_lite.objectives.causal_task import CausalTask
from t5x_lite.objectives.classification import Classification
from t5x_lite.objectives.deshuffling import Deshuffling
from t5x_lite.objectives.distillation import Distillation
from t5x_lite.objectives.drop_tokens import DropTokens
from t5x_lite.objectives.masked_language_model import MaskedLanguageModel
from t5x_lite.objectives.mass_style_denoising import MassStyleDenoising
from t5x_lite.objectives.multiple_choice import MultipleChoice
from t5x_lite.objectives.no_objective import NoObjective
from t5x_lite.objectives.prefix_language_model import PrefixLanguageModel
from t5x_lite.objectives.question_answering import QuestionAnswering
from t5x_lite.objectives.replace_spans import ReplaceSpans
from t5x_lite.objectives.replaced_tokens import ReplacedTokenDetection
from t5x_lite.objectives.sentence_pairs import NextSentencePrediction, SentenceOrderPrediction
from t5x_lite.objectives.sequence_to_sequence import SequenceToSequence
from t5x_lite.objectives.span_boundary import SpanBoundary
from t5x_lite.objectives.span_corruption import SpanCorruption
from t5x_lite.objectives.tagging import Tagging
from t5x_lite.objectives.text_to_text import TextToText

__all__ = [
    "BartDenoising",
    "BertStyleDenoising",
    "CausalClassification",
    "CausalLanguageModel",
    "CausalMultipleChoice",
    "CausalTask",
    "Classification",
    "Deshuffling",
    "Distillation",
    "DropTokens",
    "Features",
    "MaskedLanguageModel",
    "MassStyleDenoising",
    "Mean",
    "Metrics",
    "MultipleChoice",
    "NextSentencePrediction",
    "NoObjective",
    "Objective",
    "PrefixLanguageModel",
    "QuestionAnswering",
    "ReplaceSpans",
    "ReplacedTokenDetection",
    "SentenceOrderPrediction",
    "SequenceToSequence",
    "SpanBoundary",
    "SpanCorruption",
    "Tagging",
    "TextToText",
    "corrupt_rows",
]
