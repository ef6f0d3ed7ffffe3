"""What a million rows of a billing export cost to read and to sort. Run: python -m tests.bench.bench_bill [ROWS]"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from tests.support.bill import (
    DAY,
    HOUR,
    START,
    Row,
    Use,
    ledger_of,
    ledger_slice,
    other_rows,
    rows_of,
    write_csv,
)
from tpujob.cli.commands.cost.bill import compare

ROWS = 1_000_000
TARGET_CPU, TARGET_MIB = 10.0, 500


JOBS = [
    Use(f"{n:06d}", f"tj-{n:06d}-1-lab", "v5e", "us-west4-a", True, 8, START + n * 60, START + n * 60 + 9 * HOUR,
        "0.48", owner="lab")
    for n in range(2_000)
]  # fmt: skip


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    some = [row for use in JOBS for row in rows_of(use)] + other_rows(1, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "export.json"), Path(folder, "export.csv")]
        for path in files:
            _write(path, some, count)
        for paths in ([files[0]], [files[1]]):
            once = multiprocessing.get_context("spawn").Process(target=_measure, args=(paths,))
            once.start()  # a process for each, for its peak of memory
            once.join()


def _write(path: Path, some: list[Row], count: int) -> None:
    """The same rows again and again."""
    if path.suffix == ".json":
        lines, head = [json.dumps(row) + "\n" for row in some], ""
    else:
        head, *lines = write_csv(path, some).read_text().splitlines(keepends=True)
    with path.open("w") as file:
        file.write(head)
        for at in range(count):
            file.write(lines[at % len(lines)])


def _measure(paths: list[Path]) -> None:
    ledger = ledger_of(map(ledger_slice, JOBS), START + 60 * DAY) | {"owner": "lab"}
    before = time.process_time()
    found = compare(paths, ledger)
    spent = time.process_time() - before
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    names = " and ".join(path.suffix[1:] for path in paths)
    print(
        f"cost reconcile {names:12} {found['total']['rows']:,} rows: {spent:5.1f} s CPU ({TARGET_CPU:g} s), "
        f"peak {peak:,.0f} MiB ({TARGET_MIB})"
    )


if __name__ == "__main__":
    main()
