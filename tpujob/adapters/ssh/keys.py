"""The key pair and the pinned host keys of each slice: the interface of a key store, the store in files, certificates.

A host key is pinned at the first contact, compared from then on and never replaced; `host_keys.py` decides which key
may be pinned. `secret_manager.py` has the store in Google Secret Manager.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tpujob.config import files
from tpujob.errors import BadRequest, HostKeyChanged, NotFound

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: name under which a key store has the secret that keys are derived from: like a slice's, because rights depend on the
#: prefix, but no slice has it, because jobs are numbered
ROOT = "tj-signing"
_NAME = re.compile(r"[a-z][-a-z0-9]{0,62}")
#: comment of a pin whose key was published
_PUBLISHED = "published"


class HostKey(NamedTuple):
    """A host key, and why it is trusted."""

    type: str  #: such as `ssh-ed25519`
    key: str  #: in base64
    #: the host has published the key through the cloud; False: it was the first key seen
    published: bool = False

    def is_of(self, other: tuple[object, ...]) -> bool:
        """Return whether both are the same key, whatever the reason for trust."""
        return self[:2] == other[:2]


#: host keys by the host's label in a known_hosts file
Pins = Mapping[str, HostKey]


class KeyStore(Protocol):
    """Private keys and pinned host keys, by the name of a slice. Safe for threads and processes. Raises ValueError for
    an invalid name; Transient, Refused."""

    def private_key(self, slice: str, *, make: bool = True) -> str:
        """Return the private key in the format of OpenSSH. The first of any number of callers creates the pair. Raises
        NotFound if there is no pair and `make` is not set."""
        ...

    def pinned(self, slice: str) -> dict[str, HostKey]: ...

    def pin(self, slice: str, keys: Pins) -> None:
        """Pin these keys. Raises HostKeyChanged when another key is pinned for one of the hosts, as when two first
        contacts race and reach different servers."""
        ...

    def forget(self, slice: str) -> None:
        """Remove the key pair and the pins. Absent is success."""
        ...

    def names(self) -> list[str]:
        """Return every slice that has keys or pins."""
        ...


class Book(Protocol):
    """Texts by name, which several processes change. Raises Transient, Refused, StoreError."""

    def read(self, name: str) -> str | None:
        """Return the text; None: there is none."""
        ...

    def change(self, name: str, plan: Callable[[str | None], str | None]) -> str | None:
        """Replace the text by what `plan` makes of it, in one step, and return that; None removes it. `plan` must be
        pure: it may be called again."""
        ...

    def names(self) -> list[str]:
        """Return the names of all texts, sorted."""
        ...


class FileKeys:
    """A key store in files: a folder (0700) for each slice, with its private key and known_hosts (0600)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cache: dict[str, str] = {}  #: private keys, which never change

    def private_key(self, slice: str, *, make: bool = True) -> str:
        if slice not in self._cache:
            path = self._folder(slice) / "id_ed25519"
            try:
                if make:
                    files.private_folder(self._root)
                    files.private_folder(path.parent)
                    self._cache[slice] = files.drawn(path, new_private_key)
                else:
                    self._cache[slice] = path.read_text(encoding="ascii")
            except FileNotFoundError:
                raise no_key(slice) from None
        return self._cache[slice]

    def pinned(self, slice: str) -> dict[str, HostKey]:
        try:
            return read_pins((self._folder(slice) / "known_hosts").read_text(encoding="ascii"))
        except FileNotFoundError:
            return {}

    def pin(self, slice: str, keys: Pins) -> None:
        folder = self._folder(slice)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pinned = self.pinned(slice)
            files.put(folder / "known_hosts", write_pins({**pinned, **unpinned(pinned, keys)}))
        finally:
            os.close(lock)

    def forget(self, slice: str) -> None:
        self._cache.pop(slice, None)
        shutil.rmtree(self._folder(slice), ignore_errors=True)

    def names(self) -> list[str]:
        folders = self._root.iterdir() if self._root.is_dir() else ()
        return sorted(folder.name for folder in folders if _NAME.fullmatch(folder.name))

    def _folder(self, slice: str) -> Path:
        return self._root / checked_name(slice)


# Keys ----------------------------------------------------------------------------------------------------------------


def no_key(slice: str) -> NotFound:
    """Return the error for a slice without a key pair: a released slice gets no new pair."""
    return NotFound(f"the key of {slice} is gone")


def new_private_key() -> str:
    """Create a key pair. Returns the private key in the format of OpenSSH."""
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return private_text(ed25519.Ed25519PrivateKey.generate())


