"""Corpora, records with named fields, and records made of other ones."""

import abc
import dataclasses
import hashlib
import itertools
import numbers
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from t5x_lite.errors import InputError
from t5x_lite.validation import Validated

Made = TypeVar("Made")


@dataclass(frozen=True)
class Source(Validated, abc.ABC):
    """A corpus: documents in a fixed order, and a fingerprint that changes when they do."""

    @abc.abstractmethod
    def documents(self) -> Iterator[str]:
        """Document after document, stripped, none empty; `InputError` when the text cannot be read."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Hexadecimal hash of what the source yields, computed without reading all of it where that is long."""

    def shards(self) -> "list[Source]":
        """The corpus as sources that can be read side by side, whose documents in order are its own; by default itself.
        The same corpus always gives the same ones."""
        return [self]

    def location(self, number: int) -> str:
        """The location of a document by its number, from 1, as messages show it."""
        return f"document {number}"

    @property
    def has_answers(self) -> bool:
        """False for examples of a task whose labels are not known, which can only be predicted."""
        return True

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its labels by number, empty where labels are numbers; None in text without labels."""
        return None


class EmptyCorpusError(InputError):
    """A corpus without a document, which may be a shard of a larger one."""


def digest(*parts: Any) -> str:
    """Hexadecimal hash of the parts, as they print."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def hash_fields(source: Source) -> str:
    """A source's fingerprint from its class and its fields, other sources among them by their fingerprints."""

    def content(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(content, value))
        return value.fingerprint() if isinstance(value, Source) else value

    values = [content(getattr(source, field.name)) for field in dataclasses.fields(source)]
    return digest(type(source).__name__, *values)


def shards_of_examples(source: Any) -> list[Any]:
    """The shards of a source that makes something of each of its `examples`: the same of each of their shards."""
    return [dataclasses.replace(source, examples=shard) for shard in source.examples.shards()]


