"""The commands about tpujob itself: its local stack, the schema of job files, its version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob.cli.backend import current_settings, runs_here
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json, screen
from tpujob.cli.render.listing import stack_page


def up(as_json: Json = False) -> int:
    """Start the local stack, or the backend of the context.

    The local stack is the emulator, its hosts and the backend."""
    from tpujob.wiring import client

    client.up(current_settings())
    return status(as_json)


def down() -> int:
    """Stop the local stack, or the backend of the context.

    Jobs in the cloud go on, but nothing looks after them until `tpujob up`."""
    from tpujob.config import stack

    now = current_settings()
    ended = stack.down(now)
    say(f"Stopped: {', '.join(ended)}." if ended else f"Nothing to stop: {runs_here(now)} is down.")
    return 0


def status(as_json: Json = False) -> int:
    """Show the processes of tpujob on this machine."""
    from tpujob.config import stack
    from tpujob.wiring import client

    now = current_settings()
    if url := client.deployed_at(now):
        found = [{"name": "backend", "running": None, "pid": None, "url": url, "log": ""}]
        say_json(found) if as_json else say(f"{now.context}: the backend is deployed at {url}")
        return 0
    found = [
        {
            "name": process.name,
            "running": process.ready is not None,
            "pid": process.pid,
            "url": _address(process.ready),
            "log": str(process.log),
        }
        for process in stack.status(now)
    ]
    if as_json:
        say_json(found)
        return 0
    on = screen()
    if not now.local:
        say(f"Context {now.context}:")
    say(stack_page(found, on.columns, color=on.color))
    return 0


def _address(ready: Mapping[str, Any] | None) -> str:
    """Where it listens: in its ready file `url` for the backend, `control` for the others."""
    return str(ready.get("url") or ready.get("control") or "") if ready else ""


def schema() -> int:
    """Print the JSON schema of a job file, for editors."""
    from tpujob.domain.spec import jobspec

    say_json(jobspec.schema())
    return 0


def version(as_json: Json = False) -> int:
    """Print the version."""
    from tpujob import __version__

    say_json({"version": __version__}) if as_json else say(f"tpujob {__version__}")
    return 0
