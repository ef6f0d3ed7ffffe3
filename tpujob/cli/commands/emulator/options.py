"""What the commands of `tpujob emulator` share: how a slice is named, and the client of the emulator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpujob.emulator.client import EmulatorClient


def slice_or_id(target: str) -> str:
    """A slice or a job id, which the emulator knows; a slice may be anybody's. The backend resolves any other name, of
    a job. Raises NotFound."""
    if not target or target.isdigit() or re.fullmatch(r"tj-\d+-\d+(-[-a-z0-9]+)?", target):
        return target
    if any(target in (one["name"], one["request"]) for one in client().status()["slices"]):
        return target
    from tpujob.cli.backend import connect

    return connect().get(target)["id"]


def client() -> EmulatorClient:
    """The emulator of the local stack, which is started when it is down."""
    from tpujob.cli.backend import local_stack
    from tpujob.emulator.client import EmulatorClient

    return EmulatorClient.from_ready(local_stack().ready_file("emulator"))


def shell_variables(project: str) -> dict[str, str]:
    """What a terminal exports to reach the emulator of the local stack, which is started when it is down. `project`:
    gcloud's; empty: the context's."""
    from tpujob.cli.backend import current_settings, local_stack
    from tpujob.config import context, stack_processes
    from tpujob.emulator.client import shell_variables

    here, now = local_stack(), current_settings()
    if not project:
        project = here.project if now.local else context.current(now).project or here.project
    ready = {part.name: part.ready or {} for part in stack_processes.status(here)}
    return shell_variables(
        ready["emulator"], ready["farm"], project=project, gcloud=here.state / "gcloud"
    )
