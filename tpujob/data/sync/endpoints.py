"""Both ends of a sync as sorted streams of keys: the files of a folder, or what a storage lists."""

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

from tpujob.data.keys import PARTS_FOLDER, key_of
from tpujob.data.objects import LeftOut, LocalFile, ObjectFacts, SourceReader

#: in the order of the keys' UTF-8 bytes; calls its argument with what cannot be copied
Items = Callable[[Callable[[LeftOut], None]], Iterator[tuple[str, Any]]]


def in_folder(
    folder: bytes, leave_out: Callable[[LeftOut], None]
) -> Iterator[tuple[str, LocalFile]]:
    """Every link in its path is resolved. A folder that is missing is empty."""
    if not os.path.isdir(folder):
        return
    for file in files_of(folder):
        if isinstance(file, LeftOut):
            leave_out(file)
        else:
            yield file.key, file


def listed(
    reader: SourceReader, bucket: str, prefix: str, leave_out: Callable[[LeftOut], None]
) -> Iterator[tuple[str, ObjectFacts]]:
    for page in reader.pages(bucket, prefix):
        for facts in page:
            if isinstance(facts, LeftOut):
                leave_out(facts)
            else:
                yield facts.name[len(prefix) :], facts


def files_of(folder: bytes) -> Iterator[LocalFile | LeftOut]:
    """The files of a folder in the order of their keys' UTF-8 bytes, as a storage lists them. Follows no link out of
    the folder. Holds the names of one folder of each level in memory, no more."""
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
            yield _file(root, folder + b"/" + name, relative)


def _file(root: bytes, path: bytes, relative: bytes) -> LocalFile | LeftOut:
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
        return LeftOut(key, "it is not an ordinary file")
    return local_file(key, path, found)


def shown(name: bytes) -> str:
    """A name of any bytes, to be printed."""
    return name.decode("utf-8", "backslashreplace")
