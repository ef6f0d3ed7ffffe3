"""From a seed that violates an invariant to a shorter history that still does: fewer faults, jobs and backends."""

import re
from dataclasses import asdict, replace

from tests.support.simulation.play import Result, play
from tests.support.simulation.profile import RATES, Seed
from tests.support.simulation.sim import EPOCH

#: lines of the log that are shown
LINES = 60


def replay(seed: Seed) -> Result:
    return play(**asdict(seed))


def shrink(seed: Seed) -> Result:
    """Leave out one thing after the other, as long as the same invariant still fails: jobs, backends, hours, and all
    faults that it does not take, by halves of them first."""
    small = replay(seed)
    assert small.violation, f"seed {seed} violates nothing"
    hours = (small.now - EPOCH) / 3600 + 0.1
    for changes in (
        *({"hours": h} for h in (hours / 4, hours / 2, hours) if h < 20),
        *({"jobs": n} for n in (1, 2, 4)),
        *({"backends": n} for n in (1, 2)),
    ):
        (name,) = changes
        if getattr(small.seed, name) is None:
            small = _tried(small, **changes) or small
    return _without(small, list(RATES))


def _without(small: Result, faults: list[str]) -> Result:
    fewer = _tried(small, off=small.seed.off | set(faults))
    if fewer is not None or len(faults) == 1:
        return fewer or small
    half = len(faults) // 2
    return _without(_without(small, faults[:half]), faults[half:])


def _tried(small: Result, **changes: object) -> Result | None:
    result = replay(replace(small.seed, **changes))  # type: ignore[arg-type]
    first, second = small.violation, result.violation
    return result if first and second and second.rule == first.rule else None


def history(result: Result) -> list[str]:
    """Return the newest lines of the log, of the violated job only where there is one."""
    job = result.violation.job if result.violation else ""
    match = re.search(r"\d{6}", job)
    about = [line for line in result.log if not match or match.group() in line or " calm" in line]
    left_out = len(about) - LINES
    return ([f"  ... {left_out} lines before"] if left_out > 0 else []) + about[-LINES:]


def command(seed: Seed) -> str:
    return f"python -m tests.support.simulation --seed {seed}"
