"""Estimates: the cost of a job, line by line, from its request and from what its user states. Pure.

Every line is an amount times a row of the price list, in whole micro-dollars, so lines add up to their sum. A cost
whose amount is not stated, or whose price is unknown, is None and named: it never counts as 0. `run_time.py` estimates
how long slices run. `forecast.py` adds what preemptions cost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import Accelerator, region_of
from tpujob.domain.hardware.prices import GIB, HOURS_A_MONTH, LIST, Price, PriceList, micros
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.money import ledger, polling_cost
from tpujob.domain.money.estimate_shapes import CostKind, Estimate, EstimateLine, Use
from tpujob.domain.text import amount_of_bytes, dollars, many
from tpujob.protocol.limits import LOG_EVERY


def estimate(use: Use, prices: PriceList = LIST) -> Estimate:
    """Return the cost of the use by these prices. Raise BadSpec for a type that cannot exist."""
    facts = accelerators.find(use.type)
    job = EstimateInput(use, prices, facts, use.hours if use.hours is not None else Decimal(1))
    parts = (slices, machines, storage, operations, copies, traffic, control)
    return Estimate(use, tuple(line for part in parts for line in part(job)))


def sums(estimate: Estimate) -> str:
    """Return the arithmetic of the payment, the dearest kind first: `$22.12 slices + $0.03 machines = $22.15`."""
    costs = {kind: estimate.pay_of(kind) for kind in CostKind}
    ordered = sorted((kind for kind in CostKind if costs[kind]), key=lambda kind: -costs[kind])
    parts = " + ".join(f"{dollars(costs[kind])} {kind}" for kind in ordered)
    rest = ", and unknown costs" if any(line.pay_micros is None for line in estimate.lines) else ""
    return f"{parts or 'nothing'} = {dollars(estimate.pay_micros)}{rest}"


@dataclass(frozen=True, slots=True)
class EstimateInput:
    """The values from which lines are computed."""

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
    title: str,
    formula: str,
    amount: Decimal | int,
    price: Price | None,
    note: str = "",
) -> EstimateLine:
    """Return the line of an amount times its price; without a price, its cost is None."""
    amount = Decimal(amount)
    if price is None:
        return EstimateLine(kind, title, formula, amount, note=note or "no price is known")
    cost = micros(price.of(amount))
    return EstimateLine(kind, title, formula, amount, price, cost, cost, note)


def not_stated(kind: CostKind, title: str, option: str) -> EstimateLine:
    return EstimateLine(kind, title, note=f"not stated: {option}")


def free(kind: CostKind, title: str, note: str) -> EstimateLine:
    return EstimateLine(kind, title, list_micros=0, pay_micros=0, note=note)


def number(amount: Decimal) -> str:
    """Return the number as text, with at most four decimals: `3`, `2.5`, `1,200`."""
    return f"{round(amount, 4).normalize():,f}"


#: GiB of a TPU VM's boot disk, unless its image asks for more (documented)
BOOT_DISK = 100


def slices(job: EstimateInput) -> Iterator[EstimateLine]:
    use = job.use
    where = ledger.where(use.type, use.zone, use.pricing)
    granted = ledger.granted(use.grants, where)
    taken = use.granted_in_use.get(where, 0)
    price = job.prices.tpu(use.type, use.zone, use.pricing)
    at_list_price = line(
        CostKind.SLICES,
        f"{accelerators.several(use.type, use.slices)}, {use.zone}, {use.pricing}",
        f"{many(job.chips, 'chip')} x {job.time}",
        job.chips * job.hours,
        price,
        _about_price(use, price),
    )
    usage = f"of {many(granted, 'granted chip')}, {taken} pay for other slices now" if taken else ""
    if granted - taken >= job.chips:
        pays = f"a grant of {many(granted, 'chip')} pays for it, where nothing else uses them"
        yield replace(at_list_price, pay_micros=0, note=usage or pays)
    elif granted and at_list_price.known:
        few = usage or f"a grant has {many(granted, 'chip')}, too few"
        yield replace(at_list_price, note=f"{few}: a slice is covered whole or not at all")
    else:
        yield at_list_price


def _about_price(use: Use, price: Price | None) -> str:
    if price is None:
        return f"no price is known for {use.pricing} {use.type} in {use.zone}"
    if price.pricing != use.pricing:
        return f"priced as {price.pricing}: what a reservation costs is in its contract"
    return ""


def machines(job: EstimateInput) -> Iterator[EstimateLine]:
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
    kind = "spot" if find_pricing(job.use.pricing).preemptible else "on-demand"
    price = job.prices.find("external address", pricing=kind)
    formula = f"{job.machines} x {job.time}"
    yield line(CostKind.MACHINES, "external addresses", formula, job.hosts * job.hours, price)


#: class A operations an hour of a host whose program prints: a segment for each LOG_EVERY
LOG_WRITES = round(3600 / LOG_EVERY)


def storage(job: EstimateInput) -> Iterator[EstimateLine]:
    use = job.use
    title, price = f"what stays in the bucket, {use.location}", job.prices.storage(use.location)
    if use.stored_gib is None or use.stored_days is None:
        yield not_stated(CostKind.STORAGE, title, "--stored-gib and --stored-days")
        return
    yield line(
        CostKind.STORAGE,
        title,
        f"{number(use.stored_gib)} GiB x {number(use.stored_days)} d x 24 / {HOURS_A_MONTH} h",
        use.stored_gib * use.stored_days * 24 / HOURS_A_MONTH,
        price,
        "" if price else f"no price is known for {use.location}",
    )


def operations(job: EstimateInput) -> Iterator[EstimateLine]:
    use, class_a, class_b = job.use, job.prices.class_a, job.prices.class_b
    reports = Decimal(3600) / Decimal(str(use.around.report_every))
    yield line(
        CostKind.OPERATIONS,
        "reports of hosts",
        f"{number(reports)} an hour x {many(job.hosts, 'host')} x {job.time}, class A",
        reports * job.hosts * job.hours,
        class_a,
    )
    if use.prints:
        yield line(
            CostKind.OPERATIONS,
            "logs of hosts",
            f"{LOG_WRITES} an hour x {many(job.hosts, 'host')} x {job.time}, class A",
            LOG_WRITES * job.hosts * job.hours,
            class_a,
            "if the program prints all the time: at most 4 MiB in five minutes on each host",
        )
    yield _lists(job)
    for title, option, count, price, letter in (
        ("objects that the program writes", "--objects-written", use.objects_written, class_a, "A"),
        ("objects that the program reads", "--objects-read", use.objects_read, class_b, "B"),
    ):
        if count is None:
            yield not_stated(CostKind.OPERATIONS, title, option)
        else:
            formula = f"{count:,} objects, class {letter}"
            yield line(CostKind.OPERATIONS, title, formula, count, price)


def _lists(job: EstimateInput) -> EstimateLine:
    """Return the line of the backend's lists of reports."""
    an_hour = int(3600 / polling_cost.UNASKED)
    return line(
        CostKind.OPERATIONS,
        "lists of the backend",
        f"{an_hour} an hour x {job.time}, class A",
        an_hour * job.hours,
        job.prices.class_a,
        "if no other job runs: one list serves all jobs",
    )


