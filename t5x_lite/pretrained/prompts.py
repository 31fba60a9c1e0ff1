"""What a model goes on from: a text, or worked examples and a task."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from t5x_lite.errors import InputError

Examples = Iterable[tuple[str, str]]
"""(input, output) of tasks that are done already."""

DEFAULT_TEMPLATE = "{input}\n{output}\n\n"


class Prompt(NamedTuple):
    """A text to go on from, and what ends the answer beside the model's own end."""

    text: str
    before: str = ""
    """A blank that stands before the answer: in most vocabularies it belongs to the answer's first token."""
    stop: str = ""
    """What follows an answer in the examples; empty where there are none."""


def make_prompt(text: str, examples: Examples, template: str | None) -> Prompt:
    """The examples and then the task, each as the template has it; without both the text as it is.

    >>> make_prompt("dog", [("cat", "Katze")], "{input} = {output}\\n")
    Prompt(text='cat = Katze\\ndog =', before=' ', stop='\\n')
    """
    examples = list(examples)
    if template is None and not examples:
        return Prompt(text)
    template = DEFAULT_TEMPLATE if template is None else template
    before, _, behind = template.partition("{output}")
    if template.count("{output}") != 1 or before.count("{input}") != 1 or "{input}" in behind:
        raise InputError(
            f"template={template!r} is no template; write {{input}} once and behind it {{output}} once, as in "
            f"{DEFAULT_TEMPLATE!r}"
        )
    for example in examples:
        if not (isinstance(example, tuple | list) and len(example) == 2 and all(isinstance(x, str) for x in example)):
            raise InputError(f"examples hold {example!r}, which is no pair of texts; give (input, output)")
    shown = "".join(before.replace("{input}", x) + y + behind for x, y in examples)
    task = before.replace("{input}", text)
    blank = " " if task.endswith(" ") else ""
    return Prompt(shown + task.removesuffix(" "), blank, behind)


def named_texts(texts: Any) -> dict[str, str]:
    """Each text under the name that messages call it by; of a single one `the text`.

    Raises `InputError` for what is no text and no list of texts, and for an empty list.
    """
    if isinstance(texts, str):
        return {"the text": texts}
    if not isinstance(texts, list | tuple):
        raise InputError(f"texts={texts!r} is no text; give a string or a list of strings")
    if not texts:
        raise InputError("texts=[] is empty; give one or more")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{index}]={text!r} is no text; give a string")
    return {f"texts[{index}]": text for index, text in enumerate(texts)}


def with_answers(texts: Any, answers: Any) -> list[tuple[str, str, str | None]]:
    """(name, text, answer) of each text; the answers are None where none are given.

    >>> with_answers("a text", "an answer"), with_answers(["a"], None)
    ([('the text', 'a text', 'an answer')], [('texts[0]', 'a', None)])
    """
    named = named_texts(texts)
    if answers is None:
        return [(name, text, None) for name, text in named.items()]
    if isinstance(answers, str) != isinstance(texts, str):
        raise InputError("texts and answers are not both a text or both a list; give one answer for each text")
    given = named_texts(answers).values()
    if len(given) != len(named):
        raise InputError(f"there are {len(named)} texts and {len(given)} answers; give one answer for each text")
    return [(name, text, answer) for (name, text), answer in zip(named.items(), given, strict=True)]
