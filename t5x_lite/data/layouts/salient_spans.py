"""Names and dates in a text, by rules: what REALM masks (Guu et al. 2020, section 3.4), where a trained BERT finds the
names.
"""

import re

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{_MONTHS})(?:,? \d{{4}})?"  # 3 March 1882, 3rd of March
    rf"|(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?\b"  # March 3, 1882
    rf"|(?:{_MONTHS}),? \d{{4}}\b"  # March 1882
    r"|\d{4}-\d{2}-\d{2}\b|(?:1\d|20)\d{2}s?\b)"  # 1882-03-03, 1882, the 1880s
)
_WORD = r"[^\W\d_a-zß-öø-ÿ][\w'’-]*"
_NAME = re.compile(rf"(?<![\w'’-]){_WORD}(?:(?:(?: (?:of|the|de|la|von|van|der|du|al)){{0,2}} | & ){_WORD}){{0,15}}")
_FIRST_WORDS = {
    *("a", "about", "after", "again", "against", "ah", "all", "also", "although", "among", "an", "and", "another"),
    *("any", "are", "as", "at", "because", "before", "below", "besides", "between", "both", "but", "by", "can"),
    *("come", "could", "dear", "despite", "did", "do", "does", "during", "each", "eight", "even", "every", "few"),
    *("first", "five", "for", "four", "from", "go", "good", "had", "has", "have", "he", "hence", "her", "here"),
    *("his", "how", "however", "i", "if", "in", "indeed", "instead", "into", "is", "it", "its", "itself", "just"),
    *("last", "later", "let", "like", "look", "many", "may", "me", "might", "mine", "more", "most", "much", "my"),
    *("near", "neither", "nevertheless", "nine", "no", "nobody", "none", "nor", "not", "nothing", "now", "of"),
    *("off", "often", "oh", "on", "once", "one", "only", "or", "other", "others", "our", "ours", "out", "over"),
    *("per", "perhaps", "please", "quite", "rather", "said", "second", "see", "seven", "several", "shall", "she"),
    *("should", "since", "six", "so", "some", "somebody", "someone", "something", "sometimes", "soon", "still"),
    *("such", "ten", "than", "that", "the", "their", "theirs", "them", "then", "there", "therefore", "these"),
    *("they", "third", "this", "those", "though", "three", "through", "thus", "to", "together", "too", "twice"),
    *("two", "under", "unless", "until", "upon", "us", "very", "was", "we", "well", "were", "what", "whatever"),
    *("when", "whenever", "where", "whereas", "whether", "which", "while", "who", "whom", "whose", "why", "will"),
    *("with", "within", "without", "would", "yes", "yet", "you", "your", "yours"),
}
_TITLES = frozenset(("mr", "mrs", "ms", "dr", "sir", "lady", "lord", "miss", "madame", "monsieur"))


def salient_spans(sentence: str) -> list[tuple[int, int]]:
    """The first character and the one after the last of each date and each name of a sentence, in order.

    A date is a year from 1000 to 2099, or a day and a month with it or without. A name is a run of words that begin
    with a capital letter, at most 16, small words such as "of" between them; words such as "The" or "I" do not count,
    and neither does the first word of a sentence where it stands alone, unless it has a digit or a further capital.

    >>> sentence = "In March 1882 Sherlock Holmes of Baker Street left for Paris."
    >>> [sentence[start:end] for start, end in salient_spans(sentence)]
    ['March 1882', 'Sherlock Holmes of Baker Street', 'Paris']
    >>> salient_spans("Nothing happened, and I slept.")
    []
    """
    dates = [match.span() for match in _DATE.finditer(sentence)]
    first_letter = len(sentence) - len(sentence.lstrip(" \t\n\"'“‘„«‹([{¿¡"))
    names = []
    # No name reaches into a date.
    for match in _NAME.finditer(_DATE.sub(lambda date: "0" * len(date[0]), sentence)):
        start, end = _trimmed(sentence, *match.span())
        if start == end:
            continue
        words = sentence[start:end].split()
        alone = words[0].strip(".").lower() in _TITLES or (start == first_letter and not _is_marked(words[0]))
        if len(words) > 1 or not alone:
            names.append((start, end))
    return sorted(dates + names)


def _trimmed(sentence: str, start: int, end: int) -> tuple[int, int]:
    """A run of words without those at its beginning that are no names, and without a genitive at its end."""
    while start < end:
        word = re.match(r"[\w'’-]+", sentence[start:end])
        if word is None or re.split("['’]", word[0])[0].lower() not in _FIRST_WORDS:
            break
        rest = sentence[start + word.end() : end]
        start += word.end() + len(rest) - len(rest.lstrip())
        if start < end and not sentence[start].isupper():  # a small word that stood between two
            following = re.search(r"(?<= )[^\W\d_a-z]", sentence[start:end])
            start = end if following is None else start + following.start()
    for ending in ("'s", "’s", "'", "’", "-"):
        if sentence[start:end].endswith(ending):
            end -= len(ending)
    return start, max(start, end)


def _is_marked(word: str) -> bool:
    """Whether a word has a digit or a capital letter after its first one."""
    return any(character.isdigit() or character.isupper() for character in word[1:])
