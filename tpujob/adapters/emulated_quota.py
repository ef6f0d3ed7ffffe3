"""The emulator's quotas and its stock of hosts, as `tpujob quota` shows them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpujob.doctor.quota import Held, Limit, QuotaKind, QuotaOverview, Stock, allowances, unit_of
from tpujob.domain.hardware import accelerators


def overview(status: Mapping[str, Any], *, everywhere: bool = False) -> QuotaOverview:
    """From the emulator's `status`. Its quotas count all slices of a generation, also those of one host; without a
    quota the stock is the only limit."""
    limits = [
        Limit(
            metric="emulator",
            kind=QuotaKind(q["generation"], q["pricing"]),
            scope="zone",
            place=q["zone"],
            limit=q["limit"],
            unit=unit_of(q["generation"]),
        )
        for q in status["faults"]["quotas"]
    ]
    held = [
        Held(QuotaKind(found.generation, one["pricing"]), one["zone"], found.chips)
        for one in status["slices"]
        for found in [accelerators.find(one["type"])]
    ]
    zones = [one["zone"] for one in status["zones"]]
    stock = [
        Stock(zone["zone"], generation, hosts["hosts"], hosts["used"])
        for zone in status["zones"]
        for generation, hosts in zone["stock"].items()
        if everywhere or hosts["used"] or _limited(limits, zone["zone"], generation)
    ]
    # everything that is not limited may be held, as far as the stock goes
    rows = [
        replace(row, known=True) for row in allowances(limits, zones, held=held, closed_kinds=True)
    ]
    return QuotaOverview("the emulator", rows, stock=stock)


def _limited(limits: list[Limit], zone: str, generation: str) -> bool:
    return any(
        one.kind and (one.kind.generation, one.place) == (generation, zone) for one in limits
    )
