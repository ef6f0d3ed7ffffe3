"""The two sides of a sync as sorted streams of keys: a folder, or what a storage lists."""

import os
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from tpujob.data.objects import LeftOut, LocalFile, ObjectFacts, Reader
from tpujob.data.sync.walk import files_of

T_co = TypeVar("T_co", covariant=True)


class Side(Protocol[T_co]):
    @property
    def pages(self) -> int:
        """Class A operations that listing it has cost so far."""
        ...

    def items(self, leave_out: Callable[[LeftOut], None]) -> Iterator[tuple[str, T_co]]:
        """In the order of the keys' UTF-8 bytes. Tells `leave_out` what cannot be copied, by name."""
        ...


class FolderSide:
    pages = 0

    def __init__(self, folder: bytes) -> None:
        """Every link in its path is resolved. A folder that is missing is empty."""
        self._folder = folder

    def items(self, leave_out: Callable[[LeftOut], None]) -> Iterator[tuple[str, LocalFile]]:
        if not os.path.isdir(self._folder):
            return
        for file in files_of(self._folder):
            if isinstance(file, LeftOut):
                leave_out(file)
            else:
                yield file.key, file


class ListedSide:
    def __init__(self, reader: Reader, bucket: str, prefix: str, *, billed: bool) -> None:
        """`billed`: a page is a class A operation of Cloud Storage."""
        self._reader, self._bucket, self._prefix = reader, bucket, prefix
        self._billed = billed
        self.pages = 0
        self.found = False  #: anything at all

    def items(self, leave_out: Callable[[LeftOut], None]) -> Iterator[tuple[str, ObjectFacts]]:
        for page in self._reader.pages(self._bucket, self._prefix):
            self.pages += self._billed
            for facts in page:
                self.found = True
                if isinstance(facts, LeftOut):
                    leave_out(facts)
                else:
                    yield facts.name[len(self._prefix) :], facts
