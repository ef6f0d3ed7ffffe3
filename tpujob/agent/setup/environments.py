"""The environment of set-up and program: built once on a host, and kept.

An environment is the folder `~/.tpujob/envs/<key>`. The key is a hash over all inputs of the build. The marker
`done.json` is written last, so that an unfinished build is never used. Scripts in an environment have absolute paths:
so it is built in its final folder, and the home folder is part of the key. Only the attempt that owns the host builds.

`installers.py` and `uv.py` read the inputs and run the tools; `containers.py` has images.
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
from tpujob.agent.folders import ENVS, is_below
from tpujob.agent.processes import make_empty
from tpujob.agent.runtimes import MARKER, BuiltEnvironment, Runtime
from tpujob.agent.setup.installers import FORMAT, Installer, check_host_python, key_of, read_sources
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import SealedFiles
from tpujob.protocol import EnvironmentOrder
from tpujob.protocol.bundle import is_short


def make_environment(attempt: HostAttempt, order: EnvironmentOrder, bundles: List[str]) -> Runtime:
    """Return a plan's environment, kept, fetched or built; or the host if that suffices. Raises Failure, Stopped."""
    note, kind, file = attempt.log.note, order.get("kind", ""), order.get("file", "")
    texts, local = read_sources(kind, file, bundles)
    if order.get("unless_installed"):
        lowest = order.get("python") or "3"
        problem: str = attempt.run_aside(lambda: check_host_python(texts, lowest))
        if not problem:
            note("environment: this host's own Python has all that %s names" % file)
            return Runtime()
        note("environment: %s, so one is made of %s" % (problem, file))
    installer = Installer(attempt, order, bundles)
    key = key_of(order, installer.python(), texts, bundles if local else [])
    built = BuiltEnvironment(key, kind)
    if built.is_marked():
        problem = built.problem()
        if not problem:
            note("environment: %s was made on this host before" % key)
            return built
        note("environment: its Python does not run any more, and is made again: %s" % problem)
    began, name = time.monotonic(), key + ".tar"
    place = "%s/env/" % attempt.plan.get("shared")
    files = SealedFiles(attempt.storage, place, attempt.cache_key)
    if attempt.run_aside(lambda: fetch_archive(files, name, built, note)):
        how = "fetched from the bucket"
    else:
        make_empty(built.folder)
        installer.install(built, local, hashed=any("--hash=" in text for _, text in texts))
        built.mark(FORMAT)
        how = "built with %s" % kind
        if attempt.plan["host"] == 0:
            attempt.environment_upload = keep_archive(files, name, built, note, attempt.run_aside)
    note("environment: %s was %s in %.1f s" % (key, how, time.monotonic() - began))
    return built


# Archives in the bucket, for later hosts of the same owner: only signed archives are unpacked ------------------------


MAX_KEPT = 8 * 1024**3  #: most bytes of an environment in the bucket
MAX_FILES = 500_000  #: most files of an environment
ROOM = 4 * 1024**3  #: bytes of the disk that an archive must leave free


#: the member that lists links out of the environment, such as the link to the host's Python
LINKS = "links.json"


def fetch_archive(files: SealedFiles, name: str, built: BuiltEnvironment, note: Note) -> bool:
    """Return whether the environment came from the bucket and works here. If not, its folder may hold anything."""
    make_empty(built.folder)
    archive = built.folder + ".tar"
    try:
        listed = next((file for file in files.list(name) if file.name == name), None)
        if listed is None:
            return False
        files.fetch(listed, archive)
        unpack_archive(archive, built.folder)
    except StorageError as error:
        note("environment: %s cannot be fetched: %s" % (name, error))
        return False
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        note("environment: %s is unusable: %s" % (name, error))
        return False
    finally:
        remove_file(archive)
    problem = built.problem() if built.is_marked() else "it is incomplete"
    if problem:
        note("environment: %s does not run on this host: %s" % (name, problem))
    return not problem


