"""Planted bugs of the queue: who gets a slice that another job had, and what is written of that."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest import mock

from tests.support.simulation import queue_checks
from tests.support.simulation.hosts import Hosts
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
from tests.support.simulation.store import SimStore
from tpujob.adapters.sqlite import store as sqlite
from tpujob.domain.capacity import giving_way
from tpujob.domain.capacity.entries import entry
from tpujob.domain.capacity.planning import plan
from tpujob.domain.capacity.usage import used
from tpujob.domain.decide import group, queued, receive
from tpujob.domain.events import EventKind
from tpujob.domain.model import State
from tpujob.domain.money import budget
from tpujob.domain.observations import HandOver, Reason, ReasonKind
from tpujob.engine.groups import Groups
from tpujob.engine.queue import Queue
from tpujob.errors import Transient
from tpujob.service.backend.queue import QueueReader

plans: Any = import_module("tpujob.domain.capacity.planning")

# A stop is answered before it has stopped anything.
BUGS["hands_on_while_a_program_runs"] = value_bug(
    "crashes for good, and is handed on", "Q6", Hosts, "stop", always(None)
)
BUGS["nothing_is_wiped"] = value_bug("handed on", "Q6", Hosts, "wipe", always(None))
BUGS["what_others_change_is_not_read"] = value_bug(
    "others wait, under two backends", "Q1", SimStore, "changes", lambda self, after: (after, [])
)
BUGS["nothing_is_kept_for_a_big_one"] = value_bug(
    "small ones pass a big one", "Q2", plans, "FREE_PASS", 1e9
)
BUGS["who_takes_too_long_passes"] = value_bug(
    "small ones pass a big one", "Q2", plans._Walk, "_would_delay", always(None)
)
BUGS["who_is_late_is_taken_to_be_gone"] = value_bug(
    "small ones pass a big one", "Q14", plans, "free_at", lambda entry, lengths, now: now + 60
)
BUGS["all_of_a_sweep_at_once"] = value_bug(
    "a sweep, two at once", "Q8", Queue, "group", always(None)
)
BUGS["nobody_is_handed_a_slice"] = value_bug(
    "others wait", "Q15", Queue, "hand_over", always(HandOver())
)


BUGS["who_has_just_begun_gives_way"] = value_bug("gives way", "Q9", giving_way, "LEAST_RUN", 60.0)
BUGS["a_job_gives_way_again_and_again"] = value_bug("gives way", "Q9", giving_way, "AGAIN", 0.0)
BUGS["all_give_way"] = value_bug(
    "gives way", "Q9", giving_way, "choose", lambda chips, holders: [*holders]
)


@bug("gives way", "Q9")
def a_job_of_low_priority_is_given_way() -> Patch:
    """Nobody looks at the priority of the job that waits."""
    return replaced(
        plans._Walk,
        "_clear_way",
        lambda real, self, item, lacks: real(self, replace(item, band=0), lacks),
    )


@bug("gives way", "Q9")
def a_retry_is_spent_to_give_way() -> Patch:
    def change(job: Any, event: Any, after: Any) -> Any:
        spent = {"preemptions": job.retries_used.get("preemptions", 0) + 1}
        return replace(after, retries_used=spent) if event.gives_way_to else after

    return folded(change)


@bug("gives way", "Q9")
def who_gives_way_is_not_about_to_leave() -> Patch:
    """Until its slice is gone, others are stopped for the same chips."""
    return mock.patch.object(plans._Walk, "_leaves", always(False))


@bug("gives way", "Q2")
def chips_that_were_given_up_are_kept_for_nobody() -> Patch:
    return replaced(
        plans._Walk, "_keep_quota", lambda real, self, *args: real(self, *args[:-1], None)
    )


@bug("handed on to another owner", "Q6")
def the_wipe_is_skipped_for_another_owner() -> Patch:
    """Leave to any owner the files that only the same owner's next job may find."""
    return replaced(
        Hosts,
        "wipe",
        lambda real, self, slice, *, others, timeout: real(
            self, slice, others=False, timeout=timeout
        ),
    )


