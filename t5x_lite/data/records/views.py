"""Examples made of other ones: records taken apart, several sources as one."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from t5x_lite.data.records.base import Record, Records, field_of
from t5x_lite.data.tasks.templates import check_template, fill
from t5x_lite.errors import InputError


@dataclass(frozen=True)
class UnrolledRecords(Records):
    """An example for each item of lists that go together, such as the questions on an article with their answers; the
    other fields are those of the record."""

    examples: Records
    fields: tuple[str, ...]
    """The lists, which are of one length, such as ('questions', 'answers', 'options')."""

    def __post_init__(self) -> None:
        if not self.fields:
            raise InputError("fields=() names no lists to take apart; name one or more")

    def __iter__(self) -> Iterator[Record]:
        for example in self.examples:
            lists = [field_of(example, name, "fields") for name in self.fields]
            if not all(isinstance(one, list) for one in lists) or len({len(one) for one in lists}) > 1:
                found = ", ".join(f"{len(one)}" if isinstance(one, list) else repr(one) for one in lists)
                raise InputError(
                    f"fields={self.fields} are no lists of one length in {example.location} ({found}); name lists "
                    "whose items go together"
                )
            for number, items in enumerate(zip(*lists, strict=True), start=1):
                fields = example.fields | dict(zip(self.fields, items, strict=True))
                yield Record(f"item {number} of {example.location}", fields)

    def fingerprint(self) -> str:
        parts = (self.examples.fingerprint(), self.fields)
        return hashlib.blake2b(f"UnrolledRecords {parts}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class JoinedRecords(Records):
    """The examples of one source and behind them those of the next, such as both parts of RACE."""

    sources: tuple[Records, ...]
    """In their order."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("sources=() are no examples; name one source or more")

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain.from_iterable(self.sources)

    def fingerprint(self) -> str:
        parts = [source.fingerprint() for source in self.sources]
        return hashlib.blake2b(f"JoinedRecords {parts}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class ComposedRecords(Records):
    """Examples with one more field, made of others, such as a question and an answer as one text."""

    examples: Records
    field: str
    """The name of the new field."""
    template: str
    """What stands in it: names of fields in braces and text around them, such as '{question} {answer}'."""

    def __post_init__(self) -> None:
        check_template(self.template, "template")

    def __iter__(self) -> Iterator[Record]:
        for example in self.examples:
            composed = {self.field: fill(self.template, example, "template")}
            yield example._replace(fields=example.fields | composed)

    def fingerprint(self) -> str:
        parts = (self.examples.fingerprint(), self.field, self.template)
        return hashlib.blake2b(f"ComposedRecords {parts}".encode(), digest_size=16).hexdigest()
