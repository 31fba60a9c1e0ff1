"""`classify`, `detect` and `reconstruct`: classes of pictures or texts, the objects of pictures, and what a masked
autoencoder makes of a picture."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from t5x_lite.cli.arguments import OfModel, Templates, parse, subcommand, text_templates
from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path
from t5x_lite.pretrained import PretrainedImageModel, PretrainedImageText, load
from t5x_lite.pretrained.detection import THRESHOLD
from t5x_lite.pretrained.image_texts import PHOTO
from t5x_lite.validation import Positive


@dataclass(frozen=True)
class Classify(OfModel):
    """The likeliest classes of pictures, or of texts where the model reads texts: probability and class, best first."""

    inputs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[IMAGE|TEXT ...]")]
    """Files of pictures (JPEG, PNG, WebP, GIF, BMP), or texts."""
    labels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ()
    """The names of the classes, of a model of pictures and texts (CLIP), which knows them by name alone."""
    templates: Templates = ()
    """Texts with {} where such a name is put, whose vectors are averaged, or a .txt with one a line; if not given,
    "a photo of a {}."."""
    top_k: Positive | None = None
    """Classes of each; five, or all where there are fewer, if not given."""
    json: bool = False
    """Print a line of JSON for each: its input and its classes."""


CLASSIFY_EXAMPLES = (
    "classify google/vit-base-patch16-224 cat.jpg dog.png",
    'classify runs/banking77 "My card has not come."',
    "classify openai/clip-vit-base-patch32 cat.jpg --labels cat dog",
)


@subcommand
def classify(arguments: list[str]) -> None:
    """classify RUN IMAGE|TEXT...: the likeliest classes of pictures or texts"""
    command = parse(Classify, arguments, prog="t5x-lite classify", examples=CLASSIFY_EXAMPLES)
    if not command.inputs:
        raise InputError(f"image is missing; write t5x-lite classify {command.run} cat.jpg, or a text in quotes")
    model, inputs = load(command.run), list(command.inputs)
    names = command.labels or command.templates
    if names and not isinstance(model, PretrainedImageText):
        raise InputError(
            f"--{'labels' if command.labels else 'templates'}={' '.join(names)} is for models of pictures and texts, "
            f"and {command.run} is a {type(model.config).__name__}; leave it out"
        )
    if isinstance(model, PretrainedImageText):
        if not command.labels:
            raise InputError(
                f"labels is missing: a {type(model.config).__name__} knows classes by their names; write e.g. "
                "--labels cat dog"
            )
        templates = text_templates(command.templates) or PHOTO
        top_k = min(5, len(command.labels)) if command.top_k is None else command.top_k
        answers = model.zero_shot(inputs, command.labels, templates=templates, top_k=top_k)
    elif isinstance(model, PretrainedImageModel):
        answers = model.classify(inputs, top_k=command.top_k)
    else:
        answers = model.classify(inputs)
        if (command.top_k or 1) > len(answers[0]):
            raise InputError(f"top_k={command.top_k} is out of range; choose 1 to {len(answers[0])}")
        answers = [classes[: command.top_k or 5] for classes in answers]
    if command.json:
        for given, classes in zip(inputs, answers, strict=True):
            print(json.dumps({"input": given, "classes": [one._asdict() for one in classes]}))
        return
    blocks = [
        "\n".join([given, *(f"{one.probability:8.1%}  {one.label}" for one in classes)])
        for given, classes in zip(inputs, answers, strict=True)
    ]
    print("\n\n".join(blocks))


@dataclass(frozen=True)
class Detect(OfModel):
    """The objects of pictures, by a model that finds them (DETR): probability, class, and box in pixels (left, top,
    right, bottom), the surest first."""

    images: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[IMAGE ...]")]
    """Files of pictures (JPEG, PNG, WebP, GIF, BMP)."""
    threshold: float = THRESHOLD
    """Objects with a lower probability are left out."""
    output: str = ""
    """A PNG file for the picture with its boxes; of several pictures a folder for one of each."""
    json: bool = False
    """Print a line of JSON for each picture: its path and its objects."""


DETECT_EXAMPLES = (
    "detect facebook/detr-resnet-50 street.jpg --output found.png",
    "detect runs/detr_tiny blood/*.jpg --threshold 0.5 --json",
)


@subcommand
def detect(arguments: list[str]) -> None:
    """detect RUN IMAGE...: the objects of pictures, with boxes"""
    command = parse(Detect, arguments, prog="t5x-lite detect", examples=DETECT_EXAMPLES)
    if not command.images:
        raise InputError(f"image is missing; write t5x-lite detect {command.run} street.jpg")
    output = Path(command.output).expanduser() if command.output else None
    if output and len(command.images) == 1:
        check_output_path(output, "output")
    elif output:
        _check_folder(output, command.images)
    model = load(command.run)
    results = model.detect(list(command.images), command.threshold)
    for path, found in zip(command.images, results, strict=True):
        if command.json:
            print(json.dumps({"image": path, "objects": [one._asdict() for one in found]}))
        else:
            lines = (f"{one.score:8.1%}  {' '.join(f'{side:7.1f}' for side in one.box)}  {one.label}" for one in found)
            print("\n".join([path, *lines]))
        if output:
            found.save(output if len(command.images) == 1 else output / f"{Path(path).stem}.png")
    if output and not command.json:
        print(output)


def _check_folder(folder: Path, images: tuple[str, ...]) -> None:
    """Raises `InputError` where a picture of each cannot be written there under its name."""
    stems = [Path(path).stem for path in images]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise InputError(f"output={folder} would have two pictures named {twice}.png; give pictures of other names")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output={folder} is not a folder ({error.strerror}); name one for several pictures") from None


@dataclass(frozen=True)
class Reconstruct(OfModel):
    """A picture, what is left of it where most patches are hidden, and what a masked autoencoder makes of that, side by
    side in one PNG file."""

    image: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="IMAGE")]
    """The file of the picture (JPEG, PNG, WebP, GIF, BMP)."""
    output: str
    """The PNG file to write."""
    mask_ratio: float | None = None
    """The share of the patches that are hidden; that of the training if not given, mostly 0.75."""
    seed: int = 0
    """Of the choice of patches."""


RECONSTRUCT_EXAMPLES = (
    "reconstruct facebook/vit-mae-base cat.jpg --output cat_again.png",
    "reconstruct runs/mae_tiny cat.jpg --output half.png --mask-ratio 0.5 --seed 1",
)


@subcommand
def reconstruct(arguments: list[str]) -> None:
    """reconstruct RUN IMAGE --output FILE: a picture, most of it hidden, and what a masked autoencoder makes of it"""
    command = parse(Reconstruct, arguments, prog="t5x-lite reconstruct", examples=RECONSTRUCT_EXAMPLES)
    output = Path(command.output).expanduser()
    check_output_path(output, "output")
    result = load(command.run).reconstruct(command.image, mask_ratio=command.mask_ratio, seed=command.seed)
    result.save(output)
    print(result)
    print(output)
