"""A client that outlives the backend's restart, for commands and notebooks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tpujob.errors import BackendGone, Transient
from tpujob.lib.tries import Backoff, Deadline

if TYPE_CHECKING:
    from tpujob.api import JobsApi

T = TypeVar("T")


class RetryingClient:
    """A client that repeats a request for half a minute while the backend is being replaced. Pass only requests that
    change nothing: a repeated change could take effect twice."""

    pauses = Backoff(first=0.2, longest=30.0)
    timeout = 30.0  #: seconds until the last try begins; one try may itself take long

    def __init__(
        self,
        api: JobsApi,
        reconnect: Callable[[], JobsApi | None],
        note: Callable[[str], object] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`reconnect`: returns the backend that replaced the last one, if it can be found. `note`: takes the message of
        an error before the first repeat."""
        self.api, self._find, self._note = api, reconnect, note
        self._clock, self._sleep = clock, sleep

    def ask(self, request: Callable[[JobsApi], T]) -> T:
        """Return the backend's answer. Raises BackendGone or Transient when no backend answers in time."""
        deadline, failures = Deadline(self.timeout, self._clock), 0
        while True:
            try:
                return request(self.api)
            except (BackendGone, Transient) as error:
                if not deadline.remaining():
                    raise
                failures += 1
                if failures == 1:
                    self._note(error.message)
            self._sleep(min(self.pauses.pause(failures), deadline.remaining()))
            self._reconnect()

    def follow(self, job: str | None, *, timeout: float) -> Iterator[None]:
        """Yield as `JobsApi.follow` does, and once more when the backend was replaced."""
        while True:
            try:
                for _ in self.api.follow(job, timeout=timeout):
                    yield
            except (BackendGone, Transient):
                self._reconnect()
                yield  # the caller's next request raises the error if it lasts

    def _reconnect(self) -> None:
        # the next request raises the error if it lasts
        with contextlib.suppress(BackendGone, Transient):
            self.api = self._find() or self.api
