"""A small world in memory, with a clock turned by hand: a cloud, hosts and a bucket behind the real ports.

It keeps a ledger that the code under test cannot see: what was created, what runs, what is billed.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO, Any, cast

from tests.support.callers import ADA
from tests.support.model_slices import ModelSlices
from tpujob.adapters.cloud_tpu.request import slice_of
from tpujob.api import HostAccess
from tpujob.domain.actions import HostPlan
from tpujob.domain.copies import Copy, CopyProgress
from tpujob.domain.hardware.accelerators import find
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Slice
from tpujob.domain.money.estimate_shapes import Surroundings
from tpujob.domain.observations import Present, SliceSeen, SliceState, Unknown
from tpujob.emulator.cloud import interruptions, nodes, queue
from tpujob.emulator.cloud.errors import Quota
from tpujob.emulator.cloud.queue import nodes_of
from tpujob.emulator.cloud.records import BringUp, Effect, Latencies, Node, Queued, TakeDown
from tpujob.emulator.cloud.stock import HostStock
from tpujob.emulator.cloud.world import World as Model
from tpujob.emulator.farm import HostUp
from tpujob.engine import Loop, Pulse
from tpujob.engine.notification_collector import NotificationSetup
from tpujob.engine.notifier import Sender
from tpujob.engine.orphans import Orphans, zones
from tpujob.engine.reconciler import Reconciler
from tpujob.errors import BadRequest, Conflict, NotFound, Refused, Transient
from tpujob.ports import (
    Blob,
    BucketPlace,
    Comparison,
    KeptSecret,
    Listening,
    Owned,
    SliceSurvey,
    StorageToken,
    Store,
)
from tpujob.protocol import paths, signing
from tpujob.service.admin import Admin
from tpujob.service.backend import ProcessFacts
from tpujob.service.backend.capacity import Quotas
from tpujob.service.host_reach import HostReach
from tpujob.service.job_index import Changes
from tpujob.service.jobs import Jobs
from tpujob.service.members import Membership
from tpujob.service.notifications import Notifications
from tpujob.service.parts import Parts, ServiceSettings
from tpujob.service.submission import TypesInZone, types_unknown

#: of the model of the cloud, in seconds
AT_ONCE = Latencies(accept=0, create=5, delete=0, suspend=0, stop=0)


class Killed(BaseException):
    """The death of the backend at this point; no later code runs."""


@dataclass
class Clock:
    time: float = 1_000_000.0

    ahead: float = 0.0  #: of the true time

    def now(self) -> float:
        return self.time + self.ahead

    def steady(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class Machine:
    """A slice in the cloud, and what runs on its hosts."""

    name: str
    zone: str
    job_id: str
    racks: list[str]  #: the physical machine below each host
    look: Callable[[], SliceSeen]  #: the cloud's present answer
    programs: dict[int, int] = field(default_factory=dict)  #: host -> attempt that runs there

    @property
    def state(self) -> SliceState | None:
        seen = self.look()
        return seen.state if isinstance(seen, Present) else None

    @property
    def hosts(self) -> int:
        return len(self.racks)


class Faults:
    """Faults that a test sets: the n-th effect dies, or a call fails."""

    def __init__(self) -> None:
        self.effects = 0
        self.kill_at: tuple[int, str] | None = None  #: (effect number, "before" or "after")
        self.refuse_create: list[tuple[str, str]] = []  #: (cause, message), used up in order
        self.broken: set[str] = set()  #: names of calls that answer with Transient until removed

    def effect(self, name: str, do: Callable[[], Any]) -> Any:
        self.effects += 1
        if self.kill_at == (self.effects, "before"):
            raise Killed
        if name in self.broken:
            raise Transient(f"{name}: 503 the service is unavailable")
        result = do()
        if self.kill_at == (self.effects, "after"):
            raise Killed
        return result


class Cloud(Model):
    """The Slices port over the model of the cloud. Slices become ready 5 s after they were requested; all else is done
    at once."""

    def __init__(self, clock: Clock, faults: Faults) -> None:
        super().__init__(lambda: clock.time, AT_ONCE, stock=HostStock(256, only=()))
        self.refusals = faults
        self.slices = ModelSlices(self)
        self.machines: dict[str, Machine] = {}
        self.users: dict[str, str] = {}  #: for whom slices were asked for, by slice
        self.full: set[str] = (
            set()
        )  #: zones without capacity, or without that for a pricing: `zone spot`
        self.quotas: dict[str, int] = {}  #: by zone: limit of each quota, in its own unit
        self.waiting: set[str] = set()  #: the same, in which a request only waits
        self.unlisted: set[str] = (
            set()
        )  #: zones that lists cannot reach, and slices that they leave out
        self.created: list[str] = []  #: every create that made something, in order
        self.most_alive = 0
        self._lock = threading.RLock()  #: several backends may call at once

    # The port

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        if "look" in self.refusals.broken:
            return Unknown("503 the service is unavailable")
        return self.now(slice)

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        if "list" in self.refusals.broken:
            return SliceSurvey({}, dict.fromkeys(zones, "503 the service is unavailable"), 1)
        reached = set(zones) - self.unlisted
        with self._lock:
            self.run()
            seen: dict[str, SliceSeen] = {
                name: state
                for name, state in self.slices.listed().items()
                if self.machines[name].zone in reached and name not in self.unlisted
            }
        return SliceSurvey(seen, dict.fromkeys(self.unlisted & {*zones}, "not reached"), 2)

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        if slice.name not in self.machines:
            self._check_refused(slice)
        self.users[slice.name] = user
        self.refusals.effect("create", lambda: self.add(slice, job_id))

    def _check_refused(self, slice: Slice) -> None:
        if _names(slice) & self.full:
            raise Refused(f"There is no more capacity in the zone {slice.zone}", cause="STOCKOUT")
        if self.refusals.refuse_create:
            cause, message = self.refusals.refuse_create.pop(0)
            raise Refused(message, cause=cause)

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        def delete() -> None:
            with self._lock:
                self.slices.delete(slice, even_suspending=even_suspending)
                self.run()

        self.refusals.effect("delete", delete)

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        if "list" in self.refusals.broken:
            raise Transient("503 the service is unavailable")
        with self._lock:
            return self.slices.owned(zones)

    # What happens in the cloud

    def now(self, slice: Slice) -> SliceSeen:
        with self._lock:
            self.run()
            return self.slices.look(slice)

    def add(self, slice: Slice, job_id: str, *, age: float = 0.0) -> None:
        """Request a slice, or adopt one that exists. `age`: so many seconds ago. Raise Refused."""
        with self._lock:
            self._add(slice, job_id, age)

    def _add(self, slice: Slice, job_id: str, age: float) -> None:
        self.stock.open(slice.zone, slice.type)
        generation, kind = find(slice.type).generation, find_pricing(slice.pricing).quota
        self.faults.quotas = {
            (zone, generation, kind): Quota(zone, generation, kind, limit)
            for zone, limit in self.quotas.items()
        }
        is_new = slice.name not in self.machines
        if slice.provider != CLOUD_TPU:  # whose images are not Cloud TPU's
            slice = replace(slice, system_image="tpu-vm-base")
        queued = self.slices.request(slice, job_id)
        if is_new:
            queued.held_until = math.inf if _names(slice) & self.waiting else 0.0
            queued.created_at -= age
            self.created.append(slice.name)
            look = partial(self.now, slice)
            self.machines[slice.name] = Machine(slice.name, slice.zone, job_id, [], look)
            self.most_alive = max(self.most_alive, len(self.machines))
        self.run()

    def grant(self, name: str) -> None:
        """Give a request that waits its slice, which is ready at once."""
        (queued,) = [queued for queued in self.queued.values() if queued.id == name]
        queued.held_until, self.latencies = 0.0, replace(AT_ONCE, create=0.0)
        self.room_changed()
        self.run()
        self.latencies = AT_ONCE

    def preempt(self, *names: str) -> None:
        """Preempt these slices, or all."""
        self.run()
        for queued in list(self.queued.values()):
            for node in nodes_of(self, queued) if not names or queued.id in names else ():
                interruptions.take_away(self, node)
        self.run()

    def vanish(self, *names: str, takes: float = 0.0) -> None:
        """Delete these slices, or all, as a person does; they are DELETING for so many seconds."""
        self.latencies = replace(AT_ONCE, delete=takes)
        for queued in list(self.queued.values()):
            if not names or queued.id in names:
                queue.delete(self, queued.name, force=True, api="v2")
        self.run()
        self.latencies = AT_ONCE

    def run(self) -> None:
        """Make the changes that are due. Hosts do at once what they are told."""
        self.advance()
        while effects := self.take_effects():
            for effect in effects:
                self._answer(effect)
            self.advance()

    def _answer(self, effect: Effect) -> None:
        match effect:
            case BringUp(node):
                name, place = slice_of(node.id)
                racks, first = self.machines[name].racks, place * len(node.physical)
                racks += node.physical
                k = name.rpartition("-")[2]
                up = [HostUp(f"10.0.{k}.{first + host}", {}) for host in range(len(node.physical))]
                nodes.hosts_up(self, node, up)
            case TakeDown(node):
                nodes.hosts_down(self, node)
            case _:
                pass  # nothing here repairs or disturbs hosts

    def remove(self, record: Node | Queued) -> None:
        super().remove(record)
        if isinstance(record, Queued):
            del self.machines[record.id]


def _names(slice: Slice) -> set[str]:
    return {slice.zone, f"{slice.zone} {slice.pricing}"}


class HostsOfCloud:
    """The Hosts port: programs are counters in the machines."""

    def __init__(self, cloud: Cloud, bucket: Bucket, faults: Faults) -> None:
        self.cloud, self.bucket, self.faults = cloud, bucket, faults
        self.wipe_error: Exception | None = None
        self.wiped: list[tuple[str, int, bool]] = []  #: slice, its epoch, whether for another owner
        self.starts: list[tuple[int, int]] = []  #: (attempt, host): real starts, not repeats
        self.dead: set[int] = set()  #: hosts that do not answer over SSH
        self.killed_agents: frozenset[int] = frozenset()  #: hosts whose agents were killed
        self.taken_over: list[tuple[int, int]] = []  #: (attempt, host) of programs of killed agents
        self.keys: set[str] = set()  #: slices with keys
        self.asked = 0  #: number of questions to hosts whether they live

    def public_key(self, slice: Slice) -> str:
        self.keys.add(slice.name)
        return f"ssh-ed25519 KEY-{slice.name}"

    def key(self, purpose: Sequence[str]) -> str:
        return signing.derive(b"a secret of the tests", *purpose)

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        machine = self.cloud.machines.get(slice.name)
        if machine is None or machine.state is not SliceState.READY:
            raise Transient("host 0: no route to host")
        for plan in plans:
            self.faults.effect("start", lambda plan=plan: self._start(machine, plan))

    def _start(self, machine: Machine, plan: HostPlan) -> None:
        attempt = plan.document["attempt"]
        self.bucket.pens[plan.document["workdir"], attempt] = plan.key
        if machine.programs.get(plan.host) == attempt:
            if plan.host in self.killed_agents:  # another agent takes over the program
                self.killed_agents -= {plan.host}
                self.taken_over.append((attempt, plan.host))
                self.bucket.report(plan.document["workdir"], attempt, plan.host, phase="running")
            return
        rack = machine.racks[plan.host]
        fields: dict[str, Any] = {"phase": "running", "physical": rack}
        if rack in plan.document["avoid"]:
            reason = plan.document["avoid"][rack]
            error = f"the program is kept off the physical machine {rack}: {reason}"
            fields |= {"phase": "exited", "error": error, "cause": "PREFLIGHT"}
        else:
            machine.programs[plan.host] = attempt
            self.starts.append((attempt, plan.host))
        self.bucket.report(plan.document["workdir"], attempt, plan.host, **fields)

    def stop(self, slice: Slice, *, grace: float, discard: bool = False, timeout: float) -> None:
        machine = self.cloud.machines.get(slice.name)
        if machine is None:
            raise Transient("host 0: no route to host")
        self.faults.effect("stop", machine.programs.clear)

    def wipe(self, slice: Slice, *, others: bool, timeout: float) -> None:
        if slice.name not in self.cloud.machines:
            raise Transient("host 0: no route to host")
        if self.wipe_error is not None:
            raise self.wipe_error
        self.faults.effect("wipe", lambda: self.wiped.append((slice.name, slice.epoch, others)))

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        self.asked += 1
        machine = self.cloud.machines.get(slice.name)
        return frozenset(set(range(machine.hosts)) - self.dead) if machine else frozenset()

    def without_agent(
        self, slice: Slice, hosts: Collection[int], *, job: str, attempt: int, timeout: float
    ) -> frozenset[int]:
        return self.killed_agents & frozenset(hosts)

    def listen(
        self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float
    ) -> Listening:
        raise Transient("these programs have no agent to follow")

    def forget(self, slice: Slice) -> None:
        self.keys.discard(slice.name)

    def kept(self) -> list[str]:
        return sorted(self.keys)


class Bucket:
    """The Blobs port, and the agents' pen."""

    def __init__(self, clock: Clock, faults: Faults) -> None:
        self._clock, self.faults = clock, faults
        self.objects: dict[str, tuple[bytes, Blob]] = {}
        self.places: dict[str, BucketPlace] = {}  #: places that are not made on demand
        self.get_takes = 0.0  #: seconds
        self.gets = 0
        self.pens: dict[tuple[str, int], str] = {}  #: workdir and attempt -> the key of its agents
        self._count = 0  #: reports

    def put(
        self,
        path: str,
        data: bytes | IO[bytes],
        *,
        metadata: Mapping[str, str] | None = None,
        if_generation: int | None = None,
        timeout: float,
    ) -> Blob:
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        old = self.objects.get(path)
        generation = old[1].generation if old else 0
        if if_generation is not None and if_generation != generation:
            raise Conflict(f"{path} is at generation {generation}")
        blob = Blob(path, len(data), generation + 1, self._clock.time, dict(metadata or {}))
        self.objects[path] = (data, blob)
        return blob

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        self.gets += 1
        self._clock.sleep(min(self.get_takes, timeout))
        if self.get_takes >= timeout:
            raise Transient("the bucket: no answer in time")
        if "get" in self.faults.broken:
            raise Transient("the bucket: 503")
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path][0][start:end]

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        if "blobs" in self.faults.broken:
            raise Transient("the bucket: 503")
        names = sorted(p for p in self.objects if p.startswith(prefix))
        return [self.objects[p][1] for p in names[:most]]

    def touch(self, path: str, *, timeout: float) -> None:
        if path not in self.objects:
            raise NotFound(path)
        data, blob = self.objects[path]
        self.objects[path] = (data, replace(blob, touched=blob.touched + 1))

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        if unchanged and path in self.objects and self.objects[path][1] != unchanged:
            raise Conflict(f"{path} was changed")
        self.objects.pop(path, None)

    def clock(self, *, timeout: float) -> float:
        return self._clock.time

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        pass

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        name = bucket.split("/")[2]
        if name not in self.places:
            raise NotFound(f"there is no bucket gs://{name}")
        return self.places[name]

    def report(self, workdir: str, attempt: int, host: int, **fields: Any) -> None:
        """Write a report as an agent does: the newest facts over the older facts."""
        path = paths.report_path(workdir, attempt, host)
        old = json.loads(self.objects[path][1].metadata["report"]) if path in self.objects else {}
        job = workdir.rsplit("/", 1)[1].partition("-")[0]
        self._count += 1
        about = {"v": 1, "job": job, "attempt": attempt, "host": host, "signalled": False}
        record = {**about, **old, **fields}
        text = json.dumps({**record, "seq": self._count})
        mac = signing.sign(self.pens.get((workdir, attempt), ""), "report", text)
        self.put(path, b"", metadata={"report": text, "mac": mac}, timeout=1)


