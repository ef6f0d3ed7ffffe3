"""What a job will cost, line by line, from what it asks for and what somebody said it will take. Pure.

Every line is an amount times a row of the price list, in whole micro-dollars, so that lines add up to their sum. What
nobody said, or has no known price, is None and named: it is never counted as 0. For how long slices run is found in
`length.py`; how often they will be lost, and what that adds, is not counted here: ask for an estimate of more hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import Accelerator, region_of
from tpujob.domain.model import Grant
from tpujob.domain.prices import GIB, HOURS_A_MONTH, LIST, Price, PriceList, Pricing, micros
from tpujob.domain.text import amount_of_bytes, dollars, many

#: GiB of a TPU VM's boot disk, unless its image asks for more (documented)
BOOT_DISK = 100
#: class A operations an hour of a host whose program prints: a segment of its log is written every two seconds
#: (`agent/ship/log.py`)
LOG_WRITES = 1800
#: seconds between two looks of the backend at the reports of a running job, each one a listing
#: (`domain/decide/active.py`)
LOOKS_EVERY = 10
#: documents of Firestore that an hour of a job takes at most, with a preemption in it: `make bench` holds it to that
FIRESTORE = {"reads": 150, "writes": 30, "deletes": 1}
#: seconds of one vCPU that a tick takes, when the backend only runs while it is called, once a minute
TICK = 2


class Kind(StrEnum):
    """What a line is about, in the order in which they are shown."""

    SLICES = "slices"
    MACHINES = "machines"
    STORAGE = "storage"
    OPERATIONS = "operations"
    TRAFFIC = "traffic"
    CONTROL = "control plane"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a context adds to the bill of its jobs."""

    external_ips: bool = True
    report_every: float = 15.0  #: seconds between two reports of a host
    cloud_run: Literal["", "always", "called"] = ""  #: where the backend runs; empty: not there
    firestore: bool = False
    secrets: bool = False  #: the keys of slices are in Secret Manager


@dataclass(frozen=True, slots=True)
class Use:
    """What a job will take. None: nobody said."""

    type: str
    zone: str
    pricing: Pricing
    location: str  #: of the job's bucket: a region, or a continent
    slices: int = 1  #: that run together
    #: for which slices are ready, preemptions and all; None: the estimate is of one hour
    hours: Decimal | None = None
    grants: tuple[Grant, ...] = ()
    granted_in_use: int = 0  #: chips of these grants that pay for other slices now
    prints: bool = True  #: whether the program writes output all the time
    stored_gib: Decimal | None = None  #: in the bucket: checkpoints, logs, data of its own
    stored_days: Decimal | None = None
    objects_written: int | None = None  #: by the program: checkpoints and results
    objects_read: int | None = None
    read_gib: Decimal | None = None  #: by the program, from its bucket
    written_gib: Decimal | None = None
    around: Surroundings = Surroundings()
    copies: tuple[DataToCopy, ...] = ()  #: made once, before the first slice


@dataclass(frozen=True, slots=True)
class DataToCopy:
    """What a region lacks of a data set before a slice is asked for there."""

    name: str
    location: str  #: of the source
    region: str
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that the job takes."""

    kind: Kind
    what: str
    formula: str  #: how the amount is made: `8 chips x 3 h`
    amount: Decimal | None  #: in units of the price; None: nobody said
    price: Price | None  #: None: not known, or there is nothing to pay for
    list_micros: int | None  #: None: not known
    pay_micros: int | None
    note: str = ""  #: why it is not known, or why it costs nothing

    @property
    def known(self) -> bool:
        return self.list_micros is not None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job will cost by list price, and what somebody pays for it."""

    use: Use
    lines: tuple[Line, ...]

    @property
    def hourly(self) -> bool:
        """Whether it is of one hour, as nobody said how long the job takes."""
        return self.use.hours is None

    @property
    def list_micros(self) -> int:
        """The sum of what is known: a lower bound unless `whole`."""
        return sum(line.list_micros or 0 for line in self.lines)

    @property
    def pay_micros(self) -> int:
        """The same without what a grant pays for."""
        return sum(line.pay_micros or 0 for line in self.lines)

    @property
    def unknown(self) -> tuple[Line, ...]:
        """What is in no sum."""
        return tuple(line for line in self.lines if not line.known)

    @property
    def priced(self) -> bool:
        """Whether the slices themselves are in the sums; if not, the sums say next to nothing."""
        return all(line.known for line in self.lines if line.kind is Kind.SLICES)

    def of(self, kind: Kind) -> int:
        """Micro-dollars by list price of the lines of one kind, as far as known."""
        return sum(line.list_micros or 0 for line in self.lines if line.kind is kind)


def estimate(use: Use, prices: PriceList = LIST) -> Estimate:
    """What that costs by these prices. Raises BadSpec for what can be no type."""
    facts = accelerators.find(use.type)
    job = _Job(use, prices, facts, use.hours if use.hours is not None else Decimal(1))
    found = (*_slices(job), *_machines(job), *_storage(job), *_operations(job), *_traffic(job))
    return Estimate(use, (*found, *_control(job)))


