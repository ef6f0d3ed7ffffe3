"""The whole estimate of a job, and its sum in words."""

from decimal import Decimal

from tpujob.domain.hardware import accelerators
from tpujob.domain.money.estimate import backend, bucket, machines
from tpujob.domain.money.estimate.lines import Sought
from tpujob.domain.money.estimate.shapes import Estimate, Kind, Use
from tpujob.domain.prices import LIST, PriceList
from tpujob.domain.text import dollars


def estimate(use: Use, prices: PriceList = LIST) -> Estimate:
    """What that costs by these prices. Raises BadSpec for what can be no type."""
    facts = accelerators.find(use.type)
    job = Sought(use, prices, facts, use.hours if use.hours is not None else Decimal(1))
    parts = (
        machines.slices,
        machines.machines,
        bucket.storage,
        bucket.operations,
        bucket.copies,
        bucket.traffic,
        backend.control,
    )
    return Estimate(use, tuple(line for part in parts for line in part(job)))


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
