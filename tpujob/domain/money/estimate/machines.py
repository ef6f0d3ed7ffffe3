"""Slices with what a grant pays of them, and what comes with their hosts: disks and addresses."""

from collections.abc import Iterator
from dataclasses import replace

from tpujob.domain.hardware import accelerators
from tpujob.domain.money import grants
from tpujob.domain.money.estimate.lines import Sought, free, line
from tpujob.domain.money.estimate.shapes import Kind, Line, Use
from tpujob.domain.prices import HOURS_A_MONTH, Price
from tpujob.domain.text import many

#: GiB of a TPU VM's boot disk, unless its image asks for more (documented)
BOOT_DISK = 100


def slices(job: Sought) -> Iterator[Line]:
    use, there = job.use, grants.where(job.use.type, job.use.zone, job.use.pricing)
    granted, taken = grants.granted(use.grants, there), use.granted_in_use.get(there, 0)
    price = job.prices.tpu(use.type, use.zone, use.pricing)
    found = line(
        Kind.SLICES,
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


def machines(job: Sought) -> Iterator[Line]:
    yield free(Kind.MACHINES, "host machines", "the price of a TPU includes its machine")
    yield line(
        Kind.MACHINES,
        "boot disks",
        f"{job.machines} x {BOOT_DISK} GiB x {job.time} / {HOURS_A_MONTH} h",
        job.hosts * BOOT_DISK * job.hours / HOURS_A_MONTH,
        job.prices.find("boot disk"),
    )
    if not job.use.around.external_ips:
        yield free(Kind.MACHINES, "external addresses", "the context gives hosts none")
        return
    kind = "spot" if job.use.pricing == "spot" else "on-demand"
    price = job.prices.find("external address", pricing=kind)
    formula = f"{job.machines} x {job.time}"
    yield line(Kind.MACHINES, "external addresses", formula, job.hosts * job.hours, price)
