"""The command line's connection to the backend: finds it, starts it when it is down, reconnects when it is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.output import note
from tpujob.wiring.retrying import RetryingClient

if TYPE_CHECKING:
    from tpujob.api import JobsApi
    from tpujob.config.settings import Settings


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
    api = client.client(settings)
    api.slow = _note_slowness
    return api


def running() -> JobsApi | None:
    """Return the backend if it runs; start nothing."""
    from tpujob.wiring import client

    api = client.running_client(current_settings())
    if api is not None:
        api.slow = _note_slowness
    return api


def _note_slowness() -> None:
    note("tpujob: the backend has not answered for 5 s; waiting")


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


def retrying_client() -> RetryingClient:
    """Return a client of the context's backend that waits for half a minute while the backend is being replaced."""

    def note_retry(message: str) -> None:
        note(f"tpujob: {message}; trying again")

    return RetryingClient(connect(), reconnect, note_retry)
