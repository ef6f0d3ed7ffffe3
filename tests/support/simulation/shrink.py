"""From a seed that violates an invariant to a shorter history that still does: fewer faults, jobs and backends."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tests.support.simulation.play import Result, play
from tests.support.simulation.profile import RATES
from tests.support.simulation.sim import EPOCH

#: lines of the log that are shown
LINES = 60


@dataclass(frozen=True)
class Small:
    seed: int
    result: Result
    short: bool = False
    off: frozenset[str] = frozenset()
    jobs: int | None = None
    backends: int | None = None
    hours: float | None = None


def shrink(seed: int, *, short: bool = False, off: frozenset[str] = frozenset()) -> Small:
    """Leaves out one thing after the other, as long as the same invariant still fails: jobs, backends, hours, and
    all faults that it does not take, by halves of them first."""
    small = Small(seed, play(seed, short=short, off=off), short, off)
    assert small.result.violation, f"seed {seed} violates nothing"
    hours = (small.result.now - EPOCH) / 3600 + 0.1
    for changes in (
        *({"hours": h} for h in (hours / 4, hours / 2, hours) if h < 20),
        *({"jobs": n} for n in (1, 2, 4)),
        *({"backends": n} for n in (1, 2)),
    ):
        (name,) = changes
        if getattr(small, name) is None:
            small = _tried(small, **changes) or small
    return _without(small, list(RATES))


def _without(small: Small, faults: list[str]) -> Small:
    fewer = _tried(small, off=small.off | set(faults))
    if fewer is not None or len(faults) == 1:
        return fewer or small
    half = len(faults) // 2
    return _without(_without(small, faults[:half]), faults[half:])


def replay(small: Small) -> Result:
    return play(
        small.seed,
        short=small.short,
        off=small.off,
        jobs=small.jobs,
        backends=small.backends,
        hours=small.hours,
    )


def _tried(small: Small, **changes: object) -> Small | None:
    wanted = replace(small, **changes)  # type: ignore[arg-type]
    result = replay(wanted)
    known, found = small.result.violation, result.violation
    if known is None or found is None or found.rule != known.rule:
        return None
    return replace(wanted, result=result)


def history(result: Result) -> list[str]:
    """The log, of the violated job alone where there is one; its newest lines."""
    job = result.violation.job if result.violation else ""
    found = re.search(r"\d{6}", job)
    about = [line for line in result.log if not found or found.group() in line or " calm" in line]
    left_out = len(about) - LINES
    return ([f"  ... {left_out} lines before"] if left_out > 0 else []) + about[-LINES:]


def command(small: Small) -> str:
    words = [f"python -m tests.support.simulation --seed {small.seed}"]
    if small.short:
        words.append("--short")
    if small.jobs:
        words.append(f"--jobs {small.jobs}")
    if small.backends:
        words.append(f"--backends {small.backends}")
    if small.hours:
        words.append(f"--hours {small.hours:g}")
    if small.off:
        words.append("--off " + ",".join(sorted(small.off)))
    return " ".join(words)