def unpack_archive(archive: str, folder: str) -> None:
    """Unpack an environment, each member below `folder` in every version of Python. Then create the links out of the
    folder; none may replace a file or pass through another link. Raises OSError, TarError, EOFError, ValueError."""
    has_filters = hasattr(tarfile, "data_filter")  # since a late release of 3.8
    options: Record = {"filter": "data"} if has_filters else {}
    with tarfile.open(archive) as tar:
        tar.extractall(folder, members=_safe_members(tar, folder), **options)  # noqa: S202, checked
    links_file = os.path.join(folder, LINKS)
    if os.path.exists(links_file):
        with open(links_file, "rb") as file:
            links = [(str(name), str(target)) for name, target in json.load(file)]
        for name, target in links:
            path = os.path.join(folder, name)
            if not _is_relative(name) or not is_below(os.path.dirname(path), folder):
                raise ValueError("%r leaves it" % name)
            os.symlink(target, path)


def _safe_members(tar: tarfile.TarFile, folder: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members. Raises ValueError for a member or link target outside `folder`, and beyond the limits."""
    room, count = MAX_KEPT, 0
    for member in tar:
        room, count = room - member.size, count + 1
        if room < 0 or count > MAX_FILES:
            raise ValueError("it is too large")
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise ValueError("%r is neither file, folder nor link" % member.name)
        if not is_short(member.name):
            raise ValueError("%.100r... is too long" % member.name)
        path, link = os.path.join(folder, member.name), member.linkname
        checked_path = os.path.dirname(path) if member.issym() else path
        target = os.path.join(os.path.dirname(path) if member.issym() else folder, link)
        is_safe = _is_relative(member.name) and is_below(checked_path, folder)
        if member.issym() or member.islnk():
            is_safe = is_safe and not os.path.isabs(link) and is_below(target, folder)
        if not is_safe:
            raise ValueError("%r leaves it" % member.name)
        member.mode &= 0o777
        yield member


def _is_relative(name: str) -> bool:
    return bool(name) and not os.path.isabs(name) and ".." not in name.split("/")


def keep_archive(
    files: SealedFiles, name: str, built: BuiltEnvironment, note: Note, run_aside: Aside
) -> Optional[threading.Thread]:
    """Pack the environment before the program can change it, and return the thread that uploads the archive. None: the
    environment is not uploaded, for a reason in the log. Raises Stopped."""
    archive = built.folder + ".tar"
    try:
        size = run_aside(lambda: _size_of(built.folder))
        free = shutil.disk_usage(ENVS).free
        if size > MAX_KEPT or size > free - ROOM:
            note("environment: %.1f GiB are too much for the bucket's cache" % (size / 1024**3))
            return None
        run_aside(lambda: _pack(built.folder, archive))
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

    upload = threading.Thread(target=put, name="keep", daemon=True)
    upload.start()
    return upload


def _size_of(folder: str) -> int:
    paths = (os.path.join(root, name) for root, _, files in os.walk(folder) for name in files)
    return sum(os.lstat(path).st_size for path in paths)


def _pack(folder: str, archive: str) -> None:
    """Pack the environment, with the marker last: a truncated archive has no marker."""
    outside: List[Tuple[str, str]] = []

    def leave_out_links(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        target = os.path.join(folder, os.path.dirname(member.name), member.linkname)
        if member.issym() and (os.path.isabs(member.linkname) or not is_below(target, folder)):
            outside.append((member.name, member.linkname))
            return None
        return member

    links = os.path.join(folder, LINKS)
    with tarfile.open(archive, "w") as tar:
        for name in sorted(os.listdir(folder)):
            if name not in (MARKER, LINKS):
                tar.add(os.path.join(folder, name), name, filter=leave_out_links)
        with open(links, "w", encoding="utf-8") as file:
            json.dump(outside, file)
        for name in (LINKS, MARKER):
            tar.add(os.path.join(folder, name), name)
