"""Named entities and parts of speech. Raffel et al. 2020 have no tagging: its wording is ours."""

from t5x_lite.data import Examples, TagTemplate, TfdsExamples
from t5x_lite.tasks.metric_names import TextMetric
from t5x_lite.tasks.shapes import WordTags
from t5x_lite.tasks.task import Task

CONLL_2003 = Task(
    "conll2003",
    TfdsExamples("conll2003"),
    TfdsExamples("conll2003", "dev"),
    TagTemplate("ner sentence: {tokens}", tags="ner"),
    WordTags(("O", *(f"{place}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for place in "BI")), tags="ner"),
    ("entities",),
    TfdsExamples("conll2003", "test"),
)
"""English named entities of the shared task (Tjong Kim Sang and De Meulder 2003), tags in IOB2."""


def word_tags(
    name: str,
    train: Examples,
    dev: Examples | None = None,
    *,
    labels: tuple[str, ...],
    metrics: tuple[TextMetric, ...] = ("entities",),
) -> Task:
    """A tagging task over one's own files, such as ConllExamples, whose fields are `tokens` and `tags`; without `dev` a
    part of the others is held out. `tags` is the metric for tags of words, `entities` for those of entities."""
    return Task(name, train, dev, TagTemplate(f"{name} sentence: {{tokens}}"), WordTags(labels), metrics)