def _received(**changes: Any) -> Patch:
    def planted(real: Any, *args: Any) -> Any:
        handed = real(*args)
        if handed is None:
            return None
        other = {name: change(handed.payload.slice) for name, change in changes.items()}
        return replace(
            handed, payload=replace(handed.payload, slice=replace(handed.payload.slice, **other))
        )

    return everywhere(receive, planted)


@bug("handed on", "Q4")
def the_epoch_stays() -> Patch:
    return _received(epoch=lambda slice: slice.epoch - 1)


@bug("handed on", "Q7")
def the_heir_pays_a_minute_twice() -> Patch:
    return _received(ready_at=lambda slice: slice.ready_at - 60)


@bug("handed on", "Q7")
def a_minute_is_paid_by_nobody() -> Patch:
    return _received(ready_at=lambda slice: slice.ready_at + 60)


@bug("handed on", "Q7")
def the_giver_keeps_it_in_its_record() -> Patch:
    return folded(
        lambda job, event, after: (
            replace(job, version=after.version)
            if event.kind is EventKind.SLICE_HANDED_ON
            else after
        )
    )


# The plan ------------------------------------------------------------------------------------------------------------


def _planned(
    entries: Callable[[Any], Any] = lambda item: item,
    place: Callable[[Any], Any] = lambda place: place,
) -> Patch:
    """Make plans from changed entries, or change the places in plans."""

    def planted(real: Any, records: Any, *args: Any) -> Any:
        result = real([entries(item) for item in records], *args)
        places = {job: place(item) for job, item in result.places.items()}
        return replace(result, places=places)

    return everywhere(plan, planted)


def _entries(change: Callable[[Any], Any]) -> Patch:
    """Make plans from changed records."""
    return everywhere(
        entry, lambda real, job, *args, **options: real(change(job), *args, **options)
    )


@bug("others wait", "Q1")
def the_order_of_the_records_counts() -> Patch:
    def planted(real: Any, records: Any, *args: Any) -> Any:
        first = min(item.since for item in records)
        return real([replace(item, number=n, since=first) for n, item in enumerate(records)], *args)

    return everywhere(plan, planted)


@bug("the last is first", "Q2")
def the_top_is_no_better() -> Patch:
    return _planned(lambda item: replace(item, rank=0))


@bug("in several shares", "Q8")
def a_share_is_open_to_all_users() -> Patch:
    def check(real: Any, self: Any, *args: Any) -> None:
        queue = self._queue
        closed, queue.settings = queue.settings, replace(queue.settings, members={})
        try:
            real(self, *args)
        finally:
            queue.settings = closed

    return replaced(QueueReader, "check", check)


@bug("in several shares", "Q2")
def what_an_owner_used_in_other_shares_is_forgotten() -> Patch:
    def fair(real: Any, level: int, queues: Any, accounts: Any, owners: Any, *rest: Any) -> Any:
        return real(level, queues, accounts, defaultdict(float), *rest)

    return replaced(plans, "_fair", fair)


@bug("held, and released", "Q2")
def who_is_held_asks() -> Patch:
    return _entries(lambda job: replace(job, held_by=""))


@bug("others wait", "Q8")
def who_requests_does_not_count() -> Patch:
    return _planned(
        lambda item: replace(item, holds=None) if item.state is State.PROVISIONING else item
    )


@bug("others wait", "Q8")
def places_are_not_looked_at() -> Patch:
    """Let a job request any slice when it is ticked."""
    return together(
        replaced(Queue, "of", lambda real, self, job: None),
        replaced(Queue, "note", lambda real, self, *args: None),
    )


@bug("others wait for it, and it fails", "Q10")
def who_waits_in_vain_waits_on() -> Patch:
    def decide(real: Any, job: Any, seen: Any, now: float) -> Any:
        place = seen.place and seen.place._replace(broken=None)
        return real(job, replace(seen, place=place), now)

    return replaced(queued, "decide", decide)


