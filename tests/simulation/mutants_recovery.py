"""Bugs planted into reports, and into what is decided about hangs, lost hosts, bad machines, checkpoints and data."""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.simulation.patches import Patch, bug, everywhere, folded, replaced
from tpujob.agent.upload.report_writer import ReportSchedule
from tpujob.domain.actions import Copied
from tpujob.domain.decide import active, condemned, copying
from tpujob.domain.events import EventKind
from tpujob.domain.failures import host_reputation, nonfinite, preemption_notice, stall
from tpujob.domain.host import report_verifier
from tpujob.domain.host.report_verifier import accept, add_reports
from tpujob.domain.model import Cause
from tpujob.domain.money import polling_cost
from tpujob.domain.observations import Silence
from tpujob.domain.placement import circuits as capacity
from tpujob.domain.placement import datasets
from tpujob.engine import observer
from tpujob.protocol import signing


@bug("every machine is bad", "I9")
def condemned_slice_is_never_deleted() -> Patch:
    return mock.patch.object(condemned, "may_go", return_value=False)


@bug("every machine is bad", "I10")
def condemned_slices_pile_up() -> Patch:
    stack = contextlib.ExitStack()
    stack.enter_context(condemned_slice_is_never_deleted())
    stack.enter_context(mock.patch.object(condemned, "MOST_KEPT", 99))
    return stack


@bug("wrong numbers, and its hosts cannot be reached", "I3")
def the_condemned_program_is_not_waited_for() -> Patch:
    """The next attempt starts whether or not the last one was stopped."""

    def change(job: Any, happened: Any, after: Any) -> Any:
        if happened.kind is not EventKind.ATTEMPT_CONDEMNED:
            return after
        bad = job.slice.name
        slices = tuple(replace(s, stopped=True) if s.name == bad else s for s in after.slices)
        return replace(after, slices=slices)

    return folded(change)


@bug("a machine makes wrong numbers", "I4")
def wrong_numbers_are_resumed() -> Patch:
    def change(job: Any, happened: Any, after: Any) -> Any:
        return replace(after, attempts=tuple(replace(a, resume_before=0) for a in after.attempts))

    return folded(change)


@bug("preempted, and its program ends with 0", "I5")
def exit_code_0_is_success() -> Patch:
    """Even of a program that was told to stop."""
    return mock.patch.object(preemption_notice, "complete", return_value=True)


@bug("no backend lives while its hosts cannot write", "I5")
def silence_alone_is_death() -> Patch:
    """A host that does not report is dead, although it answers over SSH."""

    def make(real: Any) -> Any:
        def silent(reports: Any, unreachable: Any, *more: Any, **given: Any) -> Any:
            return real(reports, {r.host: Silence(1e6, 99) for r in reports}, *more, **given)

        return silent

    return replaced(stall, "silent", make)


@bug("preempted while running", "I5")
def hang_by_looks_alone() -> Patch:
    return mock.patch.object(stall, "limit", return_value=0.0)


@bug("frozen, and thaws", "I5")
def hang_by_the_clock_alone() -> Patch:
    def make(real: Any) -> Any:
        return lambda limit, reports: real(limit, [replace(r, looks=99) for r in reports])

    return replaced(stall, "hung", make)


@bug("frozen, and thaws", "I5")
def hang_by_one_host() -> Patch:
    def make(real: Any) -> Any:
        def hung(limit: float, reports: Any) -> Any:
            most = max((r.idle or 0.0 for r in reports), default=0.0)
            return real(limit, [replace(r, idle=most, looks=99) for r in reports])

        return hung

    return replaced(stall, "hung", make)


@bug(4, "I5")
def hang_while_others_are_prepared() -> Patch:
    return mock.patch.object(stall, "ON_THE_WAY", frozenset())


@bug("every machine is bad", "I5")
def no_grace_for_the_first_step() -> Patch:
    return mock.patch.object(stall, "limit", lambda limit, running: limit)


@bug("hangs", "L2")
def no_watchdog() -> Patch:
    return mock.patch.object(stall, "hung", return_value=None)


@bug("a host ends, and the others wait for it", "L2")
def waiting_hosts_go_on_for_ever() -> Patch:
    return mock.patch.object(stall, "left_behind", return_value=None)


@bug("a host dies", "L2")
def launches_take_for_ever() -> Patch:
    return mock.patch.object(active, "LAUNCH_DEADLINE", 1e9)


@bug("started late, and heard later", "I5")
def launches_count_while_no_backend_lives() -> Patch:
    return mock.patch.object(active, "LAUNCH_HEARD", 60.0)


@bug("stockout, then the next zone", "L1")
def circuits_are_ignored() -> Patch:
    return mock.patch.object(capacity, "retry_at", return_value=0.0)


