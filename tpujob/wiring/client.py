"""The command line's adapters: the client of the context's backend, and commands that need no backend.

Every command imports this module, so adapters are imported where they are used.
"""

from __future__ import annotations

import shlex
from contextlib import closing
from typing import TYPE_CHECKING

from tpujob.config.settings import Settings
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.http.client import RemoteJobs
    from tpujob.adapters.http.transport import BackendAddress, ProxyClient
    from tpujob.adapters.ssh import HostCommand
    from tpujob.api import CallerView, JobsApi
    from tpujob.config.context import Context
    from tpujob.config.stack_processes import Access


def client(settings: Settings) -> RemoteJobs:
    """Return the HTTP client of the context's backend; start a backend on this machine if it is down. Raises
    BackendGone; Refused if the backend would have no credentials for the cloud."""
    from tpujob.config import stack_processes

    if (running := running_client(settings)) is not None:
        return running
    up(settings)
    return _local_client(settings, stack_processes.ensure_backend(settings))


def running_client(settings: Settings) -> RemoteJobs | None:
    """Return the client if the backend runs already; nothing is started."""
    from tpujob.config import stack_processes

    if context := deployed(settings):
        from tpujob.adapters.http.client import RemoteJobs

        way = _backend_address(settings, context)
        return RemoteJobs(way.url, uid=way.uid, sign=way.sign)
    access = stack_processes.running_backend(settings)
    return _local_client(settings, access) if access else None


def page(settings: Settings) -> Access | None:
    """Return the backend on this machine if it shows its page at a port; None if the page needs a proxy. Raises
    BadRequest if the page is switched off; BackendGone."""
    from tpujob.config import stack_processes

    if deployed(settings):
        return None
    access = stack_processes.ensure_backend(settings)
    if access.page or access.shared:
        return access if access.page else None
    why = "it was started without" if settings.page else "TPUJOB_PAGE is off"
    raise BadRequest(
        f"the backend of {settings.context} shows no page: {why}",
        hint="Unset TPUJOB_PAGE; then `tpujob down` and `tpujob up`.",
    )


def behind_iap(settings: Settings) -> str:
    """Return the URL of a backend behind Identity-Aware Proxy, where a browser signs in by itself; else empty."""
    context = deployed(settings)
    return context.backend.rstrip("/") if context and context.door == "iap" else ""


def page_code(settings: Settings) -> str:
    """Return a code that opens the page of the backend on this machine in one browser, within a minute."""
    return client(settings).page_code()


def way_to_page(settings: Settings, job: str = "") -> str:
    """Return the address of the page, or of a job's, in a browser on this machine, or the command that opens it; empty:
    there is no page. Sends no request."""
    from tpujob.config import stack_processes

    path = f"/jobs/{job}" if job else "/"
    if url := behind_iap(settings):
        return url + path
    command = f"tpujob open {job}".rstrip()
    if deployed(settings):
        return command
    access = stack_processes.running_backend(settings)
    if access is None or not (access.page or access.shared):
        return ""
    return access.page + path if access.page and not access.page_needs_code else command


def proxy_client(settings: Settings) -> ProxyClient:
    """Return the client through which the page of a deployed or a shared backend is reached. Raises BackendGone."""
    from tpujob.adapters.http.transport import BackendAddress, ProxyClient

    if context := deployed(settings):
        return ProxyClient(_backend_address(settings, context))
    from tpujob.config import stack_processes

    return ProxyClient(BackendAddress(stack_processes.ensure_backend(settings).url))


def up(settings: Settings) -> None:
    """Start all processes of the context on this machine. Raises as `client` does; BadRequest for a deployed
    backend."""
    from tpujob.config import stack_processes

    _check_not_deployed(settings)
    if not settings.local:
        _check_credentials(settings)
    stack_processes.up(settings)


def make_way(settings: Settings) -> None:
    """Start the processes that a backend needs on this machine, and stop the backend itself. Raises as `up` does;
    BadRequest if the context's backend already serves all users."""
    from tpujob.config import stack_processes

    _check_not_deployed(settings)
    *others, backend = stack_processes.parts(settings)
    if not stack_processes.claim_service(settings):
        status = stack_processes.status(settings, [backend])[0]
        up = status.ready if status.ready and status.ready.get("shared") else None
        where = f"at {up['url']}" if up else "and is starting"
        raise BadRequest(
            f"the backend of {settings.context} serves all users already, {where}",
            hint=f"end that one first: its pid is {status.pid}" if up else "",
        )
    if settings.local:
        stack_processes.up(settings, others)
    else:
        _check_credentials(settings)
    stack_processes.down(settings, [backend])


def deployed_at(settings: Settings) -> str:
    """Return the URL of the context's backend; empty: this machine runs it."""
    context = deployed(settings)
    return context.backend if context else ""


