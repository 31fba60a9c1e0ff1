"""`score RUN PROMPT ANSWER...`."""

from dataclasses import dataclass

import tyro

from t5x_lite.cli.arguments import parse
from t5x_lite.cli.generate import read_examples, template_of
from t5x_lite.errors import InputError
from t5x_lite.pretrained import load


@dataclass(frozen=True)
class ScoreAnswers:
    """How likely answers are behind a prompt, best first: log-probability, the same a token, answer."""

    run: tyro.conf.Positional[str]
    """The folder of a run or of one of its checkpoints, a Hugging Face folder, or a Hugging Face hub name."""
    prompt: tyro.conf.Positional[str]
    """The text before the answers."""
    answer: tyro.conf.Positional[tuple[str, ...]]
    """One or more answers."""
    answer_context: str | None = None
    """A prompt that says nothing, such as "Answer:"; answers are then ranked, and printed first, by how much likelier
    they are behind the prompt than behind this."""
    examples: str | None = None
    """A file of tasks that are done already, to be shown before the prompt: input, tab, output on each line."""
    template: str | None = None
    """How tasks are written, with {input} and {output}, \\n for a line break: "Q: {input}\\nA: {output}\\n\\n"."""


def run(arguments: list[str]) -> None:
    command = parse(ScoreAnswers, arguments, prog="t5x-lite score")
    if not command.answer:
        raise InputError(
            f'answers are missing; write t5x-lite score {command.run} "a prompt" "an answer" "another one"'
        )
    examples = () if command.examples is None else read_examples(command.examples)
    scores = load(command.run).score(
        command.prompt,
        list(command.answer),
        examples=examples,
        template=template_of(command.template),
        answer_context=command.answer_context,
    )
    for one in sorted(scores, key=lambda one: -(one.log_probability if one.normalised is None else one.normalised)):
        normalised = "" if one.normalised is None else f"{one.normalised:10.4f}  "
        print(f"{normalised}{one.log_probability:10.4f}  {one.per_token:10.4f}  {one.answer}")
