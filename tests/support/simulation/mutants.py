"""Bugs planted into the store, leases, requests, and how slices are looked at, listed, deleted and swept."""

import copy
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.support import model_slices
from tests.support.simulation.cloud import Cloud
from tests.support.simulation.hosts import Hosts
from tests.support.simulation.patches import (
    BUGS,
    Instead,
    Patch,
    always,
    bug,
    everywhere,
    folded,
    replaced,
    ticking,
    together,
    value_bug,
)
from tpujob.adapters.sqlite import store as sqlite
from tpujob.domain.actions import Decision, Denied, NotYet, StartProgram
from tpujob.domain.decide import decide, follow_up, holding, queued, releasing
from tpujob.domain.events import EventKind
from tpujob.domain.failures import retry, stall, triage
from tpujob.domain.hardware.accelerators import find
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.host import plan as launch
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Cause, Endpoint, Outcome
from tpujob.domain.observations import Absent, Present, SliceState, Unknown
from tpujob.engine import orphans, slice_cache
from tpujob.engine.loop import Loop
from tpujob.engine.orphans import Orphans, Swept
from tpujob.engine.reconciler import Reconciler
from tpujob.engine.slice_cache import SliceCache
from tpujob.errors import Transient
from tpujob.lib import wall_time
from tpujob.ports import Owned

BUGS["gone_at_first_sight"] = value_bug(
    "cut off, and its deletion fails unseen", "I2", releasing, "missing_twice", always(True)
)
BUGS["one_look_after_a_delete_is_enough"] = value_bug(
    "cut off, and its deletion fails unseen", "I2", releasing, "deletion_is_sure", always(True)
)
BUGS["suspending_is_not_waited_for"] = value_bug(
    "preempted, and suspended late", "I13", releasing, "SUSPENDED_WITHIN", 0.0
)
BUGS["suspending_is_waited_for_for_ever"] = value_bug(
    "preempted, and never suspended", "I9", releasing, "SUSPENDED_WITHIN", 1e9
)
BUGS["looks_agree_whenever_they_were"] = value_bug(
    "missed twice, minutes apart", "I5", releasing, "AGREES_FOR", 1e9
)
BUGS["sweep_without_grace"] = value_bug(1, "I2", orphans, "GRACE", -1.0)
BUGS["no_sweep"] = value_bug("orphans", "I2", Orphans, "sweep", always(Swept()))
BUGS["retries_without_backoff"] = value_bug(
    "stockout, then the next zone", "I8", retry, "backoff", always(0.0)
)
# A slice that the cloud calls ready runs, whatever its hosts do not say.
BUGS["ready_is_trusted"] = value_bug("dead, and called ready", "L2", stall, "silent", always(None))
BUGS["impatient_with_silence"] = value_bug(
    "the bucket refuses its hosts for 20 min", "I5", stall, "SILENCE", 900.0
)
# What lists do not show stays unknown.
BUGS["never_by_name"] = value_bug(
    "deleted by a person, and lists had left it out", "L2", slice_cache, "AHEAD", -1e12
)


@bug("happy", "I6")
def create_before_intent() -> Patch:
    whose = threading.local()

    def tick(real: Any, self: Reconciler, job_id: str) -> Any:
        whose.slices = self.actor.slices
        return real(self, job_id)

    def planted(real: Any, job: Any, seen: Any, now: float) -> Any:
        made = real(job, seen, now)
        if made.event and made.event.kind is EventKind.SLICE_REQUESTED:
            requested = apply(job, made.event).slice
            try:
                whose.slices.create(requested, job_id=job.id, public_key="", timeout=50)
            except Transient:
                return Decision(wake_in=3)
        return made

    return together(replaced(Reconciler, "tick", tick), everywhere(decide, planted))


@bug("handed on", "I6")
def acts_on_an_old_look() -> Patch:
    """Show an old record to code that checks whether a job has changed."""

    def store(self: Reconciler) -> Any:
        seen: dict[str, Any] = {}

        def peek(job_id: str) -> Any:
            return seen.setdefault(job_id, self.store.peek(job_id))

        def commit(job: Any, *args: Any, **kwargs: Any) -> Any:
            seen.pop(job.id, None)
            return self.store.commit(job, *args, **kwargs)

        return Instead(self.store, peek=peek, get=peek, commit=commit)

    return ticking(store=store)


@bug("two backends, and a slow cloud", "I6")
def no_compare_and_set() -> Patch:
    def commit(real: Any, self: Any, job: Any, event: Any, **args: Any) -> Any:
        now = self.get(job.id).version
        args["expected_version"] = now
        return real(self, replace(job, version=now), event, **args)

    return replaced(sqlite.SqliteStore, "commit", commit)


