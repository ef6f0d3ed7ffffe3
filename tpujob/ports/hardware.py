"""The cloud's slices and their hosts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tpujob.domain.actions import HostPlan
from tpujob.domain.model import CLOUD_TPU, Slice
from tpujob.domain.observations import SliceSeen

# Slices --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owned:
    """A cloud resource that carries our label."""

    name: str
    zone: str
    job_id: str
    created_at: float
    detail: str = ""
    type: str = ""  #: empty: not known
    pricing: str = ""  #: `spot`, `on-demand` or `reserved`; empty: not known
    tpu_slices: int = 1  #: how many TPU slices it consists of, all of that type
    suspending: bool = False  #: the cloud is taking it down by itself
    provider: str = CLOUD_TPU


@dataclass(frozen=True, slots=True)
class SliceSurvey:
    """What lists show of our slices. A list may lag behind and be incomplete: one that it lacks may exist."""

    seen: Mapping[str, SliceSeen]  #: by name
    missed: Mapping[str, str]  #: zones that could not be listed, or not whole, and why
    calls: int  #: that it took


class Slices(Protocol):
    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        """Return what the cloud reports about it now. Never raises: an error is Unknown."""
        ...

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        """What its lists show of our slices in those zones, by as few calls as it takes. Never raises: a zone that
        could not be listed is missed."""
        ...

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        """Request it; returns when the request is accepted, not when the slice is ready. `user`: the name of whose
        programs it is for, as some have an account of their own. A slice that exists and carries our labels is adopted.
        Raises Transient, or Refused with its cause."""
        ...

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        """Request the deletion of its nodes and queued resource; returns when that is accepted. Absent is success.
        Raises Transient, also while the cloud is suspending it, unless `even_suspending`; Refused, also for a slice of
        that name that is not ours."""
        ...

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        """Everything in those zones that carries our label, whatever its state; a queued resource and its nodes are
        one. A zone that is closed to the project holds nothing. Raises Transient, Refused."""
        ...


# Hosts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishedHost:
    """What a host has published about itself through the cloud, so that we know its keys before the first contact."""

    name: str = ""  #: of its machine; empty: not published
    host_keys: frozenset[tuple[str, str]] = frozenset()  #: type, and key in base64


class Listening(Protocol):
    """An open stream; any thread may close it, which ends it."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """The messages (`protocol/live.py`), as they come. It ends when the agent does. Raises Transient when the
        connection breaks, is silent for long, or nothing can be followed there."""
        ...

    def close(self) -> None:
        """Safe to repeat."""
        ...


class Hosts(Protocol):
    """Only `public_key` makes a slice's key: the others raise NotFound once it was forgotten."""

    def public_key(self, slice: Slice) -> str:
        """The OpenSSH public key of the slice's own key pair, made on the first call. Safe to repeat."""
        ...

    def key(self, purpose: Sequence[str]) -> str:
        """The key for that purpose (`protocol/signing.py`), from a secret that only backends have who share this store
        of keys; made on the first call. Raises Transient, Refused."""
        ...

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        """Bring every host to its plan: all or none. Returns when every agent has accepted; safe to repeat.
        No program is started before every host answers. Raises Transient (naming the hosts that did not answer),
        HostKeyChanged, or Refused with cause SETUP."""
        ...

    def stop(self, slice: Slice, *, grace: float, discard: bool = False, timeout: float) -> None:
        """SIGTERM, up to `grace` seconds, SIGKILL, on every host at once; devices are free afterwards. Safe to repeat.
        `discard`: SIGKILL at once, and nothing more of what the program writes is kept. Raises Transient,
        HostKeyChanged."""
        ...

    def wipe(self, slice: Slice, *, others: bool, timeout: float) -> None:
        """Nothing is left on any host that the next job must not find, once `stop` has returned: files and processes of
        the last attempt and, if the next job is that of `others`, all that its owner has left and every login of a
        person. From then on the hosts refuse programs of the slice's epoch. Safe to repeat. Raises Transient,
        HostKeyChanged, or Refused when something cannot be removed."""
        ...

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        """The hosts that carried out a command over SSH within `timeout`, all asked at once. Never raises."""
        ...

    def abandoned(
        self, slice: Slice, hosts: Collection[int], *, job: str, attempt: int, timeout: float
    ) -> frozenset[int]:
        """Those of the hosts that know that their agent of that attempt runs no more, and has recorded no end. Never
        raises."""
        ...

    def listen(
        self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float
    ) -> Listening:
        """Return the live messages of the agent on that host about a running attempt. Connects within `timeout`. Raises
        Transient, Refused, HostKeyChanged."""
        ...

    def forget(self, slice: Slice) -> None:
        """Remove the slice's keys and pinned host keys, and close its connections. Safe to repeat."""
        ...

    def kept(self) -> list[str]:
        """Names of the slices that have keys. Raises Transient."""
        ...
