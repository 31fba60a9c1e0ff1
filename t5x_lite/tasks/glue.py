"""The nine tasks of GLUE (Wang et al. 2019), from TensorFlow Datasets.

Prefixes, words and the rounding of STS-B are those of Raffel et al. 2020, section 2.4 and appendix D. The paper does
not train on WNLI, whose training set disagrees with its development set; it is here for those who do.
"""

import dataclasses
from functools import partial

from t5x_lite.data import LabeledTexts, LabelTemplate, NumberTemplate, Tfds
from t5x_lite.tasks.task import Task, template, tfds_task


def _classes(config: str, submission: str, labels: tuple[str, ...], texts: tuple[str, ...], *metrics: str) -> Task:
    # The benchmark has names for the classes of inference alone.
    submitted = () if "entailment" in labels and config != "wnli" else (0, 1)
    prompt = LabelTemplate(template(config, *texts), labels=labels)
    head = partial(LabeledTexts, texts=texts, labels=labels)
    return tfds_task(config, f"glue/{config}", prompt, head, *metrics, submission=submission, submitted=submitted)


_ENTAILMENT = ("entailment", "not_entailment")
_BOTH_SENTENCES = ("sentence1", "sentence2")

COLA = _classes("cola", "CoLA.tsv", ("unacceptable", "acceptable"), ("sentence",), "matthews")
SST2 = _classes("sst2", "SST-2.tsv", ("negative", "positive"), ("sentence",), "exact_match")
MRPC = _classes("mrpc", "MRPC.tsv", ("not_equivalent", "equivalent"), _BOTH_SENTENCES, "f1", "exact_match")
QQP = _classes("qqp", "QQP.tsv", ("not_duplicate", "duplicate"), ("question1", "question2"), "f1", "exact_match")
STSB = tfds_task(
    "stsb",
    "glue/stsb",
    NumberTemplate(template("stsb", *_BOTH_SENTENCES)),
    partial(LabeledTexts, texts=_BOTH_SENTENCES),
    "pearson",
    "spearman",
    submission="STS-B.tsv",
)
# A template has the hypothesis first, a head the premise, as BERT's authors do.
_MNLI = _classes(
    "mnli", "MNLI-m.tsv", ("entailment", "neutral", "contradiction"), ("hypothesis", "premise"), "exact_match"
)
MNLI = dataclasses.replace(
    _MNLI,
    head=partial(_MNLI.head, texts=("premise", "hypothesis")),
    dev=Tfds("glue/mnli", "validation_matched"),
    test=Tfds("glue/mnli", "test_matched"),
)
MNLI_MISMATCHED = dataclasses.replace(
    MNLI,
    name="mnli_mismatched",
    dev=Tfds("glue/mnli", "validation_mismatched"),
    test=Tfds("glue/mnli", "test_mismatched"),
    submission="MNLI-mm.tsv",
)
"""The same training set, evaluated on other genres."""
QNLI = _classes("qnli", "QNLI.tsv", _ENTAILMENT, ("question", "sentence"), "exact_match")
RTE = _classes("rte", "RTE.tsv", _ENTAILMENT, _BOTH_SENTENCES, "exact_match")
WNLI = _classes("wnli", "WNLI.tsv", _ENTAILMENT[::-1], _BOTH_SENTENCES, "exact_match")

GLUE = (COLA, SST2, MRPC, QQP, STSB, MNLI, QNLI, RTE, WNLI)
"""All nine, in the paper's order."""
