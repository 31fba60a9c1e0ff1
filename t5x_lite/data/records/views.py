"""Records made of other ones: taken apart, several sources as one, with one more field."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from t5x_lite.data.records.base import Record, Records, check_template, field_of, fill, hash_fields
from t5x_lite.errors import InputError


@dataclass(frozen=True)
class UnrolledRecords(Records):
    """An example for each item of lists that go together, such as the questions on an article with their answers; the
    other fields are those of the record."""

    examples: Records
    fields: tuple[str, ...]
    """The lists, which are of one length, such as ('questions', 'answers', 'options')."""

    fingerprint = hash_fields

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fields:
            raise InputError("fields=() names no lists to take apart; name one or more")

    def __iter__(self) -> Iterator[Record]:
        for example in self.examples:
            lists = [field_of(example, name, "fields") for name in self.fields]
            if not all(isinstance(one, list) for one in lists) or len({len(one) for one in lists}) > 1:
                found = ", ".join(f"{len(one)}" if isinstance(one, list) else repr(one) for one in lists)
                raise InputError(
                    f"fields={self.fields} are not lists of one length in {example.location} ({found}); name lists "
                    "whose items go together"
                )
            for number, items in enumerate(zip(*lists, strict=True), start=1):
                fields = example.fields | dict(zip(self.fields, items, strict=True))
                yield Record(f"item {number} of {example.location}", fields)


@dataclass(frozen=True)
class JoinedRecords(Records):
    """The examples of one source and behind them those of the next, such as both parts of RACE."""

    sources: tuple[Records, ...]
    """In their order."""

    fingerprint = hash_fields

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise InputError("sources=() are no examples; name one source or more")

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain.from_iterable(self.sources)


@dataclass(frozen=True)
class ComposedRecords(Records):
    """Examples with one more field, made of others, such as a question and an answer as one text."""

    examples: Records
    field: str
    """The name of the new field."""
    template: str
    """What stands in it: names of fields in braces and text around them, such as '{question} {answer}'."""

    fingerprint = hash_fields

    def __post_init__(self) -> None:
        super().__post_init__()
        check_template(self.template, "template")

    def __iter__(self) -> Iterator[Record]:
        for example in self.examples:
            composed = {self.field: fill(self.template, example, "template")}
            yield example._replace(fields=example.fields | composed)
