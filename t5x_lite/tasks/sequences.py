"""Tasks whose answers are sequences: tags of words (CoNLL-2003), translations (WMT) and summaries (CNN/Daily Mail).

Translation and summaries are written as in Raffel et al. 2020, appendix D; the paper has no tagging.
"""

from functools import partial

from t5x_lite.data import Records, TaggedWords, TagTemplate, TextTemplate
from t5x_lite.tasks.task import Task, tfds_task

CONLL_2003 = tfds_task(
    "conll2003",
    "conll2003",
    TagTemplate("ner sentence: {tokens}", tags="ner"),
    partial(
        TaggedWords,
        labels=("O", *(f"{prefix}-{entity}" for entity in ("PER", "ORG", "LOC", "MISC") for prefix in "BI")),
        tags="ner",
    ),
    "entities",
    splits=("train", "dev", "test"),
)
"""English named entities of the shared task (Tjong Kim Sang and De Meulder 2003), tags in IOB2."""


def word_tags(
    name: str,
    train: Records,
    dev: Records | None = None,
    *,
    labels: tuple[str, ...],
    metrics: tuple[str, ...] = ("entities",),
) -> Task:
    """A tagging task over one's own files, such as ConllFiles, whose fields are `tokens` and `tags`; without `dev` a
    part of `train` is held out. `tags` is the metric for tags of words, `entities` for those of entities."""
    prompt = TagTemplate(f"{name} sentence: {{tokens}}")
    return Task(name, train, dev, prompt, partial(TaggedWords, labels=labels), metrics)


LANGUAGES = {
    "cs": "Czech",
    "de": "German",
    "en": "English",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "ro": "Romanian",
    "ru": "Russian",
    "tr": "Turkish",
}


def translation(name: str, dataset: str, source: str, target: str) -> Task:
    """From one language to another, by their codes, which are features of a dataset such as 'wmt14_translate/de-en'.

    >>> translation("wmt14_en_de", "wmt14_translate/de-en", "en", "de").prompt.source
    'translate English to German: {en}'
    """
    languages = " to ".join(LANGUAGES.get(code, code) for code in (source, target))
    prompt = TextTemplate(f"translate {languages}: {{{source}}}", f"{{{target}}}")
    return tfds_task(name, dataset, prompt, None, "bleu")


WMT14_EN_DE = translation("wmt14_en_de", "wmt14_translate/de-en", "en", "de")
WMT14_EN_FR = translation("wmt14_en_fr", "wmt14_translate/fr-en", "en", "fr")
WMT15_EN_FR = translation("wmt15_en_fr", "wmt15_translate/fr-en", "en", "fr")
WMT16_EN_RO = translation("wmt16_en_ro", "wmt16_translate/ro-en", "en", "ro")

CNN_DAILY_MAIL = tfds_task(
    "cnn_dailymail", "cnn_dailymail", TextTemplate("summarize: {article}", "{highlights}"), None, "rouge"
)
