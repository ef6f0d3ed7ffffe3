"""Bugs planted into the real code, one at a time: a simulation that misses one of them proves little."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.simulation.cloud import Cloud
from tests.simulation.hosts import Hosts
from tests.simulation.mutants_recovery import MUTANTS as MORE
from tests.simulation.patches import Patch, replaced
from tpujob.adapters.sqlite import store as sqlite
from tpujob.domain import lifecycle
from tpujob.domain.actions import DeleteSlice, Done
from tpujob.domain.decide import attempt_end
from tpujob.domain.decide import dispatch as decide_module
from tpujob.domain.decide import releasing as absence
from tpujob.domain.failures import stall, triage
from tpujob.domain.host import plan as launch
from tpujob.domain.model import EventKind, Outcome, State
from tpujob.domain.observations import Absent, Present, SliceState, Unknown
from tpujob.engine import orphans
from tpujob.engine import reconciler as reconciler_module
from tpujob.engine.loop import Loop
from tpujob.engine.orphans import Orphans, Swept
from tpujob.engine.reconciler import Reconciler
from tpujob.errors import Transient
from tpujob.ports import Owned


def create_before_intent() -> Patch:
    def make(real: Any) -> Any:
        def carry_out(self: Reconciler, job: Any, *given: Any) -> Any:
            happened = given[-2]
            if happened and happened.kind is EventKind.SLICE_REQUESTED:
                wanted = lifecycle.apply(job, happened).slice
                try:
                    self.slices.create(wanted, job_id=job.id, public_key="", timeout=50)
                except Transient:
                    return None
            return real(self, job, *given)

        return carry_out

    return replaced(Reconciler, "_carry_out", make)


def acts_on_an_old_look() -> Patch:
    return mock.patch.object(Reconciler, "_unchanged", lambda self, job: job)


def no_compare_and_set() -> Patch:
    def make(real: Any) -> Any:
        def commit(self: Any, job: Any, event: Any, **given: Any) -> Any:
            now = self.get(job.id).version
            given["expected_version"] = now
            return real(self, replace(job, version=now), event, **given)

        return commit

    return replaced(sqlite.SqliteStore, "commit", make)


def no_fencing_and_no_lease() -> Patch:
    """Everybody gets the lease, and nobody is told that it is another's by now."""

    def make(real: Any) -> Any:
        def lease(self: Any, job_id: str, owner: str, *, ttl: float, now: float) -> Any:
            return real(self, job_id, owner, ttl=ttl, now=now + 1e6)

        return lease

    stack = contextlib.ExitStack()
    stack.enter_context(replaced(sqlite.SqliteStore, "lease", make))
    stack.enter_context(mock.patch.object(sqlite, "_check_lease", return_value=None))
    return stack


def unknown_is_gone() -> Patch:
    def make(real: Any) -> Any:
        def look(self: Cloud, slice: Any, *, timeout: float) -> Any:
            seen = real(self, slice, timeout=timeout)
            return Absent() if isinstance(seen, Unknown) else seen

        return look

    return replaced(Cloud, "look", make)


def gone_at_first_sight() -> Patch:
    return mock.patch.object(absence, "missing_twice", return_value=True)


def one_look_after_a_delete_is_enough() -> Patch:
    return mock.patch.object(absence, "_gone", return_value=True)


def looks_agree_whenever_they_were() -> Patch:
    return mock.patch.object(absence, "AGREES_FOR", 1e9)


def empty_list_is_gone() -> Patch:
    """Absent whenever a list does not show it, and an error is an empty list."""

    def make(real: Any) -> Any:
        def look(self: Cloud, slice: Any, *, timeout: float) -> Any:
            try:
                names = [o.name for o in self.list_all([slice.zone], timeout=timeout)]
            except Transient:
                names = []
            return real(self, slice, timeout=timeout) if slice.name in names else Absent()

        return look

    return replaced(Cloud, "look", make)


def delete_is_forgotten() -> Patch:
    """Asked once, and believed: it is gone, whatever is there."""

    def make(real: Any) -> Any:
        def releasing(job: Any, seen: Any, now: float) -> Any:
            gone: Mapping[str, Any] = {
                s.name: Absent() if s.delete_asked_at is not None else seen.slices.get(s.name)
                for s in job.slices
                if s.gone_at is None
            }
            return real(job, replace(seen, slices=gone), now)

        return releasing

    def table(real: Any) -> Any:
        return {**real, State.RELEASING: make(real[State.RELEASING])}

    return replaced(decide_module, "_BY_STATE", table)


