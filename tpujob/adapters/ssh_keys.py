"""The key pair and the pinned host keys of one slice, as files that two callers may share.

A host key is trusted at the first contact within one slice and compared ever after; it is never replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path

from tpujob.errors import HostKeyChanged

_NAME = re.compile(r"[a-z][-a-z0-9]{0,62}")


class SliceKeys:
    """The folder `<root>/<slice name>`, 0700."""

    def __init__(self, root: Path, slice_name: str) -> None:
        if not _NAME.fullmatch(slice_name):
            raise ValueError(f"{slice_name!r} is no name of a slice")
        self.folder = root / slice_name
        self.key_file = self.folder / "id_ed25519"
        self.known_hosts_file = self.folder / "known_hosts"

    def public_key(self) -> str:
        """The OpenSSH public key; the pair is made by the first of any number of callers."""
        from cryptography.hazmat.primitives import serialization

        self.ensure()
        private = serialization.load_ssh_private_key(self.key_file.read_bytes(), password=None)
        line = private.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return f"{line.decode()} tpujob"

    def ensure(self) -> None:
        """Make the key pair unless there is one."""
        if self.key_file.exists():
            return
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.folder / f"{secrets.token_hex(8)}.tmp"
        _write_private(temporary, _new_private_key())
        with contextlib.suppress(FileExistsError):  # another caller was first: theirs it is
            os.link(temporary, self.key_file)
        temporary.unlink()

    def forget(self) -> None:
        """Remove the keys and the pins. Absent is success."""
        shutil.rmtree(self.folder, ignore_errors=True)


def host_label(address: str, port: int) -> str:
    """How a known_hosts file calls a host."""
    return address if port == 22 else f"[{address}]:{port}"


def pin(known_hosts: Path, label: str, key_type: str, key: str) -> None:
    """Trust this key (base64) for this host from now on. Raises HostKeyChanged when another one is pinned, which
    happens when two first contacts race and meet two servers."""
    fd = os.open(known_hosts, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(fd, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released with the file
        pinned = [line.split() for line in file.read().splitlines()]
        mine = [fields[1:3] for fields in pinned if fields[:1] == [label]]
        if [key_type, key] in mine:
            return
        if mine:
            raise HostKeyChanged(f"{label} shows another host key than at the first contact")
        file.write(f"{label} {key_type} {key}\n")


def _new_private_key() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def _write_private(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
