"""Planted bugs of the queue: who gets a slice that another job had, and what is written of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.simulation.hosts import Hosts
from tests.support.simulation.patches import Patch, bug, everywhere, folded, replaced
from tpujob.domain.decide import receive
from tpujob.domain.events import EventKind


@bug("crashes for good, and is handed on", "Q6")
def hands_on_while_a_program_runs() -> Patch:
    """A stop is answered before it has stopped anything."""
    return replaced(Hosts, "stop", lambda real, self, *given, **more: None)


@bug("handed on to another owner", "Q6")
def the_wipe_is_skipped_for_another_owner() -> Patch:
    """What is left for the next job of the same owner is left for anybody."""
    return replaced(
        Hosts,
        "wipe",
        lambda real, self, slice, *, others, timeout: real(
            self, slice, others=False, timeout=timeout
        ),
    )


@bug("handed on", "Q6")
def nothing_is_wiped() -> Patch:
    return replaced(Hosts, "wipe", lambda real, self, *given, **more: None)


def _received(**changes: Any) -> Patch:
    def planted(real: Any, *given: Any) -> Any:
        found = real(*given)
        if found is None:
            return None
        other = {name: change(found.payload.slice) for name, change in changes.items()}
        return replace(
            found, payload=replace(found.payload, slice=replace(found.payload.slice, **other))
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
