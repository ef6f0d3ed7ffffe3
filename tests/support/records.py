"""Jobs, slices and reports as records, for tests of pure code."""

from dataclasses import replace
from typing import Any

from tpujob.agent.upload.evidence import TailLine, pick_lines
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.failures import triage
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.host.reports import read_evidence
from tpujob.domain.model import (
    Accusation,
    Attempt,
    Cause,
    DesiredState,
    Endpoint,
    Job,
    Outcome,
    Progress,
    Slice,
    SliceRole,
    Standing,
    State,
)
from tpujob.domain.observations import Absent, HostReport, Present, SliceSeen, SliceState, Unknown
from tpujob.domain.spec import JobSpec, dump, parse

NOW = 10_000.0
SPEC = parse({"name": "x", "tpu": {"type": "v4-16"}, "run": {"command": "true"}})
ENDPOINTS = (Endpoint(0, "10.0.0.1"), Endpoint(1, "10.0.0.2"))


def a_slice(k: int = 1, **fields: Any) -> Slice:
    """Return the k-th slice of job 1, which is requested unless the fields say more."""
    name, zone, runtime = f"tj-000001-{k}", "us-central2-b", "tpu-ubuntu2204-base"
    return replace(
        Slice(name, k, "v4-16", zone, "spot", CLOUD_TPU, runtime, 1.0, NOW - 500), **fields
    )


def respec(spec: JobSpec, **parts: dict[str, Any]) -> JobSpec:
    """Return the spec with other values in some of its parts."""
    document = dump(spec)
    return parse({**document, **{name: {**document[name], **part} for name, part in parts.items()}})


WITH_SLICE = {State.PROVISIONING, State.PREPARING, State.RUNNING, State.HOLDING, State.RELEASING}
WITH_ATTEMPT = WITH_SLICE - {State.PROVISIONING}


def job_in(
    state: State,
    *,
    desired: DesiredState = DesiredState.RUN,
    next_state: State = State.QUEUED,
    deleted: bool = False,
) -> Job:
    slice = a_slice()
    if state in WITH_ATTEMPT:
        slice = replace(slice, endpoints=ENDPOINTS, ready_at=NOW - 400)
    if state is State.RELEASING:
        slice = replace(
            slice, delete_reason="because", delete_asked_at=NOW - 5 if deleted else None
        )
    ended = (
        {"ended_at": NOW, "outcome": Outcome.FAILED}
        if state in (State.HOLDING, State.RELEASING)
        else {}
    )
    attempt = Attempt(1, slice.name, NOW - 300, **ended)
    return Job(
        id="000001",
        name="x",
        user="ada",
        spec=SPEC,
        state=state,
        desired=desired,
        created_at=NOW - 600,
        state_since=NOW - 300,
        slices=(slice,) if state in WITH_SLICE else (),
        attempts=(attempt,) if state in WITH_ATTEMPT else (),
        next_state=next_state if state is State.RELEASING else None,
        cause=Cause.PREEMPTED if state is State.RELEASING else None,
        hold_until=NOW + 60 if state is State.HOLDING else None,
    )


SLICES: list[SliceSeen] = [
    Absent(),
    Unknown("503"),
    *(Present(s, ENDPOINTS if s is SliceState.READY else ()) for s in SliceState),
    *(
        Present(SliceState.FAILED, (), "words", c)
        for c in (Cause.STOCKOUT, Cause.QUOTA, Cause.PERMISSION)
    ),
]


def with_progress(job: Job, **progress: Any) -> Job:
    """Return the job with this progress of its newest attempt."""
    ended = Attempt(1, "tj-000001-1", NOW - 300, ended_at=NOW, outcome=Outcome.FAILED)
    *before, newest = job.attempts or (ended,)
    return replace(job, attempts=(*before, replace(newest, progress=Progress(**progress))))


def report(host: int, phase: str = "running", code: int | None = None, **fields: Any) -> HostReport:
    return replace(HostReport(host, 1, phase, age=30.0, exit_code=code), **fields)


BAD = {"role": SliceRole.CONDEMNED, "delete_reason": "wrong numbers"}


def with_condemned(job: Job, condemned: dict[str, Any]) -> Job:
    """Return the same job, whose earlier slice was swapped out."""
    times = {"requested_at": NOW - 4000, "ready_at": NOW - 3900}
    bad = a_slice(endpoints=ENDPOINTS, **times, **BAD, **condemned)
    serving = tuple(replace(s, name="tj-000001-2", k=2) for s in job.slices)
    attempts = tuple(replace(a, slice="tj-000001-2") for a in job.attempts)
    return replace(job, slices=(bad, *serving), attempts=attempts)


B = Offer("v6e-8", "us-east5-b", "spot", CLOUD_TPU, "rt", 1.0)
A = Offer("v6e-8", "us-east5-a", "spot", CLOUD_TPU, "rt", 1.0)
FULL = "There is no more capacity"
V6E = parse(
    {
        "name": "x",
        "tpu": {"type": "v6e-8", "zones": ["us-east5-b", "us-east5-a"]},
        "run": {"command": "true"},
    }
)


def request(
    offer: Offer, cause: Cause | None, at: float, k: int = 1, *, ready: bool = False
) -> Slice:
    times = {"requested_at": at, "ready_at": at if ready else None, "gone_at": at + 1}
    return a_slice(k, type=offer.type, zone=offer.zone, refused=cause, **times)


def host(number: int, code: int | None, *lines: str, **fields: Any) -> HostReport:
    """Return the report of a host whose program has ended with these last lines of output."""
    picked = pick_lines([TailLine(line.encode()) for line in lines])
    return report(number, "exited", code, **{"evidence": read_evidence(picked), **fields})


def end(*reports: HostReport) -> triage.End:
    ended = triage.ended(reports, len(reports))
    assert ended is not None
    return ended


TPU = {"type": "v4-16", "zones": ["us-central2-b"]}


def a_job(**run: Any) -> Job:
    spec = parse({"name": "digits", "tpu": TPU, "run": run or {"command": "python train.py"}})
    endpoints = (Endpoint(1, "10.0.1.1"), Endpoint(0, "10.0.1.0", "34.1.2.3"))
    slice = a_slice(name="tj-000042-1", requested_at=0.0, endpoints=endpoints)
    return Job(
        id="000042",
        name="digits",
        user="ada",
        spec=spec,
        state=State.PREPARING,
        desired=DesiredState.RUN,
        created_at=0.0,
        state_since=0.0,
        bucket="gs://shed",
        bundles=("gs://shed/bundles/a.tar.gz", "bundles/b.tar.gz"),
        slices=(slice,),
        attempts=(Attempt(1, "tj-000042-1", 0.0), Attempt(2, "tj-000042-1", 9.0)),
    )


def curves_in(body: bytes) -> bytes:
    """Return the curves in the body of a report."""
    return body.split(b"\n")[1]


def accusation(job: str = "000001", **fields: Any) -> Accusation:
    """Return what the first attempt of a job, by default, proves against a machine."""
    about = {"owner": "uid:1", "program": (f"code of {job}",), "zone": "us-central2-b"}
    found = {"standing": Standing.PROVED, "weight": 2.0, "text": "wrong numbers", "at": NOW}
    return Accusation(**{"job": job, "attempt": 1, **about, **found, **fields})