@bug("two jobs wait for the same", "I8")
def half_open_lets_all_through() -> Patch:
    return mock.patch.object(capacity, "asked", lambda circuits, offer, now: dict(circuits))


@bug("two slices in a row are bad", "I5")
def suspicion_counts_twice() -> Patch:
    """Whoever finds it again counts it again."""
    count = itertools.count()

    def make(real: Any) -> Any:
        return lambda *given: [replace(a, op_id=f"{next(count)}") for a in real(*given)]

    return replaced(nonfinite, "accusations", make)


@bug("two slices in a row are bad", "I5")
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


@bug("the maths breaks", "I5")
def maths_is_held_against_machines() -> Patch:
    """Whoever comes past any step has shown that the machines before it were bad."""
    return mock.patch.object(nonfinite, "passed", return_value=True)


@bug("every machine is bad", "I5")
def suspects_are_never_taken() -> Patch:
    return mock.patch.object(host_reputation, "REFUSALS", 10**6)


@bug("data is brought first", "I15")
def slices_do_not_wait_for_data() -> Patch:
    return everywhere(copying.decide, lambda real: lambda *given: None)


@bug("its checkpoint follows it into another region", "I4")
def checkpoints_do_not_follow() -> Patch:
    def make(real: Any) -> Any:
        return lambda *given: [wish for wish in real(*given) if wish.saved is None]

    return everywhere(datasets.wanted, make)


@bug("data is brought first", "I15")
def one_round_makes_a_copy_whole() -> Patch:
    def make(real: Any) -> Any:
        def planted(job: Any, id: str, result: Any, now: float) -> Any:
            if isinstance(result, Copied):
                result = Copied(replace(result.progress, whole=True))
            return real(job, id, result, now)

        return planted

    return everywhere(copying.follow_up, make)


@bug("dead, under short-lived backends", "L2")
def silence_is_forgotten() -> Patch:
    """Each backend finds out anew how long there has been no word of a host."""

    def take_over(self: Any, job: Any, now: float) -> None:
        self.readable_since = now if self.readable_since is None else self.readable_since

    return mock.patch.object(observer.JobRuntime, "take_over", take_over)


@bug("no backend lives while its hosts cannot write", "I5")
def old_watches_count() -> Patch:
    """However long nobody looked since."""
    return mock.patch.object(observer, "WATCH_LASTS", 1e9)


@bug("its end is forged", "I5")
def reports_are_not_verified() -> Patch:
    return mock.patch.object(signing, "verify", return_value=True)


@bug("happy", "L2")
def old_listings_serve() -> Patch:
    """What hosts said is looked at every quarter of an hour, for all jobs."""
    stack = contextlib.ExitStack()
    for name in ("LASTS", "LONGEST", "UNASKED"):
        stack.enter_context(mock.patch.object(polling_cost, name, 900.0))
    return stack


@bug("dead, and its old reports are put back, under short-lived backends", "L2")
def times_of_reports_are_ignored() -> Patch:
    """What was reported long ago looks fresh, as the object is."""

    def make(real: Any) -> Any:
        def judge(job: Any, host: int, blob: Any, newest: Any, key: Any) -> Any:
            verdict = real(job, host, blob, newest, key)
            reports = tuple(replace(r, since=blob.updated) for r in getattr(verdict, "reports", ()))
            return replace(verdict, reports=reports, replayed=False) if reports else verdict

        return judge

    return everywhere(accept, make)


@bug("a host ends first, and its old report is put back", "L1")
def old_reports_count() -> Patch:
    """Whatever was reported before."""

    def make(real: Any) -> Any:
        def add(known: Any, *given: Any, **more: Any) -> Any:
            return real(replace(known, newest={}, judged={}), *given, **more)

        return add

    return everywhere(add_reports, make)


@bug("the bucket refuses its hosts for 20 min", "I16")
def what_was_refused_is_never_tried_again() -> Patch:
    """Neither that, nor anything later."""

    def make(real: Any) -> Any:
        def note_failed(self: Any, now: float) -> None:
            real(self, math.inf)

        return note_failed

    return replaced(ReportSchedule, "note_failed", make)


@bug("happy", "I16")
def what_matters_waits() -> Patch:
    """For the next report."""

    def make(real: Any) -> Any:
        def seconds_left(self: Any, report: Any, evidence: bytes, now: float, **more: Any) -> Any:
            late = getattr(self, "last", -1e9) + 60 - now
            left = max(late, real(self, report, evidence, now, **more))
            self.last = now if left <= 0 else getattr(self, "last", -1e9)
            return left

        return seconds_left

    return replaced(ReportSchedule, "seconds_left", make)


@bug("its end is written over", "L2")
def what_was_overwritten_disturbs_for_ever() -> Patch:
    """Also when no host has written there for hours."""
    return replaced(report_verifier, "DISTURBS", lambda _: float("inf"))
