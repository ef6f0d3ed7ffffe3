"""Bugs planted into reports, and into what is decided about hangs, lost hosts, bad machines, checkpoints and data."""

import math
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.support.simulation.patches import (
    BUGS,
    Patch,
    always,
    bug,
    everywhere,
    folded,
    replaced,
    together,
    value_bug,
)
from tpujob.agent.upload.report_writer import ReportSchedule
from tpujob.domain.actions import Copied
from tpujob.domain.capacity import circuits as capacity
from tpujob.domain.capacity import datasets
from tpujob.domain.decide import active, condemned, copying, planned_end
from tpujob.domain.events import EventKind
from tpujob.domain.failures import (
    accusations,
    contact,
    nonfinite,
    preemption_notice,
    retry,
    stall,
)
from tpujob.domain.failures.retry import Again
from tpujob.domain.host import report_verifier
from tpujob.domain.host.report_verifier import add_reports, judge
from tpujob.domain.model import Cause
from tpujob.domain.money import polling_cost
from tpujob.domain.observations import Silence
from tpujob.engine import job_runtime
from tpujob.engine.actor import Actor
from tpujob.engine.report_cache import ReportCache
from tpujob.protocol import signing

BUGS["condemned_slice_is_never_deleted"] = value_bug(
    "every machine is bad", "I9", condemned, "may_go", always(False)
)
# Even of a program that was asked to stop.
BUGS["exit_code_0_is_success"] = value_bug(
    "preempted, and its program ends with 0", "I5", preemption_notice, "complete", always(True)
)
BUGS["hang_by_looks_alone"] = value_bug(
    "preempted while running", "I5", stall, "limit", always(0.0)
)
BUGS["hang_while_others_are_prepared"] = value_bug(10, "I5", stall, "ON_THE_WAY", frozenset())
BUGS["no_grace_for_the_first_step"] = value_bug(
    "every machine is bad", "I5", stall, "limit", lambda limit, running: limit
)
BUGS["no_watchdog"] = value_bug("hangs", "L2", stall, "hung", always(None))
BUGS["waiting_hosts_go_on_for_ever"] = value_bug(
    "a host ends, and the others wait for it", "L2", stall, "left_behind", always(None)
)
BUGS["peers_of_a_lost_host_are_blamed"] = value_bug(
    "a host dies, and its peers end at once", "I5", contact, "in_doubt", always(frozenset())
)
BUGS["launches_take_for_ever"] = value_bug(
    "a host never answers", "L2", active, "LAUNCH_DEADLINE", 1e9
)
BUGS["launches_count_while_no_backend_lives"] = value_bug(
    "started late, and heard later", "I5", active, "LAUNCH_HEARD", 60.0
)
BUGS["circuits_are_ignored"] = value_bug(
    "stockout, then the next zone",
    "L1",
    capacity,
    "refused",
    lambda circuits, slice, now: dict(circuits),
)
BUGS["half_open_lets_all_through"] = value_bug(
    "two jobs wait for the same",
    "I8",
    capacity,
    "asked",
    lambda circuits, offer, now: dict(circuits),
)
# Whoever comes past any step has shown that the machines before it were bad.
BUGS["maths_is_held_against_machines"] = value_bug(
    "the maths breaks", "I5", nonfinite, "passed", always(True)
)
# However long no backend has looked since.
BUGS["old_watches_count"] = value_bug(
    "no backend lives while its hosts cannot write", "I5", job_runtime, "WATCH_LASTS", 1e9
)
BUGS["reports_are_not_verified"] = value_bug(
    "its end is forged", "I5", signing, "verify", always(True)
)
# Also when no host has written there for hours.
BUGS["what_was_overwritten_disturbs_for_ever"] = value_bug(
    "its end is written over", "L2", report_verifier, "DISTURBS", math.inf
)


BUGS["planned_ends_count_as_preemptions"] = value_bug(
    "its slice ends while no backend lives",
    "P1",
    planned_end,
    "as_planned",
    lambda job, end, reports, now: end,
)
BUGS["no_program_is_told_that_its_slice_ends"] = value_bug(
    "its slice ends as planned", "P1", planned_end, "is_due", always(False)
)
BUGS["programs_are_stopped_long_before_the_end"] = value_bug(
    "its slice ends as planned", "P1", planned_end, "LOOK", 300.0
)


@bug("its slice ends as planned, and no other follows", "I8")
def another_slice_always_follows() -> Patch:
    """Whether or not the job wants one."""
    again = Again("", 1.0, same_slice=False, bad_slice=False, left=None)

    def after(real: Any, job: Any, cause: Any, *args: Any) -> Any:
        return again if cause is Cause.PLANNED_END else real(job, cause, *args)

    return replaced(retry, "after", after)


@bug("every machine is bad", "I10")
def condemned_slices_pile_up() -> Patch:
    return together(
        BUGS["condemned_slice_is_never_deleted"].plant(),
        mock.patch.object(condemned, "MAX_UNSEEN", 99),
    )


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