@bug("one after another", "Q10")
def nobody_waits_for_a_job() -> Patch:
    return _entries(lambda job: replace(job, edges=()))


@bug("a sweep, under two backends", "I6")
def a_group_ends_before_its_elements_are_known() -> Patch:
    """What other backends made is not read, and the number of elements that were made is not looked at."""
    return together(
        mock.patch.object(Queue, "read"),
        replaced(
            Groups,
            "observe",
            lambda real, self, job, seen: real(self, replace(job, submitted=0), seen),
        ),
    )


@bug("a sweep is cancelled", "Q13")
def elements_go_on_without_their_group() -> Patch:
    return together(
        replaced(group, "pass_on", lambda real, *args: None),
        replaced(Groups, "check", lambda real, *args: None),
    )


@bug("others wait", "Q14")
def jobs_wait_for_no_reason() -> Patch:
    return _planned(place=lambda place: place._replace(reasons=()))


@bug("others wait", "Q14")
def another_reason_is_told() -> Patch:
    refused = (Reason(ReasonKind.REFUSED, until=1e12),)
    return _planned(place=lambda p: p._replace(reasons=refused) if p.reasons else p)


@bug("others wait", "Q6")
def somebody_else_is_handed_the_slice() -> Patch:
    def hand_over(self: Queue, job: Any) -> HandOver:
        others = [other.id for other in self.jobs().values() if other.state is State.QUEUED]
        strangers = [i for i in others if self._entries[i].owner != job.submitter]
        return HandOver((strangers or [""])[0])

    return mock.patch.object(Queue, "hand_over", hand_over)


@bug("kept, and given back", "Q5")
def a_slice_is_kept_for_ever() -> Patch:
    def change(job: Any, event: Any, after: Any) -> Any:
        is_kept = event.kind is EventKind.SLICE_KEPT
        return replace(after, hold_until=event.at + 86_400) if is_kept else after

    return folded(change)


@bug("kept, while another waits", "Q5")
def a_slice_is_kept_although_another_job_waits() -> Patch:
    keep = HandOver(keep=3600.0)
    return replaced(Queue, "hand_over", lambda real, self, job: real(self, job) and keep)


@bug("a sweep, two at once", "I7")
def the_key_of_elements_is_ignored() -> Patch:
    """And a reply is lost."""
    keys, lost = itertools.count(), iter([True])

    def create_many(real: Any, self: Any, jobs: Any, *, key: str) -> Any:
        return real(self, jobs, key=f"{key}:{next(keys)}")

    def answered(real: Any, self: Any, jobs: Any, *, key: str) -> Any:
        made = real(self, jobs, key=key)
        if next(lost, False):
            raise Transient("the connection was reset")
        return made

    return together(
        replaced(sqlite.SqliteStore, "create_many", create_many),
        replaced(SimStore, "create_many", answered),
    )


@bug("others wait", "Q7")
def a_slice_is_not_charged_at_once() -> Patch:
    def planted(real: Any, job: Any, *args: Any) -> Any:
        began = [slice_ for slice_ in job.slices if slice_.ready_at is not None and slice_.gone_at]
        return real(replace(job, slices=tuple(began)), *args)

    return everywhere(used, planted)


@bug("requeued with a budget, and handed on", "I14")
def a_budget_forgets_slices_that_were_handed_on() -> Patch:
    def forgotten(real: Any, job: Any, granted: Any) -> Any:
        return [slice_ for slice_ in real(job, granted) if not slice_.handed_to]

    return everywhere(budget.paid_slices, forgotten)


@bug("a sweep is held", "Q2")
def elements_ignore_the_hold_of_their_group() -> Patch:
    """The checks of plans believe it, too, and the second look at the group is left out: what is written shows it."""

    def unheld(real: Any, job: Any, *args: Any, **kwargs: Any) -> Any:
        return replace(real(job, *args, **kwargs), held_by=job.held_by)

    checked = replaced(queue_checks, "entry", unheld)
    unchecked = mock.patch.object(Groups, "check", always(None))
    return together(everywhere(entry, unheld), checked, unchecked)
