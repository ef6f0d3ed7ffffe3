"""Folders of this machine in which ended syncs left unfinished downloads, and their removal.

An upload leaves nothing here; its session in the bucket ends by itself within a week. What other programs leave in a
bucket, a rule of the bucket removes: `JsonObjects.end_stale_parts`.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpujob.data.keys import PARTS_FOLDER, alone
from tpujob.data.sync.checksum_cache import ChecksumCache


@dataclass(frozen=True, slots=True)
class PartsFolder:
    """Unfinished downloads to one folder."""

    path: str
    files: int
    size: int  #: bytes


def find(cache: ChecksumCache) -> list[PartsFolder]:
    """Those that syncs of this machine have made and that hold something. Calls no storage."""
    folders = [_measured(path) for path in cache.folders() if Path(path).is_dir()]
    return [folder for folder in folders if folder.files]


def remove(cache: ChecksumCache, folders: Sequence[PartsFolder]) -> None:
    """Afterwards they are gone; what was copied stays. Raises IllegalInState while a sync writes to one of them,
    OSError. Safe to repeat."""
    for folder in folders:
        path = Path(folder.path)
        assert path.name == PARTS_FOLDER
        with alone(path / "lock", f"another `tpujob data sync` writes to {path.parent}"):
            shutil.rmtree(path)
        cache.forget_folder(folder.path)


def _measured(path: str) -> PartsFolder:
    files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            found = os.lstat(os.path.join(folder, name))
            files += found.st_size > 0  # a lock is empty
            size += found.st_size
    return PartsFolder(path, files, size)
