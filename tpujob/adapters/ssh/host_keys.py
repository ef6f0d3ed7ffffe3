"""Which host key is trusted: the pinned one, else one that the cloud publishes, else, where no host of the slice has
published any, the first one seen."""

import threading
from collections.abc import Sequence

from tpujob.adapters.ssh.keys import HostKey, Pins, changed
from tpujob.errors import HostKeyChanged, TpujobError, Transient
from tpujob.ports import PublishedHost


class Unpublished(Transient):
    """The host has not published the key that it shows, and others of its slice have published theirs."""


class HostKeys:
    """The host keys of one slice during one call. Threads may share it.

    Any host of the slice may show any published key, as nothing documents that the cloud's list is in the order of the
    hosts. The key that a host has shown is then pinned to that host alone."""

    def __init__(
        self,
        pinned: Pins,
        guests: Sequence[PublishedHost] = (),
        *,
        hosts: int,
    ) -> None:
        """`hosts`: how many the slice has. If any of them has published a key, all must: no other key is trusted."""
        self._pinned = dict(pinned)
        self._published = {key for guest in guests for key in guest.host_keys}
        self._silent = hosts - sum(bool(guest.host_keys) for guest in guests)
        self._met: dict[str, HostKey] = {}
        self._lock = threading.Lock()

    def check(self, label: str, key: tuple[str, str]) -> None:
        """Return if this key is trusted. Raises HostKeyChanged; Unpublished while it may still be published."""
        with self._lock:
            known = self._pinned.get(label)
            if known is not None and not known.is_of(key):
                raise changed(label)
            if known is not None:
                return
            published = key in self._published
            if self._published and not published:
                raise self._unknown(label)
            self._pinned[label] = self._met[label] = HostKey(*key, published)

    def take_met(self) -> dict[str, HostKey]:
        """The keys trusted for the first time since the last call, to be pinned."""
        with self._lock:
            met, self._met = self._met, {}
            return met

    def _unknown(self, label: str) -> TpujobError:
        if self._silent > 0:
            return Unpublished(
                f"{label} shows a host key that it has not published, and other hosts of its slice have published "
                "theirs; nothing was sent to it"
            )
        return HostKeyChanged(
            f"{label} shows a host key that no host of its slice has published; nothing was sent to it",
            hint="Another machine may have answered at that address: get another slice with "
            "`tpujob cancel --release JOB` and `tpujob resume JOB`.",
        )