class Lender:
    """The TokenLender port: a token says what it is for."""

    def lend(self, folder: str, writable: Sequence[str]) -> StorageToken:
        return StorageToken(" ".join(["read", folder, "write", *writable]), expires_at=2_000_000.0)


class SecretsInMemory:
    """The Secrets port."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}

    def put(self, owner: str, name: str, value: str) -> None:
        self.values[owner, name] = value

    def get(self, owner: str, name: str) -> str:
        if (owner, name) not in self.values:
            raise NotFound(f"no secret {name} is set")
        return self.values[owner, name]

    def list(self, owner: str) -> list[KeptSecret]:
        return [KeptSecret(name, 1.8e9) for of, name in sorted(self.values) if of == owner]

    def remove(self, owner: str, name: str) -> None:
        self.values.pop((owner, name), None)


class CopiesOfBucket:
    """The Copies port over that bucket: each call copies one object, so a copy takes several calls."""

    def __init__(self, bucket: Bucket, faults: Faults) -> None:
        self.bucket, self.faults = bucket, faults
        self.refused: dict[str, str] = {}  #: by target: the cause
        #: target, name and content of each object that was copied
        self.made: list[tuple[str, str, bytes]] = []

    def compare(self, source: str, target: str, *, timeout: float) -> Comparison:
        files = self._below(source)
        lacking = [files[name] for name in self.lacks(source, target)]
        sizes = [sum(map(len, contents)) for contents in (files.values(), lacking)]
        return Comparison(len(files), sizes[0], len(lacking), sizes[1], counted=True)

    def lacks(self, source: str, target: str) -> list[str]:
        """Return the names of the source's objects that the target lacks; empty target: all."""
        copied = self._below(target) if target else {}
        return [name for name, data in self._below(source).items() if copied.get(name) != data]

    def advance(self, copy: Copy, *, timeout: float) -> CopyProgress:
        if copy.target in self.refused:
            raise Refused("Permission denied", cause=self.refused[copy.target])
        return self.faults.effect("copy", lambda: self._advance(copy))

    def _advance(self, copy: Copy) -> CopyProgress:
        source = {n: d for n, d in self._below(copy.source).items() if self._follows(copy, n)}
        if not source and copy.saved is None:
            raise Refused(f"there is nothing below {copy.source}/", cause="BAD_SPEC")
        target, progress = self._below(copy.target), copy.progress
        progress = replace(progress, total=len(source), total_bytes=sum(map(len, source.values())))
        for name, data in source.items():
            if target.get(name) == data:
                if name > progress.after:
                    counts = {
                        "same": progress.same + 1,
                        "same_bytes": progress.same_bytes + len(data),
                    }
                    progress = replace(progress, after=name, **counts)
                continue
            self.bucket.put(f"{copy.target}/{name}", data, timeout=1)
            self.made.append((copy.target, name, data))
            return replace(
                progress,
                after=max(name, progress.after),
                objects=progress.objects + 1,
                bytes=progress.bytes + len(data),
            )
        return replace(progress, whole=True)

    def _follows(self, copy: Copy, name: str) -> bool:
        if copy.saved is None:
            return True
        if copy.saved.step is None:
            return not name.startswith("attempts/")
        step = name.startswith("checkpoints/") and int(name.split("/")[1])
        return bool(step) and copy.saved.step <= step < (copy.saved.before or math.inf)

    def _below(self, prefix: str) -> dict[str, bytes]:
        names = sorted(p for p in self.bucket.objects if p.startswith(prefix + "/"))
        return {path[len(prefix) + 1 :]: self.bucket.objects[path][0] for path in names}


