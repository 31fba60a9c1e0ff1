"""Tasks whose answers are texts of their own: WMT's translations and CNN/Daily Mail's summaries, from TensorFlow
Datasets, worded as in Raffel et al. 2020, appendix D."""

from t5x_lite.data import TextTemplate, TfdsExamples
from t5x_lite.tasks.shapes import WrittenText
from t5x_lite.tasks.task import Task

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

    >>> translation("wmt14_en_de", "wmt14_translate/de-en", "en", "de").wording.source
    'translate English to German: {en}'
    """
    train, dev, test = (TfdsExamples(dataset, split) for split in ("train", "validation", "test"))
    wording = TextTemplate(
        f"translate {LANGUAGES.get(source, source)} to {LANGUAGES.get(target, target)}: {{{source}}}", f"{{{target}}}"
    )
    return Task(name, train, dev, wording, WrittenText(), ("bleu",), test)


WMT14_EN_DE = translation("wmt14_en_de", "wmt14_translate/de-en", "en", "de")
WMT14_EN_FR = translation("wmt14_en_fr", "wmt14_translate/fr-en", "en", "fr")
WMT15_EN_FR = translation("wmt15_en_fr", "wmt15_translate/fr-en", "en", "fr")
WMT16_EN_RO = translation("wmt16_en_ro", "wmt16_translate/ro-en", "en", "ro")

CNN_DAILY_MAIL = Task(
    "cnn_dailymail",
    TfdsExamples("cnn_dailymail"),
    TfdsExamples("cnn_dailymail", "validation"),
    TextTemplate("summarize: {article}", "{highlights}"),
    WrittenText(),
    ("rouge",),
    TfdsExamples("cnn_dailymail", "test"),
)
