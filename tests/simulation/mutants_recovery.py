"""More planted bugs: what is decided about hangs, lost hosts, bad hardware, checkpoints and refused offers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.simulation.patches import Patch, replaced
from tpujob.domain import lifecycle
from tpujob.domain.decide import condemned, dispatch
from tpujob.domain.failures import host_reputation, nonfinite, stall
from tpujob.domain.observations import Silence
from tpujob.domain.placement import circuits as capacity


def condemned_slice_is_never_deleted() -> Patch:
    return mock.patch.object(condemned, "_may_go", return_value=False)


def condemned_slices_pile_up() -> Patch:
    stack = contextlib.ExitStack()
    stack.enter_context(condemned_slice_is_never_deleted())
    stack.enter_context(mock.patch.object(condemned, "MOST_KEPT", 99))
    return stack


def nobody_waits_for_the_condemned_program() -> Patch:
    """The next attempt starts whether or not the last one was stopped."""

    def make(real: Any) -> Any:
        def fold(job: Any, happened: Any, data: Any) -> Any:
            name, changed = job.slice.name, real(job, happened, data)
            return lifecycle._change_slice(changed, name, stopped=True)

        return fold

    kind = lifecycle.EventKind.ATTEMPT_CONDEMNED
    return replaced(lifecycle, "_FOLD", lambda real: {**real, kind: make(real[kind])})


def wrong_numbers_are_resumed() -> Patch:
    return mock.patch.object(lifecycle, "_resume_before", return_value=0)


def silence_alone_is_death() -> Patch:
    """A host that does not report is dead, although it answers over SSH."""

    def make(real: Any) -> Any:
        def silent(reports: Any, unreachable: Any, *more: Any) -> Any:
            return real(reports, {r.host: Silence(1e6, 99) for r in reports}, *more)

        return silent

    return replaced(stall, "silent", make)


def hang_by_looks_alone() -> Patch:
    return mock.patch.object(stall, "limit", return_value=0.0)


def hang_by_the_clock_alone() -> Patch:
    return mock.patch.object(stall, "LOOKS", 0)


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
    return mock.patch.object(dispatch, "LAUNCH_DEADLINE", 1e9)


def circuits_are_ignored() -> Patch:
    return mock.patch.object(capacity, "opens_at", return_value=0.0)


def half_open_lets_everybody_through() -> Patch:
    return mock.patch.object(capacity, "asked", lambda circuits, offer, now: dict(circuits))


def suspicion_counts_twice() -> Patch:
    """Whoever finds it again counts it again."""
    count = itertools.count()

    def fresh(*given: object) -> str:
        return f"{next(count)}"

    return mock.patch.object(nonfinite, "_op", fresh)


def all_beside_a_bad_machine_are_called_bad() -> Patch:
    def make(real: Any) -> Any:
        def named(job: Any, attempt: Any) -> Any:
            return replace(real(job, attempt), physicals=tuple(p for p in attempt.physical if p))

        return named

    return replaced(nonfinite, "_named", make)


def maths_is_held_against_machines() -> Patch:
    """Whoever comes past any step has shown that the machines before it were bad."""
    return mock.patch.object(nonfinite, "_passed", return_value=True)


def suspects_are_never_taken() -> Patch:
    return mock.patch.object(host_reputation, "REFUSALS", 10**6)


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        condemned_slice_is_never_deleted, condemned_slices_pile_up, nobody_waits_for_the_condemned_program,
        wrong_numbers_are_resumed, silence_alone_is_death, hang_by_looks_alone,
        hang_by_the_clock_alone, hang_by_one_host, hang_while_others_are_prepared,
        no_grace_for_the_first_step, no_watchdog, nobody_is_left_behind, launches_take_for_ever,
        circuits_are_ignored, half_open_lets_everybody_through, suspicion_counts_twice,
        all_beside_a_bad_machine_are_called_bad, maths_is_held_against_machines,
        suspects_are_never_taken,
    )
}  # fmt: skip
