"""How a command reaches the backend: finds it, starts it when it is down, finds it again when it is replaced."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tpujob.cli.output import note
from tpujob.errors import BackendGone, Transient

if TYPE_CHECKING:
    from tpujob.api import EventView, JobsApi, JobView
    from tpujob.config.settings import Settings

T = TypeVar("T")

#: seconds between tries to reach a backend that was there a moment ago
PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
#: seconds after which no further try begins, as an error may take long to come
PATIENCE = 30.0


def current_settings() -> Settings:
    """Return the settings of the current context."""
    from tpujob.config import settings

    return settings.load()


def connect() -> JobsApi:
    """Return the backend of the context; a local one is started when it is down."""
    found = running()
    if found is not None:
        return found
    from tpujob.wiring import client

    now = current_settings()
    note(f"tpujob: starting {runs_here(now)}")
    return client.client(now)


def running() -> JobsApi | None:
    """Return the backend if it runs; nothing is started."""
    from tpujob.wiring import client

    return client.running_client(current_settings())


def reconnect() -> JobsApi | None:
    """Return the backend that replaced the last one. Starts it again if it died, not if it was stopped."""
    died = current_settings().ready_file("backend").exists()
    return connect() if died else running()


def local_stack() -> Settings:
    """Return the settings of the local stack, which is started when its emulator is down."""
    from tpujob.config import settings, stack_processes

    now = settings.load(context=settings.LOCAL)
    if any(part.name == "emulator" and part.ready is None for part in stack_processes.status(now)):
        note(f"tpujob: starting {runs_here(now)}")
        stack_processes.up(now)
    return now


def runs_here(now: Settings) -> str:
    """Name the processes of the context that run on this machine."""
    return "the local stack" if now.local else f"the backend of {now.context}"


def say_where() -> None:
    """Print where a command takes effect, unless that is the local stack."""
    now = current_settings()
    if not now.local:
        note(f"tpujob: in the context {now.context}")


def page_of(job_id: str) -> str:
    """Return the address of a job's page, or the command that opens it; empty: there is none."""
    from tpujob.wiring import client

    return client.way_to_page(current_settings(), job_id)


def died() -> str:
    """Return what to do about processes of this machine that died; empty: none did."""
    from tpujob.config import stack_processes

    now = current_settings()
    names = [
        one.name
        for one in stack_processes.status(now)
        if one.pid is None and now.process_file(one.name).exists()
    ]
    if not names:
        return ""
    ended = "the " + " and the ".join(names)
    return f"{ended} ended unexpectedly: `tpujob up` starts what is missing"


class RetryingClient:
    """Repeats a question for half a minute while the backend is being replaced. For questions only: a command that
    changes something is never repeated by itself."""

    def __init__(self) -> None:
        self.api = connect()

    def ask(self, question: Callable[[JobsApi], T]) -> T:
        """Return the first backend's answer. Raises BackendGone or Transient when none answers in time."""
        until = time.monotonic() + PATIENCE
        for number, pause in enumerate(PAUSES):
            try:
                return question(self.api)
            except (BackendGone, Transient) as error:
                if time.monotonic() + pause > until:
                    raise
                if number == 0:
                    note(f"tpujob: {error.message}; trying again")
                time.sleep(pause)
            self._reconnect()
        return question(self.api)

    def follow(self, job: str | None, *, timeout: float) -> Iterator[None]:
        """As `JobsApi.follow`, across backends."""
        while True:
            try:
                for _ in self.api.follow(job, timeout=timeout):
                    yield
            except (BackendGone, Transient):
                self._reconnect()
                yield  # the caller asks now, and gets the error if it lasts

    def changes(self, job_id: str, *, timeout: float) -> Iterator[tuple[JobView, list[EventView]]]:
        """Yield the job at each poll, and its events since the last one, until it has ended."""
        from tpujob.cli.render.words import FINAL

        seen = 0
        for _ in self.follow(job_id, timeout=timeout):
            job = self.ask(lambda api: api.get(job_id))
            fresh = self.ask(lambda api, after=seen: api.events(job_id, after=after))
            seen = max([seen, *(event["seq"] for event in fresh)])
            yield job, fresh
            if job["state"] in FINAL:
                return

    def _reconnect(self) -> None:
        with contextlib.suppress(
            BackendGone, Transient
        ):  # the next question raises it, if it lasts
            self.api = reconnect() or self.api