@dataclass(frozen=True, slots=True)
class _Job:
    """What the lines are made of."""

    use: Use
    prices: PriceList
    facts: Accelerator
    hours: Decimal

    @property
    def chips(self) -> int:
        return self.facts.chips * self.use.slices

    @property
    def hosts(self) -> int:
        return self.facts.hosts * self.use.slices

    @property
    def time(self) -> str:
        return f"{_number(self.hours)} h"

    @property
    def machines(self) -> str:
        return many(self.hosts, "host")


def _line(
    kind: Kind, what: str, formula: str, amount: Decimal | int, price: Price | None, note: str = ""
) -> Line:
    """An amount times its price; what has no price is not known."""
    amount = Decimal(amount)
    if price is None:
        return Line(kind, what, formula, amount, None, None, None, note or "no price is known")
    cost = micros(price.of(amount))
    return Line(kind, what, formula, amount, price, cost, cost, note)


def _unsaid(kind: Kind, what: str, option: str) -> Line:
    return Line(kind, what, "", None, None, None, None, f"nobody said: {option}")


def _free(kind: Kind, what: str, note: str) -> Line:
    return Line(kind, what, "", None, None, 0, 0, note)


# Slices and machines -------------------------------------------------------------------------------------------------


def _slices(job: _Job) -> Iterator[Line]:
    use, taken = job.use, job.use.granted_in_use
    price = job.prices.tpu(use.type, use.zone, use.pricing)
    found = _line(
        Kind.SLICES,
        f"{accelerators.several(use.type, use.slices)}, {use.zone}, {use.pricing}",
        f"{many(job.chips, 'chip')} x {job.time}",
        job.chips * job.hours,
        price,
        _about_price(use, price),
    )
    granted = _granted(use, job.facts.generation)
    whole = f"of {many(granted, 'granted chip')}, {taken} pay for other slices now" if taken else ""
    if granted - taken >= job.chips:
        free = f"a grant of {many(granted, 'chip')} pays for it, where nothing else uses them"
        yield replace(found, pay_micros=0, note=whole or free)
    elif granted and found.known:
        few = whole or f"a grant has {many(granted, 'chip')}, too few"
        yield replace(found, note=f"{few}: a slice is covered whole or not at all")
    else:
        yield found


def _about_price(use: Use, price: Price | None) -> str:
    if price is None:
        return f"no price is known for {use.pricing} {use.type} in {use.zone}"
    if use.pricing == "reserved" and price.pricing == "on-demand":
        return "priced as on-demand: what a reservation costs is in its contract"
    return ""


def _granted(use: Use, generation: str) -> int:
    place = (generation, use.zone, use.pricing)
    return sum(g.chips for g in use.grants if (g.generation, g.zone, g.pricing) == place)


def _machines(job: _Job) -> Iterator[Line]:
    yield _free(Kind.MACHINES, "host machines", "the price of a TPU includes its machine")
    yield _line(
        Kind.MACHINES,
        "boot disks",
        f"{job.machines} x {BOOT_DISK} GiB x {job.time} / {HOURS_A_MONTH} h",
        job.hosts * BOOT_DISK * job.hours / HOURS_A_MONTH,
        job.prices.find("boot disk"),
    )
    if not job.use.around.external_ips:
        yield _free(Kind.MACHINES, "external addresses", "the context gives hosts none")
        return
    kind = "spot" if job.use.pricing == "spot" else "on-demand"
    price = job.prices.find("external address", pricing=kind)
    formula = f"{job.machines} x {job.time}"
    yield _line(Kind.MACHINES, "external addresses", formula, job.hosts * job.hours, price)


# The bucket ----------------------------------------------------------------------------------------------------------


def _storage(job: _Job) -> Iterator[Line]:
    use, what = job.use, f"what stays in the bucket, {job.use.location}"
    if use.stored_gib is None or use.stored_days is None:
        yield _unsaid(Kind.STORAGE, what, "--stored-gib and --stored-days")
        return
    yield _line(
        Kind.STORAGE,
        what,
        f"{_number(use.stored_gib)} GiB x {_number(use.stored_days)} d x 24 / {HOURS_A_MONTH} h",
        use.stored_gib * use.stored_days * 24 / HOURS_A_MONTH,
        job.prices.storage(use.location),
        "" if job.prices.storage(use.location) else f"no price is known for {use.location}",
    )