@bug("no backend lives while its hosts cannot write", "I5")
def silence_alone_is_death() -> Patch:
    """A host that does not report is dead, although it answers over SSH."""

    def silent(real: Any, reports: Any, unreachable: Any, *kwargs: Any, **args: Any) -> Any:
        return real(reports, {r.host: Silence(1e6, 99) for r in reports}, *kwargs, **args)

    return replaced(stall, "silent", silent)


@bug("frozen, and thaws", "I5")
def hang_by_the_clock_alone() -> Patch:
    return replaced(
        stall,
        "hung",
        lambda real, limit, reports: real(limit, [replace(r, looks=99) for r in reports]),
    )


@bug("frozen, and thaws", "I5")
def hang_by_one_host() -> Patch:
    def hung(real: Any, limit: float, reports: Any) -> Any:
        longest = max((r.idle or 0.0 for r in reports), default=0.0)
        return real(limit, [replace(r, idle=longest, looks=99) for r in reports])

    return replaced(stall, "hung", hung)


@bug("every machine is bad", "I5")
def suspects_are_never_taken() -> Patch:
    """Refuse them as if no slice was given back for them before."""
    return replaced(
        Actor,
        "act",
        lambda real, self, job, *args: real(self, replace(job, retries_used={}), *args),
    )


@bug("two slices in a row are bad", "I5")
def all_beside_a_bad_machine_are_called_bad() -> Patch:
    def planted(real: Any, job: Any, physical: Any, now: float) -> Any:
        return [_all_of(job, charge) for charge in real(job, physical, now)]

    return everywhere(accusations.accusations, planted)


def _all_of(job: Any, charge: accusations.Charge) -> accusations.Charge:
    machines, accusation = charge
    attempt = job.attempts[accusation.attempt - 1]
    if attempt.cause is Cause.BAD_HOST:
        machines = tuple(p for p in attempt.physical if p)
    return machines, accusation


@bug("data is brought first", "I15")
def slices_do_not_wait_for_data() -> Patch:
    return everywhere(copying.decide, lambda real, *args: None)


@bug("its checkpoint follows it into another region", "I4")
def checkpoints_do_not_follow() -> Patch:
    return everywhere(
        datasets.wanted, lambda real, *args: [wish for wish in real(*args) if wish.saved is None]
    )


@bug("data is brought first", "I15")
def one_round_makes_a_copy_whole() -> Patch:
    def planted(real: Any, job: Any, id: str, result: Any, now: float) -> Any:
        if isinstance(result, Copied):
            result = Copied(replace(result.progress, whole=True))
        return real(job, id, result, now)

    return everywhere(copying.follow_up, planted)


@bug("dead, under short-lived backends", "L2")
def silence_is_forgotten() -> Patch:
    """Each backend counts from its own start how long a host has not reported."""

    def take_over(self: Any, job: Any, now: float) -> None:
        self.readable_since = now if self.readable_since is None else self.readable_since

    return mock.patch.object(job_runtime.JobRuntime, "take_over", take_over)


@bug("happy", "L2")
def old_listings_serve() -> Patch:
    """Reports are listed every quarter of an hour, for all jobs and for the sweep."""
    return together(
        mock.patch.multiple(polling_cost, LASTS=900.0, MAX_LAST_S=900.0, UNASKED=900.0),
        mock.patch.object(ReportCache, "tidy"),
    )


@bug("dead, and its old reports are put back, under short-lived backends", "L2")
def times_of_reports_are_ignored() -> Patch:
    """Take the age of an old report from its object, which looks fresh."""

    def planted(real: Any, job: Any, host: int, blob: Any, newest: Any, key: Any) -> Any:
        fresh, fault = real(job, host, blob, newest, key)
        return fresh and replace(fresh, since=blob.updated), "" if fresh else fault

    return everywhere(judge, planted)


@bug("a host ends first, and its old report is put back", "L1")
def old_reports_count() -> Patch:
    """Accept reports that were replaced before."""

    def add(real: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return real(replace(state, newest={}, judged={}), *args, **kwargs)

    return everywhere(add_reports, add)


@bug("the bucket refuses its hosts for 20 min", "I16")
def what_was_refused_is_never_tried_again() -> Patch:
    """Neither that, nor anything later."""

    def note_failed(real: Any, self: Any, now: float) -> None:
        real(self, math.inf)

    return replaced(ReportSchedule, "note_failed", note_failed)


@bug("happy", "I16")
def what_matters_waits() -> Patch:
    """Delay urgent facts until the next report."""

    def seconds_left(
        real: Any, self: Any, report: Any, evidence: bytes, now: float, **kwargs: Any
    ) -> Any:
        late = getattr(self, "last", -1e9) + 60 - now
        seconds = max(late, real(self, report, evidence, now, **kwargs))
        self.last = now if seconds <= 0 else getattr(self, "last", -1e9)
        return seconds

    return replaced(ReportSchedule, "seconds_left", seconds_left)
