"""Tasks whose answers are sequences: tags of words (CoNLL-2003), translations (WMT) and summaries (CNN/Daily Mail).

Translation and summaries are written as in Raffel et al. 2020, appendix D; the paper has no tagging.
"""

from functools import partial

from t5x_lite.data import Records, TaggedWords, TagTemplate, TextTemplate, Tfds
from t5x_lite.tasks.task import Task

CONLL_2003 = Task(
    "conll2003",
    Tfds("conll2003"),
    Tfds("conll2003", "dev"),
    TagTemplate("ner sentence: {tokens}", tags="ner"),
    partial(
        TaggedWords,
        labels=("O", *(f"{place}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for place in "BI")),
        tags="ner",
    ),
    ("entities",),
    Tfds("conll2003", "test"),
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
    part of the others is held out. `tags` is the metric for tags of words, `entities` for those of entities."""
    return Task(
        name, train, dev, TagTemplate(f"{name} sentence: {{tokens}}"), partial(TaggedWords, labels=labels), metrics
    )


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
    train, dev, test = (Tfds(dataset, split) for split in ("train", "validation", "test"))
    prompt = TextTemplate(
        f"translate {LANGUAGES.get(source, source)} to {LANGUAGES.get(target, target)}: {{{source}}}", f"{{{target}}}"
    )
    return Task(name, train, dev, prompt, None, ("bleu",), test)


WMT14_EN_DE = translation("wmt14_en_de", "wmt14_translate/de-en", "en", "de")
WMT14_EN_FR = translation("wmt14_en_fr", "wmt14_translate/fr-en", "en", "fr")
WMT15_EN_FR = translation("wmt15_en_fr", "wmt15_translate/fr-en", "en", "fr")
WMT16_EN_RO = translation("wmt16_en_ro", "wmt16_translate/ro-en", "en", "ro")

CNN_DAILY_MAIL = Task(
    "cnn_dailymail",
    Tfds("cnn_dailymail"),
    Tfds("cnn_dailymail", "validation"),
    TextTemplate("summarize: {article}", "{highlights}"),
    None,
    ("rouge",),
    Tfds("cnn_dailymail", "test"),
)
