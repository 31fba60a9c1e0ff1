"""Examples whose answers are texts, tags or noun phrases."""

import pytest

from t5x_lite.data import AnswerTemplate, CoreferenceTemplate, TagTemplate
from t5x_lite.data.records.base import Record
from t5x_lite.data.tasks.templates import UnknownLabelError
from t5x_lite.errors import InputError

QUESTION = "question: {question} context: {context}"


def question(*answers, **fields):
    return Record("dev.json", {"question": "Who?", "context": "They.", "answers": list(answers)} | fields)


def test_the_first_answer_is_learnt_and_every_one_is_right():
    wording = AnswerTemplate(QUESTION)
    assert list(wording.pairs(question("a", "b", "a"))) == [("question: Who? context: They.", "a")]
    ((text, right, _),) = wording.asked(question("a", " b", "a"))
    assert (text, right) == ("question: Who? context: They.", ("a", "b"))


def test_each_answer_may_be_learnt_but_is_asked_once():
    wording = AnswerTemplate(QUESTION, each=True)
    assert [target for _, target in wording.pairs(question("a", "b"))] == ["a", "b"]
    assert len(list(wording.asked(question("a", "b")))) == 1


def test_questions_without_an_answer():
    wording = AnswerTemplate(QUESTION, no_answer="unanswerable")
    assert [target for _, target in wording.pairs(question())] == ["unanswerable"]
    with pytest.raises(InputError, match=r"given='answers' is empty in dev.json; set no_answer"):
        list(AnswerTemplate(QUESTION).pairs(question()))
    with pytest.raises(InputError, match="given='context' is no list of answers"):
        list(AnswerTemplate(QUESTION, "context").pairs(question()))


def test_words_and_tags_stand_between_blanks():
    wording = TagTemplate("ner sentence: {words}", tokens="words", tags="ner")
    found = Record("a.conll:1", {"words": ["U.N.", "official", ","], "ner": ["B-ORG", "O", "O"]})
    assert list(wording.pairs(found)) == [("ner sentence: U.N. official ,", "B-ORG O O")]
    with pytest.raises(InputError, match="a.conll:1 has 3 words and 2 tags"):
        list(wording.pairs(found._replace(fields=found.fields | {"ner": ["O", "O"]})))
    with pytest.raises(InputError, match="tags='words/0' is no list of words"):
        list(TagTemplate("{words}", "words", "words/0").pairs(found))


TEXT = "The stable was very roomy, with four good stalls; a large window opened into the yard , which made it pleasant."


def winograd(**fields):
    place = TEXT.split().index("it")
    known = {"text": TEXT, "span1_text": "The stable", "span2_text": "it", "span2_index": place, "label": "True"}
    return Record("train:0", known | fields)


def test_the_pronoun_is_marked_and_its_referent_learnt():
    wording = CoreferenceTemplate("wsc: {text}")
    ((source, target),) = wording.pairs(winograd())
    assert (source, target) == (f"wsc: {TEXT.replace('made it', 'made *it*')}", "The stable")


def test_wrong_candidates_are_asked_but_not_learnt():
    wording, wrong = CoreferenceTemplate("wsc: {text}"), winograd(span1_text="the yard", label="False")
    assert list(wording.pairs(wrong)) == []
    ((_, right, _),) = wording.asked(wrong)
    assert right == ("the yard", "False")
    with pytest.raises(UnknownLabelError):
        list(wording.asked(winograd(label=None)))


@pytest.mark.parametrize(
    ("text", "pronoun", "index", "marked"),
    [
        ('"Good for him," he said.', "him", 2, '"Good for *him*," he said.'),
        ("It is it and it is", "It", 5, "It is it and *it* is"),
        ("use it now", "it", 0, "use *it* now"),
        ("his hat", "his", 0, "*his* hat"),
    ],
)
def test_the_marked_word_is_the_nearest_that_is_the_pronoun(text, pronoun, index, marked):
    found = winograd(text=text, span2_text=pronoun, span2_index=index)
    assert CoreferenceTemplate("{text}").read(found) == marked


def test_a_pronoun_that_is_not_there():
    with pytest.raises(InputError, match="pronoun='she' is no word of the text in train:0"):
        CoreferenceTemplate("{text}").read(winograd(span2_text="she"))
