"""The hollow slices: they come up, report, are disturbed and go, as the emulated cloud asks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tpujob.emulator.farm.metadata import GUEST_ATTRIBUTES, SSH_KEYS
from tpujob.emulator.farm_client import FarmError
from tpujob.emulator.hollow.host import Host
from tpujob.emulator.storage import StorageServer
from tpujob.emulator.tpu.records import BringUp, Disturb
from tpujob.errors import TpujobError
from tpujob.protocol import paths
from tpujob.protocol.report import sign_report

if TYPE_CHECKING:
    from tpujob.emulator.hollow.door import Door

T = TypeVar("T")
HOLLOW = "hollow"  #: as what is installed on hosts
_TIMEOUT_S = 30.0
_RETRY_S = 1.0
#: reports that are being written: whoever else asks the storage waits for no more of them
_AT_ONCE = 4
_ATTRIBUTES = "instance/attributes/"


@dataclass(slots=True, eq=False)
class _Slice:
    name: str
    hosts: tuple[Host, ...]
    addresses: tuple[str, ...]
    keys: set[str]
    publishes: bool  #: its hosts publish their keys
    due: asyncio.TimerHandle | None = None  #: of its next reports
    writing: bool = False  #: its reports are being written
    again: bool = False  #: and have changed meanwhile
    ending: asyncio.TimerHandle | None = None  #: of its notice


class HollowFarm:
    """A `FarmApi` in this process, with a thread of its own from the constructor to `close`. No order takes time."""

    def __init__(self, storage: StorageServer, port: Callable[[], int]) -> None:
        """`port`: tells the port of SSH of every host; raises FarmError."""
        self._storage = storage
        self._slices: dict[str, _Slice] = {}
        self._by_key: dict[str, _Slice] = {}
        self._port = port
        self._door: Door | None = (
            None  #: made for the first slice: its library takes long to import
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(_AT_ONCE)
        self.reports = 0  #: objects that were written
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=HOLLOW, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Afterwards nobody answers, and nothing is written."""
        self._here(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Orders, as `FarmApi` promises them

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        return self._here(self._bring_up(wanted))

    def guests(self, slice: str) -> tuple[dict[str, str], ...]:
        return self._here(self._guests(slice))

    def take_down(self, slice: str) -> None:
        self._here(self._take_down(slice))

    def disturb(self, wanted: Disturb) -> None:
        self._here(self._disturb(wanted))

    def switch_on(self, slice: str) -> None:
        self._here(self._switch(slice, None, on=True))

    def slices(self) -> Mapping[str, frozenset[int]]:
        return self._here(self._hung())

    def has(self, slice: str) -> bool:
        return slice in self._slices

    def count(self) -> dict[str, int]:
        """How many slices and hosts there are, and reports were written."""
        hosts = sum(len(one.hosts) for one in [*self._slices.values()])
        return {"slices": len(self._slices), "hosts": hosts, "reports": self.reports}

    def _here(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on this farm's thread, which owns everything."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)
        except TpujobError as error:
            raise FarmError(error.message) from error

    # On its thread

    async def _bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        known = self._slices.get(wanted.slice)
        if known is not None:
            return known.addresses
        door = self._opened()
        addresses = tuple([await door.address(host.index) for host in wanted.hosts])
        facts = {f"{_ATTRIBUTES}{name}": value for name, value in wanted.metadata.items()}
        made = _Slice(
            wanted.slice,
            tuple(Host(host.physical) for host in wanted.hosts),
            addresses,
            _keys_of(facts.get(SSH_KEYS, "")),
            facts.get(GUEST_ATTRIBUTES, "").upper() == "TRUE",
        )
        self._slices[made.name] = made
        self._by_key |= dict.fromkeys(made.keys, made)
        return addresses

    async def _guests(self, slice: str) -> tuple[dict[str, str], ...]:
        found = self._slices.get(slice)
        if found is None or not found.publishes:
            return ()
        kind, _, key = self._opened().public_key.partition(" ")
        return tuple(
            {f"hostkeys/{kind}": key, "hostkeys/hostname": f"{slice}-w-{number}"}
            for number in range(len(found.hosts))
        )

    async def _take_down(self, slice: str) -> None:
        gone = self._slices.pop(slice, None)
        if gone is not None:
            _disarm(gone)
            for key in gone.keys:
                self._by_key.pop(key, None)

    async def _disturb(self, wanted: Disturb) -> None:
        """What has no meaning without processes and a network does nothing."""
        found, host = self._slices.get(wanted.slice), wanted.how.get("host")
        if found is None:
            raise FarmError(f"no slice {wanted.slice}")
        match wanted.what:
            case "preempt":
                self._preempt(found, float(wanted.how.get("notice_s", 0.0)))
            case "off":
                await self._switch(wanted.slice, host, on=False)
            case "hang":
                now, off = time.time(), wanted.how.get("off") is True
                hung = [one.hang(now, off=off) for one in _hosts(found, host)]
                if not any(hung):
                    raise FarmError(f"no program runs on {wanted.slice}")
            case _:
                pass

    def _preempt(self, found: _Slice, notice: float) -> None:
        """With so many seconds of notice, in which hosts have their say; without any they die as they stand."""
        if notice <= 0:
            _cut(found)
            return
        for one in found.hosts:
            one.preempt()
        self._speak(found)
        found.ending = self._loop.call_later(notice, _cut, found)

    async def _switch(self, slice: str, host: int | None, *, on: bool) -> None:
        """A host that comes back has lost its program."""
        found = self._slices.get(slice)
        for one in _hosts(found, host) if found else ():
            if on and not one.on:
                one.attempt = None
            one.on = on

    async def _hung(self) -> dict[str, frozenset[int]]:
        return {
            name: frozenset(k for k, one in enumerate(made.hosts) if _hangs(one))
            for name, made in self._slices.items()
        }

    async def _end(self) -> None:
        for name in [*self._slices]:
            await self._take_down(name)
        if self._door is not None:
            await self._door.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    # SSH

    def _opened(self) -> Door:
        if self._door is None:
            from tpujob.emulator.hollow.door import Door

            self._door = Door(self._port, self._by_key.__contains__, self._answer)
        return self._door

    def _answer(self, key: str, host: int, command: str, given: bytes) -> tuple[int, str] | None:
        found = self._by_key.get(key)
        one = found.hosts[host] if found and host < len(found.hosts) else None
        if found is None or one is None or not one.on:
            return None
        try:
            answer = one.answer(command, given, time.time())
        except (ValueError, KeyError, TypeError) as error:
            return 1, f"a hollow host does not understand this: {error!r}"
        if one.speaks:
            self._speak(found)
        return answer

    # Reports

    def _speak(self, slice: _Slice) -> None:
        """Write its reports now, and from time to time from now on."""
        slice.again = True
        if slice.due is not None:
            slice.due.cancel()
        if not slice.writing:
            slice.writing = True
            task = self._loop.create_task(self._report(slice))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _report(self, slice: _Slice) -> None:
        after = 0.0
        while slice.again:
            slice.again = False
            after = await self._write(slice)
        slice.writing = False
        if after and self._slices.get(slice.name) is slice:
            slice.due = self._loop.call_later(after, self._speak, slice)

    async def _write(self, slice: _Slice) -> float:
        """One object of each host that has something to report. Returns the seconds until the next ones; 0: there are
        none."""
        now = time.time()
        newest = max((a.number for one in slice.hosts if (a := one.attempt)), default=0)
        wrote: list[bool] = []
        every = 0.0
        for one in slice.hosts:
            attempt = one.attempt
            if attempt is None or attempt.number != newest or not one.speaks:
                continue
            plan, ended = attempt.plan, attempt.exit_code is not None
            document = attempt.report(now, one.physical)
            metadata, body = sign_report(document, attempt.key)
            path = paths.report_path(plan["workdir"], plan["attempt"], plan["host"])
            async with self._few:
                wrote.append(await self._storage.put(path, metadata, body))
            self.reports += wrote[-1]
            attempt.said = attempt.said or (ended and wrote[-1])
            every = max(1.0, float(plan["report_every"]))
        return every if all(wrote) else _RETRY_S


def _keys_of(ssh_keys: str) -> set[str]:
    """The keys in the metadata `ssh-keys`; there is one user."""
    keys = (line.strip().partition(":")[2] for line in ssh_keys.splitlines())
    return {" ".join(key.split()[:2]) for key in keys}


def _hosts(slice: _Slice, host: int | None) -> tuple[Host, ...]:
    return slice.hosts if host is None else slice.hosts[host : host + 1]


def _hangs(host: Host) -> bool:
    return host.attempt is not None and host.attempt.stuck_since is not None


def _cut(slice: _Slice) -> None:
    """Its notice is over."""
    for host in slice.hosts:
        host.on = False


def _disarm(slice: _Slice) -> None:
    _cut(slice)
    for timer in (slice.due, slice.ending):
        if timer is not None:
            timer.cancel()
