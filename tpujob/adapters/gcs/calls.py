"""Calls of Cloud Storage: the library's client, repeats until a deadline, and what time it is there.

The library is imported at the first call, as most commands need no storage. Its own retries are off: they know neither
our deadlines nor whether a repeat is safe here.
"""
# The library has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import io
import random
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from tpujob.adapters.gcs.errors import Corrupted, translate
from tpujob.errors import Transient

T = TypeVar("T")

_CLOCK_AGE = 60.0  # seconds for which the offset between two clocks is trusted
_PAUSES = (0.1, 5.0)  # the first and the longest pause between two tries


class Calls:
    """One connection pool for a project. Safe to use from several threads."""

    def __init__(self, project: str, endpoint: str) -> None:
        self._project = project
        self._endpoint = endpoint  # empty: Google Cloud's
        self._lock = threading.Lock()
        self._made: Any = None  # the library's client
        self._offset = Offset()

    def client(self) -> Any:
        """The library's own, made on the first call."""
        with self._lock:
            if self._made is None:
                self._made = self._new_client()
            return self._made

    def repeat(
        self, doing: str, deadline: float, call: Callable[[float, int], T], *, safe: bool = True
    ) -> T:
        """`call(seconds left, number of the try)` until it succeeds. Raises this project's errors only."""
        attempt, pause, corrupt = 0, _PAUSES[0], False
        while True:
            try:
                return call(max(deadline - time.monotonic(), 0.001), attempt)
            except Exception as error:
                translated = translate(error, doing)
                if translated is None:
                    raise
                again = isinstance(translated, Transient) and safe
                if isinstance(translated, Corrupted):
                    again, corrupt = not corrupt, True
                wait = pause * random.uniform(0.5, 1)  # noqa: S311, spreads tries
                if not again or time.monotonic() + wait >= deadline:
                    raise translated from error
            time.sleep(wait)
            attempt, pause = attempt + 1, min(pause * 2, _PAUSES[1])

    def clock(self) -> float | None:
        """The storage's time, by its latest answers; None when the last is too long ago."""
        return self._offset.apply(time.monotonic())

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
            client._http.trust_env = False  # a proxy of the environment cannot reach loopback
        else:
            client = storage.Client(self._project)
        # It would ask for every bucket's metadata from threads of its own, for traces that nobody has switched on.
        client._bucket_metadata_cache = None
        for scheme in ("http://", "https://"):
            client._http.mount(scheme, HTTPAdapter(pool_maxsize=32))
        client._http.hooks["response"].append(self._note_time)
        return client

    def _note_time(self, response: Any, *_: object, **__: object) -> None:
        now, date = time.monotonic(), response.headers.get("Date")
        if date:
            server = parsedate_to_datetime(date).timestamp()
            self._offset.observe(server, now - response.elapsed.total_seconds(), now)


class Offset:
    """The difference between the storage's clock and ours. A `Date` has whole seconds only, so each answer narrows it
    down to an interval, and several to their common part."""

    def __init__(self) -> None:
        self._low, self._high = 0.0, 0.0
        self._until = float("-inf")

    def observe(self, date: float, sent: float, received: float) -> None:
        """An answer that was made between `sent` and `received`, by our clock, says `date`."""
        low, high = date - received, date + 1 - sent
        if received < self._until:
            common = max(low, self._low), min(high, self._high)
            if common[0] <= common[1]:  # otherwise one of the clocks was set: begin anew
                low, high = common
        self._low, self._high, self._until = low, high, received + _CLOCK_AGE

    def apply(self, now: float) -> float | None:
        """The storage's time; None when the last answer is too long ago."""
        return now + (self._low + self._high) / 2 if now < self._until else None


class Until(io.BytesIO):
    """Bytes on their way up or down, until a deadline: the library's own limit is for each piece, not for all."""

    def __init__(self, deadline: float, data: bytes = b"") -> None:
        super().__init__(data)
        self._deadline = deadline

    def read(self, size: int | None = -1, /) -> bytes:
        self._check()
        return super().read(size)

    def write(self, data: Any, /) -> int:
        self._check()
        return super().write(data)

    def _check(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError("time is up")
