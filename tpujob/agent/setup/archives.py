"""Keeps environments in the bucket, one archive for each key, for other hosts and later slices. Whoever may write there
may choose what jobs of that bucket run anyway.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import threading
from typing import Iterator, Optional

from tpujob.agent.base import Aside, Note, Record, remove_file
from tpujob.agent.folders import ENVS, make_empty
from tpujob.agent.runtimes import MARKER, BuiltEnvironment
from tpujob.agent.storage import Storage, StorageError

MAX_KEPT = 8 * 1024**3  #: bytes of an environment that is kept in the bucket
MAX_FILES = 500_000  #: of one
ROOM = 4 * 1024**3  #: bytes of the disk that stay free when it is packed for that


def fetch(storage: Storage, where: str, built: BuiltEnvironment, note: Note) -> bool:
    """Whether the bucket has it and it runs here; if not, its folder may hold anything."""
    make_empty(built.folder)
    archive = built.folder + ".tar"
    try:
        with open(archive, "wb") as file:
            storage.read(where, file.write)
        unpack(archive, built.folder)
    except StorageError as error:
        if error.status != 404:
            note("environment: %s cannot be fetched: %s" % (where, error))
        return False
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        note("environment: %s is no good: %s" % (where, error))
        return False
    finally:
        remove_file(archive)
    if built.is_marked() and built.works():
        return True
    note("environment: %s does not run on this host" % where)
    return False


def unpack(archive: str, folder: str) -> None:
    """Everything, links that lead out of the folder too, as an environment has some; but nothing is written outside of
    it, over such a link either, whatever the Python. Raises OSError, TarError, EOFError, ValueError."""
    inside = os.path.realpath(folder) + os.sep

    def checked(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
        room, count = MAX_KEPT, 0
        for member in tar:
            room, count = room - member.size, count + 1
            if room < 0 or count > MAX_FILES:
                raise ValueError("it is too large")
            for name in (member.name, member.linkname if member.islnk() else ""):
                path = os.path.join(folder, name)
                real = os.path.realpath(os.path.dirname(path) if member.issym() else path)
                if (
                    os.path.isabs(name)
                    or ".." in name.split("/")
                    or not (real + os.sep).startswith(inside)
                ):
                    raise ValueError("%r leaves it" % name)
            if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
                raise ValueError("%r is neither file, folder nor link" % member.name)
            member.mode &= 0o777
            yield member

    with tarfile.open(archive) as tar:
        known = hasattr(tarfile, "data_filter")
        trusting: Record = {"filter": "fully_trusted"} if known else {}
        tar.extractall(folder, members=checked(tar), **trusting)  # noqa: S202, each was checked


def keep(
    storage: Storage, where: str, built: BuiltEnvironment, note: Note, aside: Aside
) -> Optional[threading.Thread]:
    """Pack it before anybody changes it, then put it into the bucket on the thread that is returned. None: it is not
    kept, as the log says. Raises Stopped."""
    archive = built.folder + ".tar"
    try:
        size = aside(lambda: _size_of(built.folder))
        free = shutil.disk_usage(ENVS).free
        if size > MAX_KEPT or size > free - ROOM:
            note("environment: %.1f GiB are too much for the bucket's cache" % (size / 1024**3))
            return None
        aside(lambda: _pack(built.folder, archive))
    except (OSError, tarfile.TarError) as error:
        remove_file(archive)
        note("environment: it is not kept in the bucket: %s" % error)
        return None

    def put() -> None:
        try:
            storage.put_new(where, archive)
        except (OSError, StorageError) as error:
            note("environment: it is not kept in the bucket: %s" % error)
        finally:
            remove_file(archive)

    keeping = threading.Thread(target=put, name="keep", daemon=True)
    keeping.start()
    return keeping


def _size_of(folder: str) -> int:
    paths = (os.path.join(root, name) for root, _, files in os.walk(folder) for name in files)
    return sum(os.lstat(path).st_size for path in paths)


def _pack(folder: str, archive: str) -> None:
    """Everything, the marker last: an archive that was cut off has none."""
    with tarfile.open(archive, "w") as tar:
        for name in sorted(os.listdir(folder), key=lambda name: (name == MARKER, name)):
            tar.add(os.path.join(folder, name), name)
