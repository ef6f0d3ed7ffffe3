"""What `tpujob data pack` takes for many small files: CPU, wall clock and the most memory of each command.
Run: python -m tests.bench.bench_pack [files] [bytes of each]"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder / "source", files, size)
        what = f"{files:,} files of {size:,} B"
        source, packed = str(folder / "source"), str(folder / "packed")
        _run(f"plan, {what}", folder, "pack", "--dry-run", source, packed)
        _run(f"pack, {what}", folder, "pack", source, packed)
        _run(f"pack mixed, {what}", folder, "pack", "--shuffle=1", source, f"{packed}-mixed")
        _run(f"unpack, {what}", folder, "unpack", packed, str(folder / "back"))
        _run(f"unpack again, {what}", folder, "unpack", packed, str(folder / "back"))


def _make(folder: Path, files: int, size: int) -> None:
    data = random.Random(1).randbytes(size + files)
    for i in range(files):
        part = folder / f"class-{i // 1000:03d}"
        if i % 1000 == 0:
            part.mkdir(parents=True)
        (part / f"{i:07d}.jpg").write_bytes(data[i : i + size])


def _run(what: str, folder: Path, *words: str) -> None:
    begin = time.perf_counter()
    child = os.fork()
    if not child:
        os.environ["TPUJOB_STATE"] = str(folder / "tpujob")
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.execv(sys.executable, [sys.executable, "-m", "tpujob", "data", *words])
    _, status, used = os.wait4(child, 0)
    assert status == 0, f"{words} ended with {status}"
    print(
        f"{what:45} {time.perf_counter() - begin:7.2f} s wall, {used.ru_utime + used.ru_stime:6.2f} s CPU, "
        f"{used.ru_maxrss / 1024:5.0f} MiB at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
