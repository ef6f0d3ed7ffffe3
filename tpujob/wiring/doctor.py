"""What `tpujob doctor` and `tpujob quota` look at: this machine, the local stack or the context's project.

The checks are in `doctor/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.config.settings import Settings
from tpujob.errors import BadRequest, TpujobError
from tpujob.wiring.client import running_client

if TYPE_CHECKING:
    from tpujob.doctor.findings import Finding
    from tpujob.doctor.quota import QuotaOverview


def findings(settings: Settings) -> list[Finding]:
    """Whether the context is fit for running jobs, and this machine for its part in it. Nothing is started or changed.
    Raises NotFound or BadSpec when there is no such context or something is wrong with its file."""
    from tpujob.adapters import this_machine
    from tpujob.adapters.google import project
    from tpujob.doctor import cloud, machine, network

    software = this_machine.software()
    found = [
        machine.check_python(software).named("Python"),
        machine.check_packages(software).named("packages"),
    ]
    if settings.local:
        from tpujob.config import stack_processes

        running = {part.name: part.ready is not None for part in stack_processes.status(settings)}
        return found + machine.check_laptop(this_machine.laptop(settings.state, running))
    from tpujob.config import context

    here = context.current(settings)
    if here.backend:
        answer = machine.check_backend(here.backend, _trouble_with(settings))
        found.append(answer.named("backend"))
    if here.project:
        endpoints = {"endpoint": settings.google_endpoint, "tpu_endpoint": settings.tpu_endpoint}
        found += cloud.examine(here, project.look(here, **endpoints))
    if trust := _trust(settings):
        found.append(network.check_host_keys(trust).named("host keys"))
    return found


def quotas(settings: Settings, *, everywhere: bool = False) -> QuotaOverview:
    """What may be held where, and what is; in the context's zones, or `everywhere`. Raises BadRequest for a context
    without a project, BackendGone when the emulator is down, else Refused or Transient."""
    if settings.local:
        from tpujob.adapters import this_machine
        from tpujob.emulator.client import EmulatorClient

        status = EmulatorClient.from_ready(settings.ready_file("emulator")).status()
        return this_machine.emulated_quotas(status)
    from tpujob.adapters.google import quota
    from tpujob.config import context

    here = context.current(settings)
    if not here.project:
        raise BadRequest(
            f"the context {here.name} does not say which project its backend uses",
            hint=f"write `project:` into {settings.context_file}",
        )
    return quota.overview(
        here,
        everywhere=everywhere,
        endpoint=settings.google_endpoint,
        tpu_endpoint=settings.tpu_endpoint,
    )


def _trust(settings: Settings) -> dict[str, str]:
    """Return, by slice that was reached from this machine, why the keys of its hosts are trusted."""
    from tpujob.adapters.ssh import FileKeys
    from tpujob.adapters.ssh.keys import trust

    keys = FileKeys(settings.keys)
    found = {slice: trust(keys.pinned(slice)) for slice in keys.names()}
    return {slice: why for slice, why in found.items() if why}


def _trouble_with(settings: Settings) -> TpujobError | None:
    """Return the error of a request to the context's deployed backend; None: it answers."""
    try:
        if there := running_client(settings):
            there.whoami()
    except TpujobError as error:
        return error
    return None
