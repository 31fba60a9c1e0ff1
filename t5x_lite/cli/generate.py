"""`generate RUN TEXT`."""

from dataclasses import dataclass

import tyro

from t5x_lite.cli.arguments import parse
from t5x_lite.errors import InputError
from t5x_lite.pretrained import load


@dataclass(frozen=True)
class Generate:
    """Greedy answers of a model to texts: for T5 the spans behind <extra_id_0>, <extra_id_1>, ..."""

    run: tyro.conf.Positional[str]
    """The folder of a run or of one of its checkpoints, a Hugging Face folder, or a Hugging Face hub name."""
    text: tyro.conf.Positional[tuple[str, ...]]
    """One or more texts with blanks: "Return a <extra_id_0> of the list.\""""
    max_length: int = 64
    """Tokens of an answer, at most."""


def run(arguments: list[str]) -> None:
    command = parse(Generate, arguments, prog="t5x-lite generate")
    if not command.text:
        raise InputError(f'text is missing; write t5x-lite generate {command.run} "a text with an <extra_id_0> in it"')
    for answer in load(command.run).generate(list(command.text), max_length=command.max_length):
        print(answer)
