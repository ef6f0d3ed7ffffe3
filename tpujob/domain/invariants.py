"""Invariants of the records, checked by an operator's `verify` and by simulations. Pure.

Each function returns the violations, with the name of the rule (I1 to I14, as the simulation lists them).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tpujob.domain.capacity import race
from tpujob.domain.events import Event, EventKind
from tpujob.domain.failures.retry import POLICIES, limit_of
from tpujob.domain.lifecycle import TABLE, apply
from tpujob.domain.model import DesiredState, Job, SliceRole, State


@dataclass(frozen=True, slots=True)
class Broken:
    """A violation of one rule by one job."""

    rule: str
    job: str
    text: str


def of_job(job: Job) -> list[Broken]:
    """Return the violations within one record."""
    violations = (*_slices(job), *_attempts(job), *_group(job))
    return [Broken(rule, job.id, text) for rule, text in violations]


def of_groups(jobs: Sequence[Job]) -> list[Broken]:
    """Return the violations between groups and their elements. An element may have been removed, and the last batch may
    not be counted yet."""
    groups = {job.id: job for job in jobs if job.spec.is_group}
    broken: list[Broken] = []
    seen = dict[tuple[str, int | None], str]()
    for job in jobs:
        group = groups.get(job.group)
        if job.group and group is None:
            broken.append(Broken("I6", job.id, f"its group {job.group} is not there"))
        elif group and group.state.final and not job.state.final:
            text = f"it is {job.state}, and its group {group.id} has ended"
            broken.append(Broken("I6", job.id, text))
        if job.group and (other := seen.setdefault((job.group, job.index), job.id)) != job.id:
            text = f"it is element {job.index} of group {job.group}, and so is {other}"
            broken.append(Broken("I6", job.id, text))
    return broken


def first_record(job: Job) -> Job:
    """Return the record of the job at its creation, with the fields that its events build on."""
    return Job(
        id=job.id,
        name=job.name,
        user=job.user,
        spec=job.spec,
        state=State.QUEUED,
        desired=DesiredState.RUN,
        created_at=job.created_at,
        state_since=job.created_at,
        wake=job.created_at,
        bucket=job.bucket,
        bundles=job.bundles,
    )


def of_history(first: Job, events: Sequence[Event], job: Job) -> list[Broken]:
    """Return the violations of the rule that the events lead from the first record to the state, attempts and slices of
    this one. The events must be all of the job's."""
    problems: list[str] = []
    if [e.seq for e in events] != list(range(1, job.version + 1)):
        problems.append(f"version {job.version} has events {[e.seq for e in events]}")
    state = first
    for event in events[1:]:
        if (state.state, event.kind) not in TABLE:
            problems.append(f"{event.kind} happened to a job that was {state.state}")
            break
        state = apply(state, event)
    else:
        replayed = (state.state, state.attempts, state.slices)
        if not problems and replayed != (job.state, job.attempts, job.slices):
            problems.append("its events do not lead to its record")
    if any(e.kind is EventKind.CREATED for e in events[1:]):
        problems.append("it was created twice")
    return [Broken("I6", job.id, text) for text in problems]


def unclaimed(names: Iterable[str], jobs: Iterable[Job]) -> list[str]:
    """Return the names of our slices in the cloud that no job claims: they are billed without a purpose."""
    claimed = {s.name for job in jobs for s in job.slices if s.gone_at is None}
    return [name for name in names if name not in claimed]


def _slices(job: Job) -> Iterable[tuple[str, str]]:
    live = [s for s in job.slices if s.gone_at is None]
    if len([s for s in live if s.role is SliceRole.SERVING]) > 1:
        yield "I1", f"{', '.join(s.name for s in live)} are served at once"
    if (job.state is State.QUEUED or job.state.final) and any(
        s.role is SliceRole.SERVING for s in live
    ):
        yield "I2", f"it is {job.state} and owns {live[-1].name}"
    if job.state.final and job.beside:
        names = ", ".join(f"{s.name} ({s.role})" for s in job.beside)
        yield "I2", f"it is {job.state}, and {names} is not gone"
    if job.candidates and job.state not in _RACES:
        yield "I2", f"it is {job.state}, and {job.candidates[0].name} is a candidate"
    if len(job.candidates) >= race.size(job) and job.candidates:
        yield "I1", f"{len(job.candidates)} candidates race in {race.size(job)} places"
    if any(k >= next_k for k, next_k in pairwise(s.k for s in job.slices)):
        yield "I1", f"its slices are numbered {[s.k for s in job.slices]}"
    for slice in job.slices:
        leaves = slice.role is SliceRole.CONDEMNED or slice.lost_at is not None
        if leaves and not slice.delete_reason:
            yield "I5", f"{slice.name} is {slice.role}, and leaves without a reason"
        if slice.delete_asked_at is not None and not slice.delete_reason:
            yield "I5", f"{slice.name} was deleted without a reason"
        if slice.gone_at is not None and slice.delete_asked_at is None and not slice.handed_to:
            yield "I2", f"{slice.name} is recorded as gone, but its deletion was not requested"
    if job.state is State.RELEASING and job.next_state is None:
        yield "I6", "it is being released, and nothing says what comes then"


def _group(job: Job) -> Iterable[tuple[str, str]]:
    if job.spec.is_group and (job.slices or job.attempts):
        yield "I2", "it is a group, and owns slices or attempts itself"
    if job.submitted > job.group_size:
        yield "I6", f"{job.submitted} elements were made of {job.group_size}"
    if job.spec.is_group and job.state is State.SUCCEEDED and job.submitted < job.group_size:
        yield "I6", f"it succeeded with {job.submitted} elements of {job.group_size}"
    if job.group and not 0 <= (-1 if job.index is None else job.index) < job.group_size:
        yield "I6", f"it is element {job.index} of {job.group_size}"


def _attempts(job: Job) -> Iterable[tuple[str, str]]:
    if [a.number for a in job.attempts] != list(range(1, len(job.attempts) + 1)):
        yield "I1", f"its attempts are numbered {[a.number for a in job.attempts]}"
    for attempt in job.attempts[:-1]:
        if attempt.outcome is None:
            yield "I6", f"attempt {attempt.number} never ended, and a newer one exists"
    newest = job.attempt
    if newest and newest.outcome is None and job.state not in _WITH_PROGRAM:
        yield "I6", f"it is {job.state}, and attempt {newest.number} has not ended"
    if job.state.final != (job.finished_at is not None):
        yield "I6", f"it is {job.state}, and its end is {job.finished_at}"
    for policy in dict.fromkeys(POLICIES.values()):
        spent, limit = job.retries_used.get(policy.budget, 0), limit_of(policy, job.spec.recovery)
        if limit is not None and spent > limit:
            yield "I8", f"{spent} {policy.budget} were spent of {limit}"


_RACES = (State.PROVISIONING, State.PREPARING)
_WITH_PROGRAM = (State.PREPARING, State.RUNNING)
