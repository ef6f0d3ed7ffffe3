"""How users reach the hosts of a job, and why they can trust them."""

from collections.abc import Callable
from dataclasses import dataclass

from tpujob.api import HostAccess
from tpujob.domain.access import Principal
from tpujob.domain.model import Job, Slice, State
from tpujob.errors import BadRequest, IllegalInState, NotFound
from tpujob.service.logs import hosts_up_to


@dataclass(frozen=True, slots=True)
class HostReach:
    """The settings for reaching and trusting hosts, beyond the port `Hosts`."""

    access: Callable[[Slice, int, str, str], HostAccess]  #: lets the holder of a public key in
    trust: Callable[[Slice], str] = lambda _: ""  #: why the keys of a slice's hosts are trusted

    def log_in(self, job: Job, host: int, key: str, caller: Principal) -> HostAccess:
        """Let the holder of a public key in at a host of the job; see `JobsApi.access`."""
        if job.spec.is_group:
            raise BadRequest(
                f"job {job.id} is a group: each of its jobs has hosts",
                hint=f"tpujob ssh {job.name}-0",
            )
        serving = job.slice
        if serving is None or not serving.endpoints or job.state is State.RELEASING:
            raise IllegalInState(
                f"job {job.id} is {job.state}: it has no host that can be reached",
                hint=f"`tpujob why {job.id}` says why; `tpujob logs {job.id}` has its output.",
            )
        if not 0 <= host < len(serving.endpoints):
            had = hosts_up_to(len(serving.endpoints))
            raise NotFound(f"job {job.id} has {had}, no host {host}")
        return self.access(serving, host, key, f"{caller.name} for job {job.id}")
