"""The files of a folder, in the order in which a storage lists their names. Follows no link out of the folder."""

import os
import stat
from collections.abc import Iterator

from tpujob.data.keys import PARTS_FOLDER, key_of
from tpujob.data.objects import LeftOut, LocalFile


def files_of(folder: bytes) -> Iterator[LocalFile | LeftOut]:
    """In the order of their keys' UTF-8 bytes. Holds the names of one folder of each level in memory, no more."""
    yield from _below(os.path.realpath(folder), os.path.realpath(folder), b"")


def local_file(key: str, path: bytes, found: os.stat_result) -> LocalFile:
    return LocalFile(key, path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _below(root: bytes, folder: bytes, prefix: bytes) -> Iterator[LocalFile | LeftOut]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name + b"/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
            )
    except OSError as error:
        yield LeftOut(shown(prefix), f"the folder cannot be read: {error.strerror}")
        return
    for name in names:
        relative = prefix + name
        if name.endswith(b"/"):
            if relative != os.fsencode(PARTS_FOLDER) + b"/":
                yield from _below(root, folder + b"/" + name[:-1], relative)
        else:
            yield _one(root, folder + b"/" + name, relative)


def _one(root: bytes, path: bytes, relative: bytes) -> LocalFile | LeftOut:
    key = key_of(relative)
    if key is None:
        return LeftOut(shown(relative), "the name is not UTF-8")
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            path = os.path.realpath(path, strict=True)
            found = os.lstat(path)
            if not path.startswith(root.rstrip(b"/") + b"/"):
                return LeftOut(key, "it is a link that leads out of the folder")
            if stat.S_ISDIR(found.st_mode):
                return LeftOut(key, "it is a link to a folder")
    except OSError as error:
        return LeftOut(key, f"it cannot be read: {error.strerror}")
    if not stat.S_ISREG(found.st_mode):
        return LeftOut(key, "it is no ordinary file")
    return local_file(key, path, found)


def shown(name: bytes) -> str:
    """A name of any bytes, to be printed."""
    return name.decode("utf-8", "backslashreplace")
