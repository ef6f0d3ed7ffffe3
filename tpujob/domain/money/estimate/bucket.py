"""The bucket: what stays in it, operations, tpujob's own among them, copies of data, and traffic between regions."""

from collections.abc import Iterator
from decimal import Decimal

from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.money import polling_cost
from tpujob.domain.money.estimate.lines import Sought, free, line, number, unsaid
from tpujob.domain.money.estimate.shapes import Kind, Line
from tpujob.domain.prices import GIB, HOURS_A_MONTH, micros
from tpujob.domain.text import amount_of_bytes, dollars, many

#: class A operations an hour of a host whose program prints: a segment every five minutes (`agent/upload/log.py`)
LOG_WRITES = 12


def storage(job: Sought) -> Iterator[Line]:
    use, what = job.use, f"what stays in the bucket, {job.use.location}"
    if use.stored_gib is None or use.stored_days is None:
        yield unsaid(Kind.STORAGE, what, "--stored-gib and --stored-days")
        return
    yield line(
        Kind.STORAGE,
        what,
        f"{number(use.stored_gib)} GiB x {number(use.stored_days)} d x 24 / {HOURS_A_MONTH} h",
        use.stored_gib * use.stored_days * 24 / HOURS_A_MONTH,
        job.prices.storage(use.location),
        "" if job.prices.storage(use.location) else f"no price is known for {use.location}",
    )


def operations(job: Sought) -> Iterator[Line]:
    use, a, b = job.use, job.prices.class_a, job.prices.class_b
    reports = Decimal(3600) / Decimal(str(use.around.report_every))
    yield line(
        Kind.OPERATIONS,
        "reports of hosts",
        f"{number(reports)} an hour x {many(job.hosts, 'host')} x {job.time}, class A",
        reports * job.hosts * job.hours,
        a,
    )
    if use.prints:
        yield line(
            Kind.OPERATIONS,
            "logs of hosts",
            f"{LOG_WRITES} an hour x {many(job.hosts, 'host')} x {job.time}, class A",
            LOG_WRITES * job.hosts * job.hours,
            a,
            "while the program prints all the time, on each host at most 4 MiB in five minutes",
        )
    yield _lists(job)
    for what, option, count, price, letter in (
        ("objects that the program writes", "--objects-written", use.objects_written, a, "A"),
        ("objects that the program reads", "--objects-read", use.objects_read, b, "B"),
    ):
        if count is None:
            yield unsaid(Kind.OPERATIONS, what, option)
        else:
            formula = f"{count:,} objects, class {letter}"
            yield line(Kind.OPERATIONS, what, formula, count, price)


def _lists(job: Sought) -> Line:
    """Of what hosts report, by the backend."""
    an_hour = int(3600 / polling_cost.UNASKED)
    return line(
        Kind.OPERATIONS,
        "lists of the backend",
        f"{an_hour} an hour x {job.time}, class A",
        an_hour * job.hours,
        job.prices.class_a,
        "if no other job runs: one list serves all jobs",
    )


def copies(job: Sought) -> Iterator[Line]:
    """Of data, made once, before the first slice."""
    for one in job.use.copies:
        if one.problem:
            what = f"copy of {one.name}"
            yield Line(Kind.OPERATIONS, what, "", None, None, None, None, one.problem)
            continue
        kept, gib = job.prices.storage(one.region), Decimal(one.bytes) / GIB
        yield line(
            Kind.OPERATIONS,
            f"copy of {one.name}",
            f"{one.objects:,} objects, class A, once",
            one.objects,
            job.prices.class_a,
        )
        yield line(
            Kind.TRAFFIC,
            f"copy of {one.name}, {one.location} to {one.region}",
            f"{amount_of_bytes(one.bytes)}, once",
            gib,
            job.prices.traffic(one.location, one.region),
            f"keeping it costs {dollars(micros(kept.of(gib)))} a month" if kept else "",
        )


def traffic(job: Sought) -> Iterator[Line]:
    use, region = job.use, region_of(job.use.zone)
    if use.location.lower() == region:
        both = f"bucket and slices are both in {region}"
        yield free(Kind.TRAFFIC, "between bucket and slices", both)
        return
    for what, option, size, price in (
        (f"reads, {use.location} to {region}", "--read-gib", use.read_gib,
         job.prices.traffic(use.location, region)),
        (f"writes, {region} to {use.location}", "--written-gib", use.written_gib,
         job.prices.traffic(region, use.location)),
    ):  # fmt: skip
        if size is None:
            yield unsaid(Kind.TRAFFIC, what, option)
        else:
            yield line(Kind.TRAFFIC, what, f"{number(size)} GiB", size, price)