def copies(job: EstimateInput) -> Iterator[EstimateLine]:
    """Yield the lines of the copies of data that are made once, before the first slice."""
    for copy in job.use.copies:
        title = f"copy of {copy.name}"
        if copy.problem:
            yield EstimateLine(CostKind.OPERATIONS, title, note=copy.problem)
            continue
        a_month = job.prices.storage(copy.region)
        gib = Decimal(copy.bytes) / GIB
        yield line(
            CostKind.OPERATIONS,
            title,
            f"{copy.objects:,} objects, class A, once",
            copy.objects,
            job.prices.class_a,
        )
        yield line(
            CostKind.TRAFFIC,
            f"{title}, {copy.location} to {copy.region}",
            f"{amount_of_bytes(copy.bytes)}, once",
            gib,
            job.prices.traffic(copy.location, copy.region),
            f"keeping it costs {dollars(micros(a_month.of(gib)))} a month" if a_month else "",
        )


def traffic(job: EstimateInput) -> Iterator[EstimateLine]:
    use, region = job.use, region_of(job.use.zone)
    if use.location.lower() == region:
        note = f"bucket and slices are both in {region}"
        yield free(CostKind.TRAFFIC, "between bucket and slices", note)
        return
    for title, option, size, price in (
        (f"reads, {use.location} to {region}", "--read-gib", use.read_gib,
         job.prices.traffic(use.location, region)),
        (f"writes, {region} to {use.location}", "--written-gib", use.written_gib,
         job.prices.traffic(region, use.location)),
    ):  # fmt: skip
        if size is None:
            yield not_stated(CostKind.TRAFFIC, title, option)
        else:
            yield line(CostKind.TRAFFIC, title, f"{number(size)} GiB", size, price)


#: the most operations of Firestore in an hour of a job: the job starts, is preempted and ends in it, with two
#: backends. An hour in which the job only runs takes a third. `tests/flow/stories/test_firestore.py` checks them.
FIRESTORE = {"reads": 230, "writes": 100, "deletes": 1}
#: seconds of one vCPU that a tick takes, when the backend only runs while it is called, once a minute
TICK = 2


def control(job: EstimateInput) -> Iterator[EstimateLine]:
    around, prices = job.use.around, job.prices
    if not (around.cloud_run or around.firestore):
        yield free(CostKind.CONTROL, "backend", "it runs on your own machine")
    if around.cloud_run == "always":
        seconds, formula = job.hours * 3600, f"1 x {job.time}; all jobs share it"
        yield _backend("Cloud Run, vCPU", formula, seconds, prices.find("cloud run cpu, always on"))
        memory = prices.find("cloud run memory, always on")
        yield _backend("Cloud Run, GiB", formula, seconds, memory)
    elif around.cloud_run == "called":
        ticks = job.hours * 60
        formula = f"60 ticks an hour of {TICK} s x {job.time}; all jobs share them"
        yield _backend("Cloud Run, vCPU", formula, ticks * TICK, prices.find("cloud run cpu"))
        yield _backend("Cloud Run, GiB", formula, ticks * TICK, prices.find("cloud run memory"))
        yield _backend("Cloud Run, requests", formula, ticks, prices.find("cloud run requests"))
        formula = f"2 jobs x {job.time} / {HOURS_A_MONTH} h; all jobs share them"
        months = job.hours * 2 / HOURS_A_MONTH
        yield _backend("Cloud Scheduler", formula, months, prices.find("scheduler"))
    if around.firestore:
        for kind, count in FIRESTORE.items():
            formula = f"{count} an hour at most x {job.time}"
            price = prices.find(f"firestore {kind}", "us-central1")
            yield _backend(f"Firestore, {kind}", formula, count * job.hours, price)


def _backend(title: str, formula: str, amount: Decimal, price: Price | None) -> EstimateLine:
    return line(CostKind.CONTROL, title, formula, amount, price, "before what is free each month")