def no_delete_at_all() -> Patch:
    def make(real: Any) -> Any:
        def act(self: Reconciler, job: Any, action: Any, lease: Any) -> Any:
            return Done() if isinstance(action, DeleteSlice) else real(self, job, action, lease)

        return act

    return replaced(Reconciler, "_act", make)


def sweep_without_grace() -> Patch:
    return mock.patch.object(orphans, "GRACE", -1.0)


def no_sweep() -> Patch:
    return mock.patch.object(Orphans, "sweep", return_value=Swept())


def sweep_takes_foreign_slices() -> Patch:
    """No look at the labels."""

    def listed(self: Cloud, zones: Any) -> list[Owned]:
        found = self.world.machines.values()
        return [Owned(m.name, m.zone, m.job, m.created) for m in found if m.zone in zones]

    return mock.patch.object(Cloud, "_list", listed)


def sweep_believes_an_empty_list_of_jobs() -> Patch:
    # Not a patch within the patch: a process may be killed in the middle of a sweep, and would leave it planted.
    class NoJobs:
        def __init__(self, store: Any) -> None:
            self.store = store

        def list(self, *given: Any, **more: Any) -> Any:
            return []

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

    def make(real: Any) -> Any:
        def sweep(self: Orphans, *, dry_run: bool = False) -> Any:
            blind: Any = copy.copy(self)
            blind.store = NoJobs(self.store)
            return real(blind, dry_run=dry_run)

        return sweep

    return replaced(Orphans, "sweep", make)


def lost_reply_is_a_failure() -> Patch:
    """A start whose reply was lost ends the attempt."""

    def make(real: Any) -> Any:
        def follow_up(job: Any, action: Any, result: Any, now: float) -> Any:
            from tpujob.domain.actions import Denied, NotYet, StartProgram
            from tpujob.domain.model import Cause

            if isinstance(action, StartProgram) and isinstance(result, NotYet):
                result = Denied(Cause.LOST_CONTACT, result.error)
            return real(job, action, result, now)

        return follow_up

    return replaced(reconciler_module, "follow_up", make)


def half_the_hosts_are_started() -> Patch:
    def make(real: Any) -> Any:
        return lambda job, **given: real(job, **given)[:1]

    return replaced(launch, "plans", make)


def attempt_number_is_reused() -> Patch:
    def make(real: Any) -> Any:
        def fresh(job: Any, happened: Any) -> Any:
            changed = real(job, happened)
            *earlier, last = changed.attempts
            number = max(1, len(earlier))
            return replace(changed, attempts=(*earlier, replace(last, number=number)))

        return fresh

    return replaced(lifecycle, "_new_attempt", make)


def cleanup_overwrites_the_outcome() -> Patch:
    def make(real: Any) -> Any:
        def fold(job: Any, happened: Any, data: Any) -> Any:
            changed = real(job, happened, data)
            return (
                lifecycle._change_attempt(changed, outcome=Outcome.INTERRUPTED, cause=None)
                if changed.attempt
                else changed
            )

        return fold

    def table(real: Any) -> Any:
        return {**real, EventKind.SLICE_GONE: make(real[EventKind.SLICE_GONE])}

    return replaced(lifecycle, "_FOLD", table)


def idempotency_key_is_ignored() -> Patch:
    def make(real: Any) -> Any:
        def create(self: Any, job: Any, event: Any, *, idempotency_key: str = "") -> Any:
            return real(self, job, event)

        return create

    return replaced(sqlite.SqliteStore, "create", make)


def no_deadline() -> Patch:
    """Calls may take as long as they like, whatever the lease says."""

    def make(real: Any) -> Any:
        def act(self: Reconciler, job: Any, action: Any, lease: Any) -> Any:
            return real(self, job, action, replace(lease, until=self.clock.now() + 1e6))

        return act

    return replaced(Reconciler, "_act", make)


def retries_without_backoff() -> Patch:
    def make(real: Any) -> Any:
        return lambda *given, **more: 0.0

    return replaced(attempt_end.retry, "backoff", make)


