"""Programs that neither end nor make progress: hangs, hosts that wait for ended ones, silent hosts. Pure.

`hung`, `left_behind` and `silent` return the end of the attempt, or None. The clock jumps when a machine is paused, so
idle time and silence over SSH count only with a number of checks in them. Each duration is by one clock: the idle time
by the host's, the age of a report by the storage's, the silence over SSH by the backend's.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tpujob.domain.failures.evidence import proof
from tpujob.domain.model import Cause, End, Outcome, Proof
from tpujob.domain.observations import HostReport, OutputLine, Silence
from tpujob.domain.text import duration, list_hosts
from tpujob.protocol import Phase, StallRule
from tpujob.protocol.limits import LEFT_BEHIND

#: phases of a host before its program starts: the other hosts wait for it
ON_THE_WAY = frozenset({Phase.FETCHING, Phase.SETUP, Phase.CLEARING, Phase.PREFLIGHT})
#: minimum number of the agent's checks without progress before a program counts as hung
LOOKS = 5
#: minimum seconds allowed until the first step: compiling may take long
FIRST_STEP = 30 * 60.0
#: seconds without a report after which a host is asked over SSH; after another host's program has failed, they suffice
#: in place of QUIET
LATELY = 75.0
#: lost contact: no report of a host for QUIET seconds, and no answer to PROBES over SSH in UNREACHABLE seconds
QUIET, UNREACHABLE, PROBES = 150.0, 60.0, 3
#: seconds without a report after which a host that answers over SSH counts as without its agent. The limit is long:
#: its program may still run while the bucket refuses the reports
SILENCE = 1800.0
#: usual seconds between two reports; with fewer, the limits of silence shrink in proportion
USUAL = 15.0
#: minimum seconds between two stored observations of hosts that do not report
WATCH_EVERY = 60.0
#: maximum age in seconds of a stored observation that still counts. It is less than QUIET, so that an outage since then
#: cannot explain the silence
WATCH_LASTS = 140.0


def pace(every: float) -> float:
    """Return the factor of the limits of silence: less than 1 where hosts report more often than usual, as in
    rehearsals."""
    return min(1.0, every / USUAL)


def limit(stall: float, running: Sequence[HostReport]) -> float:
    """Return the seconds without progress after which a program hangs. One that reports phases gets more for its first
    step."""
    tells = any(r.progress.phase for r in running)
    stepped = any(r.progress.step is not None for r in running)
    return stall if stepped or not tells else _first(stall)


def rule(stall: float) -> StallRule:
    """Return the agent's limits, after which it writes the stacks of a hanging program: seconds without progress before
    and after the first step (0: not watched), and the number of checks in them."""
    return {"seconds": stall, "first": _first(stall) if stall else 0, "looks": LOOKS}


def _first(stall: float) -> float:
    return max(2 * stall, FIRST_STEP)


def hung(stall: float, reports: Sequence[HostReport]) -> End | None:
    """Return the end of an attempt of which no running host makes progress. While one does, the others may be waiting
    for it."""
    running = [r for r in reports if r.phase == Phase.RUNNING]
    if not stall or not running or any(r.idle is None or r.looks < LOOKS for r in running):
        return None
    if any(r.phase in ON_THE_WAY for r in reports):
        return None
    liveliest = min(r.idle or 0.0 for r in running)
    if liveliest < limit(stall, running):
        return None
    odd, why = odd_one(running)
    where = f"step {_step(running)}" if _step(running) is not None else "its start"
    message = f"no progress on any host for {duration(liveliest)}, since {where}"
    message += f"; host {odd} is the odd one: {why}" if odd is not None else ""
    return End(Outcome.FAILED, Cause.HANG, odd, message, _stacks(running, odd), idle=liveliest)


def left_behind(reports: Sequence[HostReport], hosts: int) -> End | None:
    """Return the end of an attempt of which some hosts have succeeded and the others neither end nor make progress."""
    done = [
        r for r in reports if r.phase == Phase.EXITED and r.exit_code == 0 and not r.error_cause
    ]
    rest = [r for r in reports if r.phase == Phase.RUNNING]
    if not done or not rest or len(done) + len(rest) != hosts:
        return None
    waits = all((r.idle or 0.0) >= LEFT_BEHIND and r.looks >= LOOKS for r in rest)
    if min(r.age for r in done) < LEFT_BEHIND or not waits:
        return None
    message = f"{_hosts(done)} ended with success, and {_hosts(rest)} did nothing more for "
    idle = min(r.idle or 0.0 for r in rest)
    message += duration(idle)
    stacks = _stacks(rest, rest[0].host)
    return End(Outcome.FAILED, Cause.HANG, rest[0].host, message, stacks, idle=idle)


def silent(
    reports: Sequence[HostReport],
    unreachable: Mapping[int, Silence],
    every: float,
    *,
    disturbed: bool = False,
    agents_died: Collection[int] = (),
    failed: bool = False,
) -> End | None:
    """Return the end of an attempt with a host that has stopped reporting. Two signals are needed: no report, and no
    answer over SSH. A host that answers SSH has lost its agent, and the slice is not to blame. `every`: seconds between
    two reports. `disturbed`: others write where hosts report, so that the silence of a host that answers SSH proves
    nothing. `agents_died`: silent hosts whose agents are known to be gone. `failed`: another host's program
    has failed, as it does when its peer is lost."""
    short = pace(every)
    patience = LATELY if failed else QUIET
    for report in (r for r in reports if r.phase != Phase.EXITED):
        quiet = proof(report.host, f"has not reported for {duration(report.age)}")
        if report.host in agents_died:  # no more reports can come
            message = f"host {report.host} {quiet.text}: something has killed its agent"
            return End(Outcome.FAILED, Cause.CRASH, report.host, message, (quiet,))
        if report.age <= patience * short:
            continue
        dead = unreachable.get(report.host)
        if dead and dead.seconds >= UNREACHABLE * short and dead.probes >= PROBES:
            message = f"host {report.host} {quiet.text} and does not answer over SSH"
            tried = proof(report.host, f"{dead.probes} tries over SSH in {duration(dead.seconds)}")
            return End(
                Outcome.INTERRUPTED, Cause.LOST_CONTACT, report.host, message, (tried, quiet)
            )
        if dead is None and report.age > SILENCE * short and not disturbed:
            message = f"host {report.host} {quiet.text}, but answers over SSH: its agent is gone, or may not write"
            return End(Outcome.FAILED, Cause.CRASH, report.host, message, (quiet,))
    return None


def odd_one(reports: Sequence[HostReport]) -> tuple[int | None, str]:
    """Return the host that the others wait for, as far as steps and stacks show it, and the reason."""
    steps = {r.host: r.progress.step for r in reports if r.progress.step is not None}
    if len(steps) == len(reports) > 1 and len(set(steps.values())) > 1:
        host = min(steps, key=lambda h: (steps[h], h))
        others = max(steps.values())
        return host, f"it is at step {steps[host]}, others at step {others}"
    shapes = {r.host: _shape(r.evidence) for r in reports if r.evidence}
    counted = Counter(shapes.values())
    if len(counted) == 2 and len(shapes) > 2:
        rare, times = min(counted.items(), key=lambda item: item[1])
        if times == 1:
            return next(h for h, s in shapes.items() if s == rare), "its stack differs"
    idle = sorted(reports, key=lambda r: -(r.idle or 0.0))
    if len(idle) > 1 and (idle[0].idle or 0.0) - (idle[1].idle or 0.0) > LEFT_BEHIND:
        return idle[0].host, f"it stopped {duration(idle[0].idle or 0.0)} ago, before the others"
    return None, ""


def _shape(lines: Sequence[OutputLine]) -> str:
    """Return a stack without the parts that differ from host to host: numbers, addresses."""
    return "\n".join(re.sub(r"0x[0-9a-f]+|\d+", "#", line.text.strip()) for line in lines)


def _stacks(reports: Sequence[HostReport], odd: int | None) -> tuple[Proof, ...]:
    """Return the first lines of each host's stacks, the odd host's first."""
    ordered = sorted(reports, key=lambda r: (r.host != odd, r.host))
    lines = [proof(r.host, line.text) for r in ordered for line in r.evidence[:6]]
    return tuple(lines[:12])


def _step(reports: Sequence[HostReport]) -> int | None:
    steps = [r.progress.step for r in reports if r.progress.step is not None]
    return min(steps, default=None)


def _hosts(reports: Sequence[HostReport]) -> str:
    return list_hosts([r.host for r in reports])
