"""How many hosts one backend can start: time, CPU, threads and memory for slices of 1 to 256 hosts.

Run: python -m tests.bench.bench_ssh [HOSTS ...]. The hosts are those of the emulator, one process for all of them, on
the same machine: its CPU is given apart, and the time is that of both. Each line is a client process of its own that
has contacted one other host before, so that imports do not count. `start`: agent and plan are carried to every host and
every agent started, all or none; the agent is a stand-in that answers at once, as the real one's CPU is the host's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from tests.support.farm_rig import FarmProcess, slice_at
from tpujob.adapters.ssh import SshHosts
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Slice

SIZES = (1, 8, 64, 256)
#: of the largest slice
TARGET = {"seconds": 15.0, "threads": 64, "memory": 60.0}
SSH_PROCESSES = 32  #: at once, for `ssh`

#: answers like the agent, and costs a host as little as a Python can
STAND_IN = """import sys
print('{"ok": true, "state": "started"}' if sys.argv[1] == "start" else '{"ok": true}')
"""
WAYS = {
    "start": "tpujob: carry and start",
    "again": "tpujob: the same, agent there",
    "stop": "tpujob: stop",
    "group": "Fabric ThreadingGroup: true",
    "ssh": f"ssh, {SSH_PROCESSES} at once: true",
}


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or list(SIZES)
    print(f"target for {SIZES[-1]} hosts: " + ", ".join(f"{k} {v:g}" for k, v in TARGET.items()))
    head = ("wall s", "CPU s", "farm s", "hosts s", "threads", "+MiB")
    print(f"{'':32}{'hosts':>6}" + "".join(f"{text:>9}" for text in head))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        farm = FarmProcess(place)
        try:
            for hosts in sizes:
                _measure(farm, place, hosts)
        finally:
            farm.stop()


def _measure(farm: FarmProcess, place: Path, hosts: int) -> None:
    """One line for each way."""
    agent = place / "agent.py"
    agent.write_text(STAND_IN)
    adapter = SshHosts(place / "keys", port=farm.ssh_port, agent=agent)
    warm, name = "tj-000001-1", f"tj-{hosts:06}-2"
    spots = {}
    for each, count in ((warm, 1), (name, hosts)):
        key = adapter.public_key(slice_at(each))
        spots[each] = farm.slice(each, count, key=key)
    adapter.close()
    for way, title in WAYS.items():
        task = {
            "way": way,
            "keys": str(place / "keys"),
            "port": farm.ssh_port,
            "agent": str(agent),
            "warm": [warm, spots[warm]],
            "slice": [name, spots[name]],
        }
        before = psutil.Process(farm.process.pid).cpu_times()
        done = subprocess.run(
            [sys.executable, "-c", "from tests.bench.bench_ssh import client; client()"],
            input=json.dumps(task),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        after = psutil.Process(farm.process.pid).cpu_times()
        if done.returncode:
            print(f"{title:32}{hosts:6}  failed")
            continue
        seen = json.loads(done.stdout.splitlines()[-1])
        own = after.user + after.system - before.user - before.system
        theirs = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        print(
            f"{title:32}{hosts:6}{seen['wall']:9.2f}{seen['cpu']:9.2f}{own:9.2f}{theirs:9.2f}"
            f"{seen['threads']:9}{seen['memory']:9.1f}"
        )
    farm.call("DELETE", f"/slices/{name}")


# In a process of its own ---------------------------------------------------------------------------------------------


def client() -> None:
    """Do one task, after a small one that warms up; print what it took."""
    task = json.load(sys.stdin)
    work = _work(task)
    work(*task["warm"])
    watch = _Watch()
    begin, cpu = time.perf_counter(), _cpu()
    work(*task["slice"])
    wall, cpu = time.perf_counter() - begin, _cpu() - cpu
    print(json.dumps({"wall": wall, "cpu": cpu, **watch.stop()}))


def _work(task: dict[str, Any]) -> Callable[[str, list[str]], None]:
    way, port, keys = task["way"], task["port"], Path(task["keys"])
    if way == "group":
        return lambda name, addresses: _group(keys / name / "id_ed25519", port, addresses)
    if way == "ssh":
        return lambda name, addresses: _ssh(keys / name / "id_ed25519", port, addresses)
    adapter = SshHosts(keys, port=port, agent=Path(task["agent"]))

    def start(slice: Slice) -> None:
        plans = [HostPlan(e.host, _plan(e.host)) for e in slice.endpoints]
        adapter.start(slice, plans, timeout=240)

    def stop(slice: Slice) -> None:
        adapter.stop(slice, grace=1, timeout=240)

    do = stop if way == "stop" else start
    return lambda name, addresses: do(slice_at(name, *addresses))


def _plan(host: int) -> dict[str, Any]:
    """As long as a real one."""
    return {"job": "000001", "attempt": 1, "host": host, "env": {"PADDING": "x" * 1500}}


def _group(key: Path, port: int, addresses: list[str]) -> None:
    import fabric

    kwargs = {"key_filename": str(key), "allow_agent": False, "look_for_keys": False}
    group = fabric.ThreadingGroup(*addresses, user="tpujob", port=port, connect_kwargs=kwargs)
    group.run("true", hide=True)
    group.close()


def _ssh(key: Path, port: int, addresses: list[str]) -> None:
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
    command = ["ssh", "-F", "none", "-q", "-i", str(key), "-p", str(port)]
    command += [word for option in options for word in ("-o", option)]

    def one(address: str) -> None:
        subprocess.run(
            [*command, f"tpujob@{address}", "true"], check=True, stdin=subprocess.DEVNULL
        )

    with ThreadPoolExecutor(SSH_PROCESSES) as pool:
        list(pool.map(one, addresses))


class _Watch:
    """The most threads and memory of this process and its children, above what it has now."""

    def __init__(self) -> None:
        self._self = psutil.Process()
        self._before = self._memory()
        self._threads = self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        self._over.set()
        self._thread.join()
        # this thread is the watch's own
        return {"threads": self._threads - 1, "memory": (self._most - self._before) / 2**20}

    def _run(self) -> None:
        while not self._over.wait(0.02):
            self._threads = max(self._threads, self._self.num_threads())
            self._most = max(self._most, self._memory())

    def _memory(self) -> int:
        total = 0
        for process in [self._self, *self._self.children(recursive=True)]:
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        return total


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
