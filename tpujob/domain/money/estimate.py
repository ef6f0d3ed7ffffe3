"""What a job will cost, line by line, from what it asks for and what is stated of it. Pure.

Every line is an amount times a row of the price list, in whole micro-dollars, so lines add up to their sum. What is not
stated, or has no known price, is None and named: it is never counted as 0. How long slices run is estimated in
`run_time.py`; what preemptions add in `forecast.py`, which asks for estimates of more hours.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import Accelerator, region_of
from tpujob.domain.hardware.prices import GIB, HOURS_A_MONTH, LIST, Price, PriceList, micros
from tpujob.domain.money import ledger, polling_cost
from tpujob.domain.money.estimate_shapes import CostKind, Estimate, EstimateLine, Use
from tpujob.domain.text import amount_of_bytes, dollars, many


def estimate(use: Use, prices: PriceList = LIST) -> Estimate:
    """What that costs by these prices. Raises BadSpec for what can be no type."""
    facts = accelerators.find(use.type)
    job = Sought(use, prices, facts, use.hours if use.hours is not None else Decimal(1))
    parts = (
        slices,
        machines,
        storage,
        operations,
        copies,
        traffic,
        control,
    )
    return Estimate(use, tuple(line for part in parts for line in part(job)))


def sums(found: Estimate) -> str:
    """The arithmetic of what is to be paid, the dearest first: `$22.12 slices + $0.03 machines = $22.15`."""
    costs = {
        kind: sum(line.pay_micros or 0 for line in found.lines if line.kind is kind)
        for kind in CostKind
    }
    ordered = sorted((kind for kind in CostKind if costs[kind]), key=lambda kind: -costs[kind])
    parts = " + ".join(f"{dollars(costs[kind])} {kind}" for kind in ordered)
    more = ", and unknown costs" if any(line.pay_micros is None for line in found.lines) else ""
    return f"{parts or 'nothing'} = {dollars(found.pay_micros)}{more}"


@dataclass(frozen=True, slots=True)
class Sought:
    """What the lines are computed from."""

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
        return f"{number(self.hours)} h"

    @property
    def machines(self) -> str:
        return many(self.hosts, "host")


def line(
    kind: CostKind,
    what: str,
    formula: str,
    amount: Decimal | int,
    price: Price | None,
    note: str = "",
) -> EstimateLine:
    """An amount times its price; what has no price is not known."""
    amount = Decimal(amount)
    if price is None:
        return EstimateLine(
            kind, what, formula, amount, None, None, None, note or "no price is known"
        )
    cost = micros(price.of(amount))
    return EstimateLine(kind, what, formula, amount, price, cost, cost, note)


def unsaid(kind: CostKind, what: str, option: str) -> EstimateLine:
    return EstimateLine(kind, what, "", None, None, None, None, f"not stated: {option}")


def free(kind: CostKind, what: str, note: str) -> EstimateLine:
    return EstimateLine(kind, what, "", None, None, 0, 0, note)


def number(amount: Decimal) -> str:
    """`3`, `2.5`, `1,200`; four decimals at most."""
    return f"{round(amount, 4).normalize():,f}"


#: GiB of a TPU VM's boot disk, unless its image asks for more (documented)
BOOT_DISK = 100


def slices(job: Sought) -> Iterator[EstimateLine]:
    use, there = job.use, ledger.where(job.use.type, job.use.zone, job.use.pricing)
    granted, taken = ledger.granted(use.grants, there), use.granted_in_use.get(there, 0)
    price = job.prices.tpu(use.type, use.zone, use.pricing)
    found = line(
        CostKind.SLICES,
        f"{accelerators.several(use.type, use.slices)}, {use.zone}, {use.pricing}",
        f"{many(job.chips, 'chip')} x {job.time}",
        job.chips * job.hours,
        price,
        _about_price(use, price),
    )
    whole = f"of {many(granted, 'granted chip')}, {taken} pay for other slices now" if taken else ""
    if granted - taken >= job.chips:
        pays = f"a grant of {many(granted, 'chip')} pays for it, where nothing else uses them"
        yield replace(found, pay_micros=0, note=whole or pays)
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


def machines(job: Sought) -> Iterator[EstimateLine]:
    yield free(CostKind.MACHINES, "host machines", "the price of a TPU includes its machine")
    yield line(
        CostKind.MACHINES,
        "boot disks",
        f"{job.machines} x {BOOT_DISK} GiB x {job.time} / {HOURS_A_MONTH} h",
        job.hosts * BOOT_DISK * job.hours / HOURS_A_MONTH,
        job.prices.find("boot disk"),
    )
    if not job.use.around.external_ips:
        yield free(CostKind.MACHINES, "external addresses", "the context gives hosts none")
        return
    kind = "spot" if job.use.pricing == "spot" else "on-demand"
    price = job.prices.find("external address", pricing=kind)
    formula = f"{job.machines} x {job.time}"
    yield line(CostKind.MACHINES, "external addresses", formula, job.hosts * job.hours, price)


#: class A operations an hour of a host whose program prints: a segment every five minutes (`agent/upload/log.py`)
LOG_WRITES = 12


def storage(job: Sought) -> Iterator[EstimateLine]:
    use, what = job.use, f"what stays in the bucket, {job.use.location}"
    if use.stored_gib is None or use.stored_days is None:
        yield unsaid(CostKind.STORAGE, what, "--stored-gib and --stored-days")
        return
    yield line(
        CostKind.STORAGE,
        what,
        f"{number(use.stored_gib)} GiB x {number(use.stored_days)} d x 24 / {HOURS_A_MONTH} h",
        use.stored_gib * use.stored_days * 24 / HOURS_A_MONTH,
        job.prices.storage(use.location),
        "" if job.prices.storage(use.location) else f"no price is known for {use.location}",
    )


def operations(job: Sought) -> Iterator[EstimateLine]:
    use, a, b = job.use, job.prices.class_a, job.prices.class_b
    reports = Decimal(3600) / Decimal(str(use.around.report_every))
    yield line(
        CostKind.OPERATIONS,
        "reports of hosts",
        f"{number(reports)} an hour x {many(job.hosts, 'host')} x {job.time}, class A",
        reports * job.hosts * job.hours,
        a,
    )
    if use.prints:
        yield line(
            CostKind.OPERATIONS,
            "logs of hosts",
            f"{LOG_WRITES} an hour x {many(job.hosts, 'host')} x {job.time}, class A",
            LOG_WRITES * job.hosts * job.hours,
            a,
            "if the program prints all the time: at most 4 MiB in five minutes on each host",
        )
    yield _lists(job)
    for what, option, count, price, letter in (
        ("objects that the program writes", "--objects-written", use.objects_written, a, "A"),
        ("objects that the program reads", "--objects-read", use.objects_read, b, "B"),
    ):
        if count is None:
            yield unsaid(CostKind.OPERATIONS, what, option)
        else:
            formula = f"{count:,} objects, class {letter}"
            yield line(CostKind.OPERATIONS, what, formula, count, price)


def _lists(job: Sought) -> EstimateLine:
    """Of what hosts report, by the backend."""
    an_hour = int(3600 / polling_cost.UNASKED)
    return line(
        CostKind.OPERATIONS,
        "lists of the backend",
        f"{an_hour} an hour x {job.time}, class A",
        an_hour * job.hours,
        job.prices.class_a,
        "if no other job runs: one list serves all jobs",
    )


def copies(job: Sought) -> Iterator[EstimateLine]:
    """Of data, made once, before the first slice."""
    for one in job.use.copies:
        if one.problem:
            what = f"copy of {one.name}"
            yield EstimateLine(CostKind.OPERATIONS, what, "", None, None, None, None, one.problem)
            continue
        kept, gib = job.prices.storage(one.region), Decimal(one.bytes) / GIB
        yield line(
            CostKind.OPERATIONS,
            f"copy of {one.name}",
            f"{one.objects:,} objects, class A, once",
            one.objects,
            job.prices.class_a,
        )
        yield line(
            CostKind.TRAFFIC,
            f"copy of {one.name}, {one.location} to {one.region}",
            f"{amount_of_bytes(one.bytes)}, once",
            gib,
            job.prices.traffic(one.location, one.region),
            f"keeping it costs {dollars(micros(kept.of(gib)))} a month" if kept else "",
        )


def traffic(job: Sought) -> Iterator[EstimateLine]:
    use, region = job.use, region_of(job.use.zone)
    if use.location.lower() == region:
        both = f"bucket and slices are both in {region}"
        yield free(CostKind.TRAFFIC, "between bucket and slices", both)
        return
    for what, option, size, price in (
        (f"reads, {use.location} to {region}", "--read-gib", use.read_gib,
         job.prices.traffic(use.location, region)),
        (f"writes, {region} to {use.location}", "--written-gib", use.written_gib,
         job.prices.traffic(region, use.location)),
    ):  # fmt: skip
        if size is None:
            yield unsaid(CostKind.TRAFFIC, what, option)
        else:
            yield line(CostKind.TRAFFIC, what, f"{number(size)} GiB", size, price)


#: operations of Firestore in an hour of a job, at most: it starts, is preempted and ends in it, with two backends. An
#: hour in which it only runs takes a third. `tests/flow/stories/test_firestore.py` fails where it takes more.
FIRESTORE = {"reads": 230, "writes": 100, "deletes": 1}
#: seconds of one vCPU that a tick takes, when the backend only runs while it is called, once a minute
TICK = 2


def control(job: Sought) -> Iterator[EstimateLine]:
    around, prices = job.use.around, job.prices
    if not (around.cloud_run or around.firestore):
        yield free(CostKind.CONTROL, "backend", "it runs on your own machine")
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
            price = prices.find(f"firestore {kind}", "us-central1")
            yield _backend(f"Firestore, {kind}", formula, each * job.hours, price)
    if around.secrets:
        formula, months = f"{job.time} / {HOURS_A_MONTH} h", job.hours / HOURS_A_MONTH
        yield _backend("key of the slice", formula, months, prices.find("secret versions"))


def _backend(what: str, formula: str, amount: Decimal, price: Price | None) -> EstimateLine:
    return line(CostKind.CONTROL, what, formula, amount, price, "before what is free each month")
