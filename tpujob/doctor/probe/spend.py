"""Which slice the probes get, what it may cost, and when the money is used up. Pure.

The price is the list's. Google bills from READY; here the time counts from the last look at which a slice was not
ready, so the estimate errs upwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpujob.domain.hardware import accelerators
from tpujob.domain.prices import LIST
from tpujob.errors import BadRequest

#: seconds: the least that the probes of a slice take, and the most that they may
SHORTEST, LONGEST = 600.0, 1500.0
#: seconds of a slice after which the sweep may take it for left over: the probes, and the time to delete it
LEFT_OVER = 3600.0
#: the label of a job that no job has, on what probes make
PROBE_JOB = "probe"


@dataclass(frozen=True, slots=True)
class Choice:
    """The slice that is asked for: one host, spot."""

    type: str
    zone: str
    usd_per_hour: float
    runtime_version: str


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a slice may be held."""

    usd_per_hour: float
    cap: float

    @property
    def seconds(self) -> float:
        return min(LONGEST, self.cap / self.usd_per_hour * 3600)

    @property
    def by_cap(self) -> bool:
        """Whether the money ends before the time."""
        return self.seconds < LONGEST

    def usd(self, seconds: float) -> float:
        return seconds / 3600 * self.usd_per_hour


def choose(offered: Mapping[str, Sequence[str]], type: str = "", zone: str = "") -> Choice:
    """The cheapest slice of one host among what is offered, by zone; of that `type`, in that `zone`, if they are given.
    Raises BadRequest."""
    if zone and zone not in offered:
        raise BadRequest(
            f"{zone} is not among the zones that can be probed: {', '.join(offered) or 'none'}",
            hint="name it in `zones` of the context",
        )
    wanted = accelerators.canonical(type)
    places = {zone: offered[zone]} if zone else offered
    found = [
        Choice(one, place, usd, accelerators.find(one).runtime_version)
        for place, types in places.items()
        for one in types
        if (not wanted or one == wanted) and (usd := _price(one, place)) is not None
    ]
    if not found:
        raise _nothing(places, wanted)
    return min(found, key=lambda choice: choice.usd_per_hour)


def budget(choice: Choice, cap: float, slices: int = 1) -> Budget:
    """For so many slices at once. Raises BadRequest when the shortest time would already cost more than the cap."""
    usd_per_hour = choice.usd_per_hour * slices
    least = usd_per_hour * SHORTEST / 3600
    if least > cap:
        raise BadRequest(
            f"spot {accelerators.several(choice.type, slices)} in {choice.zone} costs ${usd_per_hour:.2f}/h: the "
            f"{SHORTEST / 60:.0f} min that the probes need at least are ${least:.2f}, over the cap of ${cap:.2f}",
            hint=f"allow more with --cap {least * 1.5:.2f}, or name a smaller --type",
        )
    return Budget(usd_per_hour, cap)


def _price(type: str, zone: str) -> float | None:
    """None: of several hosts, or no price is known, with which no cap can be kept."""
    known = accelerators.ALL.get(type)
    if known is None or known.hosts > 1:
        return None
    return LIST.usd_per_hour(type, zone, "spot")


def _nothing(places: Mapping[str, Sequence[str]], wanted: str) -> BadRequest:
    where = ", ".join(places) or "no zone"
    if not wanted:
        return BadRequest(
            f"no slice of one host with a known spot price is offered in {where}",
            hint="name another --zone; a cap needs a price",
        )
    having = [zone for zone, types in places.items() if wanted in types]
    if not having:
        one_host = sorted({t for types in places.values() for t in types if _one_host(t)})
        return BadRequest(
            f"{wanted} is not offered in {where}",
            hint=f"of one host there are: {', '.join(one_host) or 'none'}",
        )
    if not _one_host(wanted):
        return BadRequest(f"{wanted} has several hosts, and the probes need one", hint="--type")
    return BadRequest(
        f"the spot price of {wanted} in {', '.join(having)} is not known, and a cap needs one",
        hint="name another --type or --zone",
    )


def _one_host(type: str) -> bool:
    known = accelerators.ALL.get(type)
    return known is not None and known.hosts == 1
