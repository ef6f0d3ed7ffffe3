"""What differs between a folder and a storage: one pass over two sorted streams. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tpujob.data.objects import LocalFile, ObjectFacts


@dataclass(frozen=True, slots=True)
class Pair:
    """A key, on both sides or on one."""

    key: str
    file: LocalFile | None
    facts: ObjectFacts | None

    @property
    def may_be_same(self) -> bool:
        """Whether only a checksum can tell that they differ."""
        return (
            self.file is not None
            and self.facts is not None
            and self.file.size == self.facts.size
            and self.facts.crc32c is not None
        )


def pairs(
    files: Iterable[LocalFile], objects: Iterable[ObjectFacts], prefix: str
) -> Iterator[Pair]:
    """Every key once, in the order of its UTF-8 bytes, in which both streams must come. `prefix`: what names of objects
    have before the key."""
    left, right = iter(files), iter(objects)
    file, facts = next(left, None), next(right, None)
    while file or facts:
        mine = file.key.encode() if file else None
        theirs = facts.name[len(prefix) :].encode() if facts else None
        if theirs is None or (mine is not None and mine < theirs):
            assert file
            yield Pair(file.key, file, None)
            file = next(left, None)
        elif mine is None or theirs < mine:
            assert facts
            yield Pair(facts.name[len(prefix) :], None, facts)
            facts = next(right, None)
        else:
            assert file
            yield Pair(file.key, file, facts)
            file, facts = next(left, None), next(right, None)
