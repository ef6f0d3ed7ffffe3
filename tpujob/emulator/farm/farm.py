"""The slices of the farm: addresses for their hosts, and operations on whole slices."""

import asyncio
import contextlib
import errno
import hashlib
import json
import secrets
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tpujob.emulator.farm import SliceRequest, image
from tpujob.emulator.farm.cluster import cluster_variables
from tpujob.emulator.farm.hosts import Host
from tpujob.emulator.farm.metadata import (
    COMING_MAINTENANCE,
    MAINTENANCE,
    NO_MAINTENANCE,
    NOTHING_UPCOMING,
    PREEMPTED,
    SSH_KEYS,
    UPCOMING,
    vm_facts,
)
from tpujob.emulator.farm.processes import Census
from tpujob.errors import NotFound, TpujobError
from tpujob.protocol import coordinator_port


@dataclass
class _Slice:
    hosts: tuple[Host, ...]
    marker: str
    ending: asyncio.Task[None] | None = None  #: the task of a preemption, from SIGTERM to off
    window: asyncio.TimerHandle | None = None  #: the timer that ends a maintenance event


class Farm:
    """The slices whose hosts are in the folder `state`. `__main__` refuses a second farm on the same folder."""

    def __init__(self, state: Path, ssh_port: int = 0) -> None:
        self._state = state
        self._id = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
        self._census = Census(self._id)
        self._slices: dict[str, _Slice] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        block = 10 + secrets.randbelow(240)
        self._addresses, self._every_address = host_addresses(block), f"127.{block}.*"
        self._coordinators = Coordinators()
        self._hole = BlackHole()
        self._imaging = threading.Lock()
        self._shared = state / "shared"  #: images and homes, which belong to no single slice
        self.ssh_port = ssh_port or free_everywhere()

    async def clear(self) -> None:
        """Kill and remove everything that an earlier farm on this folder left behind."""
        await self._census.kill(f"{self._id}/")
        for folder in (self._folder(), self._shared):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def create(self, request: SliceRequest) -> list[Host]:
        """Bring up every host, or none. An existing slice only gets the new SSH keys."""
        async with self._lock(request.name):
            held = self._slices.get(request.name)
            if held is not None:
                for host in held.hosts:
                    host.metadata.set(SSH_KEYS, request.metadata.get("ssh-keys", ""))
                return list(held.hosts)
            created = await self._build(request)
            self._slices[request.name] = created
            return list(created.hosts)

    async def delete(self, name: str) -> None:
        """Delete everything of the slice. An absent slice is a success."""
        async with self._lock(name):
            victim = self._slices.get(name)
            if victim is None:
                return
            for planned in (victim.ending, victim.window):
                if planned is not None:
                    planned.cancel()
            await self._switch_off_hosts(victim.hosts)
            await asyncio.to_thread(shutil.rmtree, self._folder(name), ignore_errors=True)
            del self._slices[name]
            self._coordinators.remove(name)

    def preempt(self, name: str, notice: float) -> None:
        """Set the metadata flag and send SIGTERM to every process now; switch the hosts off after `notice` seconds. A
        second call changes nothing. Raise NotFound."""
        victim = self._get(name)
        if victim.ending is not None:
            return
        for host in victim.hosts:
            host.slow(1)
            host.metadata.set(PREEMPTED, "TRUE")
        self._census.terminate(victim.marker)
        victim.ending = asyncio.create_task(self._switch_off_later(victim, notice))

    def maintain(self, name: str, window: float) -> None:
        """Announce maintenance in the metadata of every host for `window` seconds. Raise NotFound."""
        slice_ = self._get(name)
        if slice_.window is not None:
            slice_.window.cancel()
        _announce(slice_, COMING_MAINTENANCE)
        loop = asyncio.get_running_loop()
        slice_.window = loop.call_later(window, _announce, slice_, NO_MAINTENANCE)

    def announce(self, name: str, upcoming: Mapping[str, str]) -> None:
        """Write the announced maintenance into the metadata of every host; empty: none. Raise NotFound."""
        text = json.dumps(upcoming) if upcoming else NOTHING_UPCOMING
        for host in self._get(name).hosts:
            host.metadata.set(UPCOMING, text)

    def slow(self, name: str, host: int, factor: float) -> None:
        """Let one host run `factor` times slower; 1 ends it. Raise NotFound."""
        (chosen,) = self.hosts(name, host)
        if self._get(name).ending is None and chosen.on:
            chosen.slow(factor)

    async def switch_off(self, name: str, host: int | None) -> None:
        """Switch off one host, or all, without notice: no process, no listener. Raise NotFound."""
        async with self._lock(name):
            await self._switch_off_hosts(self.hosts(name, host))

    async def switch_on(self, name: str) -> None:
        """Switch on hosts that are off, with their disk and key; preempted slices stay off. Raise NotFound."""
        async with self._lock(name):
            slice_ = self._get(name)
            if slice_.ending is None:
                off = [host for host in slice_.hosts if not host.on]
                await asyncio.gather(*(host.power_on(self.ssh_port) for host in off))
                _announce(slice_, NO_MAINTENANCE)

    def cut(self, name: str, host: int | None, *, off: bool) -> None:
        """Cut one host or every host off from the others, in both directions; `off` ends it. Raise NotFound."""
        for target in self._get(name).hosts:
            alone = host is None or host == target.spec.index
            others = self._every_address if alone else self.hosts(name, host)[0].address
            write_routes(target.routes, [] if off else [others], self._hole)

    def hung(self) -> dict[str, list[int]]:
        """Return all slices, each with its hung hosts."""
        return {n: [h.spec.index for h in s.hosts if h.hung] for n, s in self._slices.items()}

    async def close(self) -> None:
        """Switch every host off and remove its files."""
        await asyncio.gather(*(self.delete(name) for name in list(self._slices)))
        self._hole.close()
        await self.clear()

    async def _build(self, request: SliceRequest) -> _Slice:
        marker = f"{self._id}/{request.name}/"
        first, port = self._first_address(request)
        addresses = [first, *(self._free_address() for _ in request.hosts[1:])]
        programs = await asyncio.to_thread(self._image_path, request.image)
        hosts = tuple(
            Host(
                replace(spec, env={**request.env, **spec.env}),
                address=address,
                folder=self._folder(request.name) / f"host-{spec.index}",
                marker=f"{marker}{spec.index}/",
                facts=vm_facts(
                    slice_name=request.name,
                    zone=request.zone,
                    accelerator=request.type,
                    host=spec.index,
                    addresses=addresses,
                    physical=spec.physical,
                    attributes=request.metadata,
                ),
                cluster=cluster_variables(addresses, spec.index, port),
                census=self._census,
                programs=programs,
                homes=self._shared / "homes",
            )
            for spec, address in zip(request.hosts, addresses, strict=True)
        )
        built = _Slice(hosts, marker)
        try:
            await asyncio.gather(*(host.power_on(self.ssh_port) for host in hosts))
            for host in hosts if request.cut else ():
                write_routes(host.routes, [self._every_address], self._hole)
        except BaseException:
            self._coordinators.remove(request.name)
            await self._switch_off_hosts(hosts)
            shutil.rmtree(self._folder(request.name), ignore_errors=True)
            raise
        return built

    def _image_path(self, name: str) -> str:
        """Return the PATH of an image, which is made once for all hosts."""
        with self._imaging:
            bare = self._shared / image.BARE
            return image.bare_path(bare) if name == image.BARE else image.default_path()

    async def _switch_off_later(self, victim: _Slice, notice: float) -> None:
        await asyncio.sleep(notice)
        await self._switch_off_hosts(victim.hosts)

    async def _switch_off_hosts(self, hosts: Sequence[Host]) -> None:
        for _ in range(2):  # again, for processes that a last session started meanwhile
            await self._census.kill(tuple(host.marker for host in hosts))
            await asyncio.gather(*(host.disconnect() for host in hosts))
        await asyncio.gather(*(host.ended() for host in hosts))

    def _first_address(self, request: SliceRequest) -> tuple[str, int]:
        """Return an address for host 0 whose port for programs is free, and the port of the slice's group."""
        for _ in range(1000):
            address = self._free_address()
            group = request.group or request.name
            port = self._coordinators.add(request.name, group, coordinator_port(address))
            if port is not None:
                return address, port
        raise TpujobError("no port is free on which a program of a slice could wait for its hosts")

    def _free_address(self) -> str:
        """Return the next address on which the port is free. An address is reused only after 60,000 others."""
        for _ in range(1000):
            address = next(self._addresses)
            if can_bind(address, self.ssh_port):
                return address
        raise TpujobError(f"no loopback address is free on port {self.ssh_port}")

    def _get(self, name: str) -> _Slice:
        if name not in self._slices:
            raise NotFound(f"no slice {name}")
        return self._slices[name]

    def hosts(self, name: str, host: int | None) -> tuple[Host, ...]:
        """Return the host of that number, or all hosts for None. Raise NotFound."""
        hosts = self._get(name).hosts
        return hosts if host is None else (hosts[host],)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _folder(self, name: str = "") -> Path:
        return self._state / "slices" / name


