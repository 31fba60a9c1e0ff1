"""What a text answers that a model writes: a class, a number, tags, a noun phrase."""

import math
from collections.abc import Sequence

_DETERMINERS = {
    *("a", "an", "few", "her", "his", "each", "every", "many", "much", "my", "our", "some", "that", "the", "their"),
    *("these", "this", "those", "which", "whose", "your"),
}

NO_NUMBER = -1.0
"""What a text counts as that is no number."""
NO_CLASS = -1


def class_of(text: str, answers: Sequence[str]) -> int:
    """The number of the class whose word the text is, `NO_CLASS` where it is none.

    >>> class_of(" positive ", ("negative", "positive")), class_of("positively", ("negative", "positive"))
    (1, -1)
    """
    text = text.strip()
    return answers.index(text) if text in answers else NO_CLASS


def number_of(text: str) -> float:
    """The number that the text is, `NO_NUMBER` where it is none.

    >>> number_of("3.8 "), number_of("nan"), number_of("3,8")
    (3.8, -1.0, -1.0)
    """
    try:
        number = float(text)
    except ValueError:
        return NO_NUMBER
    return number if math.isfinite(number) else NO_NUMBER


def tags_of(text: str, count: int) -> list[str]:
    """The tags of `count` words: what is too many is dropped, and 'O' stands where there are too few.

    >>> tags_of("B-PER O", 3), tags_of("DET NOUN VERB", 2)
    (['B-PER', 'O', 'O'], ['DET', 'NOUN'])
    """
    tags = text.split()[:count]
    return tags + ["O"] * (count - len(tags))


def names_referent(text: str, candidate: str) -> bool:
    """Whether a text names a candidate: the words of one are among those of the other, but for determiners and upper
    case, and both are possessive or neither is.

    >>> names_referent("stable", "The stable"), names_referent("Bob", "Bob's hat"), names_referent("", "Bob")
    (True, False, False)
    """
    said, meant = ({word for word in one.lower().split() if word not in _DETERMINERS} for one in (text, candidate))
    possessive = ["'" in " ".join(words) for words in (said, meant)]
    return bool(said) and possessive[0] == possessive[1] and (said <= meant or meant <= said)
