"""Examples whose answers are texts, tags or noun phrases."""

import pytest

from t5x_lite.data import AnswerTemplate, CoreferenceTemplate, TagTemplate
from t5x_lite.data.records.base import Record
from t5x_lite.data.tasks.base import UnknownLabelError
from t5x_lite.errors import InputError

QUESTION = "question: {question} context: {context}"


def question(*answers, **fields):
    return Record("dev.json", {"question": "Who?", "context": "They.", "answers": list(answers)} | fields)


def test_the_first_answer_is_learnt_and_every_one_is_right():
    prompt = AnswerTemplate(QUESTION)
    assert list(prompt.pairs(question("a", "b", "a"))) == [("question: Who? context: They.", "a")]
    ((text, right, _),) = prompt.eval_examples(question("a", " b", "a"))
    assert (text, right) == ("question: Who? context: They.", ("a", "b"))


def test_each_answer_may_be_learnt_but_is_asked_once():
    prompt = AnswerTemplate(QUESTION, each=True)
    assert [target for _, target in prompt.pairs(question("a", "b"))] == ["a", "b"]
    assert len(list(prompt.eval_examples(question("a", "b")))) == 1


def test_questions_without_an_answer():
    prompt = AnswerTemplate(QUESTION, no_answer="unanswerable")
    assert [target for _, target in prompt.pairs(question())] == ["unanswerable"]
    with pytest.raises(InputError, match=r"given='answers' is empty in dev.json; set no_answer"):
        list(AnswerTemplate(QUESTION).pairs(question()))
    with pytest.raises(InputError, match="given='context' is not a list of answers"):
        list(AnswerTemplate(QUESTION, "context").pairs(question()))


def test_words_and_tags_stand_between_blanks():
    prompt = TagTemplate("ner sentence: {words}", tokens="words", tags="ner")
    found = Record("a.conll:1", {"words": ["U.N.", "official", ","], "ner": ["B-ORG", "O", "O"]})
    assert list(prompt.pairs(found)) == [("ner sentence: U.N. official ,", "B-ORG O O")]
    with pytest.raises(InputError, match="a.conll:1 has 3 words and 2 tags"):
        list(prompt.pairs(found._replace(fields=found.fields | {"ner": ["O", "O"]})))
    with pytest.raises(InputError, match="tags='words/0' is not a list of words"):
        list(TagTemplate("{words}", "words", "words/0").pairs(found))


TEXT = "The stable was very roomy, with four good stalls; a large window opened into the yard , which made it pleasant."


def winograd(**fields):
    index = TEXT.split().index("it")
    known = {"text": TEXT, "span1_text": "The stable", "span2_text": "it", "span2_index": index, "label": "True"}
    return Record("train:0", known | fields)


def test_the_pronoun_is_marked_and_its_referent_learnt():
    prompt = CoreferenceTemplate("wsc: {text}")
    ((source, target),) = prompt.pairs(winograd())
    assert (source, target) == (f"wsc: {TEXT.replace('made it', 'made *it*')}", "The stable")


def test_wrong_candidates_are_asked_but_not_learnt():
    prompt, wrong = CoreferenceTemplate("wsc: {text}"), winograd(span1_text="the yard", label="False")
    assert list(prompt.pairs(wrong)) == []
    ((_, right, _),) = prompt.eval_examples(wrong)
    assert right == ("the yard", "False")
    with pytest.raises(UnknownLabelError):
        list(prompt.eval_examples(winograd(label=None)))


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
    with pytest.raises(InputError, match="pronoun='she' is not a word of the text in train:0"):
        CoreferenceTemplate("{text}").read(winograd(span2_text="she"))