def success_on_one_host() -> Patch:
    def make(real: Any) -> Any:
        def ended(reports: Any, hosts: int, *given: Any, **more: Any) -> Any:
            good = [r for r in reports if r.phase == "exited" and r.exit_code == 0]
            return real(good or reports, len(good) or hosts, *given, **more)

        return ended

    return replaced(triage, "ended", make)


def ready_is_trusted() -> Patch:
    """A slice that the cloud calls ready runs, whatever its hosts do not say."""
    return mock.patch.object(stall, "silent", return_value=None)


def impatient_with_silence() -> Patch:
    return mock.patch.object(stall, "SILENCE", 4)


def slice_number_is_reused() -> Patch:
    """The next slice has the name of the last one."""

    def make(real: Any) -> Any:
        def queued(job: Any, seen: Any, now: float) -> Any:
            made = real(job, seen, now)
            if made.event is None or made.event.kind is not EventKind.SLICE_REQUESTED:
                return made
            data = {**made.event.data, "name": f"tj-{job.id}-1", "k": 1}
            return replace(made, event=replace(made.event, data=data))

        return queued

    def table(real: Any) -> Any:
        return {**real, State.QUEUED: make(real[State.QUEUED])}

    return replaced(decide_module, "_BY_STATE", table)


def preempted_and_waiting_slices_look_ready() -> Patch:
    def make(real: Any) -> Any:
        def look(self: Cloud, slice: Any, *, timeout: float) -> Any:
            seen = real(self, slice, timeout=timeout)
            if isinstance(seen, Present) and seen.state is not SliceState.READY:
                machine = self.world.machines.get(slice.name)
                hosts = machine.endpoints() if machine else ()
                return Present(SliceState.READY, hosts)
            return seen

        return look

    return replaced(Cloud, "look", make)


def holds_are_for_ever() -> Patch:
    def make(real: Any) -> Any:
        def holding(job: Any, seen: Any, now: float) -> Any:
            return real(replace(job, hold_until=None), seen, min(now, job.state_since))

        return holding

    def table(real: Any) -> Any:
        return {**real, State.HOLDING: make(real[State.HOLDING])}

    return replaced(decide_module, "_BY_STATE", table)


def start_is_not_safe_to_repeat() -> Patch:
    """A repeated start replaces the program that already runs."""

    def make(real: Any) -> Any:
        def begin(self: Hosts, machine: Any, plan: Any) -> Any:
            for run in machine.runs:
                old = run.programs.get(plan.host)
                if old and old.alive(self.sim.now):
                    self.world.monitor.stopping(machine, old, "started again")
                    del run.programs[plan.host]
            return real(self, machine, plan)

        return begin

    return replaced(Hosts, "_start", make)


def a_new_backend_looks_after_nobody() -> Patch:
    """Only after those that it was asked for: what a backend that died left behind stays behind."""
    return mock.patch.object(Loop, "_resync", return_value=None)


def secrets_are_told() -> Patch:
    def make(real: Any) -> Any:
        def event(job: Any, kind: Any, at: float, text: str, **data: Any) -> Any:
            return real(job, kind, at, f"{text} {job.spec.run}", **data)

        return event

    return replaced(attempt_end, "event", make)


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        create_before_intent, acts_on_an_old_look, no_compare_and_set, no_fencing_and_no_lease,
        unknown_is_gone, gone_at_first_sight, one_look_after_a_delete_is_enough,
        looks_agree_whenever_they_were, empty_list_is_gone, delete_is_forgotten,
        no_delete_at_all, sweep_without_grace, no_sweep, sweep_takes_foreign_slices,
        sweep_believes_an_empty_list_of_jobs, lost_reply_is_a_failure, half_the_hosts_are_started,
        attempt_number_is_reused, cleanup_overwrites_the_outcome, idempotency_key_is_ignored,
        no_deadline, retries_without_backoff, success_on_one_host, ready_is_trusted,
        impatient_with_silence, slice_number_is_reused, preempted_and_waiting_slices_look_ready,
        holds_are_for_ever, start_is_not_safe_to_repeat, secrets_are_told,
        a_new_backend_looks_after_nobody,
    )
} | MORE  # fmt: skip


@contextlib.contextmanager
def planted(name: str) -> Generator[None]:
    with MUTANTS[name]():
        yield
