"""`generate` and `fill_blanks`: what a model writes for texts; `score`: how likely answers are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from t5x_lite.cli.arguments import OfModel, parse, subcommand
from t5x_lite.data.records.input_files import lines
from t5x_lite.errors import InputError
from t5x_lite.files import write_atomically
from t5x_lite.pretrained import Answer, load

NOT_DECODING = ("run", "text", "file", "output", "examples", "template")
"""Options that are not arguments of the model's method."""


@dataclass(frozen=True, kw_only=True)
class TaskExamples(OfModel):
    """Options for tasks that are shown by examples."""

    examples: str | None = None
    """A file of tasks that are done already, which a decoder reads first: input, tab, output on each line."""
    template: str | None = None
    """How tasks are written, with {input} and {output}, \\n for a line break: "Q: {input}\\nA: {output}\\n\\n"."""

    def options(self) -> dict[str, Any]:
        """The examples in the file, and the template with line breaks and tabs for `\\n` and `\\t`."""
        examples, template = [], self.template
        for number, line in lines(Path(self.examples).expanduser()) if self.examples is not None else ():
            sides = line.split("\t")
            if len(sides) != 2:
                tabs = f"examples={self.examples} has {len(sides) - 1} tabs in line {number}"
                raise InputError(f"{tabs}; write input, tab, output")
            examples.append((sides[0], sides[1]))
        if template is not None:
            template = template.replace("\\n", "\n").replace("\\t", "\t")
        return {"examples": examples, "template": template}


@dataclass(frozen=True)
class Decoding(OfModel):
    """What a model writes for texts: T5's spans behind <extra_id_0>, <extra_id_1>, ...; a translation; a continuation.

    An answer is one line: line breaks in it become blanks. With several answers a text there are as many lines for
    each, best first where they were searched for.
    """

    text: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[TEXT ...]")]
    """One or more texts: "Return a <extra_id_0> of the list.\""""
    num_beams: int = 1
    """Beams of a search; 1 is greedy."""
    temperature: float | None = None
    """Sample, at this temperature; 0 is greedy."""
    top_k: int = 0
    """Sample among so many tokens; 0 means all."""
    top_p: float = 1.0
    """Sample among the likeliest tokens that hold this share of the probability."""
    num_results: int = 1
    """Answers for each text, of a search or a sampling."""
    max_length: int = 64
    """Tokens of an answer, at most."""
    seed: int = 0
    """Of the sampling."""
    file: str | None = None
    """Take the texts from a file instead, one a line; an empty line gives an empty line."""
    output: str | None = None
    """Write the answers to this file, which must not be there yet, instead of printing them."""
    scores: bool = False
    """Print each answer's score and a tab before it."""
    alpha: float = 0.6
    """Of the search's length penalty ((5 + n) / 6) ** alpha."""
    early_stopping: bool = False
    """Stop a search as soon as num_beams texts have ended."""
    batch_size: int = 32
    """Texts that are decoded together."""


@dataclass(frozen=True)
class Generate(TaskExamples, Decoding):
    # The options of tasks come last: the fields of the last base are the first.
    __doc__ = Decoding.__doc__


GENERATE_EXAMPLES = (
    'generate demo/de-en "Wo ist der Bahnhof?" --num-beams 4 --num-results 4 --scores',
    "generate demo/de-en --file sample_data/german.txt --output english.txt",
    'generate runs/gpt_tiny "Return a copy of" --temperature 0.8 --top-p 0.9 --num-results 3',
)


@subcommand
def generate(arguments: list[str]) -> None:
    """generate RUN TEXT...: what a model writes: answers, translations, continuations"""
    command = parse(Generate, arguments, prog="t5x-lite generate", examples=GENERATE_EXAMPLES)
    _write(command, "generate", **command.options())


@dataclass(frozen=True)
class FillBlanks(Decoding):
    """Texts with their blanks <extra_id_0>, <extra_id_1>, ... filled in, by a T5 that learned span corruption. Where
    `generate` prints the spans alone, and as many as the model's rows had, this ends with the text's last blank.

    A text is one line: line breaks in it become blanks. With several answers a text there are as many lines for each,
    best first where they were searched for.
    """


