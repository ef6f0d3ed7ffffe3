"""The environment that set-up and the program run in: built once on a host, and kept.

It lies in `~/.tpujob/envs/<key>`: the key is a hash over everything that it is made from, and the marker `done.json` is
written last, so that half a build is never taken for a whole one. It is built where it stays, as scripts in it hold
absolute paths; for the same reason the home folder is part of the key. One attempt at a time owns a host, and builds
here.

What it is made from, the tools that make it, and whether none is needed are in `installers.py` and `uv.py`. Images are
in `containers.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import threading
import time
from typing import Iterator, List, Optional, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Aside, Note, Record, remove_file
from tpujob.agent.folders import ENVS, is_below, make_empty
from tpujob.agent.runtimes import MARKER, BuiltEnvironment, Runtime
from tpujob.agent.setup.installers import FORMAT, Installer, key_of, read_sources, shortcoming
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import SealedFiles
from tpujob.protocol import EnvironmentOrder
from tpujob.protocol.bundle import is_short


def make_environment(attempt: HostAttempt, asked: EnvironmentOrder, bundles: List[str]) -> Runtime:
    """Return the environment that a plan asks for, whole; the host as it is where that will do. Raises Failure,
    Stopped."""
    note, kind, file = attempt.log.note, asked.get("kind", ""), asked.get("file", "")
    texts, local = read_sources(kind, file, bundles)
    if asked.get("unless_installed"):
        lowest = asked.get("python") or "3"
        lacks: str = attempt.aside(lambda: shortcoming(texts, lowest))
        if not lacks:
            note("environment: this host's own Python has all that %s names" % file)
            return Runtime()
        note("environment: %s, so one is made of %s" % (lacks, file))
    installer = Installer(attempt, asked, bundles)
    key = key_of(asked, installer.python(), texts, bundles if local else [])
    built = BuiltEnvironment(key, kind)
    if built.is_marked() and built.works():
        note("environment: %s was made on this host before" % key)
        return built
    if built.is_marked():
        note("environment: its Python does not run any more: it is made again")
    began, name = time.monotonic(), key + ".tar"
    place = "%s/env/" % attempt.plan.get("shared")
    files = SealedFiles(attempt.storage, place, attempt.cache_key)
    if attempt.aside(lambda: fetch_archive(files, name, built, note)):
        how = "fetched from the bucket"
    else:
        make_empty(built.folder)
        installer.install(built, local, hashed=any("--hash=" in text for _, text in texts))
        built.mark(FORMAT)
        how = "built with %s" % kind
        if attempt.plan["host"] == 0:
            attempt.keeping = keep_archive(files, name, built, note, attempt.aside)
    note("environment: %s was %s in %.1f s" % (key, how, time.monotonic() - began))
    return built


# Archives in the bucket, for later hosts of the same owner: only what is sealed is unpacked --------------------------


MAX_KEPT = 8 * 1024**3  #: bytes of an environment that is kept in the bucket
MAX_FILES = 500_000  #: of one
ROOM = 4 * 1024**3  #: bytes of the disk that stay free when it is packed for that


#: the member that names the links which lead out of the environment, as one to the host's Python does
LINKS = "links.json"


def fetch_archive(files: SealedFiles, name: str, built: BuiltEnvironment, note: Note) -> bool:
    """Whether the bucket has it and it runs here; if not, its folder may hold anything."""
    make_empty(built.folder)
    archive = built.folder + ".tar"
    try:
        found = next((one for one in files.list(name) if one.name == name), None)
        if found is None:
            return False
        files.fetch(found, archive)
        unpack_archive(archive, built.folder)
    except StorageError as error:
        note("environment: %s cannot be fetched: %s" % (name, error))
        return False
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        note("environment: %s is unusable: %s" % (name, error))
        return False
    finally:
        remove_file(archive)
    if built.is_marked() and built.works():
        return True
    note("environment: %s does not run on this host" % name)
    return False


def unpack_archive(archive: str, folder: str) -> None:
    """Everything, each member below the folder, whatever the Python; then the links that lead out of it, over nothing
    and through none of each other. Raises OSError, TarError, EOFError, ValueError."""
    known = hasattr(tarfile, "data_filter")  # late in the life of 3.8
    filtered: Record = {"filter": "data"} if known else {}
    with tarfile.open(archive) as tar:
        tar.extractall(folder, members=_checked(tar, folder), **filtered)  # noqa: S202, each was checked
    listed = os.path.join(folder, LINKS)
    if os.path.exists(listed):
        with open(listed, "rb") as file:
            links = [(str(name), str(target)) for name, target in json.load(file)]
        for name, target in links:
            path = os.path.join(folder, name)
            if not _stays(name) or not is_below(os.path.dirname(path), folder):
                raise ValueError("%r leaves it" % name)
            os.symlink(target, path)


def _checked(tar: tarfile.TarFile, folder: str) -> Iterator[tarfile.TarInfo]:
    room, count = MAX_KEPT, 0
    for member in tar:
        room, count = room - member.size, count + 1
        if room < 0 or count > MAX_FILES:
            raise ValueError("it is too large")
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise ValueError("%r is neither file, folder nor link" % member.name)
        if not is_short(member.name):
            raise ValueError("%.100r... is too long" % member.name)
        path, target = os.path.join(folder, member.name), member.linkname
        real = os.path.dirname(path) if member.issym() else path
        leads = os.path.join(os.path.dirname(path) if member.issym() else folder, target)
        stays = _stays(member.name) and is_below(real, folder)
        if member.issym() or member.islnk():
            stays = stays and not os.path.isabs(target) and is_below(leads, folder)
        if not stays:
            raise ValueError("%r leaves it" % member.name)
        member.mode &= 0o777
        yield member


def _stays(name: str) -> bool:
    return bool(name) and not os.path.isabs(name) and ".." not in name.split("/")


def keep_archive(
    files: SealedFiles, name: str, built: BuiltEnvironment, note: Note, aside: Aside
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
            files.put(name, archive)
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
    out: List[Tuple[str, str]] = []

    def inside(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        leads = os.path.join(folder, os.path.dirname(member.name), member.linkname)
        if member.issym() and (os.path.isabs(member.linkname) or not is_below(leads, folder)):
            out.append((member.name, member.linkname))
            return None
        return member

    links = os.path.join(folder, LINKS)
    with tarfile.open(archive, "w") as tar:
        for name in sorted(os.listdir(folder)):
            if name not in (MARKER, LINKS):
                tar.add(os.path.join(folder, name), name, filter=inside)
        with open(links, "w", encoding="utf-8") as file:
            json.dump(out, file)
        for name in (LINKS, MARKER):
            tar.add(os.path.join(folder, name), name)
