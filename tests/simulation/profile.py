"""How hostile one seed is: each fault's rate times 0, 1, 4 or 20, drawn from the seed ("swarm testing")."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from random import Random

#: chance for each effect, unless said otherwise
RATES = {
    "kill_before": 0.0004,
    "kill_after": 0.0004,
    "pause": 0.0004,  #: longer than a lease
    "slow": 0.004,  #: seconds that count against a deadline
    "store_before": 0.004,
    "store_after": 0.004,  #: applied, reply lost
    "store_outage": 0.05,  #: of each hour
    "look_unknown": 0.01,
    "look_absent": 0.003,  #: a list that lags
    "late_listing": 0.15,  #: of each create: not to be found for a while
    "cloud_before": 0.02,
    "cloud_after": 0.02,
    "cloud_outage": 0.05,
    "stockout": 0.08,
    "quota": 0.02,
    "request_fails": 0.04,
    "waits": 0.2,  #: of each create: in the cloud's queue for long
    "stuck_delete": 0.1,
    "delete_fails": 0.04,  #: accepted, and the slice stays
    "ssh_before": 0.02,
    "ssh_after": 0.02,
    "ssh_down": 0.05,  #: of each hour, for one host
    "blobs": 0.01,
    "blobs_outage": 0.05,
    "reports_blocked": 0.1,  #: of each hour, for one slice
    "preempt": 0.25,  #: of each slice in an hour
    "preempt_silent": 0.3,  #: of those: stays READY and is dead
    "repair": 0.05,
    "human": 0.02,  #: deletes or stops a slice by hand, in each hour
    "crash": 0.1,  #: of each attempt
    "foreign": 0.5,  #: in each hour
    "orphan": 0.3,
}


@dataclass(frozen=True)
class Profile:
    rates: dict[str, float]
    jobs: int
    backends: int
    hours: float

    def __getitem__(self, name: str) -> float:
        return self.rates[name]


def draw(
    random: Random,
    *,
    off: Set[str] = frozenset(),
    jobs: int | None = None,
    backends: int | None = None,
    hours: float | None = None,
) -> Profile:
    """The profile of a seed; what is given replaces what was drawn, and shifts nothing else."""
    drawn = {
        name: min(0.4 if base < 0.05 else 3.0, base * random.choice((0, 1, 1, 4, 20)))
        for name, base in RATES.items()
    }
    for name in ("kill_before", "kill_after", "pause"):
        drawn[name] = min(drawn[name], 0.004)
    drawn["look_absent"] = min(drawn["look_absent"], 0.01)
    for name in ("store_outage", "cloud_outage", "blobs_outage"):
        drawn[name] = min(drawn[name], 0.4)
    rates = {name: 0.0 if name in off else rate for name, rate in drawn.items()}
    drawn_jobs, drawn_backends = random.randint(2, 6), random.randint(1, 3)
    return Profile(rates, jobs or drawn_jobs, backends or drawn_backends, hours or 5.0)
