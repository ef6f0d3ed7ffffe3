"""Runs one pack after another in children that are killed at their n-th change of a file. Not a test: a program.

    python -m tests.contract.data.killed_pack SOURCE FOLDER POINTS

For each point: a child packs to FOLDER/N and is killed; what is visible by then is judged; another child finishes.
Prints one JSON line for each point. Children are forks of a process that has packed nothing, so that each is cheap.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contract.data.rig import Silent, files_in
from tpujob.data.pack import Pack, records

#: what a pack does to files, as Python's audit hooks call it; and the reading of each source
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")


def pack(source: str, target: str, kill_at: int = 0) -> int:
    """How many events it took."""
    events = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal events
        if event not in _EVENTS:
            return
        events += 1
        if events == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    Pack(source, shard_bytes=1 << 18).run(target, Silent())
    return events


def in_child(work: Callable[..., object], *args: object) -> tuple[int, Any]:
    """What waitpid says, and the result. In a child always: this process must never start the threads of the package,
    or its forks would hang."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.write(writing, json.dumps(work(*args)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reading) as said:
        return status, json.loads(said.read() or "null")


def judged(folder: Path) -> dict[str, int]:
    """How many shards are visible, and how many of them are not what their names say."""
    shards = list(folder.glob("*.arrayrecord"))
    wrong = 0
    for shard in shards:
        package = records._package()  # pyright: ignore[reportPrivateUsage]
        reader = package.ArrayRecordReader(str(shard))
        named = shard.stem.split("-")[1]
        wrong += not reader.ok() or hashlib.sha256(shard.read_bytes()).hexdigest()[:16] != named
        reader.close()
    return {"shards": len(shards), "wrong": wrong, "manifest": (folder / "manifest.json").exists()}


def main() -> None:
    source, folder, points = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    _, events = in_child(pack, source, str(folder / "whole"))
    for n in range(points):
        target = folder / str(n)
        at = 1 + (2 * n + 1) * events // (2 * points)
        status, _ = in_child(pack, source, str(target), at)
        _, found = in_child(judged, target)
        assert in_child(pack, source, str(target))[0] == 0
        same = files_in(target) == files_in(folder / "whole")
        shutil.rmtree(target)
        print(json.dumps({"status": status, **found, "same": same}), flush=True)


if __name__ == "__main__":
    main()