class NoLoop:
    """A stand-in for the loop, which records the calls to it: tests tick by hand."""

    def __init__(self) -> None:
        self.poked: list[str] = []
        self.attended: list[tuple[str, float]] = []

    def pulse(self) -> Pulse:
        return Pulse()

    def poke(self, job_id: str) -> None:
        self.poked.append(job_id)

    def attend(self, job_id: str, seconds: float) -> None:
        self.attended.append((job_id, seconds))


class Inline(Executor):
    """A pool that makes each call at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def orphans(
    backend: Reconciler, of_site: Sequence[str] = (), *, store: Store | None = None
) -> Orphans:
    store = store or backend.store
    return Orphans(
        store,
        backend.ports.slices,
        backend.ports.hosts,
        backend.clock,
        zones=lambda: of_site or zones(store),
        counters=backend.counters,
    )


def service(
    backend: Reconciler,
    store: Store | None = None,
    *,
    loop: NoLoop | None = None,
    offered: TypesInZone = types_unknown,
    setup: NotificationSetup | None = None,
    quotas: Quotas | None = None,
    emulated: bool = False,
) -> Jobs:
    """Return the service of a backend over this world. `store`: another one than its own, such as one that is not
    watched. `setup`: of notifications; left out: there are no channels. `quotas`: left out: there is none to read."""

    def access(slice: Slice, host: int, key: str, holder: str) -> HostAccess:
        """Return the address of a host without a certificate, as these tests use no SSH."""
        assert holder
        if not key.startswith("ssh-ed25519 "):
            raise BadRequest("that is no key")
        return HostAccess(
            host=host,
            address=slice.endpoints[host].address,
            port=22,
            user="",
            certificate="",
            expires_at="",
            host_keys=[],
            instance="",
            zone=slice.zone,
            project="",
        )

    store = store or backend.store
    setup = setup or NotificationSetup()
    sender = Sender(store.outbox, setup, backend.clock, owner="way in", pool=Inline())
    notifications = Notifications(store.outbox, setup, sender, backend.ports.secrets, backend.clock)
    reconciler = copy(backend)
    reconciler.ports = replace(backend.ports, store=store)
    parts = Parts(
        reconciler,
        cast(Loop, loop or NoLoop()),
        HostReach(access),
        ServiceSettings(
            offered=offered,
            quotas=quotas,
            surroundings=Surroundings(emulated=emulated),
            process=ProcessFacts("tests", "sqlite", started_at=backend.clock.now()),
        ),
        changes=Changes(store),
        admin=Admin(store, orphans(backend, store=store), backend.ports.reputation, backend.clock),
        members=Membership(backend.store.members, store, backend.ports.secrets),
        notifications=notifications,
        lender=Lender(),
    )
    return Jobs(parts, ADA)
