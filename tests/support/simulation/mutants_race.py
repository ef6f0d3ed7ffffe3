"""Bugs planted into races: roles, losers, and what candidates count for."""

from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest import mock

from tests.support.simulation.patches import (
    BUGS,
    Patch,
    always,
    bug,
    folded,
    replaced,
    together,
    value_bug,
)
from tpujob.domain.actions import CreateSlice, Decision
from tpujob.domain.capacity import race
from tpujob.domain.decide import candidates
from tpujob.domain.events import EventKind, SliceReady
from tpujob.domain.model import Cause, Job, SliceRole
from tpujob.domain.observations import Absent

planning: Any = import_module("tpujob.domain.capacity.planning")

BUGS["a_job_races_in_any_number_of_places"] = value_bug(
    "a race for two of three places", "Q11", race, "size", always(5)
)
# The chips of the slice that serves are all that counts.
BUGS["candidates_count_for_no_limit"] = value_bug(
    "a race within a limit of chips", "Q8", planning._Walk, "count_beside", always(None)
)


@bug("a race of which two are ready at once", "Q11")
def losers_are_kept() -> Patch:
    return together(
        mock.patch.object(candidates, "release_first", always(None)),
        mock.patch.object(Job, "losers", ()),
    )


@bug("a race, and one place is first", "I1")
def a_loser_is_requested_again() -> Patch:
    """What was deleted looks like a request that is still to be made."""

    def decide(real: Any, job: Any, seen: Any, now: float) -> Any:
        lost = [s.name for s in job.losers if isinstance(seen.of(s), Absent)]
        return Decision(action=CreateSlice(lost[0])) if lost else real(job, seen, now)

    return replaced(candidates, "decide", decide)


@bug("a race, and one place is first", "I1")
def the_old_role_stays() -> Patch:
    """Two slices serve: the roles do not change in one commit."""

    def change(job: Any, happened: Any, after: Any) -> Any:
        ready = isinstance(happened.payload, SliceReady) and happened.payload.slice
        old = {"role": SliceRole.SERVING, "lost_at": None} if ready and job.slice else {}
        slices = (replace(s, **old) if old and s.k == job.slice.k else s for s in after.slices)
        return replace(after, slices=tuple(slices))

    return folded(change)


@bug("a race, and one place is first", "Q11")
def a_loser_is_a_refusal() -> Patch:
    def change(job: Any, happened: Any, after: Any) -> Any:
        if happened.kind is not EventKind.SLICE_READY:
            return after
        lost = {s.name for s in after.slices if s.lost_at is not None and s.gone_at is None}
        full = {"refused": Cause.STOCKOUT}
        slices = tuple(replace(s, **full) if s.name in lost else s for s in after.slices)
        return replace(after, slices=slices)

    return folded(change)
