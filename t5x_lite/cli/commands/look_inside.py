"""`attention`, `neighbours`, `positions`: attention weights and embeddings, as pages, lists and pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from t5x_lite.cli.arguments import OfModel, parse, subcommand
from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path
from t5x_lite.pretrained import PretrainedDetector, PretrainedEncoder, PretrainedImageModel, load


@dataclass(frozen=True)
class ShowAttention(OfModel):
    """Where the tokens of a text look: a page for the browser, in which layer and head are chosen by mouse or keys, or
    a picture of some of the heads. Of a model of pictures: its attention rollout laid over one of them; of one that
    finds objects: where it looks for each (--out a .png)."""

    text: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[TEXT ...]")]
    """A text and, if one likes, a second one: what an encoder reads behind it, or what a decoder wrote to it. Without
    it an encoder-decoder writes its own. Or the file of a picture."""
    out: str = "attention.html"
    """The page (.html) or the picture (.png)."""
    layer: int | None = None
    """From 0. The page begins with it; a picture without it has all layers."""
    head: int | None = None
    """From 0. The page begins with it; a picture without it has all heads."""
    kind: str | None = None
    """The stack, such as encoder, decoder or cross; the first of the model unless it is said."""
    max_length: int = 128
    """Tokens of what an encoder-decoder writes."""


ATTENTION_EXAMPLES = (
    'attention demo/bert-novels "The captain walked on the deck."',
    'attention demo/t5-novels "He opened the <extra_id_0> and went out." --kind cross --layer 1 --out heads.png',
    'attention demo/de-en "Wo ist der Bahnhof?" --kind cross',
)


@subcommand
def attention(arguments: list[str]) -> None:
    """attention RUN TEXT: attention weights, as a page to click through or a picture"""
    command = parse(ShowAttention, arguments, prog="t5x-lite attention", examples=ATTENTION_EXAMPLES)
    if not 1 <= len(command.text) <= 2:
        problem = "text is missing" if not command.text else f"there are {len(command.text)} texts"
        raise InputError(f'{problem}; write t5x-lite attention {command.run} "a text", and perhaps a second one')
    out = Path(command.out).expanduser()
    check_output_path(out, "out", (".html", ".png"))
    model = load(command.run)
    if isinstance(model, PretrainedImageModel | PretrainedDetector):
        _write_rollout(model, command, out)
        return
    if isinstance(model, PretrainedEncoder):
        maps = model.attention(command.text if len(command.text) == 2 else command.text[0])
    else:
        maps = model.attention(*command.text, max_length=command.max_length)
    if out.suffix == ".html":
        maps.html(out, command.kind, command.layer, command.head)
    else:
        maps.plot(command.kind, command.layer, command.head).save(out)
    print(maps)
    print(out)


def _write_rollout(model: PretrainedImageModel | PretrainedDetector, command: ShowAttention, out: Path) -> None:
    check_output_path(out, "out")
    if len(command.text) > 1:
        raise InputError(f"there are {len(command.text)} pictures; give one")
    for name in ("layer", "head", "kind"):
        if (value := getattr(command, name)) is not None:
            raise InputError(f"{name}={value} is for texts, and a picture shows all heads together; leave it out")
    rollout = model.attention(command.text[0])
    rollout.save(out)
    print(rollout)
    print(out)


@dataclass(frozen=True)
class ShowNeighbours(OfModel):
    """The tokens whose embeddings are nearest to a word's: cosine and token, the nearest first."""

    word: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[WORD ...]")]
    """One or more words; of one that is several tokens the mean of their vectors is taken."""
    k: int = 10
    """Tokens for each word."""


NEIGHBOURS_EXAMPLES = ("neighbours demo/bert-novels Elizabeth London --k 5",)


@subcommand
def neighbours(arguments: list[str]) -> None:
    """neighbours RUN WORD...: the tokens whose embeddings are nearest to a word's"""
    command = parse(ShowNeighbours, arguments, prog="t5x-lite neighbours", examples=NEIGHBOURS_EXAMPLES)
    if not command.word:
        raise InputError(f"word is missing; write t5x-lite neighbours {command.run} list")
    model = load(command.run)
    tokens = {word: model.neighbours(word, command.k) for word in command.word}
    for word, neighbours in tokens.items():
        print(word)
        for token, similarity in neighbours:
            print(f"{similarity:8.3f}  {token}")


@dataclass(frozen=True)
class ShowPositions(OfModel):
    """What a model knows of positions, as a picture: the vectors of all of them and how alike they are, or T5's bias of
    each head by distance."""

    out: str = "positions.png"
    """The picture, a PNG file."""


POSITIONS_EXAMPLES = ("positions demo/t5-novels --out positions.png",)


@subcommand
def positions(arguments: list[str]) -> None:
    """positions RUN: position embeddings or relative biases, as a picture"""
    command = parse(ShowPositions, arguments, prog="t5x-lite positions", examples=POSITIONS_EXAMPLES)
    out = Path(command.out).expanduser()
    check_output_path(out, "out")
    load(command.run).plot_positions().save(out)
    print(out)
