"""`fill_mask RUN TEXT`."""

from dataclasses import dataclass

import tyro

from t5x_lite.cli.arguments import parse
from t5x_lite.errors import InputError
from t5x_lite.pretrained import Suggestion, load


@dataclass(frozen=True)
class FillMask:
    """The likeliest tokens for each mask of a text: probability, token, and the text with the token in it."""

    run: tyro.conf.Positional[str]
    """The folder of a run or of one of its checkpoints, a Hugging Face folder, or a Hugging Face hub name."""
    text: tyro.conf.Positional[tuple[str, ...]]
    """One or more texts with masks ([MASK] or <mask>, as the tokenizer has it): "Return a [MASK] of the list.\""""
    top_k: int = 5
    """Tokens for each mask."""


def run(arguments: list[str]) -> None:
    command = parse(FillMask, arguments, prog="t5x-lite fill_mask")
    if not command.text:
        raise InputError(f'text is missing; write t5x-lite fill_mask {command.run} "a text with a [MASK] in it"')
    answers = load(command.run).fill_mask(list(command.text), top_k=command.top_k)
    masks = [mask for answer in answers for mask in ([answer] if isinstance(answer[0], Suggestion) else answer)]
    print("\n\n".join(_lines(suggestions) for suggestions in masks))


def _lines(suggestions: list[Suggestion]) -> str:
    width = max(len(suggestion.token) for suggestion in suggestions)
    return "\n".join(f"{one.probability:6.1%}  {one.token:<{width}}  {one.text}" for one in suggestions)
