"""The hostility of one seed: each fault's rate times 0, 1, 4 or 20, drawn from the seed ("swarm testing")."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from random import Random

#: the chance for each effect, unless a comment names another unit; then the most that is drawn
_FIRST: dict[str, tuple[float, float]] = {
    "kill_before": (0.004, 0.01),
    "kill_after": (0.004, 0.01),
    "pause": (0.0004, 0.003),  #: longer than a lease
    "slow": (0.01, 0.2),  #: seconds that count against a deadline
    "store_before": (0.02, 0.2),
    "store_after": (0.02, 0.2),  #: applied, reply lost
    "store_outage": (0.2, 1.5),  #: of each hour
    "look_unknown": (0.03, 0.25),
    "look_absent": (0.003, 0.01),  #: a list that lags
    "late_listing": (0.15, 1.0),  #: of each create: not to be found for a while
    "cloud_before": (0.04, 0.4),
    "cloud_after": (0.04, 0.4),
    "cloud_outage": (0.2, 1.5),
    "stockout": (0.05, 0.6),  #: begins in an hour, in one zone
    "quota": (0.02, 0.4),  #: begins in an hour, in one region
    "request_fails": (0.04, 0.6),
    "waits": (0.2, 0.8),  #: of each create: in the cloud's queue for long
    "stuck_delete": (0.1, 0.8),
    "delete_fails": (0.04, 0.4),  #: accepted, and the slice stays
    "ssh_before": (0.03, 0.3),
    "ssh_after": (0.03, 0.3),
    "ssh_down": (0.05, 1.0),  #: of each hour, for one host
    "blobs": (0.03, 0.2),
    "blobs_outage": (0.2, 1.5),
    "reports_blocked": (0.1, 2.0),  #: of each hour, for one slice
    "preempt": (0.2, 3.0),  #: of each slice in an hour
    "preempt_silent": (0.2, 0.6),  #: of those: stays READY and is dead
    "repair": (0.05, 1.0),
    "human": (0.02, 0.3),  #: deletes or stops a slice by hand, in each hour
    "host_dies": (0.02, 0.4),  #: of each slice in an hour: one of its hosts
    "agent_dies": (0.02, 0.4),
    "crash": (0.08, 0.6),  #: of each attempt
    "hang": (0.04, 0.5),
    "left_behind": (0.02, 0.4),
    "flip": (0.02, 0.3),  #: a wrong number that comes once
    "maths": (0.03, 0.4),  #: of each job
    "pause_of_program": (0.2, 1.0),  #: no progress for a while, and nothing is wrong
    "bad_machine": (0.02, 0.15),  #: of the machines below the slices: breaks numbers
    "nameless": (0.05, 0.5),  #: the metadata server does not tell the machine
    "foreign": (0.1, 0.5),  #: in each hour
    "orphan": (0.1, 0.5),
}
#: drawn after all else, so that seeds that are known keep their histories
_LATER: dict[str, tuple[float, float]] = {
    "suspending": (0.3, 1.0),  #: of each preemption: the cloud takes its time to suspend the slice
    #: of each list of all slices: it shows what was there up to a minute ago
    "survey_lags": (0.1, 0.8),
    #: it could not reach a zone, and says so; or a page of it is missing, unsaid
    "survey_misses": (0.05, 0.5),
    "survey_torn": (0.02, 0.3),  #: a slice looks as one whose nodes are on a page that is missing
    "lab": (0.05, 1.0),  #: no fault: how many people share the queue, of `lab.MOST`
}
#: drawn last; left out of seeds that are older
_NEW: dict[str, tuple[float, float]] = {
    "budgets": (0.2, 0.7),  #: no fault: of users' jobs
    "multislice": (0.1, 0.5),  #: no fault: of users' jobs
    "node_lost": (0.1, 1.0),  #: of each Multislice in an hour: one of its TPU slices
    "refused": (0.01, 0.1),  #: of each create: for good, as PERMISSION or BAD_SPEC
    "clock_jump": (
        0.1,
        1.0,
    ),  #: of each hour: the clock of a backend is wrong by up to an hour, for some minutes
    #: of each hour: a job's record cannot be read for some minutes
    "damaged": (0.1, 1.0),
    "agent_elsewhere": (0.1, 0.5),  #: of each death of an agent: on any host, not the first
}
#: drawn after those
_NEWEST: dict[str, tuple[float, float]] = {
    "lists_checkpoints": (0.3, 1.0),  #: no fault: of jobs, whose hosts list their checkpoints
    "unauthenticated": (0.05, 0.5),  #: of each hour: the cloud accepts no credentials for a while
    "shared_budget": (0.1, 0.5),  #: no fault: all jobs are paid from one budget
    "member_leaves": (
        0.2,
        0.7,
    ),  #: of people who share the queue: one goes, and another gets the jobs
    "runtimes": (0.1, 0.5),  #: no fault: of jobs, with a runtime version other than the usual one
    "flex_start": (0.1, 0.6),  #: no fault: of jobs, whose slices end as planned
    "deadlines": (0.1, 0.5),  #: no fault: of users' jobs, which may be on spot or on demand
    "races": (0.2, 0.8),  #: no fault: of jobs with several places, that ask in some at once
}
NEW = frozenset(_NEW | _NEWEST)
RATES = _FIRST | _LATER | _NEW | _NEWEST


@dataclass(frozen=True)
class Size:
    jobs: int
    hours: float  #: of faults; the calm comes after them
    lengths: tuple[int, ...]  #: seconds of work in a job


FULL = Size(8, 22.0, (300, 1800, 7200, 28800, 60000))
#: a sixth of the cost; most bugs show in either
SHORT = Size(4, 4.0, (300, 1800, 7200))


@dataclass(frozen=True)
class Profile:
    rates: dict[str, float]
    jobs: int
    backends: int
    hours: float
    lengths: tuple[int, ...] = FULL.lengths

    def __getitem__(self, name: str) -> float:
        return self.rates[name]


@dataclass(frozen=True)
class Seed:
    """A seed and its options: short, without some faults, with fewer jobs, backends or hours."""

    number: int
    short: bool = False
    off: Set[str] = frozenset()
    jobs: int | None = None
    backends: int | None = None
    hours: float | None = None

    def __str__(self) -> str:
        """Return the arguments of the command that plays the seed."""
        words = [f"{self.number}", *["--short"] * self.short]
        words += [f"--jobs {self.jobs}"] if self.jobs else []
        words += [f"--backends {self.backends}"] if self.backends else []
        words += [f"--hours {self.hours:g}"] if self.hours else []
        words += [f"--off {','.join(sorted(self.off))}"] if self.off else []
        return " ".join(words)


def draw(random: Random, seed: Seed) -> Profile:
    """Return the profile of a seed; set rates replace drawn rates, and shift no other draw."""
    size = SHORT if seed.short else FULL
    drawn = _drawn(random, _FIRST)
    backends = seed.backends or random.randint(1, 3)
    drawn |= _drawn(random, _LATER)
    drawn |= _drawn(random, _NEW) | _drawn(random, _NEWEST)
    rates = {name: 0.0 if name in seed.off else rate for name, rate in drawn.items()}
    hours = seed.hours or size.hours
    return Profile(rates, seed.jobs or size.jobs, backends, hours, size.lengths)


def _drawn(random: Random, rates: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    return {
        name: min(limit, base * random.choice((0, 1, 1, 4, 20)))
        for name, (base, limit) in rates.items()
    }
