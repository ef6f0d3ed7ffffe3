"""What is kept between two commands: one file for each context, for its owner's eyes only."""

import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from tpujob.config import files
from tpujob.errors import StoreError

MOST_BYTES = 65_536  #: of the file


class StoredToken(NamedTuple):
    """A sign-in. It holds for one backend, one account and one OAuth client."""

    backend: str  #: its URL
    account: str  #: a program's; empty: a person's
    client_id: str
    refresh_token: str = ""  #: of a person, until they log out
    id_token: str = ""
    until: float = 0.0  #: when `id_token` is not used any more, by this machine's clock

    def is_for(self, backend: str, account: str) -> bool:
        """Whether it may be shown there: what was given to one backend could be used by it at another."""
        return (self.backend, self.account) == (backend, account)


def load(path: Path) -> StoredToken | None:
    """Return the stored token; None: there is none that can be read. Raises StoreError when the file is a link, belongs
    to another user, or is open to others."""
    text = _own(path)
    if text is None:
        return None
    try:
        found: Any = json.loads(text)
        return StoredToken(**found)
    except (ValueError, TypeError):
        return None


def save(path: Path, kept: StoredToken) -> None:
    """Afterwards this is kept, whole, and only its owner can read it. Raises StoreError."""
    files.private_folder(path.parent)
    files.put(path, json.dumps(kept._asdict()))


def forget(path: Path) -> None:
    """Afterwards nothing is kept there."""
    path.unlink(missing_ok=True)


def _own(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unsafe(path, "cannot be opened, or is a link") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise _unsafe(path, "is not a file of yours")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _unsafe(path, "is open to other users")
        return os.read(descriptor, MOST_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def _unsafe(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} holds who you are for a backend, and {what}",
        hint=f"remove it, then sign in again: rm {path}; tpujob login",
    )
