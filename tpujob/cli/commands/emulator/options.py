"""The target of a fault, the emulator's client, and the emulator's environment. Shared by the commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpujob.emulator.client import EmulatorClient


def slice_or_id(target: str) -> str:
    """Return the slice or job id to send to the emulator. The backend resolves a job's name. Raises NotFound."""
    if not target or target.isdigit() or re.fullmatch(r"tj-\d+-\d+(-[-a-z0-9]+)?", target):
        return target
    slices = client().status()["slices"]  # an emulator that has run for long may lack newer fields
    if any(target in (held["name"], held.get("request")) for held in slices):
        return target
    from tpujob.cli.backend import connect

    return connect().get(target)["id"]


def client() -> EmulatorClient:
    """Return the client of the local stack's emulator; start the stack if it is down."""
    from tpujob.cli.backend import local_stack
    from tpujob.emulator.client import EmulatorClient

    return EmulatorClient.from_ready(local_stack().ready_file("emulator"))


def shell_variables(project: str) -> dict[str, str]:
    """Return the variables with which a terminal reaches the local stack's emulator; start the stack if it is down.
    `project`: gcloud's; empty: the context's."""
    from tpujob.cli.backend import current_settings, local_stack
    from tpujob.config import context, stack_processes
    from tpujob.emulator.client import shell_variables

    local = local_stack()
    settings = current_settings()
    if not project and not settings.local:
        project = context.current(settings).project
    project = project or local.project
    ready = {process.name: process.ready or {} for process in stack_processes.status(local)}
    gcloud = local.state / "gcloud"
    return shell_variables(ready["emulator"], ready["farm"], project=project, gcloud=gcloud)
