"""The tasks against the examples in the T5 paper's appendix D, and against TensorFlow Datasets' own definitions."""

import string

import pytest

from t5x_lite.data import LabeledTexts, LabelTemplate, Tfds
from t5x_lite.data.records.base import Record
from t5x_lite.tasks import glue, reading, sequences, super_glue

PAPER = {
    glue.COLA: (
        {"sentence": "John made Bill master of himself.", "label": "acceptable"},
        "cola sentence: John made Bill master of himself.",
        "acceptable",
    ),
    glue.RTE: (
        {
            "sentence1": "Few Italians were settled in Slovenia.",
            "sentence2": "Slovenia has 5,460 inhabitants.",
            "label": "not_entailment",
        },
        "rte sentence1: Few Italians were settled in Slovenia. sentence2: Slovenia has 5,460 inhabitants.",
        "not_entailment",
    ),
    glue.MNLI: (
        {
            "hypothesis": "The St. Louis Cardinals have always won.",
            "premise": "yeah well losing is i mean",
            "label": "contradiction",
        },
        "mnli hypothesis: The St. Louis Cardinals have always won. premise: yeah well losing is i mean",
        "contradiction",
    ),
    glue.QNLI: (
        {"question": "Where did Jebe die?", "sentence": "Jebe died on the road.", "label": "entailment"},
        "qnli question: Where did Jebe die? sentence: Jebe died on the road.",
        "entailment",
    ),
    glue.STSB: (
        {"sentence1": "One could not be reached.", "sentence2": "One was not located.", "label": 3.25},
        "stsb sentence1: One could not be reached. sentence2: One was not located.",
        "3.2",
    ),
    super_glue.CB: (
        {"hypothesis": "Valence was helping", "premise": "Why could he not see it?", "label": "entailment"},
        "cb hypothesis: Valence was helping premise: Why could he not see it?",
        "entailment",
    ),
    super_glue.COPA: (
        {
            "premise": "Political violence broke out in the nation.",
            "choice1": "Many citizens relocated to the capitol.",
            "choice2": "Many citizens took refuge in other territories.",
            "question": "effect",
            "label": "choice2",
        },
        "copa choice1: Many citizens relocated to the capitol. choice2: Many citizens took refuge in other territories."
        " premise: Political violence broke out in the nation. question: effect",
        "True",
    ),
    super_glue.MULTIRC: (
        {
            "question": "Why was Joey surprised?",
            "answer": "There was a T-REX in his garden.",
            "paragraph": "<b>Sent 1: </b>Once upon a time.<br><b>Sent 2: </b>He was a lizard.<br>",
            "label": "True",
            "idx": {"paragraph": 1, "question": 2, "answer": 3},
        },
        "multirc question: Why was Joey surprised? answer: There was a T-REX in his garden. paragraph: Sent 1: Once"
        " upon a time. Sent 2: He was a lizard.",
        "True",
    ),
    super_glue.WIC: (
        {"word": "deliberation", "sentence1": "It was an insult.", "sentence2": "Of the jury.", "label": "False"},
        "wic sentence1: It was an insult. sentence2: Of the jury. word: deliberation",
        "False",
    ),
    super_glue.WSC: (
        {
            "text": "The stable was very roomy ; a window made it pleasant and airy.",
            "span1_text": "The stable",
            "span2_text": "it",
            "span2_index": 9,
            "label": "True",
        },
        "wsc: The stable was very roomy ; a window made *it* pleasant and airy.",
        "The stable",
    ),
    super_glue.RECORD: (
        {
            "query": "A @placeholder is a bird.",
            "entities": ["penguin", "potato"],
            "passage": "A first sentence.\n@highlight\nBirds fly\n@highlight\nNot all",
            "answers": ["penguin"],
        },
        "record query: A @placeholder is a bird. entities: penguin, potato passage: A first sentence. Birds fly. Not"
        " all",
        "penguin",
    ),
    super_glue.BOOLQ: (
        {"passage": "Yes it is.", "question": "is it", "label": "True"},
        "boolq passage: Yes it is. question: is it",
        "True",
    ),
    reading.SQUAD_1_1: (
        {
            "question": "What does increased oxygen displace?",
            "context": "Hyperbaric medicine.",
            "answers": {"text": ["carbon monoxide", "monoxide"], "answer_start": [3, 4]},
        },
        "question: What does increased oxygen displace? context: Hyperbaric medicine.",
        "carbon monoxide",
    ),
    reading.SQUAD_2_0: (
        {"question": "Who?", "context": "It.", "answers": {"text": [], "answer_start": []}},
        "question: Who? context: It.",
        "unanswerable",
    ),
    sequences.WMT14_EN_DE: (
        {"en": '"Luigi often said to me."', "de": '"Luigi sagte oft zu mir."'},
        'translate English to German: "Luigi often said to me."',
        '"Luigi sagte oft zu mir."',
    ),
    sequences.CNN_DAILY_MAIL: (
        {"article": "marouane fellaini is back.", "highlights": "He is back."},
        "summarize: marouane fellaini is back.",
        "He is back.",
    ),
    sequences.CONLL_2003: (
        {"tokens": ["EU", "rejects"], "ner": ["B-ORG", "O"]},
        "ner sentence: EU rejects",
        "B-ORG O",
    ),
}


