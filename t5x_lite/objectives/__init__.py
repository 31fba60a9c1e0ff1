"""What a model is trained to do: the objectives of the literature."""

from t5x_lite.objectives.bart_denoising import BartDenoising
from t5x_lite.objectives.base import Features, Mean, Metrics, NoObjective, Objective, Predictions, Row, corrupt_rows
from t5x_lite.objectives.bidirectional_language_model import BidirectionalLanguageModel
from t5x_lite.objectives.causal_language_model import CausalLanguageModel
from t5x_lite.objectives.causal_tasks import CausalClassification, CausalMultipleChoice, CausalTask
from t5x_lite.objectives.classification import Classification, MultipleChoice
from t5x_lite.objectives.contrastive import ContrastiveLanguageImage, SigmoidLanguageImage
from t5x_lite.objectives.detection import DetectionLoss, ObjectDetection
from t5x_lite.objectives.distillation import Distillation
from t5x_lite.objectives.image_classification import ImageClassification
from t5x_lite.objectives.image_distillation import ImageDistillation
from t5x_lite.objectives.inverse_cloze import InverseCloze
from t5x_lite.objectives.masked_autoencoding import MaskedAutoencoding
from t5x_lite.objectives.masked_language_model import MaskedLanguageModel
from t5x_lite.objectives.masked_sequence_to_sequence import MaskedSequenceToSequence
from t5x_lite.objectives.open_question_answering import OpenQuestionAnswering
from t5x_lite.objectives.permutation_language_model import PermutationLanguageModel
from t5x_lite.objectives.question_answering import QuestionAnswering
from t5x_lite.objectives.replaced_tokens import ReplacedTokenDetection
from t5x_lite.objectives.retrieval import Retrieval, RetrievalMaskedLanguageModel
from t5x_lite.objectives.segment_language_model import SegmentLanguageModel
from t5x_lite.objectives.sentence_pairs import NextSentencePrediction, SentenceOrderPrediction
from t5x_lite.objectives.span_boundary import SpanBoundary
from t5x_lite.objectives.span_corruption import SpanCorruption
from t5x_lite.objectives.t5_denoising import (
    BertStyleDenoising,
    Deshuffling,
    DropTokens,
    MassStyleDenoising,
    PrefixLanguageModel,
    ReplaceSpans,
)
from t5x_lite.objectives.tagging import Tagging
from t5x_lite.objectives.text_to_text import SequenceToSequence, TextToText

__all__ = [
    "BartDenoising",
    "BertStyleDenoising",
    "BidirectionalLanguageModel",
    "CausalClassification",
    "CausalLanguageModel",
    "CausalMultipleChoice",
    "CausalTask",
    "Classification",
    "ContrastiveLanguageImage",
    "Deshuffling",
    "DetectionLoss",
    "Distillation",
    "DropTokens",
    "Features",
    "ImageClassification",
    "ImageDistillation",
    "InverseCloze",
    "MaskedAutoencoding",
    "MaskedLanguageModel",
    "MaskedSequenceToSequence",
    "MassStyleDenoising",
    "Mean",
    "Metrics",
    "MultipleChoice",
    "NextSentencePrediction",
    "NoObjective",
    "ObjectDetection",
    "Objective",
    "OpenQuestionAnswering",
    "PermutationLanguageModel",
    "Predictions",
    "PrefixLanguageModel",
    "QuestionAnswering",
    "ReplaceSpans",
    "ReplacedTokenDetection",
    "Retrieval",
    "RetrievalMaskedLanguageModel",
    "Row",
    "SegmentLanguageModel",
    "SentenceOrderPrediction",
    "SequenceToSequence",
    "SigmoidLanguageImage",
    "SpanBoundary",
    "SpanCorruption",
    "Tagging",
    "TextToText",
    "corrupt_rows",
]