FILL_BLANKS_EXAMPLES = (
    'fill_blanks demo/t5-novels "He opened the <extra_id_0> and went out." --num-beams 4',
    'fill_blanks demo/t5-novels "He opened the <extra_id_0> and went out." --num-beams 4 --num-results 4 --scores',
)


@subcommand
def fill_blanks(arguments: list[str]) -> None:
    """fill_blanks RUN TEXT...: texts with their <extra_id_0>, <extra_id_1>, ... filled in, by a T5"""
    _write(parse(FillBlanks, arguments, prog="t5x-lite fill_blanks", examples=FILL_BLANKS_EXAMPLES), "fill_blanks")


def _write(command: Decoding, method: str, **tasks: Any) -> None:
    """Prints what a method of the model makes of the command's texts, or writes it to the command's file."""
    if command.file is not None and command.text:
        raise InputError(f"file={command.file} and a text exclude each other; give one of them")
    if command.file is None and not command.text:
        raise InputError(f'text is missing; write t5x-lite {method} {command.run} "a text", or --file with one a line')
    in_file = command.file is not None
    texts = [line for _, line in lines(Path(command.file).expanduser())] if in_file else list(command.text)
    if not texts:
        raise InputError(f"file={command.file} is empty; give one text a line")
    output = None if command.output is None else Path(command.output).expanduser()
    if output is not None and output.exists():
        raise InputError(f"output={command.output} is there already; choose another name, or remove it")
    if output is not None and not output.parent.is_dir():
        raise InputError(f"output={command.output} lies in no folder that there is; make {output.parent} first")
    call = getattr(load(command.run), method)
    inputs = [text for text in texts if text.strip()] if in_file else texts
    options = {name: value for name, value in vars(command).items() if name not in NOT_DECODING}
    with _bar(len(inputs), shown=in_file) as progress:
        answers = iter(call(inputs, **options, **tasks, progress=progress) if inputs else [])
    written: list[str] = []
    for text in texts:
        answer = next(answers) if text.strip() or not in_file else ""
        written += map(_line, answer if isinstance(answer, list) else [answer])
    if output is None:
        print("\n".join(written))
    else:
        write_atomically(output, "".join(f"{line}\n" for line in written))


def _line(answer: str | Answer) -> str:
    line = " ".join((answer.text if isinstance(answer, Answer) else answer).splitlines())
    return f"{answer.score:.4f}\t{line}" if isinstance(answer, Answer) else line


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal; call it with the number of texts done since."""
    console = Console(stderr=True)
    columns = (TextColumn("writing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("writing", total=total)
        yield lambda done: bar.advance(task, done)


@dataclass(frozen=True)
class ScoreAnswers(TaskExamples):
    """How likely answers are behind a prompt, best first: log-probability, the same a token, answer."""

    prompt: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROMPT")]
    """The text before the answers."""
    answer: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[ANSWER ...]")]
    """One or more answers."""
    answer_context: str | None = None
    """A prompt that says nothing, such as "Answer:"; answers are then ranked, and printed first, by how much likelier
    they are behind the prompt than behind this."""


SCORE_EXAMPLES = ('score runs/gpt_tiny "Return a copy of the" " list" " moon"',)


@subcommand
def score(arguments: list[str]) -> None:
    """score RUN PROMPT ANSWER...: how likely answers are after a prompt"""
    command = parse(ScoreAnswers, arguments, prog="t5x-lite score", examples=SCORE_EXAMPLES)
    if not command.answer:
        raise InputError(
            f'answers are missing; write t5x-lite score {command.run} "a prompt" "an answer" "another one"'
        )
    options = command.options() | {"answer_context": command.answer_context}
    scores = load(command.run).score(command.prompt, list(command.answer), **options)
    for one in sorted(scores, key=lambda one: -(one.log_probability if one.normalised is None else one.normalised)):
        normalised = "" if one.normalised is None else f"{one.normalised:10.4f}  "
        print(f"{normalised}{one.log_probability:10.4f}  {one.per_token:10.4f}  {one.answer}")
