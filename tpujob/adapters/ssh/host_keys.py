"""Decides whether to trust a host key.

The pinned key of a host is trusted. Without a pin, a key that the cloud publishes is trusted, or, if no host of the
slice has published any, the first key seen.
"""

import threading
from collections.abc import Sequence

from tpujob.adapters.ssh.keys import HostKey, Pins, host_key_changed
from tpujob.errors import HostKeyChanged, TpujobError, Transient
from tpujob.ports import PublishedHost


class Unpublished(Transient):
    """The host shows a key that it has not published, while other hosts of its slice have published theirs."""


class HostKeys:
    """The host keys of one slice during one call. Thread-safe. A host may show the published key of any host of its
    slice, as the order of the cloud's list is not documented. The key that a host has shown is then pinned to that host
    alone."""

    def __init__(self, pinned: Pins, guests: Sequence[PublishedHost] = (), *, hosts: int) -> None:
        """`hosts`: the number of the slice's hosts. If any has published a key, no unpublished key is trusted."""
        self._pinned = dict(pinned)
        self._published = {key for guest in guests for key in guest.host_keys}
        self._unpublished = hosts - sum(bool(guest.host_keys) for guest in guests)
        self._new: dict[str, HostKey] = {}  #: trusted since the last `take_new`
        self._lock = threading.Lock()

    def check(self, label: str, key: tuple[str, str]) -> None:
        """Trust the key that a host shows. Raises HostKeyChanged; Unpublished while it may still be published."""
        with self._lock:
            if pin := self._pinned.get(label):
                if not pin.is_of(key):
                    raise host_key_changed(label)
                return
            published = key in self._published
            if self._published and not published:
                raise self._not_published_error(label)
            self._pinned[label] = self._new[label] = HostKey(*key, published)

    def take_new(self) -> dict[str, HostKey]:
        """Return the keys that were trusted for the first time since the last call, to be pinned."""
        with self._lock:
            new, self._new = self._new, {}
            return new

    def _not_published_error(self, label: str) -> TpujobError:
        if self._unpublished > 0:
            return Unpublished(
                f"{label} shows a host key that it has not published, and other hosts of its slice have published "
                "theirs; nothing was sent to it"
            )
        return HostKeyChanged(
            f"{label} shows a host key that no host of its slice has published; nothing was sent to it",
            hint="Another machine may have answered at that address: get another slice with "
            "`tpujob cancel --release JOB` and `tpujob resume JOB`.",
        )
