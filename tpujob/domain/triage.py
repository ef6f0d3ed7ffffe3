"""One cause for an ended attempt: which host failed first, and what its end means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpujob.domain.model import Cause, Outcome, Report
from workloads.contract import Exit

#: how long the other hosts get to end by themselves after the first one ended badly, in seconds
SETTLE = 20.0

#: what an exit code says by itself, under the contract of `workloads/contract.py`
CODES: Mapping[int, tuple[Outcome, Cause, str]] = {
    Exit.NONFINITE: (
        Outcome.FAILED,
        Cause.NONFINITE,
        "the loss is not finite, and the model or the data made it",
    ),
    Exit.DEVICE: (
        Outcome.INTERRUPTED,
        Cause.BAD_HOST,
        "the loss is not finite, and a device made it",
    ),
    Exit.INTERRUPTED: (
        Outcome.INTERRUPTED,
        Cause.PREEMPTED,
        "told to stop; the checkpoint is committed",
    ),
    Exit.CONFIG: (Outcome.FAILED, Cause.BAD_SPEC, "the program refused its configuration"),
}

#: ends that another host may have caused: a peer died, aborted, killed, terminated
CASCADE = frozenset({int(Exit.PEER), 134, 137, 143, -6, -9, -15})


@dataclass(frozen=True, slots=True)
class End:
    outcome: Outcome
    cause: Cause | None
    host: int | None
    message: str


def ended(reports: Sequence[Report], hosts: int) -> End | None:
    """How the attempt ended; None while it goes on, or while hosts still have time to end by themselves."""
    done = [r for r in reports if r.phase == "exited"]
    bad = [r for r in done if r.exit_code != 0 or r.error_cause]
    if not bad:
        if len(done) == hosts:
            return End(Outcome.SUCCEEDED, None, None, f"exit code 0 on {_all(hosts)}")
        return None
    oldest = max(r.age for r in bad)
    if len(done) < hosts and oldest < SETTLE:
        return None
    return _blame(bad, notice=_notice(reports))


def _blame(bad: Sequence[Report], *, notice: str) -> End:
    first = min(bad, key=_guilt)
    told = Cause.MAINTENANCE if notice == "maintenance" else Cause.PREEMPTED
    if first.error_cause:
        return End(
            Outcome.FAILED, first.error_cause, first.host, f"host {first.host}: {first.error}"
        )
    code = first.exit_code if first.exit_code is not None else int(Exit.ERROR)
    if notice and (code in CASCADE or code == Exit.INTERRUPTED):
        saved = (
            "saved and stopped" if code == Exit.INTERRUPTED else f"was stopped ({_ending(code)})"
        )
        word = "preempted" if told is Cause.PREEMPTED else "taken for maintenance"
        return End(Outcome.INTERRUPTED, told, None, f"the slice was {word}; the program {saved}")
    if code in CODES:
        outcome, cause, words = CODES[code]
        return End(outcome, cause, first.host, f"host {first.host}: {words} ({_ending(code)})")
    return End(Outcome.FAILED, Cause.CRASH, first.host, f"host {first.host}: {_ending(code)}")


def _guilt(report: Report) -> tuple[int, float, int]:
    """Orders the culprit first: an end of its own before a cascade, the earlier before the later."""
    cascade = report.error_cause is None and report.exit_code in CASCADE
    told = report.exit_code == Exit.INTERRUPTED
    return (2 if cascade else 1 if told else 0, -report.age, report.host)


def _notice(reports: Sequence[Report]) -> str:
    return next((r.notice for r in reports if r.notice), "")


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _all(hosts: int) -> str:
    return "the only host" if hosts == 1 else f"all {hosts} hosts"
