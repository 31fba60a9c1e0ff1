"""The documents of a token store, and which of them are for training, which held out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from t5x_lite.data.documents import Documents
from t5x_lite.data.held_out_split import split_documents
from t5x_lite.data.readers import Document

Progress = Callable[[str, float | None], None]


class Part(NamedTuple):
    """Documents and the split, "train" or "held_out", of each."""

    documents: Documents
    split_of: Callable[[Document], str]
    characters: int | None
    """In all of them, where they have been counted."""


@dataclass(frozen=True)
class Corpus:
    """All documents of a store."""

    documents: Documents
    held_out: float
    """Share that is held out where it has no documents of its own."""
    held_out_documents: Documents | None

    def held_out_key(self) -> Any:
        """What decides which documents are held out."""
        return ["source", self.held_out_documents.source.fingerprint()] if self.held_out_documents else self.held_out

    def documents_of(self, split: str) -> Iterator[Document]:
        """Those of "train" or "held_out", in their order."""
        parts = self.parts(lambda stage, share: None)
        return (document for part in parts for document in part.documents if part.split_of(document) == split)

    def parts(self, report: Progress) -> list[Part]:
        """The documents by where they come from; `InputError` where a share of them cannot be held out."""
        if self.held_out_documents:
            return [
                Part(self.documents, lambda document: "train", None),
                Part(self.held_out_documents, lambda document: "held_out", None),
            ]
        report("split documents", None)
        content = self.documents.content
        texts = map(content, self.documents)
        split = split_documents(texts, self.held_out, lambda characters: report("split documents", None))
        names = {True: "held_out", False: "train"}
        return [
            Part(
                self.documents,
                lambda document: names[split.holds_out(self.documents.content(document))],
                split.characters,
            )
        ]


def place_in_split(parts: list[Part], name: str, number: int) -> str:
    """Where pair `number`, from 1, of a split stands, to be read in a message; found by reading up to it."""
    for part in parts:
        for position, document in enumerate(part.documents, start=1):
            number -= part.split_of(document) == name
            if not number:
                return part.documents.place(position)
    raise ValueError(f"the {name} split has fewer documents; they changed while they were read")
