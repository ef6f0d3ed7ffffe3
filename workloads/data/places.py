"""The folders of data and of derived files on this host."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tpujob.contract import ProgramContext
from workloads.frame.config import ConfigError


def data_place(data: str, otherwise: str) -> str:
    """Return `data`, else the folder of the first entry of the job file's `data:`, else `otherwise`."""
    return data or ProgramContext.from_env().data or otherwise


def no_folder(place: str) -> ConfigError:
    """Return the error for data that is not there."""
    if "://" in place:
        return ConfigError(f"data={place} has no files that this host may list")
    return ConfigError(f"data={place} is no folder of this host; copy it to there")


def own_folder() -> Path:
    """Return the folder of derived files: below TPUJOB_CACHE, the workdir or TPUJOB_OUT, the first on this host."""
    context = ProgramContext.from_env()
    places = (context.cache, context.workdir, context.out)
    return Path(next(place for place in places if place and "://" not in place)) / "data"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name once it is complete. Several processes may write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            yield file
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def short_hash(*parts: str) -> str:
    """Return a short hash of texts, for names and comparisons."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
