"""The command line's connection to the backend: finds it, starts it when it is down, reconnects when it is replaced."""

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

FIRST_PAUSE = 0.2  #: seconds between the first two tries; each further pause is twice as long
PATIENCE = 30.0  #: seconds until the last try begins; one try may itself take long


def current_settings() -> Settings:
    """Return the settings of the current context."""
    from tpujob.config import settings

    return settings.load()


def connect() -> JobsApi:
    """Return the backend of the context; start a local one that is down."""
    api = running()
    if api is not None:
        return api
    from tpujob.wiring import client

    settings = current_settings()
    note(f"tpujob: starting {name_of_stack(settings)}")
    return client.client(settings)


def running() -> JobsApi | None:
    """Return the backend if it runs; start nothing."""
    from tpujob.wiring import client

    return client.running_client(current_settings())


def reconnect() -> JobsApi | None:
    """Return the backend that replaced the last one. Start it again if it died, not if it was stopped."""
    died = current_settings().ready_file("backend").exists()
    return connect() if died else running()


def local_stack() -> Settings:
    """Return the settings of the local stack; start the stack if its emulator is down."""
    from tpujob.config import stack_processes
    from tpujob.config.settings import LOCAL, load

    settings = load(context=LOCAL)
    processes = stack_processes.status(settings)
    if any(process.name == "emulator" and process.ready is None for process in processes):
        note(f"tpujob: starting {name_of_stack(settings)}")
        stack_processes.up(settings)
    return settings


def name_of_stack(settings: Settings) -> str:
    """Name the processes of the context that run on this machine."""
    return "the local stack" if settings.local else f"the backend of {settings.context}"


def note_context() -> None:
    """Print the context in which a command takes effect, unless that is the local stack."""
    settings = current_settings()
    if not settings.local:
        note(f"tpujob: in the context {settings.context}")


def page_of(job_id: str) -> str:
    """Return the address of a job's page, or the command that opens the page; empty: there is no page."""
    from tpujob.wiring import client

    return client.way_to_page(current_settings(), job_id)


def hint_about_dead_processes() -> str:
    """Return what to do about processes of this machine that died; empty: none died."""
    from tpujob.config import stack_processes

    settings = current_settings()
    names = [
        process.name
        for process in stack_processes.status(settings)
        if process.pid is None and settings.process_file(process.name).exists()
    ]
    if not names:
        return ""
    ended = "the " + " and the ".join(names)
    return f"{ended} ended unexpectedly: `tpujob up` starts what is missing"


class RetryingClient:
    """A client that repeats a request for half a minute while the backend is being replaced. Pass only requests that
    change nothing: a repeated change could take effect twice."""

    def __init__(self) -> None:
        self.api = connect()

    def ask(self, request: Callable[[JobsApi], T]) -> T:
        """Return the backend's answer. Raises BackendGone or Transient when no backend answers in time."""
        deadline = time.monotonic() + PATIENCE
        pause = FIRST_PAUSE
        while True:
            try:
                return request(self.api)
            except (BackendGone, Transient) as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                if pause == FIRST_PAUSE:
                    note(f"tpujob: {error.message}; trying again")
            time.sleep(min(pause, left))
            pause *= 2
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

    def changes(self, job_id: str, *, timeout: float) -> Iterator[tuple[JobView, list[EventView]]]:
        """Yield the job and its new events at each poll, until the job has ended."""
        from tpujob.cli.render.words import FINAL

        newest_event = 0
        for _ in self.follow(job_id, timeout=timeout):
            job = self.ask(lambda api: api.get(job_id))
            fresh = self.ask(lambda api, after=newest_event: api.events(job_id, after=after))
            newest_event = max([newest_event, *(event["seq"] for event in fresh)])
            yield job, fresh
            if job["state"] in FINAL:
                return

    def _reconnect(self) -> None:
        # the next request raises the error if it lasts
        with contextlib.suppress(BackendGone, Transient):
            self.api = reconnect() or self.api