class Record(NamedTuple):
    """Named fields, and their location as messages show it: file and line, or the like."""

    location: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Records(Source):
    """Records in a fixed order, and a fingerprint that changes when they do; a new source defines these two. As running
    text they are the texts in the field that the option `field` names, "text" where a source has no such option."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """Record after record; `InputError` when one cannot be read."""

    def documents(self) -> Iterator[str]:
        name = getattr(self, "field", "text")
        return (text for record in self if (text := text_of(record, name, "field")))


def field_of(record: Record, name: str, option: str) -> Any:
    """The value of a field, which the user's `option` names; `InputError` where it is missing, with those present.

    'a/b' is b of the record in the field a, 'a/0' the first of the list there.

    >>> record = Record("a.jsonl:2", {"text": "fine", "answers": {"words": ["good", "well"]}})
    >>> field_of(record, "text", "text"), field_of(record, "answers/words/1", "label")
    ('fine', 'well')
    """
    value, rest = record.fields, name
    while rest:
        step, _, rest = (rest, "", "") if isinstance(value, dict) and rest in value else rest.partition("/")
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            step = int(step)
        elif not (isinstance(value, dict) and step in value):
            raise InputError(
                f"{option}={name!r} is missing in {record.location}, which has "
                f"{', '.join(map(repr, _names(record.fields)))}; set {option} to one of them, or correct the record"
            )
        value = value[step]
    return value


def _names(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        yield from (f"{name}/{inner}" for inner in _names(value)) if isinstance(value, dict) and value else [name]


def text_of(record: Record, name: str, option: str) -> str:
    """The text in a field, stripped; `InputError` where it is not a text."""
    return _as_text(field_of(record, name, option), record, name, option)


def text_in(record: Record, name: str, option: str) -> str:
    """The text in a field, stripped; `InputError` where it is not a text, or empty."""
    if text := text_of(record, name, option):
        return text
    raise InputError(f"{option}={name!r} is empty in {record.location}; fill it or remove the record")


def _as_text(value: Any, record: Record, name: str, option: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{option}={name!r} is {value!r} in {record.location}; set {option} to a field of text")
    try:
        value.encode()
    except UnicodeEncodeError:
        problem = "escapes half a surrogate pair, which is not a character"
        raise InputError(f"{record.location} {problem}; remove the record") from None
    return value.strip()


def name_of(record: Record) -> Any:
    """The name of a record in a benchmark: its field `idx`, `index` or `id`; None where it has none of them."""
    return next((record.fields[name] for name in ("idx", "index", "id") if name in record.fields), None)


def fill(template: str, record: Record, option: str) -> str:
    """A template with the record's fields in place of their names in braces; lists are joined by commas.

    Raises `InputError` for a field that is missing, or that holds neither text nor numbers.

    >>> record = Record("a.jsonl:1", {"text": "Why? ", "tags": ["a", "b"]})
    >>> fill("topic question: {text} tags: {tags}", record, "source")
    'topic question: Why? tags: a, b'
    """

    def written(value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(map(written, value))
        return str(value) if isinstance(value, numbers.Number) else _as_text(value, record, name, option)

    text = ""
    for literal, name, *_ in string.Formatter().parse(template):
        text += literal if name is None else literal + written(field_of(record, name, option))
    return text.strip()


def check_template(template: str, option: str) -> None:
    """Raises `InputError` for a template that cannot be parsed, or that names no field."""
    try:
        names = [name for _, name, *_ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise InputError(f"{option}={template!r} is not a template ({error}); write field names in braces") from None
    if not names or not all(names):
        raise InputError(f"{option}={template!r} names no field; write it in braces, such as 'topic: {{text}}'")


class UnknownLabelError(InputError):
    """Labels of a record, in the `field` that an `option` of its task names, that are not among the task's `labels`,
    which the option `names` has."""

    def __init__(
        self,
        option: str,
        field: str,
        labels: Sequence[str],
        unknown: Sequence[str],
        remedy: str,
        names: str = "labels",
    ):
        self.problem = f"{option}={field!r} has labels that {names}={labels} does not know"
        self.unknown, self.remedy = unknown, remedy
        super().__init__(f"{self.problem}: {', '.join(map(repr, unknown))}; {remedy}")


def map_records(
    records: Iterable[Record], function: Callable[[Record], Iterable[Made]]
) -> Iterator[tuple[Record, list[Made]]]:
    """Each record and what the function makes of it; at the end `InputError` for unknown labels, which it counts."""
    unknown, first, error = Counter[str](), "", None
    for record in records:
        try:
            made = list(function(record))
        except UnknownLabelError as raised:
            unknown.update(raised.unknown)
            first, error = first or record.location, error or raised
            continue
        if error is None:
            yield record, made
    if error is not None:
        counts = ", ".join(f"{label!r} {count} times" for label, count in unknown.most_common(20))
        more = f" and {len(unknown) - 20} others" if len(unknown) > 20 else ""
        raise InputError(f"{error.problem}: {counts}{more}, the first in {first}; {error.remedy}")


def check_labels(labels: tuple[str, ...], left_out: tuple[str, ...] = (), option: str = "labels") -> None:
    """Raises `InputError` for a single class, and for one that is named twice or left out too."""
    if len(set(labels)) < len(labels):
        raise InputError(f"{option}={labels} names one of them twice; name each once")
    if len(labels) == 1:
        raise InputError(f"{option}={labels} is one class, of which there is nothing to learn; name two or more")
    if both := set(labels) & set(left_out):
        raise InputError(f"left_out={left_out} has {min(both)!r}, which labels has too; drop it from one")


@dataclass(frozen=True)
class UnrolledRecords(Records):
    """An example for each item of parallel lists, such as the questions on an article and their answers; the other
    fields are those of the record."""

    examples: Records
    fields: tuple[str, ...]
    """The lists, all of one length, such as ('questions', 'answers', 'options')."""

    fingerprint = hash_fields
    shards = shards_of_examples

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fields:
            raise InputError("fields=() names no lists to take apart; name one or more")

    def __iter__(self) -> Iterator[Record]:
        for example in self.examples:
            lists = [field_of(example, name, "fields") for name in self.fields]
            if not all(isinstance(one, list) for one in lists) or len(set(map(len, lists))) > 1:
                sizes = ", ".join(f"{len(one)}" if isinstance(one, list) else repr(one) for one in lists)
                problem = f"are not lists of one length in {example.location} ({sizes})"
                raise InputError(f"fields={self.fields} {problem}; name lists whose items go together")
            for number, items in enumerate(zip(*lists, strict=True), start=1):
                fields = example.fields | dict(zip(self.fields, items, strict=True))
                yield Record(f"item {number} of {example.location}", fields)


@dataclass(frozen=True)
class JoinedRecords(Records):
    """The examples of several sources one after the other, such as both parts of RACE."""

    sources: tuple[Records, ...]

    fingerprint = hash_fields

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise InputError("sources=() has no examples; name one source or more")

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain.from_iterable(self.sources)

    def shards(self) -> list[Source]:
        return [shard for source in self.sources for shard in source.shards()]


@dataclass(frozen=True)
class ComposedRecords(Records):
    """Examples with one more field made of others, such as a question and an answer as one text."""

    examples: Records
    field: str
    """The name of the new field."""
    template: str
    """Its content, such as '{question} {answer}'."""

    fingerprint = hash_fields
    shards = shards_of_examples

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.template, "template")

    def __iter__(self) -> Iterator[Record]:
        for example in self.examples:
            text = fill(self.template, example, "template")
            yield example._replace(fields=example.fields | {self.field: text})
