"""The cloud's slices and their hosts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Slice
from tpujob.domain.observations import SliceSeen

# Slices --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owned:
    """A cloud resource with tpujob's label."""

    name: str
    zone: str
    job_id: str
    created_at: float
    provider: str
    detail: str = ""
    type: str = ""  #: empty: unknown
    pricing: str = ""  #: a name in `PRICINGS`; empty: unknown
    tpu_slices: int = 1  #: number of its TPU slices, all of that type
    suspending: bool = False  #: the cloud is suspending it


@dataclass(frozen=True, slots=True)
class SliceSurvey:
    """The slices in the cloud's lists. A list may lag behind, so a slice that it lacks may exist."""

    seen: Mapping[str, SliceSeen]  #: by name
    missed: Mapping[str, str]  #: zones that could not be listed completely, with the reason
    calls: int  #: number of calls


class Slices(Protocol):
    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        """Return the slice's state in the cloud. Never raise: an error is Unknown."""
        ...

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        """Return the slices in the lists of these zones. Never raise: zones that cannot be listed are `missed`."""
        ...

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        """Request the slice; return when the request is accepted, not when the slice is ready. Adopt an existing slice
        with tpujob's labels. `user`: the user of the programs, as some users have service accounts. Raise Transient, or
        Refused with its cause."""
        ...

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        """Request the deletion of the slice's nodes and queued resource; return when the request is accepted. Absent is
        success. Raise Transient, also while the cloud suspends the slice, unless `even_suspending`. Raise Refused, also
        for a slice of that name without tpujob's label."""
        ...

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        """Return all resources with tpujob's label in these zones, in any state; a queued resource and its nodes count
        as one. A zone that is closed to the project has none. Raise Transient, Refused."""
        ...


# Hosts ---------------------------------------------------------------------------------------------------------------


class Listening(Protocol):
    """An open stream of messages, which any thread may close."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yield messages (`protocol/live.py`) as they arrive, until the agent ends. Raise Transient if the connection
        breaks, is silent for long, or offers no messages."""
        ...

    def close(self) -> None:
        """End the stream. Safe to repeat."""
        ...


class Hosts(Protocol):
    """Access to hosts over SSH. Only `public_key` makes a slice's key; without a key, `start`, `stop`, `wipe` and
    `listen` raise NotFound."""

    def public_key(self, slice: Slice) -> str:
        """Return the OpenSSH public key of the slice's own key pair, made on the first call. Safe to repeat."""
        ...

    def key(self, purpose: Sequence[str]) -> str:
        """Return the key for a purpose (`protocol/signing.py`), derived from a secret that only the backends of this
        store of keys share. The first call makes the secret. Raise Transient, Refused."""
        ...

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        """Start the plans on all hosts or on none; return when every agent has accepted. Safe to repeat. No program
        starts before every host answers. Raise Transient (with the hosts that did not answer), HostKeyChanged, or
        Refused with cause SETUP."""
        ...

    def stop(self, slice: Slice, *, grace: float, discard: bool = False, timeout: float) -> None:
        """Stop the program on all hosts at once: SIGTERM, then SIGKILL after `grace` seconds. The devices are free
        afterwards. Safe to repeat. `discard`: SIGKILL at once, and keep no further output. Raise Transient,
        HostKeyChanged."""
        ...

    def wipe(self, slice: Slice, *, others: bool, timeout: float) -> None:
        """Remove the files and processes of the last attempt from all hosts, after `stop`, for the next job. `others`:
        the next job has another owner, so remove all data of the present owner and every login of a person, too. Then
        the hosts refuse programs of the slice's epoch. Safe to repeat. Raise Transient, HostKeyChanged, or Refused."""
        ...

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        """Return the hosts that run a command over SSH within `timeout`, all at the same time. Never raise."""
        ...

    def without_agent(
        self, slice: Slice, hosts: Collection[int], *, job: str, attempt: int, timeout: float
    ) -> frozenset[int]:
        """Return the hosts whose agent of that attempt has died without recording the attempt's end. Never raise."""
        ...

    def listen(
        self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float
    ) -> Listening:
        """Connect to the live messages of a host's agent about an attempt. Raise Transient, Refused, HostKeyChanged."""
        ...

    def forget(self, slice: Slice) -> None:
        """Remove the slice's keys and pinned host keys, and close its connections. Safe to repeat."""
        ...

    def kept(self) -> list[str]:
        """Return the names of the slices that have keys. Raise Transient."""
        ...
