"""More planted bugs: what is decided about hangs, lost hosts, bad hardware, checkpoints and refused offers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.simulation.patches import Patch, everywhere, folded, replaced
from tpujob.domain.actions import Copied
from tpujob.domain.decide import active, condemned, copying
from tpujob.domain.events import EventKind
from tpujob.domain.failures import host_reputation, nonfinite, preemption_notice, stall
from tpujob.domain.model import Cause
from tpujob.domain.money import polling_cost
from tpujob.domain.observations import Silence
from tpujob.domain.placement import circuits as capacity
from tpujob.domain.placement import datasets
from tpujob.engine import runtime
from tpujob.protocol import signing


def condemned_slice_is_never_deleted() -> Patch:
    return mock.patch.object(condemned, "may_go", return_value=False)


def condemned_slices_pile_up() -> Patch:
    stack = contextlib.ExitStack()
    stack.enter_context(condemned_slice_is_never_deleted())
    stack.enter_context(mock.patch.object(condemned, "MOST_KEPT", 99))
    return stack


def nobody_waits_for_the_condemned_program() -> Patch:
    """The next attempt starts whether or not the last one was stopped."""

    def change(job: Any, happened: Any, after: Any) -> Any:
        if happened.kind is not EventKind.ATTEMPT_CONDEMNED:
            return after
        bad = job.slice.name
        slices = tuple(replace(s, stopped=True) if s.name == bad else s for s in after.slices)
        return replace(after, slices=slices)

    return folded(change)


def wrong_numbers_are_resumed() -> Patch:
    def change(job: Any, happened: Any, after: Any) -> Any:
        return replace(after, attempts=tuple(replace(a, resume_before=0) for a in after.attempts))

    return folded(change)


def exit_code_0_is_success() -> Patch:
    """Even of a program that was told to stop."""
    return mock.patch.object(preemption_notice, "complete", return_value=True)


def silence_alone_is_death() -> Patch:
    """A host that does not report is dead, although it answers over SSH."""

    def make(real: Any) -> Any:
        def silent(reports: Any, unreachable: Any, *more: Any, **given: Any) -> Any:
            return real(reports, {r.host: Silence(1e6, 99) for r in reports}, *more, **given)

        return silent

    return replaced(stall, "silent", make)


def hang_by_looks_alone() -> Patch:
    return mock.patch.object(stall, "limit", return_value=0.0)


def hang_by_the_clock_alone() -> Patch:
    def make(real: Any) -> Any:
        return lambda limit, reports: real(limit, [replace(r, looks=99) for r in reports])

    return replaced(stall, "hung", make)


def hang_by_one_host() -> Patch:
    def make(real: Any) -> Any:
        def hung(limit: float, reports: Any) -> Any:
            most = max((r.idle or 0.0 for r in reports), default=0.0)
            return real(limit, [replace(r, idle=most, looks=99) for r in reports])

        return hung

    return replaced(stall, "hung", make)


def hang_while_others_are_prepared() -> Patch:
    return mock.patch.object(stall, "ON_THE_WAY", frozenset())


def no_grace_for_the_first_step() -> Patch:
    return mock.patch.object(stall, "limit", lambda limit, running: limit)


def no_watchdog() -> Patch:
    return mock.patch.object(stall, "hung", return_value=None)


def nobody_is_left_behind() -> Patch:
    return mock.patch.object(stall, "left_behind", return_value=None)


def launches_take_for_ever() -> Patch:
    return mock.patch.object(active, "LAUNCH_DEADLINE", 1e9)


def launches_count_while_nobody_is_there() -> Patch:
    return mock.patch.object(active, "LAUNCH_HEARD", 60.0)


def circuits_are_ignored() -> Patch:
    return mock.patch.object(capacity, "retry_at", return_value=0.0)


def half_open_lets_everybody_through() -> Patch:
    return mock.patch.object(capacity, "asked", lambda circuits, offer, now: dict(circuits))


def suspicion_counts_twice() -> Patch:
    """Whoever finds it again counts it again."""
    count = itertools.count()

    def make(real: Any) -> Any:
        return lambda *given: [replace(a, op_id=f"{next(count)}") for a in real(*given)]

    return replaced(nonfinite, "accusations", make)


def all_beside_a_bad_machine_are_called_bad() -> Patch:
    def make(real: Any) -> Any:
        def accusations(job: Any, physical: Any) -> Any:
            return [_all_of(job, found) for found in real(job, physical)]

        return accusations

    return replaced(nonfinite, "accusations", make)


def _all_of(job: Any, found: nonfinite.Accusation) -> nonfinite.Accusation:
    attempt = job.attempts[int(found.op_id.partition(":")[2]) - 1]
    if attempt.cause is not Cause.BAD_HOST:
        return found
    return replace(found, physicals=tuple(p for p in attempt.physical if p))


def maths_is_held_against_machines() -> Patch:
    """Whoever comes past any step has shown that the machines before it were bad."""
    return mock.patch.object(nonfinite, "passed", return_value=True)


def suspects_are_never_taken() -> Patch:
    return mock.patch.object(host_reputation, "REFUSALS", 10**6)


def slices_do_not_wait_for_data() -> Patch:
    return everywhere(copying.decide, lambda real: lambda *given: None)


def checkpoints_do_not_follow() -> Patch:
    def make(real: Any) -> Any:
        return lambda *given: [wish for wish in real(*given) if wish.saved is None]

    return everywhere(datasets.wanted, make)


def one_round_makes_a_copy_whole() -> Patch:
    def make(real: Any) -> Any:
        def planted(job: Any, id: str, result: Any, now: float) -> Any:
            if isinstance(result, Copied):
                result = Copied(replace(result.progress, whole=True))
            return real(job, id, result, now)

        return planted

    return everywhere(copying.follow_up, make)


def silence_is_forgotten() -> Patch:
    """Each backend finds out anew how long there has been no word of a host."""

    def take_over(self: Any, job: Any, now: float) -> None:
        self.readable_since = now if self.readable_since is None else self.readable_since

    return mock.patch.object(runtime.JobRuntime, "take_over", take_over)


def old_watches_count() -> Patch:
    """However long nobody looked since."""
    return mock.patch.object(runtime, "WATCH_LASTS", 1e9)


def reports_are_not_verified() -> Patch:
    return mock.patch.object(signing, "verify", return_value=True)


def old_listings_serve() -> Patch:
    """What hosts said is looked at every quarter of an hour, for all jobs."""
    stack = contextlib.ExitStack()
    for name in ("LASTS", "LONGEST", "UNASKED"):
        stack.enter_context(mock.patch.object(polling_cost, name, 900.0))
    return stack


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        condemned_slice_is_never_deleted, condemned_slices_pile_up, nobody_waits_for_the_condemned_program,
        wrong_numbers_are_resumed, silence_alone_is_death, hang_by_looks_alone,
        hang_by_the_clock_alone, hang_by_one_host, hang_while_others_are_prepared,
        no_grace_for_the_first_step, no_watchdog, nobody_is_left_behind, launches_take_for_ever,
        launches_count_while_nobody_is_there,
        circuits_are_ignored, half_open_lets_everybody_through, suspicion_counts_twice,
        all_beside_a_bad_machine_are_called_bad, maths_is_held_against_machines,
        suspects_are_never_taken, exit_code_0_is_success, slices_do_not_wait_for_data,
        one_round_makes_a_copy_whole, checkpoints_do_not_follow, silence_is_forgotten, old_watches_count,
        reports_are_not_verified, old_listings_serve,
    )
}  # fmt: skip
