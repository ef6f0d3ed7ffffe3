"""The commands about tpujob itself: its processes on this machine, the schema of job files, its version."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import current_settings, name_of_stack
from tpujob.cli.options import Json, option
from tpujob.cli.output import get_screen, note, say, say_json
from tpujob.cli.render.listing import health_lines, stack_page
from tpujob.errors import BadRequest, TpujobError

if TYPE_CHECKING:
    from tpujob.api import HealthView
    from tpujob.config.settings import Settings
    from tpujob.config.stack_processes import Status


def up(
    replace_store: Annotated[
        str,
        option(
            "ID",
            "Give up the lost store with this id: its jobs lose their history, its slices are deleted.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Start the local stack, or the backend of the context.

    The local stack is the emulator, its hosts and the backend."""
    from dataclasses import replace

    from tpujob.wiring import client

    settings = current_settings()
    client.up(replace(settings, replace_store=replace_store or settings.replace_store))
    status(as_json)


def down() -> None:
    """Stop the local stack, or the backend of the context.

    Jobs in the cloud continue, without recovery until `tpujob up`."""
    from tpujob.config import stack_processes
    from tpujob.wiring import client

    settings = current_settings()
    if ended := stack_processes.down(settings):  # also where the file of the context is gone
        say(f"Stopped: {', '.join(ended)}.")
    elif url := client.deployed_at(settings):
        raise BadRequest(
            f"the backend of {settings.context} is at {url}: it is not stopped here",
            hint="`tpujob use local`, then `tpujob down`, stops the local stack",
        )
    else:
        say(f"Nothing to stop: {name_of_stack(settings)} is down.")


def serve(
    context: Annotated[str, option("NAME", "Default: the current context.")] = "",
    socket: Annotated[
        str,
        option(
            "PATH", "Default: $TPUJOB_SOCKET, or /run/tpujob/backend.sock if its folder is yours."
        ),
    ] = "",
    members: Annotated[Path | None, option("FILE", "Members: one `LOGIN: ROLE` a line.")] = None,
) -> None:
    """Run one backend for all users of this machine, until Ctrl-C.

    You are admin; `tpujob members` gives roles to others. They run `tpujob use PATH` once.
    """
    from tpujob.config import shared_socket, stack_processes
    from tpujob.config.context import read as read_context
    from tpujob.config.members import read
    from tpujob.config.settings import for_processes, load, prepare
    from tpujob.wiring import client

    settings = load(context=context)
    if not settings.local:
        read_context(settings, settings.context)  # its absence is reported before anything else
    path = shared_socket.where(socket or settings.socket)
    if settings.local:
        note(
            "warning: programs of all members run as you on this machine; nothing keeps them apart"
        )
    if members is not None:
        read(members)  # mistakes are reported before the running backend is stopped
    shared_socket.make_folder(path)
    client.make_way(settings)
    words = [*stack_processes.parts(settings)[-1].command, "--socket", str(path)]
    words += ["--members", str(members.absolute())] if members else []
    note(f"tpujob: others use this backend with: tpujob use {path}")
    prepare(settings)
    stack_processes.note(settings.process_file("backend"), os.getpid())
    os.execve(words[0], words, for_processes())  # noqa: S606, in the foreground and under this pid


def status(as_json: Json = False) -> None:
    """Show the processes of tpujob on this machine."""
    from tpujob.config import stack_processes
    from tpujob.wiring import client

    settings = current_settings()
    health = _health(settings)
    processes: list[dict[str, Any]]
    if url := client.deployed_at(settings):
        backend = {"name": "backend", "running": None, "pid": None, "url": url}
        processes = [{**backend, "page": "", "log": ""}]
        text = f"{settings.context}: the backend is deployed at {url}"
    else:
        processes = [_process_record(process) for process in stack_processes.status(settings)]
        screen = get_screen()
        text = "" if settings.local else f"Context {settings.context}:\n"
        text += stack_page(processes, screen.columns, color=screen.color)
    if as_json:
        for process in processes:
            if process["name"] == "backend":
                process["health"] = health
        say_json(processes)
        return
    lines = [text, "", *health_lines(health, time.time())]
    if page := client.way_to_page(settings):
        lines.append(f"Page: {page}")
    say("\n".join(lines).rstrip())


def _health(settings: Settings) -> HealthView | dict[str, str] | None:
    """Return the backend's report about itself, or why there is none; None: the backend does not run."""
    from tpujob.wiring import client

    try:
        api = client.running_client(settings)
        return api.health() if api else None
    except TpujobError as error:
        return {"error": error.message, "hint": error.hint}


def _process_record(process: Status) -> dict[str, Any]:
    ready = process.ready or {}
    return {
        "name": process.name,
        "running": process.ready is not None,
        "pid": process.pid,
        "url": str(ready.get("url") or ready.get("control") or ""),  # the backend has the first
        "page": str(ready.get("page", "")),
        "log": str(process.log),
    }


def schema() -> None:
    """Print the JSON schema of a job file, for editors."""
    from tpujob.domain.spec import jobspec

    say_json(jobspec.schema())


def version(as_json: Json = False) -> None:
    """Print the version."""
    from tpujob.version import __version__

    say_json({"version": __version__}) if as_json else say(f"tpujob {__version__}")
