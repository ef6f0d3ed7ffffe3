"""How long the jobs of an owner hold slices: of a group, or of a program, from those that succeeded. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from math import ceil

from tpujob.domain.model import Job, State

#: seconds that a job is expected to hold a slice of which neither its file nor an earlier job says anything
UNKNOWN = 3600.0
#: least seconds that a job is expected to hold a slice
LEAST = 600.0
#: number of the newest jobs that count
NEWEST = 20

#: by owner and name, which is the id of a group or the program: 90 of 100 jobs took no more seconds
Lengths = Mapping[tuple[str, str], float]


def usual(lengths: Lengths, owner: str, group: str, program: str) -> float | None:
    """Return the seconds of nine in ten jobs of the group, else of the program; None: none has succeeded."""
    found = lengths.get((owner, group)) if group else None
    return lengths.get((owner, program)) if found is None else found


def expected(stated: float, usual: float | None) -> float:
    """Return the seconds that a job is taken to need. `stated`: in its file, 0 if it says nothing."""
    return max(stated or (UNKNOWN if usual is None else usual), LEAST)


def charged(stated: float, usual: float | None) -> float:
    """Return the seconds that a job counts for at the assignment of a slice: no less than jobs of its kind took,
    whatever its file says."""
    return max(stated, UNKNOWN if usual is None else usual, LEAST)


@dataclass(slots=True)
class RunLengths:
    """The jobs that have succeeded, by owner and name."""

    _names: dict[str, tuple[tuple[str, str], ...]] = field(
        default_factory=dict[str, tuple[tuple[str, str], ...]]
    )
    #: when each ended, and its seconds
    _runs: defaultdict[tuple[str, str], dict[str, tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(dict[str, tuple[float, float]])
    )
    _changed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _lengths: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    def count(self, job: Job) -> None:
        """Count a job that has succeeded, and no longer count one that was resumed. Its owner may have changed."""
        for name in self._names.pop(job.id, ()):
            del self._runs[name][job.id]
            self._changed.add(name)
        if seconds := _seconds(job):
            names = tuple(
                (job.submitter, name) for name in (job.group, job.spec.run.program) if name
            )
            self._names[job.id] = names
            for name in names:
                self._runs[name][job.id] = job.finished_at or 0.0, seconds
                self._changed.add(name)

    def lengths(self) -> Lengths:
        """Return the present lengths, which do not change later."""
        if self._changed:
            self._lengths = dict(self._lengths)
            for name in self._changed:
                self._lengths.pop(name, None)
                if runs := self._runs[name]:
                    self._lengths[name] = _ninetieth(runs.values())
            self._changed.clear()
        return self._lengths


def _seconds(job: Job) -> float:
    """Return the seconds for which the job had slices; 0: it tells nothing of others."""
    if job.state is not State.SUCCEEDED:
        return 0.0
    had = ((s.ready_at, s.gone_at) for s in job.slices)
    return sum(
        max(0.0, gone - ready) for ready, gone in had if ready is not None and gone is not None
    )


def _ninetieth(runs: Iterable[tuple[float, float]]) -> float:
    newest = sorted(seconds for _, seconds in nlargest(NEWEST, runs))
    return newest[ceil(0.9 * len(newest)) - 1]
