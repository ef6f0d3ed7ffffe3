"""The key pair and the pinned host keys of each slice: the interface of a key store, and the store in files.

A host key is pinned at the first contact within one slice, compared from then on and never replaced; which key may be
pinned is in `host_keys.py`. The store in Google Secret Manager is in `secret_manager.py`.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tpujob.config import files
from tpujob.errors import BadRequest, HostKeyChanged, NotFound

#: where the key store keeps the secret that keys are derived from. It looks like a slice's name, as rights go by that,
#: and is none: jobs are numbered
ROOT = "tj-signing"
_NAME = re.compile(r"[a-z][-a-z0-9]{0,62}")
#: the comment of a pin that the cloud has confirmed
_PUBLISHED = "published"


class HostKey(NamedTuple):
    """A host key, and why it is trusted."""

    type: str  #: such as `ssh-ed25519`
    key: str  #: in base64
    published: bool = (
        False  #: the host has published it through the cloud; False: it was the first one seen
    )

    def is_of(self, other: tuple[object, ...]) -> bool:
        """Whether both are one key, whatever they are trusted for."""
        return self[:2] == other[:2]


#: host keys by the host's label in a known_hosts file
Pins = Mapping[str, HostKey]


class KeyStore(Protocol):
    """Keys by the name of a slice. Threads and processes may share it. Raises ValueError for an invalid name, Transient
    when the store does not answer, Refused when it refuses."""

    def private_key(self, slice: str, *, make: bool = True) -> str:
        """The private half, as OpenSSH writes it; the first of any number of callers creates the pair. Without `make`
        none is created: raises NotFound."""
        ...

    def pinned(self, slice: str) -> dict[str, HostKey]: ...

    def pin(self, slice: str, keys: Pins) -> None:
        """Trust these from now on. Raises HostKeyChanged when another key is pinned for one of the hosts, as when two
        first contacts race and reach different servers."""
        ...

    def forget(self, slice: str) -> None:
        """Remove keys and pins. Absent is success."""
        ...

    def names(self) -> list[str]:
        """Every slice that has keys or pins."""
        ...


class FileKeys:
    """A folder for each slice below `root`, 0700, in it the private key and a known_hosts file, 0600."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, str] = {}  #: keys that were read; a key never changes

    def private_key(self, slice: str, *, make: bool = True) -> str:
        if slice not in self._known:
            path = self._folder(slice) / "id_ed25519"
            try:
                if make:
                    files.private_folder(self._root)
                    files.private_folder(path.parent)
                    self._known[slice] = files.drawn(path, new_private_key)
                else:
                    self._known[slice] = path.read_text(encoding="ascii")
            except FileNotFoundError:
                raise no_key(slice) from None
        return self._known[slice]

    def pinned(self, slice: str) -> dict[str, HostKey]:
        try:
            text = (self._folder(slice) / "known_hosts").read_text(encoding="ascii")
        except FileNotFoundError:
            return {}
        # earlier versions appended: a full disk may have left a partial last line, and half a key is another key
        return read_pins(text[: text.rfind("\n") + 1])

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
        self._known.pop(slice, None)
        shutil.rmtree(self._folder(slice), ignore_errors=True)

    def names(self) -> list[str]:
        folders = self._root.iterdir() if self._root.is_dir() else ()
        return sorted(f.name for f in folders if _NAME.fullmatch(f.name))

    def _folder(self, slice: str) -> Path:
        return self._root / checked_name(slice)


# Keys ----------------------------------------------------------------------------------------------------------------


def no_key(slice: str) -> NotFound:
    """Return the error for a released slice: its key is gone, and no new one is made, so that none connects to it."""
    return NotFound(f"the key of {slice} is gone")


def new_private_key() -> str:
    """A new pair; the private half as OpenSSH writes it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return (
        ed25519.Ed25519PrivateKey.generate()
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        .decode()
    )


def public_line(private_key: str) -> str:
    """The public half, as a line for `authorized_keys`."""
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_ssh_private_key(private_key.encode(), password=None)
    line = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return f"{line.decode()} tpujob"


# Pins ----------------------------------------------------------------------------------------------------------------


def host_label(address: str, port: int) -> str:
    """A host's name in a known_hosts file."""
    return address if port == 22 else f"[{address}]:{port}"


