"""From raw text to batches of ids: sources, tokenizers, the token store, batches.

`tensorflow_datasets`, `grain`, `sentencepiece` and `tokenizers` are imported inside the functions that need them: the
first two take half a second and more, which a command that only prints a config or loads a checkpoint should not pay.
"""

from t5x_lite.data.annotated_examples import ConllExamples, SquadExamples
from t5x_lite.data.answer_wordings import AnswerWording, ReferentWording, TagWording
from t5x_lite.data.batches import batches, evaluation_batches, prefetch
from t5x_lite.data.choices import Choices
from t5x_lite.data.config import Data
from t5x_lite.data.delimited_rows import Delimited, DelimitedChoices
from t5x_lite.data.example_pairs import ExamplePairs
from t5x_lite.data.example_views import ComposedExamples, JoinedExamples, UnrolledExamples
from t5x_lite.data.examples import ClassFiles, Example, Examples, JsonlExamples, ParallelExamples, TableExamples
from t5x_lite.data.formats import Pairs, RowFormat, Sentences, Stream, TextPairs
from t5x_lite.data.labeled_texts import LabeledTexts
from t5x_lite.data.mixture_store import MixtureStore
from t5x_lite.data.mixtures import Equal, Fixed, Mixture, Part, Proportional, Rates
from t5x_lite.data.pair_sources import Asked, JsonlPairs, PairSource, ParallelFiles, TfdsPairs, TsvPairs
from t5x_lite.data.questions import Questions
from t5x_lite.data.sentences import SentenceRule, split_sentences
from t5x_lite.data.sources import PythonDocs, Source
from t5x_lite.data.store import SplitFigures, TokenStore, prepare
from t5x_lite.data.stored_rows import Rows
from t5x_lite.data.tagged_words import TaggedWords
from t5x_lite.data.task_formats import ChoiceSets, Labeled, QuestionWindows, Tagged
from t5x_lite.data.text_files import TextFiles
from t5x_lite.data.tfds_examples import TfdsExamples
from t5x_lite.data.tfds_source import Tfds
from t5x_lite.data.tokenizers import (
    ByteLevelBPE,
    Bytes,
    MarianFiles,
    SentencePiece,
    Tokenizer,
    TokenizerConfig,
    TokenizerFile,
    WordPiece,
    load_tokenizer,
    make_tokenizer,
)
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.data.wordings import LabelWording, NumberWording, TextWording, Wording

__all__ = [
    "AnswerWording",
    "Asked",
    "ByteLevelBPE",
    "Bytes",
    "ChoiceSets",
    "Choices",
    "ClassFiles",
    "ComposedExamples",
    "ConllExamples",
    "Data",
    "Delimited",
    "DelimitedChoices",
    "Equal",
    "Example",
    "ExamplePairs",
    "Examples",
    "Fixed",
    "JoinedExamples",
    "JsonlExamples",
    "JsonlPairs",
    "LabelWording",
    "Labeled",
    "LabeledTexts",
    "MarianFiles",
    "Mixture",
    "MixtureStore",
    "NumberWording",
    "PairSource",
    "Pairs",
    "ParallelExamples",
    "ParallelFiles",
    "Part",
    "Proportional",
    "PythonDocs",
    "QuestionWindows",
    "Questions",
    "Rates",
    "ReferentWording",
    "RowFormat",
    "Rows",
    "SentencePiece",
    "SentenceRule",
    "Sentences",
    "Source",
    "SplitFigures",
    "SquadExamples",
    "Stream",
    "TableExamples",
    "TagWording",
    "Tagged",
    "TaggedWords",
    "TextFiles",
    "TextPairs",
    "TextWording",
    "Tfds",
    "TfdsExamples",
    "TfdsPairs",
    "TokenStore",
    "Tokenizer",
    "TokenizerConfig",
    "TokenizerFile",
    "TsvPairs",
    "UnrolledExamples",
    "Vocabulary",
    "WordPiece",
    "Wording",
    "batches",
    "evaluation_batches",
    "load_tokenizer",
    "make_tokenizer",
    "prefetch",
    "prepare",
    "split_sentences",
]
