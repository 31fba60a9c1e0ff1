"""From text and pictures to batches: sources, tokenizers, the store of rows, batches.

`tensorflow_datasets`, `grain`, `sentencepiece` and `tokenizers` are imported where they are used, since the first two
take half a second and more.
"""

from t5x_lite.data.batches import batches, evaluation_batches, prefetch
from t5x_lite.data.config import Data
from t5x_lite.data.layouts.base import Column, Layout, Row, RowBuilder, RowSpec
from t5x_lite.data.layouts.image_boxes import ImageBoxes
from t5x_lite.data.layouts.images import Images
from t5x_lite.data.layouts.segment_pairs import Pairs
from t5x_lite.data.layouts.sentences import split_sentences
from t5x_lite.data.layouts.text import OrderedStream, Sentences, Stream
from t5x_lite.data.mixtures import Equal, Fixed, Mixture, MixtureStore, Part, Proportional, Rates
from t5x_lite.data.records.base import ComposedRecords, JoinedRecords, Record, Records, Source, UnrolledRecords
from t5x_lite.data.records.box_formats import BoxedImages, VocBoxes, YoloBoxes
from t5x_lite.data.records.boxes import BoxedImage, BoxSource, CocoBoxes
from t5x_lite.data.records.captions import CaptionedImages, CaptionFolder, CaptionSource, CaptionTable
from t5x_lite.data.records.columnar import HuggingFaceDataset, ParquetFiles
from t5x_lite.data.records.formats import ClassFiles, ConllFiles, JsonlFiles, ParallelFiles, SquadFiles, TableFiles
from t5x_lite.data.records.image_arrays import Digits, ImageArrays
from t5x_lite.data.records.image_records import ImageSubset, ImageTable, LabeledImages
from t5x_lite.data.records.images import ImageFolder, ImageSource, LabeledImage
from t5x_lite.data.records.text import PythonDocs, TextFiles
from t5x_lite.data.records.tfds import Tfds
from t5x_lite.data.store import TokenStore
from t5x_lite.data.stored_rows import Rows
from t5x_lite.data.tasks.classification import Delimited, Labeled, LabeledTexts
from t5x_lite.data.tasks.multiple_choice import Choices, ChoiceSets
from t5x_lite.data.tasks.open_questions import OpenQuestions
from t5x_lite.data.tasks.question_answering import Questions, QuestionWindows
from t5x_lite.data.tasks.tagging import Tagged, TaggedWords
from t5x_lite.data.tasks.templates import (
    AnswerTemplate,
    CoreferenceTemplate,
    LabelTemplate,
    NumberTemplate,
    PromptTemplate,
    TagTemplate,
    TextTemplate,
)
from t5x_lite.data.tasks.text_to_text import TextPairs, TextToText
from t5x_lite.tokenizers.config import (
    ByteLevelBPE,
    Bytes,
    ClipBPE,
    MarianFiles,
    SentencePiece,
    Tokenizer,
    TokenizerConfig,
    TokenizerFile,
    WordCharacters,
    WordPiece,
    Words,
    load_tokenizer,
    make_tokenizer,
)
from t5x_lite.tokenizers.vocabulary import Vocabulary

__all__ = [
    "AnswerTemplate",
    "BoxSource",
    "BoxedImage",
    "BoxedImages",
    "ByteLevelBPE",
    "Bytes",
    "CaptionFolder",
    "CaptionSource",
    "CaptionTable",
    "CaptionedImages",
    "ChoiceSets",
    "Choices",
    "ClassFiles",
    "ClipBPE",
    "CocoBoxes",
    "Column",
    "ComposedRecords",
    "ConllFiles",
    "CoreferenceTemplate",
    "Data",
    "Delimited",
    "Digits",
    "Equal",
    "Fixed",
    "HuggingFaceDataset",
    "ImageArrays",
    "ImageBoxes",
    "ImageFolder",
    "ImageSource",
    "ImageSubset",
    "ImageTable",
    "Images",
    "JoinedRecords",
    "JsonlFiles",
    "LabelTemplate",
    "Labeled",
    "LabeledImage",
    "LabeledImages",
    "LabeledTexts",
    "Layout",
    "MarianFiles",
    "Mixture",
    "MixtureStore",
    "NumberTemplate",
    "OpenQuestions",
    "OrderedStream",
    "Pairs",
    "ParallelFiles",
    "ParquetFiles",
    "Part",
    "PromptTemplate",
    "Proportional",
    "PythonDocs",
    "QuestionWindows",
    "Questions",
    "Rates",
    "Record",
    "Records",
    "Row",
    "RowBuilder",
    "RowSpec",
    "Rows",
    "SentencePiece",
    "Sentences",
    "Source",
    "SquadFiles",
    "Stream",
    "TableFiles",
    "TagTemplate",
    "Tagged",
    "TaggedWords",
    "TextFiles",
    "TextPairs",
    "TextTemplate",
    "TextToText",
    "Tfds",
    "TokenStore",
    "Tokenizer",
    "TokenizerConfig",
    "TokenizerFile",
    "UnrolledRecords",
    "VocBoxes",
    "Vocabulary",
    "WordCharacters",
    "WordPiece",
    "Words",
    "YoloBoxes",
    "batches",
    "evaluation_batches",
    "load_tokenizer",
    "make_tokenizer",
    "prefetch",
    "split_sentences",
]
