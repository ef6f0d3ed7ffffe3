"""The keys of slices, derived from one secret in Google Secret Manager, for a backend without a disk.

A slice's key follows from the secret and the slice's name, so that any number of slices costs one version. Which slices
have keys, and their pinned host keys, is in a book that all processes share, such as a collection of the store. The
derivation is HKDF-SHA256 (RFC 5869); its version is part of its input.
"""

import contextlib
import time

from tpujob.adapters.calling import Missing
from tpujob.adapters.google.secrets import SecretManager
from tpujob.adapters.ssh.keys import (
    ROOT,
    Book,
    HostKey,
    Pins,
    checked_name,
    new_private_key,
    no_key,
    private_text,
    read_pins,
    unpinned,
    write_pins,
)
from tpujob.errors import Refused, Transient
from tpujob.protocol import LABEL, OWNER_LABEL

#: seconds until Google removes the secret if no backend uses it: data that its derived keys have signed is in buckets
#: for years
LIFETIME = 3650 * 86400
#: seconds for which a process goes by one list of the book, as each entry is billed; its own changes count at once
LIST_FOR = 3600.0
RENEW_AFTER = 86400.0  #: seconds between two extensions of the lifetime by one process
_NAME = f"tpujob-{ROOT}"
#: of the derivation: another one gives other keys
_VERSION = "1"


class SecretKeys:
    """Implements `KeyStore`. Caches what it has read or written until `forget`."""

    def __init__(
        self,
        project: str,
        book: Book,
        *,
        owner: str = "local",
        region: str = "",
        endpoint: str = "",
    ) -> None:
        """`owner`: the label value of this backend's slices. `region`, `endpoint`: see SecretManager. Raises Refused
        when this machine has no credentials."""
        self._labels = {LABEL: "1", OWNER_LABEL: owner}
        self._secrets = SecretManager(project, region=region, endpoint=endpoint)
        self._name = self._secrets.name(_NAME)
        self._book = book
        self._root = ""
        self._keys: dict[str, str] = {}
        self._pins: dict[str, dict[str, HostKey]] = {}
        self._renewed_at = time.monotonic() - RENEW_AFTER
        self._listed: set[str] = set()
        self._list_until = 0.0

    def private_key(self, slice: str, *, make: bool = True) -> str:
        if checked_name(slice) == ROOT:
            return self._read_root()
        if slice not in self._keys:
            if make:
                self._book.change(slice, lambda text: text or "")
                self._listed.add(slice)
            elif self._book.read(slice) is None:
                raise no_key(slice)
            self._keys[slice] = derived_key(self._read_root(), slice)
        return self._keys[slice]

    def pinned(self, slice: str) -> dict[str, HostKey]:
        if slice not in self._pins:
            self._pins[slice] = read_pins(self._book.read(checked_name(slice)) or "")
        return dict(self._pins[slice])

    def pin(self, slice: str, keys: Pins) -> None:
        def add(text: str | None) -> str:
            pins = read_pins(text or "")
            return write_pins({**pins, **unpinned(pins, keys)})

        self._pins[slice] = read_pins(self._book.change(checked_name(slice), add) or "")

    def names(self) -> list[str]:
        now = time.monotonic()
        if now >= self._list_until:
            self._listed, self._list_until = set(self._book.names()), now + LIST_FOR
        return sorted(self._listed)

    def forget(self, slice: str) -> None:
        self._keys.pop(slice, None)
        self._pins.pop(slice, None)
        self._listed.discard(slice)
        self._book.change(checked_name(slice), lambda _: None)

    def close(self) -> None:
        self._secrets.close()

    def _read_root(self) -> str:
        """Return the secret that all processes use: a new one if no other process has added one before."""
        if not self._root:
            try:
                self._root = self._version()
            except Missing:
                self._secrets.ensure(self._name, self._labels, ttl=LIFETIME)
                key = new_private_key()
                added = self._secrets.add(self._name, key.encode())
                self._root = key if added == 1 else self._version()
                self._renewed_at = time.monotonic()
        if time.monotonic() - self._renewed_at >= RENEW_AFTER:
            with contextlib.suppress(Refused, Transient):  # the next try is early enough
                self._secrets.change(self._name, "ttl", f"{LIFETIME}s")
            self._renewed_at = time.monotonic()
        return self._root

    def _version(self) -> str:
        return self._secrets.access(self._name, 1)[1].decode("ascii")


def derived_key(root: str, slice: str) -> str:
    """Return the private key of a slice in the format of OpenSSH. Equal arguments give the same key, in texts that may
    differ."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"tpujob ssh key {_VERSION} {slice}".encode()
    seed = HKDF(hashes.SHA256(), length=32, salt=None, info=info).derive(root.encode())
    return private_text(ed25519.Ed25519PrivateKey.from_private_bytes(seed))
