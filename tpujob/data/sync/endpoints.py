"""The ends of a sync as sorted streams of keys: the files of a folder, or the objects of a storage."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tpujob.data.keys import PARTS_FOLDER
from tpujob.data.objects import LocalFile, ObjectFacts, SourceReader
from tpujob.protocol.left_out import NOT_A_FILE, NOT_UTF8, LeftOut, reason_of

#: returns keys and items, in the order of the keys' UTF-8 bytes; calls its argument for files that cannot be copied
Items = Callable[[Callable[[LeftOut], None]], Iterator[tuple[str, Any]]]


def in_folder(
    folder: bytes, leave_out: Callable[[LeftOut], None]
) -> Iterator[tuple[str, LocalFile]]:
    """Yield the files of a folder, a path without links. A missing folder is empty."""
    if not os.path.isdir(folder):
        return
    for file in files_of(folder):
        if isinstance(file, LeftOut):
            leave_out(file)
        else:
            yield file.key, file


def named_files(root: bytes, keys: Iterable[str]) -> Iterator[tuple[str, LocalFile]]:
    """Yield those of the keys that are files below `root`, a path without links."""
    for key in keys:
        file = _file(root, root + b"/" + os.fsencode(key), os.fsencode(key))
        if isinstance(file, LocalFile):
            yield key, file


def in_storage(
    reader: SourceReader, bucket: str, prefix: str, leave_out: Callable[[LeftOut], None]
) -> Iterator[tuple[str, ObjectFacts]]:
    for page in reader.pages(bucket, prefix):
        for facts in page:
            if isinstance(facts, LeftOut):
                leave_out(facts)
            else:
                yield facts.name[len(prefix) :], facts


def files_of(folder: bytes) -> Iterator[LocalFile | LeftOut]:
    """Yield the files of a folder in the order of their keys' UTF-8 bytes, as a storage lists them. Follows no link out
    of the folder. The names of one folder of each level are in memory."""
    root = os.path.realpath(folder)
    yield from _walk(root, root, b"")


def local_file(key: str, path: bytes, status: os.stat_result) -> LocalFile:
    times = status.st_mtime_ns, status.st_ctime_ns
    return LocalFile(key, path, status.st_size, *times, status.st_ino)


def _walk(root: bytes, folder: bytes, prefix: bytes) -> Iterator[LocalFile | LeftOut]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name + b"/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
            )
    except OSError as error:
        yield LeftOut(printable(prefix), reason_of(error))
        return
    for name in names:
        relative = prefix + name
        if name.endswith(b"/"):
            if relative != os.fsencode(PARTS_FOLDER) + b"/":
                yield from _walk(root, folder + b"/" + name[:-1], relative)
        else:
            yield _file(root, folder + b"/" + name, relative)


def _file(root: bytes, path: bytes, relative: bytes) -> LocalFile | LeftOut:
    try:
        key = relative.decode("utf-8")
    except UnicodeDecodeError:
        return LeftOut(printable(relative), NOT_UTF8)
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            path = os.path.realpath(path, strict=True)
            status = os.lstat(path)
            if not path.startswith(root.rstrip(b"/") + b"/"):
                return LeftOut(key, "it is a link that leads out of the folder")
            if stat.S_ISDIR(status.st_mode):
                return LeftOut(key, "it is a link to a folder")
    except OSError as error:
        return LeftOut(key, reason_of(error))
    if not stat.S_ISREG(status.st_mode):
        return LeftOut(key, NOT_A_FILE)
    return local_file(key, path, status)


def printable(name: bytes) -> str:
    """Return a name of any bytes as text to print."""
    return name.decode("utf-8", "backslashreplace")
