"""`neighbours RUN WORD...`."""

from dataclasses import dataclass

import tyro

from t5x_lite.cli.arguments import parse
from t5x_lite.errors import InputError
from t5x_lite.pretrained import load


@dataclass(frozen=True)
class ShowNeighbours:
    """The tokens whose embeddings are nearest to a word's: cosine and token, the nearest first."""

    run: tyro.conf.Positional[str]
    """The folder of a run or of one of its checkpoints, a Hugging Face folder, or a Hugging Face hub name."""
    word: tyro.conf.Positional[tuple[str, ...]]
    """One or more words; of one that is several tokens the mean of their vectors is taken."""
    k: int = 10
    """Tokens for each word."""


def run(arguments: list[str]) -> None:
    command = parse(ShowNeighbours, arguments, prog="t5x-lite neighbours")
    if not command.word:
        raise InputError(f"word is missing; write t5x-lite neighbours {command.run} list")
    model = load(command.run)
    found = {word: model.neighbours(word, command.k) for word in command.word}
    for word, neighbours in found.items():
        print(word)
        for token, similarity in neighbours:
            print(f"{similarity:8.3f}  {token}")
