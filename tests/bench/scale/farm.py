"""Simulated hosts, as Kubernetes' kubemark has nodes: ten thousand jobs fit on one machine.

A simulated host has no process and no disk. One SSH server answers for all of them; what an agent would report is
written to the emulated storage, signed with the key of the attempt.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import urllib3

from tests.bench.scale.host import Attempt, Host
from tests.bench.scale.ssh import SshServer
from tpujob.emulator.cloud.records import Disturb
from tpujob.emulator.driver import FarmError
from tpujob.emulator.farm import HostUp, SliceRequest
from tpujob.emulator.farm.metadata import GUEST_ATTRIBUTES, SSH_KEYS

T = TypeVar("T")
_TIMEOUT_S = 30.0
_RETRY_S = 1.0
_WRITERS = 4  #: reports that are written at once
_ATTRIBUTES = "instance/attributes/"


@dataclass(slots=True, eq=False)
class ReportingHost(Host):
    """A host, and when its next report is due."""

    due: asyncio.TimerHandle | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedSlice:
    hosts: tuple[ReportingHost, ...]
    addresses: tuple[str, ...]
    keys: set[str]
    publishes: bool  #: its hosts publish their SSH keys


class SimulatedFarm:
    """A `FarmApi` in this process, with a thread of its own until `close`. No order takes time."""

    def __init__(
        self,
        storage: str,
        port: Callable[[], int],
        seeded: Callable[[str], Sequence[Attempt]] = lambda _: (),
    ) -> None:
        """`storage`: the URL of the emulated storage. `port`: returns the SSH port of every host. `seeded`: returns the
        programs that run on the hosts of a slice from the first moment on; none: a backend starts them."""
        self._storage, self._seeded = storage, seeded
        self._http = urllib3.PoolManager(maxsize=_WRITERS, retries=False)
        self._slices: dict[str, SimulatedSlice] = {}
        self._by_key: dict[str, SimulatedSlice] = {}
        self._ssh = SshServer(port, self._by_key.__contains__, self._answer)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers = ThreadPoolExecutor(_WRITERS)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Switch off every host; no report is written afterwards."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._writers.shutdown()

    def count(self) -> tuple[int, int]:
        """Return the number of slices and of hosts."""
        slices = [*self._slices.values()]
        return len(slices), sum(len(slice.hosts) for slice in slices)

    # Orders, as `FarmApi` promises them

    def bring_up(self, request: SliceRequest) -> list[HostUp]:
        slice = self._run(self._bring_up(request))
        kind, _, key = self._ssh.public_key.partition(" ")
        guests = {f"hostkeys/{kind}": key} if slice.publishes else {}
        return [
            HostUp(address, guests and {**guests, "hostkeys/hostname": f"{request.name}-w-{k}"})
            for k, address in enumerate(slice.addresses)
        ]

    def take_down(self, slice: str) -> None:
        self._run(self._take_down(slice))

    def disturb(self, request: Disturb) -> None:
        self._run(self._disturb(request))

    def switch_on(self, slice: str) -> None:
        self._run(self._switch(self._slices[slice].hosts, on=True))

    def slices(self) -> dict[str, frozenset[int]]:
        return {
            name: frozenset(
                k for k, host in enumerate(slice.hosts) if host.attempt and host.attempt.stuck_since
            )
            for name, slice in [*self._slices.items()]
        }

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on this farm's thread, which owns everything."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    # On its thread

    async def _bring_up(self, request: SliceRequest) -> SimulatedSlice:
        if old := self._slices.get(request.name):
            return old
        facts = {f"{_ATTRIBUTES}{name}": value for name, value in request.metadata.items()}
        slice = self._slices[request.name] = SimulatedSlice(
            tuple(ReportingHost(host.physical) for host in request.hosts),
            tuple([await self._ssh.address(host.index) for host in request.hosts]),
            _public_keys(facts.get(SSH_KEYS, "")),
            facts.get(GUEST_ATTRIBUTES, "").upper() == "TRUE",
        )
        self._by_key.update(dict.fromkeys(slice.keys, slice))
        for host, attempt in zip(slice.hosts, self._seeded(request.name), strict=False):
            host.attempt = attempt
            spread = random.uniform(0.0, float(attempt.plan["report_every"]))
            host.due = self._loop.call_later(spread, self._report_soon, host)
        return slice

    async def _take_down(self, name: str) -> None:
        if slice := self._slices.pop(name, None):
            await self._switch(slice.hosts, on=False)
            for key in slice.keys:
                self._by_key.pop(key, None)

    async def _disturb(self, request: Disturb) -> None:
        """Carry out a fault; one that has no meaning without processes and a network does nothing."""
        slice, number = self._slices.get(request.slice), request.how.get("host")
        if slice is None:
            raise FarmError(f"no slice {request.slice}")
        hosts = slice.hosts if number is None else slice.hosts[number : number + 1]
        match request.what:
            case "preempt":
                notice = float(request.how.get("notice_s", 0.0))
                for host in hosts if notice > 0 else ():
                    host.preempt()
                    self._report_soon(host)
                self._loop.call_later(notice, _switch_off, hosts)
            case "off":
                await self._switch(hosts, on=False)
            case "hang":
                for program in filter(None, (host.program for host in hosts)):
                    program.stuck_since = None if request.how.get("off") is True else time.time()
            case _:
                pass

    async def _switch(self, hosts: tuple[ReportingHost, ...], *, on: bool) -> None:
        """Switch hosts on or off; a host that comes back has lost its program."""
        _switch_off(hosts)
        for host in hosts if on else ():
            host.on, host.attempt = True, None

    async def _end(self) -> None:
        for name in [*self._slices]:
            await self._take_down(name)
        await self._ssh.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _answer(self, key: str, number: int, command: str, stdin: bytes) -> tuple[int, str] | None:
        slice = self._by_key.get(key)
        host = slice.hosts[number] if slice and number < len(slice.hosts) else None
        if host is None or not host.on:
            return None
        try:
            answer = host.answer(command, stdin, time.time())
        except (ValueError, KeyError, TypeError) as error:
            return 1, f"a simulated host does not understand this: {error!r}"
        if host.reports and command != "true":
            self._report_soon(host)
        return answer

    # Reports

    def _report_soon(self, host: ReportingHost) -> None:
        """Write its report now, and from time to time from now on."""
        if host.due is not None:
            host.due.cancel()
        task = self._loop.create_task(self._report(host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, host: ReportingHost) -> None:
        async with host.writing:
            attempt = host.attempt
            if attempt is None or not host.reports:
                return
            ended = attempt.exit_code is not None
            report = attempt.report(time.time(), host.physical)
            written = await self._loop.run_in_executor(self._writers, self._put, *report)
            attempt.reported = written and ended
        if host.reports:
            pause = max(1.0, float(attempt.plan["report_every"])) if written else _RETRY_S
            host.due = self._loop.call_later(pause, self._report_soon, host)

    def _put(self, url: str, metadata: dict[str, str]) -> bool:
        target = f"{self._storage}/{quote(url.removeprefix('gs://'))}"
        headers = {f"x-goog-meta-{name}": value for name, value in metadata.items()}
        try:
            return self._http.request("PUT", target, body=b"", headers=headers).status == 200
        except urllib3.exceptions.HTTPError:
            return False


def _public_keys(ssh_keys: str) -> set[str]:
    """Return the keys in the metadata `ssh-keys`; there is one user."""
    keys = (line.strip().partition(":")[2] for line in ssh_keys.splitlines())
    return {" ".join(key.split()[:2]) for key in keys}


def _switch_off(hosts: tuple[ReportingHost, ...]) -> None:
    for host in hosts:
        host.on = False
        if host.due is not None:
            host.due.cancel()