def _announce(slice_: _Slice, event: str) -> None:
    for host in slice_.hosts:
        host.metadata.set(MAINTENANCE, event)


class Coordinators:
    """The ports on which programs of the slices wait for their hosts, each of one group only."""

    def __init__(self) -> None:
        self._of_slice: dict[str, tuple[str, int]] = {}  #: group and own port
        self._of_group: dict[str, int] = {}

    def add(self, slice_: str, group: str, port: int) -> int | None:
        """Reserve the port for a slice. Return its group's, which is that of its first slice; None: it is taken."""
        taken = {own for _, own in self._of_slice.values()} | set(self._of_group.values())
        if port in taken or not can_bind("0.0.0.0", port):  # noqa: S104 - bound for a moment
            return None
        self._of_slice[slice_] = group, port
        return self._of_group.setdefault(group, port)

    def remove(self, slice_: str) -> None:
        group, _ = self._of_slice.pop(slice_, ("", 0))
        if group not in {other for other, _ in self._of_slice.values()}:
            self._of_group.pop(group, None)


# Addresses and ports -------------------------------------------------------------------------------------------------


def host_addresses(block: int) -> Iterator[str]:
    """Yield every host address of 127.<block>.0.0/16, in an endless cycle."""
    while True:
        for third in range(1, 251):
            for fourth in range(1, 251):
                yield f"127.{block}.{third}.{fourth}"


