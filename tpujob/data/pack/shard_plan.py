"""Which files go into which shard, and in which order. Equal sets are cut equally, wherever they lie."""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from tpujob.data.objects import LocalFile

#: files in a shard, at most: the list of one shard is in memory
MOST_RECORDS = 32_768
#: bytes of a file that is packed, at most: a record is in memory as a whole
LARGEST = 256 << 20


def cut(
    files: Iterable[LocalFile], size: int, most: int = MOST_RECORDS
) -> Iterator[list[LocalFile]]:
    """Runs of files of at most `size` bytes together; a larger file is alone."""
    run: list[LocalFile] = []
    held = 0
    for file in files:
        if run and (held + file.size > size or len(run) == most):
            yield run
            run, held = [], 0
        run.append(file)
        held += file.size
    if run:
        yield run


def shuffled(files: Iterable[LocalFile], seed: int, folder: Path) -> Iterator[LocalFile]:
    """In the order of a hash of seed and key, which every version of Python computes alike. Sorted in a file below
    `folder`, as a list of millions would not fit into memory."""
    path = folder / "order.db"
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA cache_size=-32000")  # KiB; by default most inserts would read a page
        db.execute(
            "CREATE TABLE files (place BLOB PRIMARY KEY, key TEXT, path BLOB, size INTEGER, mtime_ns INTEGER,"
            " ctime_ns INTEGER, inode INTEGER) WITHOUT ROWID"
        )
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((_place(seed, file.key), file.key, file.path, *file.identity) for file in files),
        )
        db.execute("COMMIT")
        for _, key, where, *identity in db.execute("SELECT * FROM files ORDER BY place"):
            yield LocalFile(key, where, *identity)
    finally:
        db.close()
        path.unlink(missing_ok=True)


def _place(seed: int, key: str) -> bytes:
    return hashlib.blake2b(key.encode(), key=str(seed).encode(), digest_size=16).digest()
