"""Records as the views of `api/shapes.py`: what the API, `--json` and the pages show. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from tpujob.api import (
    AttemptView,
    CodeView,
    EventView,
    IgnoredView,
    JobFacts,
    JobView,
    LeakView,
    MaintenanceView,
    NonfiniteView,
    ProofView,
    SliceView,
    SuspectView,
    UnreachedView,
    VerdictView,
)
from tpujob.domain import pace
from tpujob.domain.capacity import circuits
from tpujob.domain.events import Event
from tpujob.domain.failures import host_reputation, stall, warnings
from tpujob.domain.failures.retry import due_at
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.model import Accusation, Attempt, Code, Ignored, Job, Slice, State, Suspect
from tpujob.domain.money.ledger import certain, free, usd
from tpujob.domain.observations import HostReport, Maintenance
from tpujob.domain.progress import (
    JobProgress,
    first_step,
    job_progress,
    steps_kept,
    steps_redone,
    with_live,
)
from tpujob.domain.spec import dump
from tpujob.domain.text import rfc3339
from tpujob.errors import BadSpec
from tpujob.ports import Owned
from tpujob.protocol import Phase
from tpujob.service import next_step
from tpujob.service.money import budgets
from tpujob.service.runtime_info import NOTHING, RuntimeInfo


class Hardware(NamedTuple):
    """The hardware that a job holds, last held, or requests first."""

    facts: accelerators.Accelerator  #: of one TPU slice
    tpu_slices: int
    chips: int  #: of all of them, as are the hosts
    hosts: int
    zone: str
    system_image: str


def hardware(job: Job) -> Hardware:
    shown = job.newest_slice
    facts = accelerators.find(
        shown.type if shown else job.spec.tpu.types[0], shown.provider if shown else ""
    )
    n = shown.tpu_slices if shown else job.tpu_slices
    return Hardware(
        facts,
        n,
        chips=facts.chips * n,
        hosts=facts.hosts * n if facts.known else job.hosts or facts.hosts * n,
        zone=shown.zone if shown else next(iter(job.spec.tpu.zones), ""),
        system_image=shown.system_image if shown else facts.row.system_image,
    )


def speed(job: Job, has: JobProgress, moved_at: float | None) -> float | None:
    """Return the steps per second of a running job; None: it does not run, or the speed is unknown."""
    if job.state is not State.RUNNING or job.attempt is None:
        return None
    return pace.steps_per_second(job.attempt, has, moved_at)


def shown_speed(job: Job, has: JobProgress, moved_at: float | None) -> float | None:
    """Return `speed`, or that of steps that were found in the output, which decides nothing."""
    found = has.found_step_s if has.found and job.state is State.RUNNING else None
    return speed(job, has, moved_at) or (1 / found if found and found > 0 else None)


def job_facts(job: Job, runtime: RuntimeInfo, now: float, has: JobProgress) -> JobFacts:
    """Return what a view and a row of a list say alike, in nothing but what JSON has."""
    serving, attempt, shown = job.slice, job.attempt, hardware(job)
    return JobFacts(
        id=job.id,
        name=job.name,
        user=job.user,
        state=str(job.state),
        desired=str(job.desired),
        trouble="" if job.state.final else runtime.trouble,
        outcome=job.outcome and str(job.outcome),
        cause=job.cause and str(job.cause),
        type=shown.facts.type,
        tpu_slices=shown.tpu_slices,
        chips=shown.chips,
        hosts=shown.hosts,
        zone=shown.zone,
        pricing=serving.pricing if serving else job.spec.tpu.pricing,
        usd_per_hour=billed_now(job),
        usd_spent=usd(job.slices, now),
        condemned=[s.name for s in job.condemned],
        candidates=[s.name for s in job.candidates],
        host0_ip=serving.endpoints[0].address if serving and serving.endpoints else "",
        attempt=attempt.number if attempt else 0,
        phase=has.phase if job.state is State.RUNNING else "",
        step=has.step,
        steps=has.steps,
        loss=has.loss,
        nonfinite=NonfiniteView(**asdict(bad), text=str(bad)) if (bad := has.nonfinite) else None,
        found=has.found,
        checkpoint=has.checkpoint,
        version=job.version,
        created_at=rfc3339(job.created_at),
        state_since=rfc3339(job.state_since),
        finished_at=_maybe(job.finished_at),
        note=job.note,
        tags=[*job.tags],
        group=job.group,
        index=job.index,
        group_size=job.group_size,
        elements={},
    )


def job_view(
    job: Job,
    *,
    now: float,
    runtime: RuntimeInfo = NOTHING,
    private: bool = True,
    host_keys: str = "",
) -> JobView:
    """Return the view of `job` at `now`. `host_keys`: why the keys of its slice's hosts are trusted. Without `private`,
    what is its owner's alone stays empty: workdir, code, bundles, evidence, and what the program is and how it is
    started; with it, `job` is as `job_in_full` returns it. The caller fills in `place`, `deadline`, `actions`,
    `refused`, `timeline`, `on_hosts`, `elements`, `worst`, `best`, and `jobs` of slices."""
    trouble = "" if job.state.final else runtime.trouble
    progress, moved_at = runtime.progress, runtime.moved_at
    job = with_live(job, progress)
    serving, shown = job.slice, hardware(job)
    has, steps = job_progress(job), steps_kept(job)
    rate = shown_speed(job, has, moved_at)
    running = job.attempt if job.state is State.RUNNING else None
    return JobView(
        **job_facts(job, runtime, now, has),
        message=job.message,
        params=dict(job.params) if private else {},
        next=next_step.what_next(job, has, runtime.wait, now, runtime.place),
        why=next_step.why(job, runtime.wait, runtime.unpaid, now, runtime.place),
        trouble_since=_maybe(runtime.trouble_since) if trouble else None,
        waiting=circuits.describe_wait(runtime.wait, now) if runtime.wait else runtime.unpaid,
        capacity=next_step.capacity(runtime.wait) if runtime.wait else None,
        copying=next_step.copying(job, now),
        place=None,
        usd_copies=sum(copy.micros for copy in job.copies) / 1e6,
        maintenance=_maintenance_view(runtime.maintenance, now),
        ignored=_ignored_view(job.attempt, runtime.ignored),
        warnings=[*warnings.sentences(job.attempt.warnings)] if job.attempt else [],
        topology=shown.facts.topology,
        system_image=shown.system_image,
        steps_per_s=rate,
        left_s=pace.seconds_left(has, rate),
        # nobody keeps when a step that was found in the output last changed
        progress_at=_maybe(_progress_at(running, moved_at)) if running and not has.found else None,
        stall_s=_stall(running, job.spec.recovery.stall) if running else None,
        metrics=dict(has.metrics),
        workdir=job.workdir if private else "",
        bundles=list(job.bundles) if private else [],
        code=code_view(job.code) if private else None,
        hold_until=_maybe(job.hold_until),
        wake_at=_maybe(job.wake if job.state in _WAITING and due_at(job.wake, now) > now else None),
        spending=budgets.views(job, runtime.funds, now),
        deadline=None,
        retries_used=dict(job.retries_used),
        budgets=next_step.budgets(job),
        slices=[
            slice_view(s, now=now, host_keys=host_keys if s is serving else "") for s in job.slices
        ],
        attempts=[attempt_view(a, steps, private=private) for a in job.attempts],
        spec=_spec(job, private=private),
        actions=[],
        refused=[],
        timeline=[],
        on_hosts=[],
        worst=[],
        best=None,
    )


#: shown instead of each value of `run.env`, so that secrets do not leak
SET = "set"
#: of a spec: what everybody who sees the job may see; the rest is its owner's
PUBLIC = ("name", "tpu", "recovery", "preflight", "hold", "stop_grace", "budget")


def _spec(job: Job, *, private: bool) -> dict[str, Any]:
    spec = dump(job.spec)
    spec["run"]["env"] = dict.fromkeys(spec["run"]["env"], SET)  # a value may be a key
    return {k: v for k, v in spec.items() if private or k in PUBLIC}


def _maintenance_view(coming: Maintenance | None, now: float) -> MaintenanceView | None:
    """Return the view; None, too, when its window is over: the cloud may continue to announce it for a while."""
    if coming is None or (coming.ends or now) < now:
        return None
    return MaintenanceView(
        starts=rfc3339(coming.starts),
        ends=_maybe(coming.ends),
        latest=_maybe(coming.latest),
        kind=coming.kind,
        status=coming.status,
    )


def _ignored_view(attempt: Attempt | None, counted: Ignored | None) -> IgnoredView | None:
    """Return the highest counts that are known: stored ones may be older, and this process loses its own at its end."""
    counts = [ignored for ignored in (attempt and attempt.ignored, counted) if ignored is not None]
    if not counts:
        return None
    return IgnoredView(
        unverified=max(ignored.unverified for ignored in counts),
        replayed=max(ignored.replayed for ignored in counts),
    )


def code_view(code: Code | None) -> CodeView | None:
    return None if code is None else CodeView(**asdict(code))


def slice_view(slice: Slice, *, now: float, host_keys: str = "") -> SliceView:
    spent, least = usd([slice], now), usd([certain(slice)], now)
    view = SliceView(
        name=slice.name,
        type=slice.type,
        tpu_slices=slice.tpu_slices,
        zone=slice.zone,
        pricing=slice.pricing,
        role=slice.role,
        usd_per_hour=slice.usd_per_hour,
        usd=spent,
        free=free(slice),
        unsure_usd=round((spent or 0.0) - (least or 0.0), 6),
        requested_at=rfc3339(slice.requested_at),
        ready_at=_maybe(slice.ready_at),
        gone_at=_maybe(slice.gone_at),
        reason=slice.delete_reason,
        hosts=[e.address for e in slice.endpoints],
        host_keys=host_keys,
        jobs=[],
    )
    if slice.ends_at is not None:
        view["ends_at"] = rfc3339(slice.ends_at)
    return view


def attempt_view(
    attempt: Attempt, steps: Mapping[int, int | None], *, private: bool = True
) -> AttemptView:
    """Return the view. `steps`: as `steps_kept` returns them."""
    done = attempt.progress
    hidden: dict[str, Any] = {} if private else {"text": ""}
    return AttemptView(
        number=attempt.number,
        slice=attempt.slice,
        started_at=rfc3339(attempt.started_at),
        running_at=_maybe(attempt.running_at),
        ended_at=_maybe(attempt.ended_at),
        outcome=attempt.outcome,
        cause=attempt.cause,
        host=attempt.host,
        message=attempt.message,
        evidence=[ProofView(**asdict(line)) for line in attempt.evidence] if private else [],
        last_error=ProofView(**asdict(attempt.last_error) | hidden) if attempt.last_error else None,
        physical=list(attempt.physical),
        verdict=VerdictView(**asdict(attempt.verdict) | hidden) if attempt.verdict else None,
        unreached=UnreachedView(**asdict(attempt.unreached)) if attempt.unreached else None,
        step=done.step,
        checkpoint=done.checkpoint,
        resumed_from=done.resumed_from,
        first_step=first_step(attempt),
        redone=steps_redone(attempt, steps),
        versions=dict(attempt.versions),
    )


def event_view(event: Event) -> EventView:
    return EventView(
        seq=event.seq,
        kind=event.kind,
        at=rfc3339(event.at),
        state=event.state,
        text=event.text,
        by=event.by,
    )


def suspect_view(suspect: Suspect, *, now: float) -> SuspectView:
    counted = host_reputation.counted(suspect)
    return SuspectView(
        physical=suspect.physical,
        zone=suspect.zone,
        score=round(host_reputation.score(suspect, now), 3),
        refused=host_reputation.refused(suspect, now),
        accusers=len(host_reputation.accusers(suspect, now)),
        pinned=suspect.pinned,
        reasons=[_reason(a) for a in counted],
        open=[_reason(a) for a in suspect.accusations if a not in counted],
        updated_at=rfc3339(suspect.updated_at),
    )


def _reason(accusation: Accusation) -> str:
    return f"job {accusation.job} attempt {accusation.attempt}: {accusation.text}"


def leak_view(owned: Owned, *, now: float, prices: PriceList = LIST) -> LeakView:
    return LeakView(
        name=owned.name,
        zone=owned.zone,
        job=owned.job_id,
        age_s=max(0.0, round(now - owned.created_at, 3)),
        usd_per_hour=_list_price(owned, prices),
        detail=owned.detail,
    )


def _list_price(owned: Owned, prices: PriceList) -> float | None:
    try:
        return prices.usd_per_hour(owned.type, owned.zone, owned.pricing, owned.tpu_slices)
    except BadSpec:  # no type of ours, or one that the tables do not know any more
        return None


_WAITING = (State.QUEUED, State.PREPARING)


def _progress_at(running: Attempt, moved_at: float | None) -> float | None:
    return moved_at or running.progress_at or running.running_at


def _stall(running: Attempt, after: float) -> float | None:
    report = HostReport(0, running.number, Phase.RUNNING, age=0.0, progress=running.progress)
    return float(stall.limit(after, [report])) if after else None


def billed_now(job: Job) -> float | None:
    """Return the sum over slices that are ready and not gone; None when one of them has no known price."""
    billed = [s.usd_per_hour for s in job.slices if s.ready_at is not None and s.gone_at is None]
    return None if None in billed else round(sum(filter(None, billed)), 4)


def _maybe(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)
