"""Where a document's sentences end, by rules: the libraries for it need models to download (NLTK, Stanza), are large
(spaCy) or are no longer maintained.
"""

import re
from typing import Literal, get_args

from t5x_lite.errors import InputError

SentenceRule = Literal["punctuation", "line"]

_ABBREVIATIONS = (
    *("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "Rev", "Hon", "Messrs", "Mme", "Mlle"),
    *("Gen", "Col", "Capt", "Lt", "Sgt", "Gov", "Sen", "Rep", "Mt", "[Ee]tc", "[Vv]s", "[Cc]f", "al", "approx"),
)
_BEFORE_NUMBERS = ("[Nn]o", "[Nn]os", "[Pp]", "[Pp]p", "[Vv]ol", "[Ff]ig", "[Ff]igs", "[Ee]q", "[Ss]ec", "[Cc]h")
_SPACED_MARKS = ".!?…؟۔।॥።"
_UNSPACED_MARKS = "。！？｡"
_MARK = f"[{_SPACED_MARKS}{_UNSPACED_MARKS}]"
_CLOSING = r"""["'”’»›)\]}」』）］｝】》〉〕]*+"""
_OPENING = r"""["'“‘„‚«‹¿¡(\[{「『（［｛【《〈〔]*+"""
_UNSPACED_LETTER = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"

_NO_ABBREVIATION = "".join(rf"(?<!\b{word}\.)" for word in _ABBREVIATIONS)
# One letter: "J.", "e.g.", "a.m.", "U.S.", but not "don't."
_NO_INITIAL = r"(?:(?<!\b[^\W\d_]\.)|(?<=\w['’][^\W\d_]\.))"
_NO_NUMBER = r"(?!(?:" + "|".join(rf"(?<=\b{word}\.)" for word in _BEFORE_NUMBERS) + r") \d)"
# It begins with a set of characters, which `re` looks for quickly, and never fails on a run of marks, which it would
# read again from each of them.
_END = re.compile(
    rf"(?P<marks>{_MARK}(?:{_MARK}++|{_NO_ABBREVIATION}{_NO_INITIAL}{_NO_NUMBER})){_CLOSING}"
    rf"(?= {_OPENING}(?P<spaced>[^\W_])|(?P<unspaced>{_UNSPACED_LETTER})|)"
)
_BLANK_LINE = re.compile(r"\n\s*\n")
_LONGEST_LABEL = 8


def split_sentences(text: str, rule: SentenceRule) -> list[str]:
    """The sentences of a text, in order, none empty. Joined they are the text again, up to white space.

    "line": each line that is not blank. "punctuation": a sentence ends with a blank line, or with ``. ! ? …`` (or an
    Arabic, Indian or Ethiopian mark) and closing quotes and brackets before white space and a digit or a letter that
    is not lower case, which quotes and brackets may open; ``。！？`` need no white space after them, nor do ``! ?``
    before Chinese and Japanese. No sentence ends with an English abbreviation or an initial, or is a number alone
    ("1."). White space within a sentence becomes one blank.

    >>> split_sentences('"Who is it?" asked Dr. J. Watson. "No one." 3 p.m. had struck.', "punctuation")
    ['"Who is it?" asked Dr. J. Watson.', '"No one."', '3 p.m. had struck.']
    >>> split_sentences("吾輩は猫である。名前は無い。", "punctuation")
    ['吾輩は猫である。', '名前は無い。']

    Raises `InputError` for an unknown rule.
    """
    if rule == "line":
        return [sentence for line in text.splitlines() if (sentence := line.strip())]
    if rule not in get_args(SentenceRule):
        raise InputError(f"sentences={rule!r} is unknown; choose one of {', '.join(get_args(SentenceRule))}")
    sentences = []
    for paragraph in _BLANK_LINE.split(text):
        paragraph, start = " ".join(paragraph.split()), 0
        for match in filter(_is_end, _END.finditer(paragraph)):
            sentence = paragraph[start : match.end()]
            # A short number or marks alone are the label of a list's item.
            if len(sentence) > _LONGEST_LABEL or any(map(str.isalpha, sentence)):
                sentences.append(sentence.strip())
                start = match.end()
        if rest := paragraph[start:].strip():
            sentences.append(rest)
    return sentences


def _is_end(match: re.Match[str]) -> bool:
    mark = match["marks"][-1]
    if mark in _UNSPACED_MARKS:
        return True
    if match["unspaced"]:
        return mark in "!?"
    return bool(match["spaced"]) and not match["spaced"].islower()
