"""The keys of slices in Google Secret Manager, for a backend without a disk of its own.

Each slice has two secrets. The first holds the private key as version 1: the process that adds that version has made
the key, and all others read it. The second holds all pins in each version; the highest number counts. Both expire after
`LIFETIME` without use; the root of what is derived lasts, as what it has signed lies in buckets for years.
"""

import contextlib
import time
import zlib

from tpujob.adapters.calling import Missing
from tpujob.adapters.google.secrets import SecretManager
from tpujob.adapters.ssh.keys import (
    ROOT,
    HostKey,
    Pins,
    checked_name,
    new_private_key,
    no_key,
    read_pins,
    unpinned,
    write_pins,
)
from tpujob.errors import Refused, Transient
from tpujob.protocol import LABEL, OWNER_LABEL

LIFETIME = 30 * 86400  #: seconds
ROOT_LIFETIME = 3650 * 86400
RENEW_AFTER = 86400.0  #: seconds between two extensions of that by one process
_PREFIX, _PINS = "tpujob-", "-hosts"
_TRIES = 8


class SecretKeys:
    """A KeyStore. Keeps what it has read or written in memory until `forget`."""

    def __init__(
        self, project: str, *, owner: str = "local", region: str = "", endpoint: str = ""
    ) -> None:
        """`owner`: the label value of this backend's slices. `region` and `endpoint`: as of SecretManager. Raises
        Refused when there are no credentials."""
        self._labels = {LABEL: "1", OWNER_LABEL: owner}
        self._secrets = SecretManager(project, region=region, endpoint=endpoint)
        self._keys: dict[str, str] = {}
        self._pins: dict[str, dict[str, HostKey]] = {}
        self._renewed: dict[str, float] = {}

    def private_key(self, slice: str, *, make: bool = True) -> str:
        name = self._secret(slice)
        if slice not in self._keys:
            found = self._found(name)
            if not found and not make:
                raise no_key(slice)
            self._keys[slice] = found or self._make(name, _lifetime(slice))
        self._renew(slice)
        return self._keys[slice]

    def pinned(self, slice: str) -> dict[str, HostKey]:
        if slice not in self._pins:
            _, self._pins[slice] = self._latest_pins(self._pins_secret(slice))
        return dict(self._pins[slice])

    def pin(self, slice: str, keys: Pins) -> None:
        name, wanted = self._pins_secret(slice), dict(keys)
        number, newest = self._latest_pins(name)
        theirs = newest
        for _ in range(_TRIES):
            unpinned(theirs, wanted)
            wanted = {**theirs, **wanted}
            if wanted == newest:
                self._pins[slice] = wanted
                return
            self._secrets.ensure(name, self._labels, ttl=LIFETIME)
            added = self._secrets.add(name, zlib.compress(write_pins(wanted).encode()))
            newest = wanted
            if added == number + 1:
                self._secrets.destroy(name, number)
                theirs = wanted
            else:  # another writer came between, and the newest version lacks its pins
                theirs = _pins_of(self._secrets.access(name, added - 1)[1])
            number = added
        raise Transient(f"other processes keep changing the host keys of {slice}", hint="try again")

    def names(self) -> list[str]:
        listed = self._secrets.list(self._labels)
        ids = (str(one.get("name", "")).rpartition("/")[2] for one in listed)
        names = (id.removeprefix(_PREFIX) for id in ids if id.startswith(_PREFIX))
        return sorted({id.removesuffix(_PINS) for id in names})

    def forget(self, slice: str) -> None:
        self._keys.pop(slice, None)
        self._pins.pop(slice, None)
        self._renewed.pop(slice, None)
        for name in (self._secret(slice), self._pins_secret(slice)):
            self._secrets.remove(name)

    def close(self) -> None:
        self._secrets.close()

    # Secrets

    def _secret(self, slice: str) -> str:
        return self._secrets.name(f"{_PREFIX}{checked_name(slice)}")

    def _read(self, secret: str) -> str:
        """The private key in the secret of that name."""
        return self._secrets.access(secret, 1)[1].decode("ascii")

    def _make(self, name: str, lifetime: int) -> str:
        """The key that all processes use: ours if we are the first to add one."""
        self._secrets.ensure(name, self._labels, ttl=lifetime)
        made = new_private_key()
        return made if self._secrets.add(name, made.encode()) == 1 else self._read(name)

    def _found(self, name: str) -> str:
        """The key; empty: not made yet."""
        try:
            return self._read(name)
        except Missing:
            return ""

    def _latest_pins(self, name: str) -> tuple[int, dict[str, HostKey]]:
        """The number of the newest known version and its pins; 0 when there is none."""
        try:
            number, payload = self._secrets.access(name)
        except Missing:
            return 0, {}
        return number, _pins_of(payload)

    def _renew(self, slice: str) -> None:
        """Put the expiry off, if this process has not done so for a day."""
        now = time.monotonic()
        if now - self._renewed.get(slice, now - RENEW_AFTER) < RENEW_AFTER:
            return
        for name in (self._secret(slice), self._pins_secret(slice)):
            with contextlib.suppress(Refused, Transient):  # there is time until the next day
                self._secrets.change(name, "ttl", f"{_lifetime(slice)}s")
        self._renewed[slice] = now

    def _pins_secret(self, slice: str) -> str:
        return f"{self._secret(slice)}{_PINS}"


def _lifetime(slice: str) -> int:
    return ROOT_LIFETIME if slice == ROOT else LIFETIME


def _pins_of(payload: bytes) -> dict[str, HostKey]:
    try:
        return read_pins(zlib.decompress(payload).decode("ascii"))
    except (zlib.error, ValueError) as error:
        raise Transient("the pinned host keys in Secret Manager cannot be read") from error
