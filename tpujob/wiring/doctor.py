"""The facts that `tpujob doctor` and `tpujob quota` examine: this machine, the local stack or the context's project.

The checks are in `doctor/`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tpujob.config.settings import Settings
from tpujob.errors import BadRequest, BadSpec, TpujobError
from tpujob.wiring.client import running_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpujob.config.context import Context
    from tpujob.doctor.findings import Finding
    from tpujob.doctor.quota import QuotaOverview
    from tpujob.ports import ProjectQuota


def findings(settings: Settings) -> list[Finding]:
    """Return the results of all checks of the context and of this machine. Nothing is started or changed. Raises
    NotFound or BadSpec if the context is missing or its file is invalid."""
    from tpujob.adapters import this_machine
    from tpujob.adapters.cloud_tpu import Api, CloudTpuCatalog
    from tpujob.adapters.google import project
    from tpujob.doctor import cloud, machine, network

    software = this_machine.software()
    results = [
        machine.check_python(software).named("Python"),
        machine.check_packages(software).named("packages"),
    ]
    if settings.local:
        from tpujob.config import stack_processes

        running = {part.name: part.ready is not None for part in stack_processes.status(settings)}
        results += machine.check_laptop(this_machine.laptop(settings.state, running))
        return [*results, *_wrong_files(settings)]
    from tpujob.config import context

    current = context.current(settings)
    if current.backend:
        answer = machine.check_backend(current.backend, _backend_error(settings))
        results.append(answer.named("backend"))
    if current.project:
        tpu = Api(current.project, endpoint=settings.tpu_endpoint)
        with closing(tpu):
            quota, catalog = _quota(settings, current), CloudTpuCatalog(tpu)
            seen = project.look(current, catalog, quota, endpoint=settings.google_endpoint)
        results += cloud.examine(current, seen)
    if trust := _trust(settings):
        results.append(network.check_host_keys(trust).named("host keys"))
    return results


def _wrong_files(settings: Settings) -> Iterator[Finding]:
    """Yield the mistakes in the files that a backend of the local stack reads at its start, and does not start with."""
    from tpujob.config import notifications, queue
    from tpujob.doctor.findings import fail

    for read in (notifications.of_local_stack, queue.of_local_stack):
        try:
            read(settings)
        except BadSpec as error:
            for line in error.message.splitlines():
                yield fail(line, "the backend does not start until it is corrected").named(
                    "settings"
                )


def quotas(settings: Settings, *, everywhere: bool = False) -> QuotaOverview:
    """Return quota and use in the context's zones, or `everywhere`. Raises BadRequest for a context without a project,
    BackendGone if the emulator is down, else Refused or Transient."""
    from tpujob.doctor.quota import overview

    if settings.local:
        from tpujob.adapters.this_machine import EmulatedQuota
        from tpujob.emulator.client import EmulatorClient

        status = EmulatorClient.from_ready(settings.ready_file("emulator")).status()
        emulated = EmulatedQuota(status)
        return overview("the emulator", emulated, emulated.zones)
    from tpujob.config import context
    from tpujob.domain.hardware import accelerators

    current = context.current(settings)
    if not current.project:
        raise BadRequest(
            f"the context {current.name} does not say which project its backend uses",
            hint=f"write `project:` into {settings.context_file}",
        )
    zones = accelerators.all_zones() if everywhere else current.every_zone
    return overview(current.project, _quota(settings, current), zones, current.grants)


def _quota(settings: Settings, context: Context) -> ProjectQuota:
    from tpujob.adapters.google.quota import GoogleQuota

    endpoints = {"endpoint": settings.google_endpoint, "tpu_endpoint": settings.tpu_endpoint}
    return GoogleQuota(context.project, **endpoints)


def _trust(settings: Settings) -> dict[str, str]:
    """Return by slice why the keys of its hosts are trusted, for slices that this machine has reached."""
    from tpujob.adapters.ssh import FileKeys
    from tpujob.adapters.ssh.keys import trust

    keys = FileKeys(settings.keys)
    reasons = {slice: trust(keys.pinned(slice)) for slice in keys.names()}
    return {slice: why for slice, why in reasons.items() if why}


def _backend_error(settings: Settings) -> TpujobError | None:
    """Return the error of a request to the context's deployed backend; None: it answers."""
    try:
        if backend := running_client(settings):
            backend.whoami()
    except TpujobError as error:
        return error
    return None
