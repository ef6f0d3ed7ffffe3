"""What the probes of a context have made, on disk before it is made: what is left after `kill -9` is found here.

A run holds the folder's lock while it lives, so whoever gets the lock knows that every record is of a run that is gone.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Generator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tpujob.config.files import private_folder, put
from tpujob.domain.model import Slice
from tpujob.errors import BadRequest, StoreError

LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Made:
    """What one run may have made: slices, and objects below a folder of the bucket."""

    run: str  #: its name
    names: tuple[str, ...]  #: of slices, and of the nodes of those with several
    zone: str
    type: str
    usd_per_hour: float
    started_at: float
    workdir: str  #: empty: no bucket was used

    def slices(self) -> list[Slice]:
        """As much of each as its removal needs: a name and a zone."""
        return [bare_slice(name, self.zone, self.started_at) for name in self.names]


def bare_slice(name: str, zone: str, at: float) -> Slice:
    return Slice(
        name=name,
        k=0,
        type="",
        zone=zone,
        pricing="spot",
        runtime_version="",
        usd_per_hour=None,
        requested_at=at,
    )


class Records:
    """The folder of one context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Nobody else probes or removes what was left in this context meanwhile. Raises BadRequest while somebody
        does."""
        private_folder(self._folder)
        descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadRequest(
                    "`tpujob doctor --probe` runs in this context already",
                    hint="wait for its end, or end it with Ctrl-C: it cleans up",
                ) from None
            yield
        finally:
            os.close(descriptor)

    def keep(self, made: Made) -> None:
        """On disk when this returns. Raises StoreError."""
        put(self._path(made.run), json.dumps(asdict(made), indent=2))

    def drop(self, made: Made) -> None:
        """Everything of that run is gone."""
        self._path(made.run).unlink(missing_ok=True)

    def all(self) -> list[Made]:
        """The oldest first. Raises StoreError for one that cannot be read: it stands for money."""
        found = [_read(path) for path in self._folder.glob("*.json")]
        return sorted(found, key=lambda made: made.started_at)

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.json"


def _read(path: Path) -> Made:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        known: dict[str, Any] = {field.name: said[field.name] for field in fields(Made)}
        known["names"] = tuple(known["names"])
        return Made(**known)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path} cannot be read, and says which slice a probe has left",
            hint="`gcloud compute tpus queued-resources list --zone=-` shows it as tj-probe-...; remove the file then",
        ) from error
