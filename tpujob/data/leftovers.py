"""What ended copies have left behind, and its removal: sessions of uploads, unfinished downloads, shards that wait.

Only what the ledger of this machine knows is ours to remove. What other programs leave in a bucket, a rule of the
bucket removes: `JsonObjects.end_stale_parts`.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tpujob.data.keys import PARTS_FOLDER
from tpujob.data.objects import Objects
from tpujob.data.sync.ledger import Ledger, Unfinished


@dataclass(frozen=True, slots=True)
class LeftFolder:
    """Files of this machine that no command will look for but the one that left them."""

    path: str
    files: int
    size: int  #: bytes


@dataclass(frozen=True, slots=True)
class Leftovers:
    uploads: list[Unfinished]
    folders: list[LeftFolder]
    tokens: int  #: of copies within Cloud Storage; they end by themselves


def find(ledger: Ledger, stages: Path) -> Leftovers:
    """`stages`: the folder of this machine below which shards wait to be uploaded. Asks no storage."""
    paths = [Path(path) for path in ledger.folders()]
    if stages.is_dir():
        paths += sorted(path for path in stages.iterdir() if path.is_dir())
    folders = [_measured(path) for path in paths if path.is_dir()]
    full = [folder for folder in folders if folder.files]
    return Leftovers(ledger.unfinished(), full, ledger.tokens())


def remove(ledger: Ledger, objects: Objects, found: Leftovers) -> None:
    """Afterwards nothing of it is there; what was copied stays. Ending an upload is free (documented: deletions are).
    Raises OSError for a folder that cannot be removed, and what `Objects` raises; safe to repeat."""
    for one in found.uploads:
        objects.drop(one.session)
        ledger.forget_unfinished(one)
    for folder in found.folders:
        shutil.rmtree(folder.path)
    for path in ledger.folders():  # those that are gone already, too
        if Path(path).name == PARTS_FOLDER and not Path(path).exists():
            ledger.forget_folder(path)
    ledger.forget_tokens()


def _measured(path: Path) -> LeftFolder:
    files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            found = os.lstat(os.path.join(folder, name))
            files += found.st_size > 0  # a lock is empty
            size += found.st_size
    return LeftFolder(str(path), files, size)
