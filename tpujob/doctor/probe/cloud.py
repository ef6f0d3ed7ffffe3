"""The port through which probes look at a project and at the one host of their slice. `adapters/probed.py` is Google's.

A refusal is an answer here, not an error: probes are about how the cloud refuses, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Slice
from tpujob.domain.observations import SliceSeen
from tpujob.ports import Owned

#: what a refusal is read as, where it is no cause
ZONE_CLOSED, SERVICE_OFF, TRANSIENT = "zone closed", "service off", "transient"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call came to, in the service's own words."""

    doing: str  #: the method, and upon what
    code: str  #: `OK`, or the name of a gRPC status, or `HTTP 403`
    message: str = ""  #: of a refusal
    body: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  #: as JSON, without empty fields
    read_as: str = ""  #: what tpujob takes a refusal for: a cause, or one of the words above
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.code == "OK"

    @property
    def said(self) -> str:
        """In one sentence."""
        return "OK" if self.ok else f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True)
class Contact:
    """How the host was met over SSH."""

    published: bool  #: it showed a host key that the cloud had published
    key_type: str


class ProbedCloud(Protocol):
    """Each call answers within `timeout` seconds. Only those that say so raise."""

    def call(
        self, method: str, request: Mapping[str, Any], *, timeout: float, version: str = "v2"
    ) -> Answer:
        """One request of the Cloud TPU API, as it is given."""
        ...

    def parent(self, zone: str) -> str:
        """The prefix of the names of a zone's resources; of `-`: of every zone's."""
        ...

    def rest(
        self, host: str, path: str, body: Mapping[str, Any] | None, *, timeout: float, **params: str
    ) -> Answer:
        """One question to another API of Google: a POST if there is a `body`."""
        ...

    def quota_kinds(self, names: Sequence[str]) -> Mapping[str, str]:
        """The generation that tpujob reads from the name of each quota; empty: none."""
        ...

    def create(self, slice: Slice, *, timeout: float) -> Answer:
        """Ask for the slice as the backend would, with the marks of a probe."""
        ...

    def delete(self, slice: Slice, *, timeout: float) -> Answer:
        """Delete it as the backend would. Absent is OK."""
        ...

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        """As the backend sees it."""
        ...

    def owned(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        """Everything there that carries this context's marks. Raises Transient, Refused."""
        ...

    def meet(self, slice: Slice, *, timeout: float) -> Contact:
        """Log in once. Raises Transient, Refused, HostKeyChanged."""
        ...

    def on_host(self, slice: Slice, part: str, about: Mapping[str, Any], *, timeout: float) -> Any:
        """What that part of `on_host.py` prints on the host, as JSON. Raises Transient, Refused."""
        ...

    def start(self, slice: Slice, plan: HostPlan, *, timeout: float) -> None:
        """Start the agent on the host. Raises Transient, Refused, HostKeyChanged."""
        ...

    def make_bucket(self, workdir: str, zone: str, *, timeout: float) -> None:
        """Afterwards its bucket is there, if this context makes buckets. Raises Transient, Refused."""
        ...

    def clear(self, workdir: str, *, timeout: float) -> int:
        """Remove every object below; how many there were. Raises Transient, Refused."""
        ...

    def forget(self, slice: Slice) -> None:
        """Remove the slice's key."""
        ...