def deployed(settings: Settings) -> Context | None:
    """Return the context if it names a backend, deployed or shared; else None. Raises NotFound if its file is
    missing."""
    if settings.local:
        return None
    path = settings.context_file
    if path.exists() and "backend" not in path.read_text(encoding="utf-8", errors="replace"):
        return None  # without the parser, which takes longer than most commands
    from tpujob.config import context

    current = context.current(settings)
    return current if current.backend else None


def greet_socket(path: Path) -> tuple[int, CallerView]:
    """Return the uid of the backend at that socket, and who this user is to it. Raises Forbidden for a user who is no
    member; BackendGone if nothing answers, or another user than the folder's owner; and as `owner_of` does."""
    from tpujob.adapters.http.client import RemoteJobs
    from tpujob.config import shared_socket

    uid = shared_socket.owner_of(path)
    return uid, RemoteJobs(f"unix:{path}", uid=uid).whoami()


def open_session(
    settings: Settings,
    jobs: JobsApi,
    job: str,
    *,
    host: int,
    command: list[str] | None,
    forwards: Sequence[str] = (),
) -> int:
    """Run `tpujob ssh` from this machine with a key for this session alone; return the exit code. Raises as
    `JobsApi.access` and `open_session` of `adapters/ssh/` do."""
    from tpujob.adapters import ssh

    key = ssh.new_private_key()
    access = jobs.access(job, host=host, key=ssh.public_line(key))
    tunnel = shlex.split(settings.tunnel)
    return ssh.open_session(access, key, command, tunnel=tunnel, forwards=forwards)


def host_commands(
    settings: Settings, jobs: JobsApi, job: str, command: Sequence[str]
) -> Callable[[int], HostCommand]:
    """Return a function that starts the command on a host of the job, with one key for all hosts. It raises as
    `JobsApi.access` and `open_session` of `adapters/ssh/` do."""
    from tpujob.adapters import ssh

    key, tunnel = ssh.new_private_key(), shlex.split(settings.tunnel)
    public = ssh.public_line(key)

    def start(host: int) -> HostCommand:
        return ssh.HostCommand(jobs.access(job, host=host, key=public), key, command, tunnel)

    return start


def forward_ports(
    settings: Settings,
    jobs: JobsApi,
    job: str,
    host: int,
    forwards: Sequence[str],
    *,
    connected: Callable[[], None],
    refused: Callable[[str], None],
) -> None:
    """Run `tpujob forward` until the process is interrupted. Raises as `JobsApi.access` and `forward_ports` of
    `adapters/ssh/` do."""
    from tpujob.adapters import ssh

    key = ssh.new_private_key()
    access = jobs.access(job, host=host, key=ssh.public_line(key))
    tunnel = shlex.split(settings.tunnel)
    ssh.forward_ports(access, key, forwards, connected=connected, refused=refused, tunnel=tunnel)


def blobs(settings: Settings, project: str) -> closing[GcsBlobs]:
    """Return the Cloud Storage adapter for that project, in this process."""
    from tpujob.adapters.gcs import GcsBlobs

    return closing(GcsBlobs(project, endpoint=settings.storage_endpoint))


def in_google_cloud() -> bool:
    """Return whether this machine is a VM of Google Compute Engine, by its firmware."""
    from tpujob.adapters.google import identity

    return identity.in_google_cloud()


def usual_project() -> str:
    """Return the default project of this machine's Google Cloud tools; empty if none is set."""
    from tpujob.adapters.google import identity

    return identity.usual_project()


def _backend_address(settings: Settings, context: Context) -> BackendAddress:
    from tpujob.adapters.http.transport import BackendAddress

    if context.backend.startswith("unix:"):
        return BackendAddress(context.backend, context.backend_uid)
    from tpujob.wiring import sign_in

    return BackendAddress(context.backend, sign=sign_in.headers(settings, context))


def _check_not_deployed(settings: Settings) -> None:
    if context := deployed(settings):
        raise BadRequest(
            f"the backend of {settings.context} is deployed at {context.backend}: it is not started here",
            hint="any command talks to it; `tpujob use local` goes back to this machine",
        )


def _local_client(settings: Settings, access: Access) -> RemoteJobs:
    """Return the client of the backend on this machine, which restarts a backend that has ended."""
    from tpujob.adapters.http.client import RemoteJobs

    def look_again() -> str | None:
        from tpujob.config import stack_processes

        restarted = stack_processes.backend_after(settings, access)
        return restarted.url if restarted else None

    return RemoteJobs(access.url, log=str(settings.log_file("backend")), find_again=look_again)


def _check_credentials(settings: Settings) -> None:
    """Raises Refused when the context's backend would have nothing to show to Google Cloud. No call is made of it."""
    from tpujob.config import context

    in_firestore = context.current(settings).store == "firestore"
    emulated = settings.tpu_endpoint and settings.storage_endpoint
    if emulated and (settings.firestore_emulator or not in_firestore):
        return
    from tpujob.adapters.google import identity

    identity.default(f"the context {settings.context}")
