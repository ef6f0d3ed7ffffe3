"""What is made from data once and can be made again: where it is kept on this host, and how it is written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from workloads.contract import ProgramContext


def own_folder() -> Path:
    """A folder of this host, below TPUJOB_CACHE, the workdir or TPUJOB_OUT, whichever is the first that is a folder."""
    context = ProgramContext.from_env()
    places = (context.cache, context.workdir, context.out)
    return Path(next(place for place in places if place and "://" not in place)) / "data"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which gets its name once it is whole. Processes that write the same one do no harm."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            yield file
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def short_hash(*parts: str) -> str:
    """Of texts, for a name or to compare with."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