def unpinned(pinned: Pins, keys: Pins) -> dict[str, HostKey]:
    """The keys that are not pinned yet. Raises HostKeyChanged for one that differs from its pin."""
    for label, key in keys.items():
        if not pinned.get(label, key).is_of(key):
            raise changed(label)
    return {label: key for label, key in keys.items() if label not in pinned}


def trust(pins: Pins) -> str:
    """Why the host keys of a slice are trusted: `published` by its hosts through the cloud, or some were the ones seen
    at the `first-contact`; empty: none is pinned."""
    if not pins:
        return ""
    return "published" if all(pin.published for pin in pins.values()) else "first-contact"


def changed(label: str) -> HostKeyChanged:
    return HostKeyChanged(
        f"{label} shows another host key than the one that was pinned; nothing was sent to it",
        hint="Unless that host was rebuilt, another machine may have answered: get another slice with "
        "`tpujob cancel --release JOB` and `tpujob resume JOB`.",
    )


def read_pins(text: str) -> dict[str, HostKey]:
    """The pins in a known_hosts file as we write it; other lines are ignored."""
    fields = (line.split() for line in text.splitlines())
    return {f[0]: HostKey(f[1], f[2], f[3:] == [_PUBLISHED]) for f in fields if 3 <= len(f) <= 4}


def write_pins(pins: Pins) -> str:
    lines = (
        f"{label} {pin.type} {pin.key}{f' {_PUBLISHED}' if pin.published else ''}\n"
        for label, pin in pins.items()
    )
    return "".join(lines)


def checked_name(slice: str) -> str:
    """The same name. Raises ValueError for an invalid one, as it becomes part of a path."""
    if not _NAME.fullmatch(slice):
        raise ValueError(f"{slice!r} is not the name of a slice")
    return slice


# Certificates for people ---------------------------------------------------------------------------------------------


AUTHORITY = "cert-authority"
LIFETIME = 600.0  #: seconds in which a session may be opened; it lasts as long as it likes
SKEW = 300.0  #: seconds that the host's clock may be behind
_LONGEST = 200  #: characters of who it is for
#: what OpenSSH lets it do: no forwarding of ports, agents or displays
_ALLOWED = (b"permit-pty",)


def authority_line(public_line: str, epoch: int = 0) -> str:
    """The line of `authorized_keys` by which hosts accept what that key signs; of a slice that was handed on, only what
    it signs for the job that has the slice."""
    principals = f',principals="epoch-{epoch}"' if epoch else ""
    return f"{AUTHORITY}{principals} {public_line}"


def sign(
    authority: str, public_line: str, *, user: str, epoch: int = 0, holder: str, now: float
) -> str:
    """A certificate of that public key for the login `user`, as `ssh-keygen` writes one; `holder` is who has the key,
    for the log. `authority`: the slice's private key; `epoch`: the slice's. Raises BadRequest for what is no Ed25519
    key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    try:
        key = serialization.load_ssh_public_key(public_line.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise BadRequest(
            "the key is not a public key of type ssh-ed25519",
            hint="`tpujob ssh` makes one; another client sends what `ssh-keygen -t ed25519` wrote into the .pub file.",
        )
    signer = serialization.load_ssh_private_key(authority.encode(), password=None)
    assert isinstance(signer, Ed25519PrivateKey)
    builder = (
        serialization.SSHCertificateBuilder()
        .public_key(key)
        .serial(secrets.randbits(63))
        .type(serialization.SSHCertificateType.USER)
        .key_id(holder[:_LONGEST].encode())
        .valid_principals([user.encode(), f"epoch-{epoch}".encode()])
        .valid_after(int(now - SKEW))
        .valid_before(int(now + LIFETIME))
    )
    for name in _ALLOWED:
        builder = builder.add_extension(name, b"")
    return builder.sign(signer).public_bytes().decode()
