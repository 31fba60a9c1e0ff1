import pytest

from t5x_lite.errors import InputError
from t5x_lite.pretrained.prompts import DEFAULT_TEMPLATE, Prompt, make_prompt, named_texts


def test_a_text_without_examples_stays_as_it_is():
    assert make_prompt(" a {input} ", [], None) == Prompt(" a {input} ")


def test_examples_come_before_the_task():
    examples = [("cat", "Katze"), ("{output}", "{input}")]
    prompt = make_prompt("dog", examples, None)
    assert DEFAULT_TEMPLATE == "{input}\n{output}\n\n"
    assert prompt == Prompt("cat\nKatze\n\n{output}\n{input}\n\ndog\n", "", "\n\n")
    asked = make_prompt("dog", examples[:1], "Q: {input}\nA: {output}\n\n")
    assert asked == Prompt("Q: cat\nA: Katze\n\nQ: dog\nA:", " ", "\n\n")
    assert make_prompt("dog", [], "{input} -> {output}") == Prompt("dog ->", " ", "")


@pytest.mark.parametrize(
    ("examples", "template", "message"),
    [
        ([], "{input}", "template='{input}' is no template; write {input} once"),
        ([], "{output} {input}", "is no template"),
        ([], "{input} {output} {output}", "is no template"),
        (["ab"], None, "examples hold 'ab', which is no pair"),
        ([("a", 3)], None, "which is no pair"),
    ],
)
def test_what_is_no_template_and_no_example(examples, template, message):
    with pytest.raises(InputError, match=message.replace("{", r"\{")):
        make_prompt("a", examples, template)


def test_names_of_texts():
    assert named_texts("a") == {"the text": "a"}
    assert named_texts(["a", "b"]) == {"texts[0]": "a", "texts[1]": "b"}
    for texts, message in (([], "texts=\\[\\] is empty"), (3, "texts=3 is no text"), (["a", 3], "texts\\[1\\]=3")):
        with pytest.raises(InputError, match=message):
            named_texts(texts)
