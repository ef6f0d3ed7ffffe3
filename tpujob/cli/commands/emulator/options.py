"""What the commands of `tpujob emulator` share: arguments, and the client of the emulator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tpujob.emulator.client import EmulatorClient

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """Seconds of `45`, `30s`, `10m`, `1.5h`, `2d`. Raises typer.BadParameter."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write it as 30s, 10m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def lasting(help: str, *names: str) -> Any:
    """An option whose value is a time, such as 30s, in seconds."""
    return typer.Option(*names, parser=duration, metavar="DURATION", show_default=False, help=help)


Lasts = Annotated[float | None, lasting("Default: until --off.", "--for")]


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

    return EmulatorClient.from_ready(local_stack().emulator_ready)


def shell_variables(project: str) -> dict[str, str]:
    """What a terminal exports to reach the emulator of the local stack, which is started when it is down. `project`:
    gcloud's; empty: the context's."""
    from tpujob.cli.backend import current_settings, local_stack
    from tpujob.config import context, stack
    from tpujob.emulator.client import shell_variables

    here, now = local_stack(), current_settings()
    if not project:
        project = here.project if now.local else context.current(now).project or here.project
    ready = {part.name: part.ready or {} for part in stack.status(here)}
    return shell_variables(
        ready["emulator"], ready["farm"], project=project, gcloud=here.state / "gcloud"
    )