def _operations(job: _Job) -> Iterator[Line]:
    use, a, b = job.use, job.prices.class_a, job.prices.class_b
    reports = Decimal(3600) / Decimal(str(use.around.report_every))
    yield _line(
        Kind.OPERATIONS,
        "reports of hosts",
        f"{job.machines} x {_number(reports)} an hour x {job.time}, class A",
        job.hosts * reports * job.hours,
        a,
    )
    if use.prints:
        yield _line(
            Kind.OPERATIONS,
            "logs of hosts",
            f"{job.machines} x {LOG_WRITES:,} an hour x {job.time}, class A",
            job.hosts * LOG_WRITES * job.hours,
            a,
            "while the program prints all the time",
        )
    looks = 3600 // LOOKS_EVERY
    yield _line(
        Kind.OPERATIONS,
        "looks of the backend",
        f"{looks} listings an hour x {job.time}, class A",
        looks * job.hours,
        a,
    )
    for what, option, count, price, letter in (
        ("objects that the program writes", "--objects-written", use.objects_written, a, "A"),
        ("objects that the program reads", "--objects-read", use.objects_read, b, "B"),
    ):
        if count is None:
            yield _unsaid(Kind.OPERATIONS, what, option)
        else:
            formula = f"{count:,} objects, class {letter}"
            yield _line(Kind.OPERATIONS, what, formula, count, price)
    for one in use.copies:
        formula = f"{one.objects:,} objects, class A, once"
        yield _line(Kind.OPERATIONS, f"copy of {one.name}", formula, one.objects, a)


def _traffic(job: _Job) -> Iterator[Line]:
    use, region = job.use, region_of(job.use.zone)
    for one in use.copies:
        what, formula = (
            f"copy of {one.name}, {one.location} to {one.region}",
            amount_of_bytes(one.bytes),
        )
        price = job.prices.traffic(one.location, one.region)
        yield _line(Kind.TRAFFIC, what, f"{formula}, once", Decimal(one.bytes) / GIB, price)
    if use.location.lower() == region:
        free = f"bucket and slices are both in {region}"
        yield _free(Kind.TRAFFIC, "between bucket and slices", free)
        return
    for what, option, size, price in (
        (f"reads, {use.location} to {region}", "--read-gib", use.read_gib,
         job.prices.traffic(use.location, region)),
        (f"writes, {region} to {use.location}", "--written-gib", use.written_gib,
         job.prices.traffic(region, use.location)),
    ):  # fmt: skip
        if size is None:
            yield _unsaid(Kind.TRAFFIC, what, option)
        else:
            yield _line(Kind.TRAFFIC, what, f"{_number(size)} GiB", size, price)


# The backend ---------------------------------------------------------------------------------------------------------


def _control(job: _Job) -> Iterator[Line]:
    around, prices = job.use.around, job.prices
    if not (around.cloud_run or around.firestore):
        yield _free(Kind.CONTROL, "backend", "it runs on a machine of yours")
    if around.cloud_run == "always":
        seconds, formula = job.hours * 3600, f"1 x {job.time}; all jobs share it"
        yield _backend("Cloud Run, vCPU", formula, seconds, prices.find("cloud run cpu, always on"))
        memory = prices.find("cloud run memory, always on")
        yield _backend("Cloud Run, GiB", formula, seconds, memory)
    elif around.cloud_run == "called":
        ticks, formula = (
            job.hours * 60,
            f"60 ticks an hour of {TICK} s x {job.time}; all jobs share them",
        )
        yield _backend("Cloud Run, vCPU", formula, ticks * TICK, prices.find("cloud run cpu"))
        yield _backend("Cloud Run, GiB", formula, ticks * TICK, prices.find("cloud run memory"))
        yield _backend("Cloud Run, requests", formula, ticks, prices.find("cloud run requests"))
        formula = f"2 jobs x {job.time} / {HOURS_A_MONTH} h; all jobs share them"
        months = job.hours * 2 / HOURS_A_MONTH
        yield _backend("Cloud Scheduler", formula, months, prices.find("scheduler"))
    if around.firestore:
        for kind, each in FIRESTORE.items():
            formula = f"{each} an hour at most x {job.time}"
            price = prices.firestore(kind, "us-central1")
            yield _backend(f"Firestore, {kind}", formula, each * job.hours, price)
    if around.secrets:
        formula, months = f"{job.time} / {HOURS_A_MONTH} h", job.hours / HOURS_A_MONTH
        yield _backend("key of the slice", formula, months, prices.find("secret versions"))


def _backend(what: str, formula: str, amount: Decimal, price: Price | None) -> Line:
    return _line(Kind.CONTROL, what, formula, amount, price, "before what is free each month")


# In words ------------------------------------------------------------------------------------------------------------


def sums(found: Estimate) -> str:
    """The arithmetic of what is to be paid, the dearest first: `$22.12 slices + $0.03 machines = $22.15`."""
    costs = {
        kind: sum(line.pay_micros or 0 for line in found.lines if line.kind is kind)
        for kind in Kind
    }
    ordered = sorted((kind for kind in Kind if costs[kind]), key=lambda kind: -costs[kind])
    parts = " + ".join(f"{dollars(costs[kind])} {kind}" for kind in ordered)
    more = (
        ", and more that is not known"
        if any(line.pay_micros is None for line in found.lines)
        else ""
    )
    return f"{parts or 'nothing'} = {dollars(found.pay_micros)}{more}"


def _number(amount: Decimal) -> str:
    """`3`, `2.5`, `1,200`; four decimals at most."""
    return f"{round(amount, 4).normalize():,f}"