@pytest.mark.parametrize("task", PAPER, ids=lambda task: task.name)
def test_the_papers_examples(task):
    """Some of them shortened; of BoolQ, ReCoRD, tags and questions without an answer the paper has none."""
    fields, source, target = PAPER[task]
    assert list(task.prompt.pairs(Record("0", fields))) == [(source, target)]
    ((read, right, _),) = task.prompt.eval_examples(Record("0", fields))
    assert read == source
    assert target in right or task is glue.STSB


def named(template):
    return {name.partition("/")[0] for _, name, *_ in string.Formatter().parse(template) if name}


def split_of(task):
    """The dataset that a task is trained on, or the one inside."""
    examples = task.train
    while not isinstance(examples, Tfds):
        examples = examples.examples
    return examples


def test_glue_and_super_glue_are_those_of_tensorflow_datasets():
    """Their names, features and classes; TFDS's own code knows them without TensorFlow."""
    from tensorflow_datasets.text.glue import Glue
    from tensorflow_datasets.text.super_glue import SuperGlue

    for builder, tasks in ((Glue, (*glue.GLUE, glue.MNLI_MISMATCHED)), (SuperGlue, super_glue.SUPER_GLUE)):
        for task in tasks:
            dataset, _, config = split_of(task).name.partition("/")
            known = builder.builder_configs[config]
            features = set(known.text_features if builder is Glue else known.features)
            assert named(task.prompt.source) <= features, task.name
            assert dataset == ("glue" if builder is Glue else "super_glue")
            if isinstance(task.prompt, LabelTemplate):
                assert task.prompt.labels == tuple(known.label_classes), task.name
            if task.head and task.head.func is LabeledTexts:
                assert task.head_data().source.labels == tuple(known.label_classes or ()), task.name
    assert len({task.name for task in (*glue.GLUE, *super_glue.SUPER_GLUE)}) == 9 + 8
    assert len({task.submission for task in (*glue.GLUE, glue.MNLI_MISMATCHED)} - {""}) == 10


def test_splits_have_the_names_that_their_datasets_give_them():
    def splits(task):
        return [getattr(task, name).split for name in ("dev", "test")]

    assert splits(glue.MNLI) == ["validation_matched", "test_matched"]
    assert splits(glue.MNLI_MISMATCHED) == ["validation_mismatched", "test_mismatched"]
    assert splits(glue.COLA) == splits(sequences.WMT16_EN_RO) == ["validation", "test"]
    assert splits(sequences.CONLL_2003) == ["dev", "test"]
    assert [part.split for part in reading.RACE.dev.examples.sources] == ["dev", "dev"]


def test_other_datasets_exist_in_tensorflow_datasets():
    from tensorflow_datasets.datasets.race import race_dataset_builder as race
    from tensorflow_datasets.datasets.squad import squad_dataset_builder as squad
    from tensorflow_datasets.text.conll2003.conll2003 import Conll2003
    from tensorflow_datasets.translate.wmt14 import Wmt14Translate
    from tensorflow_datasets.translate.wmt15 import Wmt15Translate
    from tensorflow_datasets.translate.wmt16 import Wmt16Translate

    configs = {
        "race": {config.name for config in race.Builder.BUILDER_CONFIGS},
        "squad": {config.name for config in squad.Builder.BUILDER_CONFIGS},
        "wmt14_translate": set(Wmt14Translate.builder_configs),
        "wmt15_translate": set(Wmt15Translate.builder_configs),
        "wmt16_translate": set(Wmt16Translate.builder_configs),
    }
    tasks = (reading.SQUAD_1_1, reading.SQUAD_2_0, sequences.WMT14_EN_DE, sequences.WMT14_EN_FR, sequences.WMT15_EN_FR)
    names = [split_of(task).name for task in (*tasks, sequences.WMT16_EN_RO)]
    names += [part.name for part in reading.RACE.train.examples.sources]
    for dataset, _, config in (name.partition("/") for name in names):
        assert config in configs[dataset]
    features = Conll2003.builder_configs["conll2003"].features_dict
    assert {sequences.CONLL_2003.prompt.tokens, sequences.CONLL_2003.prompt.tags} <= set(features)
    assert sequences.CONLL_2003.head_data().source.labels == tuple(features["ner"].feature.names)


def test_race_and_swag_name_the_right_choice(tmp_path):
    options = [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    fields = {"article": "It.", "questions": ["Q1?", "Q2?"], "answers": ["C", "A"], "options": options}
    first = Record("0", fields | {"questions": "Q1?", "answers": "C", "options": options[0]})
    assert list(reading.RACE.prompt.pairs(first)) == [
        ("race question: Q1? choice1: a choice2: b choice3: c choice4: d article: It.", "choice3")
    ]
    path = tmp_path / "train.csv"
    path.write_text(
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
        '0,anet_1,3416,"He nods. He",He nods.,He,gold,"sits, still.",runs.,eats.,sings.,2\n'
    )
    task = reading.swag(str(path))
    assert list(task.pairs(task.train).read()) == [
        ("swag startphrase: He nods. He ending0: sits, still. ending1: runs. ending2: eats. ending3: sings.", "ending2")
    ]
    assert (task.dev, task.test) == (None, None)
    ((context, choices, label, _),) = task.head_data().source.read()
    assert (context, choices[2], label) == ("He nods.", "He eats.", 2)
