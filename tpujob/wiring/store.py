"""Opens the store of a context, and refuses one that is not the store that the context used before.

Job ids begin at 1 in an empty store, and slices that no record claims are deleted: a store whose file or database was
lost must not be taken for a new one. So the store has an identity, and the context keeps a copy of it elsewhere: beside
the file, or, signed, in the buckets where the jobs of a Firestore database have their objects.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpujob.config import files
from tpujob.config.settings import REPLACE_STORE, Settings
from tpujob.domain.host import keys
from tpujob.errors import NotFound, Refused, StoreError, Transient
from tpujob.protocol import signing

if TYPE_CHECKING:
    from tpujob.adapters.firestore import FirestoreStore
    from tpujob.adapters.sqlite import SqliteStore
    from tpujob.ports import Blobs

log = logging.getLogger(__name__)

#: name of the object in each bucket with the identity of the store
OBJECT = "store-id"
#: content of that object, identity and signature, and the bytes that are read
_COPY, _MAX_COPY = re.compile(r"([0-9a-f]{16}) ([0-9a-f]{64})\n"), 100
#: stands for the identity of a store that was lost before identities were recorded
NOT_KNOWN = "unknown"
TIMEOUT = 15.0


def open_file(settings: Settings) -> SqliteStore:
    """Return the store in the context's file. Raises StoreError if the context used another store before."""
    from tpujob.adapters.sqlite import SqliteStore

    path, copy = settings.db, settings.home / "store-id"
    expected = copy.read_text(encoding="utf-8").strip() if copy.exists() else ""
    if not expected and _is_empty(path) and _has_entries(settings.keys):
        expected = NOT_KNOWN
    if expected and _is_empty(path) and settings.replace_store != expected:
        # before tables are made: the files that SQLite writes beside the database would damage a restored backup
        raise lost(
            expected,
            f"{path} is missing or empty",
            f"put a backup of {path} back, then run `tpujob up`",
            _replace_command(expected),
        )
    store = SqliteStore(path)
    identity = store.identity()
    if expected not in ("", identity) and settings.replace_store != expected:
        store.close()
        raise lost(
            expected,
            f"{path} holds another store, {identity}",
            f"put {path} back, then run `tpujob up`",
            _replace_command(expected),
        )
    if expected != identity:
        files.put(copy, f"{identity}\n")
    return store


def check_database(
    store: FirestoreStore,
    blobs: Blobs,
    folders: Sequence[str],
    settings: Settings,
    key: Callable[[Sequence[str]], str],
) -> None:
    """Record in each of these folders in buckets which store it belongs to. `key` returns the key of a purpose
    (`Hosts.key`). Folders that cannot be read or written are logged if the store has had jobs; else Transient or
    Refused is raised. Raises StoreError if a folder belongs to another store, or has objects of jobs although this
    store never had a job."""
    identity, has_had_jobs = store.identity(), store.has_had_jobs()
    for folder in folders:
        try:
            secret = key(keys.OF_STORES)
            noted = _identity_of(folder, blobs, secret, has_had_jobs=has_had_jobs)
            if noted != identity and noted in ("", settings.replace_store):
                _put_copy(folder, blobs, secret, identity)
                noted = identity
        except (Transient, Refused) as error:
            if not has_had_jobs:
                raise
            log.warning("%s/%s could not be compared or written: %s", folder, OBJECT, error)
            continue
        if noted != identity:
            raise _lost_database(noted, identity, folder, settings)


def _identity_of(folder: str, blobs: Blobs, secret: str, *, has_had_jobs: bool) -> str:
    """Return the identity of the store that the folder belongs to; empty if none. Programs can write there as well, so
    only a copy signed by a backend counts; any other is ignored."""
    path = f"{folder}/{OBJECT}"
    with contextlib.suppress(NotFound):
        text = blobs.get(path, end=_MAX_COPY, timeout=TIMEOUT).decode(errors="replace")
        copy = _COPY.fullmatch(text)
        if copy and signing.verify(secret, copy[2], OBJECT, folder, copy[1]):
            return copy[1]
        log.warning("%s is ignored: this backend has not signed it", path)
    if has_had_jobs:
        return ""
    with contextlib.suppress(NotFound):
        return NOT_KNOWN if blobs.list(f"{folder}/u/", most=1, timeout=TIMEOUT) else ""
    return ""


def _put_copy(folder: str, blobs: Blobs, secret: str, identity: str) -> None:
    signature = signing.sign(secret, OBJECT, folder, identity)
    with contextlib.suppress(NotFound):  # the bucket is yet to be made
        blobs.put(f"{folder}/{OBJECT}", f"{identity} {signature}\n".encode(), timeout=TIMEOUT)


def _lost_database(noted: str, identity: str, folder: str, settings: Settings) -> StoreError:
    problem = f"{folder} belongs to store {noted}, but the Firestore database is store {identity}"
    if noted == NOT_KNOWN:
        problem = f"{folder} has objects of jobs, but the Firestore database never had a job"
    give_up = _replace_command(noted)
    if settings.service:
        changed = f"--region=REGION --update-env-vars={REPLACE_STORE}={noted}"
        give_up = f"`gcloud run services update {settings.service} {changed}`"
    return lost(
        noted, problem, "restore a backup of the database, then start the backend again", give_up
    )


def lost(store_id: str, problem: str, put_back: str, give_up: str) -> StoreError:
    """Return the error that the store with this context's jobs is lost. `put_back`, `give_up`: the two ways out."""
    return StoreError(
        f"the store of this context is lost: {problem}. Its jobs were in the store with the id {store_id}",
        hint=f"Two ways out: {put_back}. Or give the lost store up: {give_up}. Then its "
        "jobs have no history and no record of their cost, their slices that still run are deleted, and job ids begin "
        "again. Nothing is deleted until you choose.",
    )


def _replace_command(store_id: str) -> str:
    return f"`tpujob up --replace-store {store_id}` (for `tpujob serve`: {REPLACE_STORE}={store_id} in its environment)"


def _is_empty(path: Path) -> bool:
    return not path.exists() or path.stat().st_size == 0


def _has_entries(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
