"""A sync of a million objects that changes nothing: which operations it costs, how much CPU and how much memory. Fails
above its limits. Run: python -m tests.bench.scale_sync [objects]   (`make scale`)

The storage is a list that is made as it is asked for; any other request ends the run. Local files are links to a few.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.contract.data.rig import Silent
from tpujob.data.checksums import extend
from tpujob.data.objects import LeftOut, ObjectFacts, Operations
from tpujob.data.places import Folder, Place, Prefix
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.endpoints import files_of
from tpujob.data.sync.run import Sync

PAGE = 1000
CPU_SECONDS = 60.0
MOST_MEMORY = 300.0  #: MiB
GROWTH = 1.1  #: of memory, from a tenth of the objects to all
_CONTENT = b"x"
_IN_A_FOLDER = 10_000  #: an inode of ext4 has at most 65,000 names


class Listed:
    """Answers lists, and nothing else."""

    def __init__(self, objects: int) -> None:
        self._objects = objects
        self.operations = Operations()

    def location(self, bucket: str) -> str:
        return "US-CENTRAL2"

    def pages(self, bucket: str, prefix: str) -> Iterator[list[ObjectFacts]]:
        crc32c = extend(0, _CONTENT)
        for start in range(0, self._objects, PAGE):
            self.operations.class_a += 1
            numbers = range(start, min(start + PAGE, self._objects))
            yield [ObjectFacts(prefix + _name(n), len(_CONTENT), crc32c, 1) for n in numbers]


def main() -> None:
    if len(sys.argv) > 2:
        _child(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
        return
    objects = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        for kind in ("buckets", "folder"):
            memory = [
                _measured(kind, n, Path(name) / f"{kind}-{n}") for n in (objects // 10, objects)
            ]
            assert memory[1] <= memory[0] * GROWTH, f"{kind}: memory grows with the objects"


def _measured(kind: str, objects: int, folder: Path) -> float:
    """MiB at most."""
    folder.mkdir()
    if kind == "folder":
        _make(folder, objects)
    begin = time.perf_counter()
    child = os.fork()
    if not child:
        words = ["-m", "tests.bench.scale_sync", kind, str(objects), str(folder)]
        os.execv(sys.executable, [sys.executable, *words])
    _, status, used = os.wait4(child, 0)
    assert status == 0
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    print(
        f"{kind:8} {objects:9,} objects  {time.perf_counter() - begin:6.1f} s wall, {cpu:5.1f} s CPU, "
        f"{memory:4.0f} MiB at most",
        flush=True,
    )
    assert cpu < CPU_SECONDS
    assert memory < MOST_MEMORY
    return memory


def _make(folder: Path, objects: int) -> None:
    """Files, and a cache that knows their checksums, as after a first sync."""
    for n in range(objects):
        path = folder / "source" / _name(n)
        if n % _IN_A_FOLDER == 0:
            path.parent.mkdir(parents=True)
            path.write_bytes(_CONTENT)
            first = path
        else:
            os.link(first, path)
    time.sleep(0.1)  # it keeps nothing of a file that was written just now
    cache = ChecksumCache(folder / "ledger")
    for file in files_of(os.fsencode(folder / "source")):
        assert not isinstance(file, LeftOut)
        cache.keep_checksum(file, extend(0, _CONTENT))
    cache.close()


def _child(kind: str, objects: int, folder: Path) -> None:
    storage = Listed(objects)
    target = Prefix("target", "data/")
    source: Place = Prefix("source", "data/") if kind == "buckets" else Folder(f"{folder}/source")
    cache = ChecksumCache(folder / "ledger")
    done = Sync(source, target, storage, cache, Silent()).run()
    cache.close()
    assert (done.same, done.copied, done.left_out, done.conflicts) == (objects, 0, 0, 0)
    sides = 2 if kind == "buckets" else 1
    assert storage.operations.class_a == sides * -(-objects // PAGE), "one list for each page"


def _name(n: int) -> str:
    return f"part-{n // _IN_A_FOLDER:04d}/{n % _IN_A_FOLDER:05d}"


if __name__ == "__main__":
    main()
