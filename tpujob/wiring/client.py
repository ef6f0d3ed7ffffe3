"""The command line's adapters: the way in to the context's backend, and what a command does without it.

Every command pays for this module, so that adapters are imported where they are used.
"""

from __future__ import annotations

import shlex
from contextlib import closing
from typing import TYPE_CHECKING

from tpujob.config.settings import Settings
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from pathlib import Path

    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.adapters.http.client import RemoteJobs
    from tpujob.adapters.http.transport import BackendAddress, ProxyClient
    from tpujob.api import CallerView, JobsApi
    from tpujob.config.context import Context
    from tpujob.config.stack_processes import Access


def client(settings: Settings) -> RemoteJobs:
    """The way in for a command: the backend of the context over HTTP; one on this machine is started when it is down.
    Raises BackendGone; Refused when it would have no credentials for the cloud."""
    from tpujob.config import stack_processes

    if (running := running_client(settings)) is not None:
        return running
    up(settings)
    return _remote_here(settings, stack_processes.ensure_backend(settings))


def running_client(settings: Settings) -> RemoteJobs | None:
    """Return the client if the backend runs already; nothing is started."""
    from tpujob.config import stack_processes

    if there := deployed(settings):
        from tpujob.adapters.http.client import RemoteJobs

        way = _way_to(settings, there)
        return RemoteJobs(way.url, uid=way.uid, sign=way.sign)
    here = stack_processes.running_backend(settings)
    return _remote_here(settings, here) if here else None


def page(settings: Settings) -> Access | None:
    """The backend on this machine, if it shows its page there; None: the page of this context comes through a relay.
    Raises BadRequest if its page is switched off; BackendGone."""
    from tpujob.config import stack_processes

    if deployed(settings):
        return None
    found = stack_processes.ensure_backend(settings)
    if found.page or found.shared:
        return found if found.page else None
    why = "it was started without" if settings.page else "TPUJOB_PAGE is off"
    raise BadRequest(
        f"the backend of {settings.context} shows no page: {why}",
        hint="Unset TPUJOB_PAGE; then `tpujob down` and `tpujob up`.",
    )


def behind_iap(settings: Settings) -> str:
    """The URL of a backend behind Identity-Aware Proxy, where a browser signs in by itself; empty: it is not."""
    found = deployed(settings)
    return found.backend.rstrip("/") if found and found.door == "iap" else ""


def page_code(settings: Settings) -> str:
    """A code that opens the page of the backend on this machine in one browser, within a minute."""
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
    here = stack_processes.running_backend(settings)
    if here is None or not (here.page or here.shared):
        return ""
    return here.page + path if here.page and not here.page_needs_code else command


def proxy_client(settings: Settings) -> ProxyClient:
    """Return the client through which the page of a deployed or a shared backend is reached. Raises BackendGone."""
    from tpujob.adapters.http.transport import BackendAddress, ProxyClient

    if there := deployed(settings):
        return ProxyClient(_way_to(settings, there))
    from tpujob.config import stack_processes

    return ProxyClient(BackendAddress(stack_processes.ensure_backend(settings).url))


def up(settings: Settings) -> None:
    """Start everything of the context that runs on this machine. Raises as `client` does; BadRequest when nothing of it
    runs here."""
    from tpujob.config import stack_processes

    _not_elsewhere(settings)
    if not settings.local:
        _check_credentials(settings)
    stack_processes.up(settings)


def make_way(settings: Settings) -> None:
    """Start everything of the context that a backend needs on this machine, and end the backend itself. Raises as `up`
    does; BadRequest when the context's backend serves others already."""
    from tpujob.config import stack_processes

    _not_elsewhere(settings)
    *others, backend = stack_processes.parts(settings)
    here = stack_processes.status(settings, [backend])[0]
    if here.ready and here.ready.get("shared"):
        raise BadRequest(
            f"the backend of {settings.context} serves all users already, at {here.ready['url']}",
            hint=f"end that one first: its pid is {here.pid}",
        )
    if settings.local:
        stack_processes.up(settings, others)
    else:
        _check_credentials(settings)
    stack_processes.down(settings, [backend])


def deployed_at(settings: Settings) -> str:
    """Return the URL of the context's backend; empty: this machine runs it."""
    found = deployed(settings)
    return found.backend if found else ""


def deployed(settings: Settings) -> Context | None:
    """Return the context if it is for a deployed backend. Raises NotFound when it is not there."""
    if settings.local:
        return None
    path = settings.context_file
    if path.exists() and "backend" not in path.read_text(encoding="utf-8", errors="replace"):
        return None  # seen without the parser, which takes longer than most commands
    from tpujob.config import context

    found = context.current(settings)
    return found if found.backend else None


def greet_socket(path: Path) -> tuple[int, CallerView]:
    """Return the uid of the backend at that socket, and who this user is to it. Raises Forbidden for a user who is no
    member; BackendGone if nothing answers, or another user than the folder's owner; and as `owner_of` does."""
    from tpujob.adapters.http.client import RemoteJobs
    from tpujob.config import shared_socket

    uid = shared_socket.owner_of(path)
    return uid, RemoteJobs(f"unix:{path}", uid=uid).whoami()


def open_session(
    settings: Settings, jobs: JobsApi, job: str, *, host: int, command: list[str] | None
) -> int:
    """`tpujob ssh`, from this machine, with a key that is made for this session and gone afterwards. Raises as
    `JobsApi.access` and `open_session` of `adapters/ssh/` do."""
    from tpujob.adapters import ssh

    key = ssh.new_private_key()
    access = jobs.access(job, host=host, key=ssh.public_line(key))
    return ssh.open_session(access, key, command, tunnel=shlex.split(settings.tunnel))


def blobs(settings: Settings, project: str) -> closing[GcsBlobs]:
    """Cloud Storage as a context of that project sees it, from this process."""
    from tpujob.adapters.gcs import GcsBlobs

    return closing(GcsBlobs(project, endpoint=settings.storage_endpoint))


def in_google_cloud() -> bool:
    """Whether this machine is one of Google Compute Engine, as its firmware says."""
    from tpujob.adapters.google import identity

    return identity.in_google_cloud()


def usual_project() -> str:
    """The project that this machine's Google Cloud tools are set to; empty: nothing says."""
    from tpujob.adapters.google import identity

    return identity.usual_project()


def _way_to(settings: Settings, there: Context) -> BackendAddress:
    from tpujob.adapters.http.transport import BackendAddress

    if there.backend.startswith("unix:"):
        return BackendAddress(there.backend, there.backend_uid)
    from tpujob.wiring import sign_in

    return BackendAddress(there.backend, sign=sign_in.headers(settings, there))


def _not_elsewhere(settings: Settings) -> None:
    if found := deployed(settings):
        raise BadRequest(
            f"the backend of {settings.context} is deployed at {found.backend}: it is not started here",
            hint="any command talks to it; `tpujob use local` goes back to this machine",
        )


def _remote_here(settings: Settings, access: Access) -> RemoteJobs:
    """Return the client of the backend on this machine, with its log: it can be started again."""
    from tpujob.adapters.http.client import RemoteJobs

    def look_again() -> str | None:
        from tpujob.config import stack_processes

        found = stack_processes.backend_after(settings, access)
        return found.url if found else None

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
