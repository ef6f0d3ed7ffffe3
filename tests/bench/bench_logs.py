"""What a log of millions of lines costs, on the local stack: emulated storage, backend and command are processes of
their own. Run: python -m tests.bench.bench_logs [LINES]

Each of four hosts wrote LINES lines (a million, unless told); the job has ended and its slices are gone.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.support import long_logs
from tpujob.adapters.gcs import GcsBlobs
from tpujob.adapters.sqlite import SqliteStore
from tpujob.api import JobsApi
from tpujob.config import stack
from tpujob.config.settings import load
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import State
from tpujob.wiring.client import running_client

TPUJOB = str(Path(sys.executable).with_name("tpujob"))
BUCKET = "gs://tpujob-bench"


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        settings = load(Path(folder, "state"))
        env = {**os.environ, "TPUJOB_STATE": str(settings.state), "NO_COLOR": "1"}
        stack.up(settings)
        try:
            backend = stack.status(settings)[-1].pid
            api = running_client(settings)
            assert backend
            assert api
            emulator = next(part for part in stack.status(settings) if part.name == "emulator")
            assert emulator.ready
            job = _job(settings.db, emulator.ready["storage"], lines)
            print(f"{'what':46} {'wall':>9} {'command':>9} {'backend':>9}   target")
            _commands(env, backend, job, lines)
            _requests(api, backend, job, lines)
            print(f"{'backend: memory at most':46} {_peak(backend):6.0f} MB")
        finally:
            stack.down(settings)


def _job(db: Path, storage: str, lines: int) -> str:
    blobs = GcsBlobs("bench", storage)
    blobs.ensure_bucket(BUCKET, "us-central2", timeout=30)
    store = SqliteStore(db)
    made = long_logs.ended_job(1, BUCKET)
    said = Event(EventKind.CREATED, long_logs.BEGAN, State.SUCCEEDED, "made up for a measurement")
    job = store.create(made, said)
    size = long_logs.ship(blobs, job, lines)
    print(f"{lines:,} lines of each of {long_logs.HOSTS} hosts, {size / 1e6:,.0f} MB")
    blobs.close()
    return job.id


def _commands(env: dict[str, str], backend: int, job: str, lines: int) -> None:
    def run(what: str, *words: str, target: str = "") -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN), _cpu_of(backend)
        began = time.perf_counter()
        command = [TPUJOB, "logs", job, *words]
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before[0].ru_utime - before[0].ru_stime
        _say(what, wall, cpu, _cpu_of(backend) - before[1], target)

    run(f"tpujob logs --host 0: {lines:,} lines", "--host", "0", target="5 s")
    run(f"tpujob logs: {long_logs.HOSTS * lines:,} lines, merged")
    run("tpujob logs --host 0 --raw", "--host", "0", "--raw")
    run("tpujob logs --tail 20", "--tail", "20")
    run("tpujob logs --line, in the middle", "--line", str(lines // 2))
    run("tpujob logs --grep, 4 hosts, few lines", "--grep", f"step {lines // 7} ")
    run("tpujob logs --grep --regexp, 4 hosts", "--grep", r"step \d+7777 .*on 2", "--regexp")
    run("tpujob logs --traceback -1", "--traceback", "-1")


def _requests(api: JobsApi, backend: int, job: str, lines: int) -> None:
    chance = Random(1)

    def each(what: str, work: Callable[[], object], times: int) -> None:
        before, walls = _cpu_of(backend), list[float]()
        for _ in range(times):
            began = time.perf_counter()
            work()
            walls.append(time.perf_counter() - began)
        cpu = (_cpu_of(backend) - before) / times
        _say(what, sorted(walls)[times // 2], None, cpu)

    def window(**more: int) -> object:
        line = chance.randrange(1, lines)
        return api.log_window(job, {"of": chance.randrange(long_logs.HOSTS), "line": line, **more})  # pyright: ignore[reportArgumentType]

    each("window of 150 lines, one host", lambda: window(host=1, of=1), 50)
    each("window of 150 lines, 4 hosts merged", window, 50)
    each("the next match of a search", lambda: api.log_search(job, {
        "text": f"step {lines // 7} ", "of": 0, "line": lines // 3, "limit": 2,
    }), 20)  # fmt: skip


# Measuring -----------------------------------------------------------------------------------------------------------


def _say(what: str, wall: float, command: float | None, backend: float, target: str = "") -> None:
    spent = "" if command is None else f"{command:.3f} s"
    print(f"{what:46} {wall:7.3f} s {spent:>9} {backend:7.3f} s   {target}".rstrip())


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> float:
    """Megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
