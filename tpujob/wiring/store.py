"""Opens the store of a context, and refuses one that is not the store that the context used before.

Job ids begin at 1 in an empty store, and slices that no record claims are deleted: a store whose file or database was
lost must not be taken for a new one. So the store has an identity, and the context keeps a copy of it elsewhere: beside
the file, or in the buckets where the jobs of a Firestore database have their objects.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpujob.config import files
from tpujob.config.settings import Settings
from tpujob.errors import NotFound, Refused, StoreError, Transient

if TYPE_CHECKING:
    from tpujob.adapters.firestore import FirestoreStore
    from tpujob.adapters.sqlite import SqliteStore
    from tpujob.ports import Blobs

log = logging.getLogger(__name__)

#: of the object in each bucket with the identity of the store
OBJECT = "store-id"
#: what stands for the identity of a store that was lost before identities were kept
NOT_KNOWN = "unknown"
TIMEOUT = 15.0


def open_file(settings: Settings) -> SqliteStore:
    """The store in the context's file. Raises StoreError when it is not the one that the context used before."""
    from tpujob.adapters.sqlite import SqliteStore

    path, copy = settings.db, settings.home / "store-id"
    known = copy.read_text(encoding="utf-8").strip() if copy.exists() else ""
    if not known and _is_empty(path) and _has_entries(settings.keys):
        known = NOT_KNOWN
    if known and _is_empty(path) and settings.replace_store != known:
        # before its tables are made: what SQLite writes beside them would damage a backup that is put in their place
        raise lost(known, f"{path} is missing or empty", f"put a backup of {path} back")
    store = SqliteStore(path)
    identity = store.identity()
    if known not in ("", identity) and settings.replace_store != known:
        store.close()
        raise lost(known, f"{path} holds another store, {identity}", f"put {path} back")
    if known != identity:
        files.put(copy, f"{identity}\n")
    return store


def check_database(
    store: FirestoreStore, blobs: Blobs, folders: Sequence[str], settings: Settings
) -> None:
    """Afterwards each of these folders in buckets says which store it belongs to. Raises StoreError when one belongs to
    another store, or has objects of jobs although this store never had a job; Transient or Refused when it cannot be
    seen."""
    identity, has_had_jobs = store.identity(), store.has_had_jobs()
    for folder in folders:
        try:
            known = _identity_of(folder, blobs, has_had_jobs=has_had_jobs)
        except (Transient, Refused) as error:
            if not has_had_jobs:
                raise
            log.warning("%s/%s could not be compared: %s", folder, OBJECT, error)
            continue
        if known not in ("", identity) and settings.replace_store != known:
            raise lost(
                known,
                f"the database of Firestore holds another store, {identity}, than {folder} belongs to",
                "restore a backup of the database",
            )
        if known != identity:
            with contextlib.suppress(NotFound):  # the bucket is yet to be made
                blobs.put(f"{folder}/{OBJECT}", identity.encode(), timeout=TIMEOUT)


def _identity_of(folder: str, blobs: Blobs, *, has_had_jobs: bool) -> str:
    """Of the store to which the folder belongs; empty: to none."""
    with contextlib.suppress(NotFound):
        return blobs.get(f"{folder}/{OBJECT}", timeout=TIMEOUT).decode(errors="replace").strip()
    if has_had_jobs:
        return ""
    with contextlib.suppress(NotFound):
        return NOT_KNOWN if blobs.list(f"{folder}/u/", most=1, timeout=TIMEOUT) else ""
    return ""


def lost(known: str, what: str, put_back: str) -> StoreError:
    """The jobs of this context are in a store that is not there."""
    return StoreError(
        f"the store of this context is lost: {what}. Its jobs were in the store with the id {known}",
        hint=f"Two ways out: {put_back}, then run `tpujob up`. Or give the lost store up: `tpujob up "
        f"--replace-store {known}` (where the backend is deployed or served: TPUJOB_REPLACE_STORE={known} in its "
        "environment). Then its jobs have no history and no record of their cost, their slices that still run are "
        "deleted, and job ids begin again. Nothing is deleted until you choose.",
    )


def _is_empty(path: Path) -> bool:
    return not path.exists() or path.stat().st_size == 0


def _has_entries(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