def private_text(key: Ed25519PrivateKey) -> str:
    """Return the private key in the format of OpenSSH, which has a random part: texts of one key differ."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def public_line(private_key: str) -> str:
    """Return the public key of a private key, as a line for `authorized_keys`."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_ssh_private_key(private_key.encode(), password=None).public_key()
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{line.decode()} tpujob"


# Pins ----------------------------------------------------------------------------------------------------------------


def host_label(address: str, port: int) -> str:
    """Return a host's name in a known_hosts file."""
    return address if port == 22 else f"[{address}]:{port}"


def unpinned(pinned: Pins, keys: Pins) -> dict[str, HostKey]:
    """Return the keys that are not pinned yet. Raises HostKeyChanged for a key that differs from its pin."""
    for label, key in keys.items():
        if not pinned.get(label, key).is_of(key):
            raise host_key_changed(label)
    return {label: key for label, key in keys.items() if label not in pinned}


def trust(pins: Pins) -> str:
    """Return why the host keys of a slice are trusted: all were `published` through the cloud, or some were seen at the
    `first-contact`; empty: none is pinned."""
    if not pins:
        return ""
    return "published" if all(pin.published for pin in pins.values()) else "first-contact"


def host_key_changed(label: str) -> HostKeyChanged:
    return HostKeyChanged(
        f"{label} shows another host key than the one that was pinned; nothing was sent to it",
        hint="Unless that host was rebuilt, another machine may have answered: get another slice with "
        "`tpujob cancel --release JOB` and `tpujob resume JOB`.",
    )


def read_pins(text: str) -> dict[str, HostKey]:
    """Return the pins in a known_hosts file of ours. Ignores other lines."""
    rows = (line.split() for line in text.splitlines())
    return {
        row[0]: HostKey(row[1], row[2], row[3:] == [_PUBLISHED])
        for row in rows
        if 3 <= len(row) <= 4
    }


def write_pins(pins: Pins) -> str:
    lines = (
        f"{label} {pin.type} {pin.key}{f' {_PUBLISHED}' if pin.published else ''}\n"
        for label, pin in pins.items()
    )
    return "".join(lines)


def checked_name(slice: str) -> str:
    """Return the name of a slice. Raises ValueError for an invalid name: it becomes part of a path."""
    if not _NAME.fullmatch(slice):
        raise ValueError(f"{slice!r} is not the name of a slice")
    return slice


# Certificates for people ---------------------------------------------------------------------------------------------


AUTHORITY = "cert-authority"
LIFETIME = 600.0  #: seconds in which a session may be opened; a session has no limit
SKEW = 300.0  #: seconds that the host's clock may be behind
_MAX_HOLDER = 200  #: characters of the holder
#: permissions in the certificate: no forwarding of agents or displays. Ports may be forwarded: whoever has a shell on a
#: host reaches its ports anyway
_ALLOWED = (b"permit-port-forwarding", b"permit-pty")


def authority_line(public_line: str, epoch: int = 0) -> str:
    """Return the line of `authorized_keys` by which a host accepts certificates of this key. On a slice that was handed
    on, it accepts those of the present epoch alone."""
    principals = f',principals="epoch-{epoch}"' if epoch else ""
    return f"{AUTHORITY}{principals} {public_line}"


def sign(
    authority: str, public_line: str, *, user: str, epoch: int = 0, holder: str, now: float
) -> str:
    """Return a certificate of a public key for the login `user`, in the format of `ssh-keygen`. `authority`: the
    slice's private key. `epoch`: the slice's. `holder`: the owner of the key, for the log. Raises BadRequest for
    anything but an Ed25519 key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    try:
        key = serialization.load_ssh_public_key(public_line.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise BadRequest(
            "the key is not a public key of type ssh-ed25519",
            hint="`tpujob ssh` makes one; another client sends what `ssh-keygen -t ed25519` wrote into the .pub file.",
        )
    signer = serialization.load_ssh_private_key(authority.encode(), password=None)
    assert isinstance(signer, ed25519.Ed25519PrivateKey)
    builder = (
        serialization.SSHCertificateBuilder()
        .public_key(key)
        .serial(secrets.randbits(63))
        .type(serialization.SSHCertificateType.USER)
        .key_id(holder[:_MAX_HOLDER].encode())
        .valid_principals([user.encode(), f"epoch-{epoch}".encode()])
        .valid_after(int(now - SKEW))
        .valid_before(int(now + LIFETIME))
    )
    for name in _ALLOWED:
        builder = builder.add_extension(name, b"")
    return builder.sign(signer).public_bytes().decode()
