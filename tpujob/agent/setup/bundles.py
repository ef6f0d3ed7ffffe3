"""Bundles: downloads each once by its hash, unpacks it safely into its folder, and copies it to a program's folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from typing import List

from tpujob.agent.base import Aside, Failure
from tpujob.agent.folders import BUNDLES, is_below
from tpujob.agent.storage import Storage, StorageError, WrongContent, retry
from tpujob.protocol import AgentCause
from tpujob.protocol.bundle import ArchiveMember, BadBundle, members

FETCH_PATIENCE = 600.0  #: seconds of retries for a download


def fetch_bundle(storage: Storage, path: str, bundles: str = BUNDLES) -> str:
    """Return the bundle's unpacked folder below `bundles`, downloading it unless this host has it. Raises Failure."""
    match = re.search(r"/([0-9a-f]{64})\.tar\.gz$", path)
    if not match:
        raise Failure("%s does not have its hash in its name" % path)
    folder = os.path.join(bundles, match.group(1))
    if os.path.isdir(folder):
        return folder
    os.makedirs(bundles, exist_ok=True)
    scratch = tempfile.mkdtemp(dir=bundles)
    try:
        archive, files = os.path.join(scratch, "archive"), os.path.join(scratch, "files")
        _download(storage, path, archive, match.group(1))
        unpack(archive, files)
        os.rename(files, folder)
    except OSError as error:
        if not os.path.isdir(folder):  # a stopped attempt may have unpacked it meanwhile
            raise Failure("cannot unpack %s: %s" % (path, error)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def lay_out(bundles: List[str], folder: str, run_aside: Aside) -> None:
    """Copy the bundles into one folder; files of later bundles replace those of earlier bundles."""
    for bundle in bundles:
        run_aside(lambda b=bundle: shutil.copytree(b, folder, symlinks=True, dirs_exist_ok=True))


def _download(storage: Storage, path: str, archive: str, sha256: str) -> None:
    mismatches: List[str] = []

    def get() -> None:
        digest = hashlib.sha256()
        with open(archive, "wb") as file:
            storage.read(path, lambda data: (digest.update(data), file.write(data)))
        if digest.hexdigest() != sha256:
            mismatches.append(digest.hexdigest())
            # the first mismatches may come from the transfer, so they are retried
            error = WrongContent if len(mismatches) == 3 else StorageError
            raise error("its content has another hash")

    try:
        retry(get, FETCH_PATIENCE)
    except StorageError as error:
        cause: AgentCause = "PERMISSION" if error.status in (401, 403) else "SETUP"
        raise Failure("cannot fetch %s: %s" % (path, error), cause) from error


def unpack(archive: str, folder: str) -> None:
    """Unpack files, folders and links whose targets are below `folder`. Raises Failure for anything else."""
    os.makedirs(folder)
    try:
        with open(archive, "rb") as file:
            for member in members(file):
                _unpack_member(member, folder)
    except BadBundle as error:
        raise Failure(str(error)) from error
    except (OSError, ValueError) as error:
        raise Failure("the bundle cannot be unpacked: %s" % error) from error
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(root, name)
            if os.path.islink(path) and not is_below(path, folder):
                raise Failure("the bundle holds a link that leaves it: %r" % name)


def _unpack_member(member: ArchiveMember, folder: str) -> None:
    info = member.info
    parts = info.name.split("/")
    above = [os.path.join(folder, *parts[:i]) for i in range(1, len(parts))]
    if info.name.startswith("/") or ".." in parts or any(map(os.path.islink, above)):
        raise Failure("the bundle holds a file that leaves it: %r" % info.name)
    path = os.path.join(folder, info.name)
    if info.isdir():
        return os.makedirs(path, exist_ok=True)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if info.issym() and not info.linkname.startswith("/"):
        return os.symlink(info.linkname, path)
    if not info.isreg():
        raise Failure("the bundle holds what is neither file nor folder: %r" % info.name)
    with open(path, "xb") as file:
        for piece in member.content:
            file.write(piece)
    os.chmod(path, 0o755 if info.mode & 0o100 else 0o644)
    return None
