"""`tpujob serve`: one backend for all users of a machine, such as the login node of a lab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tpujob.cli.output import note


def serve(
    context: Annotated[
        str, typer.Option(metavar="NAME", help="Where jobs run; default: the current context.")
    ] = "",
    socket: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Default: $TPUJOB_SOCKET, or /run/tpujob/backend.sock if its folder is yours.",
        ),
    ] = "",
    members: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Who may use it: `LOGIN: ROLE` in each line, and nobody else."
        ),
    ] = None,
) -> int:
    """Run one backend for all users of this machine, until Ctrl-C.

    The kernel says who connects: you are admin, others are what `tpujob members` says. They run `tpujob use PATH` once.
    """
    from tpujob.config import settings, shared_socket, stack
    from tpujob.wiring import client

    now = settings.load(context=context)
    path = shared_socket.where(socket or now.socket)
    if now.local:
        note(
            "warning: programs of all members run as you on this machine; nothing keeps them apart"
        )
    client.make_way(now)
    words = [*stack.parts(now)[-1].command, "--socket", str(path)]
    words += ["--members", str(members.absolute())] if members else []
    note(f"tpujob: others use this backend with: tpujob use {path}")
    os.execve(words[0], words, settings.for_processes())  # noqa: S606, in the foreground and under this pid