def free_everywhere() -> int:
    """Return a port that is free on every address, below the system's range of ephemeral ports."""
    for _ in range(1000):
        port = 20000 + secrets.randbelow(12000)
        if can_bind("0.0.0.0", port):  # noqa: S104 - bound for a moment, never listened on
            return port
    raise TpujobError("no port between 20000 and 32000 is free")


def can_bind(address: str, port: int) -> bool:
    """Return whether the port is free there. Raise TpujobError if the system has no such address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise TpujobError(
                    f"cannot use the loopback address {address}: {error.strerror}",
                    hint="the emulated hosts need Linux, where all of 127.0.0.0/8 is loopback",
                ) from error
            return False
    return True


# The network between hosts -------------------------------------------------------------------------------------------


FILLED = 4  #: connections that fill the queue of a listener that accepts none: the kernel drops later ones


class BlackHole:
    """An address that neither accepts nor refuses connections. The first use opens the socket."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._address = ""

    def address(self) -> str:
        """Return `host:port`."""
        if not self._address:
            listener = self._open.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for _ in range(FILLED):
                filler = self._open.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            self._address = f"127.0.0.1:{listener.getsockname()[1]}"
        return self._address

    def close(self) -> None:
        self._open.close()


def write_routes(file: Path, unreachable: Sequence[str], hole: BlackHole) -> None:
    """Make these addresses (shell patterns) unreachable from the host that reads `file`, and only these."""
    lines = [f"{pattern} {hole.address()}\n" for pattern in unreachable]
    new = file.with_suffix(".new")
    new.write_text("".join(lines), encoding="ascii")
    new.replace(file)
