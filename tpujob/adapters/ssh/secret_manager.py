"""The keys of slices in Google Secret Manager, for a backend without a disk.

Each slice has two secrets. The first has the private key as version 1: the process that adds this version has made the
key, and all others read it. The second has all pins in each version; the newest version counts. Both expire after
`LIFETIME` without use. ROOT lives longer, because data that its derived keys have signed is in buckets for years.
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
ROOT_LIFETIME = 3650 * 86400  #: seconds
RENEW_AFTER = 86400.0  #: seconds between two extensions of a lifetime by one process
_PREFIX, _PINS = "tpujob-", "-hosts"
_TRIES = 8  #: to store pins while other processes store theirs


class SecretKeys:
    """Implements `KeyStore`. Caches what it has read or written until `forget`."""

    def __init__(
        self, project: str, *, owner: str = "local", region: str = "", endpoint: str = ""
    ) -> None:
        """`owner`: the label value of this backend's slices. `region`, `endpoint`: see SecretManager. Raises Refused
        when this machine has no credentials."""
        self._labels = {LABEL: "1", OWNER_LABEL: owner}
        self._secrets = SecretManager(project, region=region, endpoint=endpoint)
        self._keys: dict[str, str] = {}
        self._pins: dict[str, dict[str, HostKey]] = {}
        self._renewed: dict[str, float] = {}  #: by slice: when its lifetime was extended

    def private_key(self, slice: str, *, make: bool = True) -> str:
        name = self._secret(slice)
        if slice not in self._keys:
            try:
                self._keys[slice] = self._read(name)
            except Missing:
                if not make:
                    raise no_key(slice) from None
                self._keys[slice] = self._make(name, _lifetime(slice))
        self._renew(slice)
        return self._keys[slice]

    def pinned(self, slice: str) -> dict[str, HostKey]:
        if slice not in self._pins:
            _, self._pins[slice] = self._latest_pins(self._pins_secret(slice))
        return dict(self._pins[slice])

    def pin(self, slice: str, keys: Pins) -> None:
        name, pins = self._pins_secret(slice), dict(keys)
        number, newest = self._latest_pins(name)
        others = newest  # the pins of the version before ours
        for _ in range(_TRIES):
            unpinned(others, pins)  # raises HostKeyChanged
            pins = {**others, **pins}
            if pins == newest:
                self._pins[slice] = pins
                return
            self._secrets.ensure(name, self._labels, ttl=LIFETIME)
            added = self._secrets.add(name, zlib.compress(write_pins(pins).encode()))
            newest = pins
            if added == number + 1:
                self._secrets.destroy(name, number)
                others = pins
            else:  # another process has added a version before ours, which lacks its pins
                others = _parse_pins(self._secrets.access(name, added - 1)[1])
            number = added
        raise Transient(f"other processes keep changing the host keys of {slice}", hint="try again")

    def names(self) -> list[str]:
        listed = self._secrets.list(self._labels)
        ids = (str(secret.get("name", "")).rpartition("/")[2] for secret in listed)
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
        """Return the private key in a secret. Raises Missing."""
        return self._secrets.access(secret, 1)[1].decode("ascii")

    def _make(self, name: str, lifetime: int) -> str:
        """Return the key that all processes use: a new one if no other process has added one before."""
        self._secrets.ensure(name, self._labels, ttl=lifetime)
        key = new_private_key()
        return key if self._secrets.add(name, key.encode()) == 1 else self._read(name)

    def _latest_pins(self, name: str) -> tuple[int, dict[str, HostKey]]:
        """Return the number of the newest version and its pins; 0 when there is none."""
        try:
            number, payload = self._secrets.access(name)
        except Missing:
            return 0, {}
        return number, _parse_pins(payload)

    def _renew(self, slice: str) -> None:
        """Extend the lifetime of a slice's secrets, at most every RENEW_AFTER seconds."""
        now = time.monotonic()
        if now - self._renewed.get(slice, now - RENEW_AFTER) < RENEW_AFTER:
            return
        for name in (self._secret(slice), self._pins_secret(slice)):
            with contextlib.suppress(Refused, Transient):  # the next try is early enough
                self._secrets.change(name, "ttl", f"{_lifetime(slice)}s")
        self._renewed[slice] = now

    def _pins_secret(self, slice: str) -> str:
        return f"{self._secret(slice)}{_PINS}"


def _lifetime(slice: str) -> int:
    return ROOT_LIFETIME if slice == ROOT else LIFETIME


def _parse_pins(payload: bytes) -> dict[str, HostKey]:
    try:
        return read_pins(zlib.decompress(payload).decode("ascii"))
    except (zlib.error, ValueError) as error:
        raise Transient("the pinned host keys in Secret Manager cannot be read") from error
