"""From a seed that violates an invariant to a shorter history that still does: fewer faults, jobs and backends."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tests.simulation.play import Result, play
from tests.simulation.profile import RATES

#: lines of the log that are shown
LINES = 60


@dataclass(frozen=True)
class Small:
    seed: int
    result: Result
    off: frozenset[str] = frozenset()
    jobs: int | None = None
    backends: int | None = None


def shrink(seed: int) -> Small:
    """Leaves out one thing after the other, as long as the same invariant still fails."""
    small = Small(seed, play(seed))
    assert small.result.violation, f"seed {seed} violates nothing"
    for jobs in (1, 2, 3):
        if (fewer := _tried(small, jobs=jobs)) is not None:
            small = fewer
            break
    for backends in (1, 2):
        if (fewer := _tried(small, backends=backends)) is not None:
            small = fewer
            break
    for fault in RATES:
        small = _tried(small, off=small.off | {fault}) or small
    return small


def _tried(small: Small, **changes: object) -> Small | None:
    wanted = replace(small, **changes)  # type: ignore[arg-type]
    result = play(small.seed, off=wanted.off, jobs=wanted.jobs, backends=wanted.backends)
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
    words = [f"python -m tests.simulation --seed {small.seed}"]
    if small.jobs:
        words.append(f"--jobs {small.jobs}")
    if small.backends:
        words.append(f"--backends {small.backends}")
    if small.off:
        words.append("--off " + ",".join(sorted(small.off)))
    return " ".join(words)
