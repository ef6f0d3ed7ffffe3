"""Calls of Cloud Storage: the library's client, repeats until a deadline, and the time there.

The library is imported at the first call, as most commands need no storage. Its own retries are off: they respect
neither our deadlines nor whether a repeat is safe.
"""
# The library has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import io
import threading
from collections.abc import Callable
from typing import IO, Any, TypeVar

from tpujob.adapters.calling import (
    Backoff,
    Count,
    Deadline,
    ServerClock,
    outcome_of,
    repeated,
    uncounted,
)
from tpujob.adapters.gcs.errors import Corrupted, translated
from tpujob.errors import TpujobError, Transient

T = TypeVar("T")

_BACKOFF = Backoff(first=0.1, longest=5.0)


class Calls:
    """One connection pool for a project. Safe to use from several threads."""

    def __init__(self, project: str, endpoint: str, count: Count = uncounted) -> None:
        self._count = count  #: of each try
        self._project = project
        self._endpoint = endpoint  # empty: Google Cloud's
        self._lock = threading.Lock()
        self._made: Any = None  # the library's client
        self.server = ServerClock()

    def client(self) -> Any:
        """The library's client, made at the first call."""
        with self._lock:
            if self._made is None:
                self._made = self._new_client()
            return self._made

    def repeat(
        self, doing: str, deadline: Deadline, call: Callable[[float, int], T], *, safe: bool = True
    ) -> T:
        """`call(seconds left, failures so far)` until it succeeds. Raises this project's errors only. `safe`: doing it
        twice is the same as once. `doing`: begins with the verb under which the tries are counted."""
        corrupted = 0

        def once(left: float, failures: int) -> T:
            failed: TpujobError | None = None
            try:
                with translated(doing):
                    return call(left, failures)
            except TpujobError as error:
                failed = error
                raise
            finally:
                self._count(doing.partition(" ")[0], outcome_of(failed))

        def worth_it(error: Transient) -> bool:
            nonlocal corrupted
            corrupted += isinstance(error, Corrupted)
            return corrupted == 1 if isinstance(error, Corrupted) else safe

        return repeated(once, deadline, _BACKOFF, worth_it=worth_it)

    def close(self) -> None:
        """End its connections. Safe to repeat; a later call opens new ones."""
        with self._lock:
            made, self._made = self._made, None
        if made:
            made.close()

    def _new_client(self) -> Any:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage
        from requests.adapters import HTTPAdapter

        client: Any
        if self._endpoint:
            client = storage.Client(
                self._project,
                credentials=AnonymousCredentials(),
                client_options={"api_endpoint": self._endpoint},
            )
            client._http.trust_env = False  # a proxy cannot reach loopback
        else:
            client = storage.Client(self._project)
        # it would read each bucket's metadata in threads of its own, for traces that are switched off
        client._bucket_metadata_cache = None
        for scheme in ("http://", "https://"):
            client._http.mount(scheme, HTTPAdapter(pool_maxsize=32))
        client._http.hooks["response"].append(self.server.note)
        return client


class Until(io.BytesIO):
    """Bytes being sent or received, until a deadline: the library's own time limit is for each piece."""

    def __init__(self, deadline: Deadline, data: bytes = b"") -> None:
        super().__init__(data)
        self.size = len(data)
        self._deadline = deadline

    def read(self, size: int | None = -1, /) -> bytes:
        self._deadline.left()
        return super().read(size)

    def write(self, data: Any, /) -> int:
        self._deadline.left()
        return super().write(data)


class FileUntil:
    """A file being sent, from its beginning, until a deadline."""

    def __init__(self, deadline: Deadline, file: IO[bytes]) -> None:
        self.size = file.seek(0, io.SEEK_END)
        self._file, self._deadline = file, deadline
        self.tell, self.seek = file.tell, file.seek
        file.seek(0)

    def read(self, size: int = -1) -> bytes:
        self._deadline.left()
        return self._file.read(size)