@bug("two backends, and a slow cloud", "I6")
def no_fencing_and_no_lease() -> Patch:
    """Every backend gets the lease, at any time, and writes with it."""

    def lease(real: Any, self: Any, job_id: str, owner: str, *, ttl: float) -> Any:
        lease = real(self, job_id, owner, ttl=0.0)
        return lease and replace(lease, ttl=ttl)

    def unfenced(real: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return real(self, *args, **{**kwargs, "lease": None})

    return together(
        replaced(sqlite.SqliteStore, "lease", lease),
        replaced(sqlite.SqliteStore, "commit", unfenced),
        replaced(sqlite.SqliteStore, "remove", unfenced),
    )


@bug("dead, and the cloud is away", "I12")
def unknown_is_gone() -> Patch:
    def look(real: Any, self: Cloud, slice: Any, *, timeout: float) -> Any:
        seen = real(self, slice, timeout=timeout)
        return Absent() if isinstance(seen, Unknown) else seen

    return replaced(Cloud, "look", look)


@bug("preempted, and never suspended", "I9")
def the_time_of_suspending_starts_again() -> Patch:
    """Forget the time of suspending after a minute, as if the backend that saw it had ended."""

    def leaving(real: Any, job: Any, slice_: Any, seen: Any, now: float) -> Any:
        recent = now - (slice_.suspending_since or now) < 60
        return real(job, slice_ if recent else replace(slice_, suspending_since=None), seen, now)

    return everywhere(releasing.leaving, leaving)


@bug("missed twice, minutes apart", "I5")
def empty_list_is_gone() -> Patch:
    """Absent whenever a list does not show it, and an error is an empty list."""

    def look(real: Any, self: Cloud, slice: Any, *, timeout: float) -> Any:
        try:
            names = [o.name for o in self.list_all([slice.zone], timeout=timeout)]
        except Transient:
            names = []
        return real(self, slice, timeout=timeout) if slice.name in names else Absent()

    return replaced(Cloud, "look", look)


@bug("cut off, and its deletion fails unseen", "I2")
def delete_is_forgotten() -> Patch:
    """Asked once, and believed: it is gone, whatever is there."""

    def decide(real: Any, job: Any, seen: Any, now: float) -> Any:
        gone: Mapping[str, Any] = {
            s.name: Absent() if s.delete_asked_at is not None else seen.slices.get(s.name)
            for s in job.slices
            if s.gone_at is None
        }
        return real(job, replace(seen, slices=gone), now)

    return replaced(releasing, "decide", decide)


@bug("happy", "I9")
def no_delete_at_all() -> Patch:
    def slices(self: Reconciler) -> Any:
        return Instead(self.actor.slices, delete=lambda slice, **_: None)

    return ticking(slices=slices)


@bug("orphans", "I1")
def sweep_takes_foreign_slices() -> Patch:
    """Sweep without a look at the labels."""

    def listed(self: Cloud, zones: Any) -> list[Owned]:
        machines = self.world.machines.values()
        return [
            Owned(m.name, m.zone, m.job, m.created, CLOUD_TPU) for m in machines if m.zone in zones
        ]

    return mock.patch.object(Cloud, "_list", listed)


@bug("happy", "I5")
def sweep_believes_an_empty_list_of_jobs() -> Patch:
    # Not a patch within the patch: a process may be killed in the middle of a sweep, and would leave it planted.
    def sweep(real: Any, self: Orphans, *, dry_run: bool = False) -> Any:
        blind: Any = copy.copy(self)
        blind.store = Instead(self.store, list=always([]))
        blind._unsure = always(set[str]())  # nor does it read the record of the job
        return real(blind, dry_run=dry_run)

    return replaced(Orphans, "sweep", sweep)


@bug("replies are lost", "I5")
def lost_reply_is_a_failure() -> Patch:
    """A start whose reply was lost ends the attempt."""

    def planted(real: Any, job: Any, action: Any, result: Any, now: float) -> Any:
        if isinstance(action, StartProgram) and isinstance(result, NotYet):
            result = Denied(Cause.LOST_CONTACT, result.error)
        return real(job, action, result, now)

    return everywhere(follow_up, planted)


@bug("happy", "I3")
def half_the_hosts_are_started() -> Patch:
    return replaced(launch, "plans", lambda real, job, **args: real(job, **args)[:1])


@bug("preempted while running", "I1")
def attempt_number_is_reused() -> Patch:
    def change(job: Any, happened: Any, after: Any) -> Any:
        if len(after.attempts) == len(job.attempts):
            return after
        *earlier, last = after.attempts
        number = max(1, len(earlier))
        return replace(after, attempts=(*earlier, replace(last, number=number)))

    return folded(change)


@bug("happy", "I6")
def cleanup_overwrites_the_outcome() -> Patch:
    def change(job: Any, happened: Any, after: Any) -> Any:
        if happened.kind is not EventKind.SLICE_GONE or not after.attempts:
            return after
        *earlier, last = after.attempts
        overwritten = replace(last, outcome=Outcome.INTERRUPTED, cause=None)
        return replace(after, attempts=(*earlier, overwritten))

    return folded(change)


@bug("replies are lost", "I7")
def idempotency_key_is_ignored() -> Patch:
    def create(real: Any, self: Any, job: Any, event: Any, *, idempotency_key: str = "") -> Any:
        return real(self, job, event)

    return replaced(sqlite.SqliteStore, "create", create)


@bug(25, "I6")
def no_deadline() -> Patch:
    """Calls may take as long as they like, whatever the lease says."""

    def lease(real: Any, self: Any, job_id: str, ttl: float) -> Any:
        lease = real(self, job_id, ttl)
        return lease and replace(lease, until=self.clock.steady() + 1e6)

    return replaced(Reconciler, "_lease", lease)


@bug("a host ends, and the others wait for it", "I5")
def success_on_one_host() -> Patch:
    def ended(real: Any, reports: Any, hosts: int, *args: Any, **kwargs: Any) -> Any:
        good = [r for r in reports if r.phase == "exited" and r.exit_code == 0]
        return real(good or reports, len(good) or hosts, *args, **kwargs)

    return replaced(triage, "ended", ended)


@bug("stockout, then the next zone", "I6")
def slice_number_is_reused() -> Patch:
    """The next slice has the name of the last one."""

    def decide(real: Any, job: Any, seen: Any, now: float) -> Any:
        made = real(job, seen, now)
        if made.event is None or made.event.kind is not EventKind.SLICE_REQUESTED:
            return made
        payload = replace(made.event.payload, name=f"tj-{job.id}-1", k=1)
        return replace(made, event=replace(made.event, payload=payload))

    return replaced(queued, "decide", decide)


@bug("preempted while it is prepared", "L2")
def preempted_and_waiting_slices_look_ready() -> Patch:
    def state(real: Any, queued: Any, nodes: Any) -> Any:
        seen = real(queued, nodes)
        if queued is None or not isinstance(seen, Present) or seen.state is SliceState.READY:
            return seen
        hosts = range(find(queued.type).hosts * queued.nodes)
        return Present(SliceState.READY, tuple(Endpoint(host, f"10.1.0.{host}") for host in hosts))

    return replaced(model_slices, "slice_state", state)


@bug("cancelled while running", "I9")
def holds_are_for_ever() -> Patch:
    def decide(real: Any, job: Any, seen: Any, now: float) -> Any:
        return real(replace(job, hold_until=now + job.spec.hold), seen, now)

    return replaced(holding, "decide", decide)


@bug("preempted, and suspended while a clock is set", "I13")
def a_clock_that_is_set_is_followed_at_once() -> Patch:
    return mock.patch.object(wall_time, "LASTS", 0.0)


@bug("stockout while a clock is ahead", "L4")
def a_clock_that_was_ahead_is_believed() -> Patch:
    return everywhere(retry.due_at, lambda real, stored, now, longest=0.0: stored)


@bug(6, "I5")
def start_is_not_safe_to_repeat() -> Patch:
    """A repeated start replaces the program that already runs."""

    def begin(real: Any, self: Hosts, machine: Any, plan: Any) -> Any:
        for run in machine.runs:
            old = run.programs.get(plan.host)
            if old and old.alive(self.sim.now):
                self.world.monitor.stopping(machine, old, "started again")
                del run.programs[plan.host]
        return real(self, machine, plan)

    return replaced(Hosts, "_start", begin)


@bug("dead, under short-lived backends", "L3")
def a_new_backend_looks_after_no_job() -> Patch:
    """Only after those that it was asked for: what a backend that died left behind stays behind."""

    def built(real: Any, self: Loop, reconciler: Any, store: Any, *args: Any, **kwargs: Any) -> Any:
        blind = Instead(store, due=always([]), list=always([]), changes=lambda after: (after, []))
        return real(self, reconciler, blind, *args, **kwargs)

    return replaced(Loop, "__init__", built)


@bug("happy", "I11")
def secrets_are_shown() -> Patch:
    def planted(real: Any, job: Any, seen: Any, now: float) -> Any:
        made = real(job, seen, now)
        if made.event is None:
            return made
        shown = replace(made.event, text=f"{made.event.text} {job.spec.run}")
        return replace(made, event=shown)

    return everywhere(decide, planted)


@bug("lists leave it out", "I5")
def missing_in_a_list_is_gone() -> Patch:
    def look(real: Any, self: Any, slice_: Any, **args: Any) -> Any:
        seen, listed = real(self, slice_, **args | {"by_name": False})
        return (Absent() if listed and isinstance(seen, Unknown) else seen), False

    return together(BUGS["never_by_name"].plant(), replaced(SliceCache, "look", look))


@bug("lists show it in part", "I5")
def lists_are_acted_upon() -> Patch:
    """End an attempt without another look by name."""

    return replaced(
        SliceCache,
        "look",
        lambda real, self, slice_, **args: (real(self, slice_, **args)[0], False),
    )


@bug("two slices are paid from one budget", "I14")
def a_list_serves_for_ever() -> Patch:
    return mock.patch.multiple(slice_cache, FOR_EACH_CALL=1e9, MAX_LIST_AGE=1e9)
