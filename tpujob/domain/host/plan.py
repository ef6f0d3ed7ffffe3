"""Text in, text out: the plan that each host of an attempt is given, and the reports that come back.

The agent (`agent/`) reads the one and writes the other. Where things lie in the workdir is said here too.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from tpujob.domain.actions import HostPlan
from tpujob.domain.failures import stall
from tpujob.domain.hardware import accelerators
from tpujob.domain.host.environment import environment_document, mount_document
from tpujob.domain.model import Attempt, Cause, Endpoint, Job, Json, Progress, Verdict
from tpujob.domain.observations import Report
from tpujob.domain.spec import JobSpec
from tpujob.domain.text import clean, one_line
from workloads.contract import Context

#: where host 0 of a slice waits for the others
COORDINATOR_PORT = 8476
#: the same for the check before the program, which may still be going down when the program starts
PREFLIGHT_PORT = 8477
#: where the first host lets the slices of a Multislice find each other, for libtpu
MEGASCALE_PORT = 8080
#: seconds that the check before the program may take
PREFLIGHT_SECONDS = 60
#: below the home folder of a host, so that it outlives attempts; the agent expands it
CACHE = "~/.tpujob/cache"
#: of a log segment; nothing else ends so, as a rule of buckets that removes old logs goes by it
LOG_SUFFIX = ".tpujob-log"
#: bytes of output that an attempt may leave per host; more, and the middle is dropped
LOG_BYTES = 256 * 1024 * 1024

PHASES = frozenset({"fetching", "setup", "clearing", "preflight", "running", "stopping", "exited"})
#: what the check before the program says of what is installed
VERSIONS = ("python", "jax", "jaxlib", "libtpu")
NOTICES = frozenset({"", "preempted", "maintenance"})

MAX_REPORT = 64 * 1024  #: characters; a storage takes 8 KiB of metadata, so more is not ours
MAX_TEXT = 500  #: characters of an error
MAX_EVIDENCE = 16 * 1024  #: bytes of a report's body that are read
MAX_EVIDENCE_LINES = 80
MAX_METRICS = 32


class Stored(Protocol):
    """As much of an object in the bucket as a report needs."""

    @property
    def path(self) -> str: ...
    @property
    def updated(self) -> float: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...


# Places --------------------------------------------------------------------------------------------------------------


def report_path(workdir: str, attempt: int, host: int) -> str:
    """One object per host; one list of their common prefix observes them all."""
    return f"{workdir}/attempts/{attempt}/reports/host-{host}"


def reports_prefix(job: Job) -> str:
    """What the report paths of the newest attempt begin with."""
    return f"{job.workdir}/attempts/{_newest(job).number}/reports/host-"


def log_prefix(workdir: str, attempt: int, host: int) -> str:
    """What the paths of a host's log segments begin with; a number of five digits and LOG_SUFFIX follow."""
    return f"{workdir}/attempts/{attempt}/host-{host}/log-"


def log_path(workdir: str, attempt: int, host: int, segment: int) -> str:
    """One segment, numbered from 1. Paths sort as numbers do."""
    return f"{log_prefix(workdir, attempt, host)}{segment:05d}{LOG_SUFFIX}"


# Plans ---------------------------------------------------------------------------------------------------------------


def plans(job: Job, *, report_every: float = 15.0, avoid: Collection[str] = ()) -> list[HostPlan]:
    """One plan for each host of the serving slice, by host: what makes it look like the newest attempt.
    `avoid`: physical machines on which the program must not run."""
    assert job.slice is not None, f"job {job.id} has no slice in state {job.state}"
    endpoints = sorted(job.slice.endpoints, key=lambda e: e.host)
    common = _for_all_hosts(job, endpoints, report_every, avoid)
    return [HostPlan(e.host, {**common, **_for_host(job, e.host, endpoints)}) for e in endpoints]


def _for_host(job: Job, host: int, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    context = _context(job, host, endpoints)
    return {
        "host": host,
        "context": {n: getattr(context, n) for n in Context.__dataclass_fields__ if n != "out"},
        "env": {**job.spec.run.env, **_megascale(context)},
    }


def _for_all_hosts(
    job: Job, endpoints: Sequence[Endpoint], report_every: float, avoid: Collection[str]
) -> dict[str, Any]:
    spec = job.spec
    return {
        "v": 1,
        "job": job.id,
        "attempt": _newest(job).number,
        "hosts": len(endpoints),
        "workdir": job.workdir,
        "bundles": [b if b.startswith("gs://") else f"{job.bucket}/{b}" for b in job.bundles],
        "setup": spec.setup,
        "argv": _argv(spec),
        "grace": spec.stop_grace,
        "report_every": report_every,
        "log_bytes": LOG_BYTES,
        "watch": {"nonfinite": spec.watch.nonfinite, "progress": spec.watch.progress},
        "stall": stall.rule(spec.recovery.stall),
        "avoid": sorted(avoid),
        "preflight": _preflight(job, endpoints, spec) if spec.preflight else None,
        "environment": environment_document(spec.env),
        "mounts": [mount_document(mount) for mount in spec.mounts],
        "type": job.slice.type if job.slice else "",
        "shared": f"{job.bucket}/cache",
    }


def _context(job: Job, host: int, endpoints: Sequence[Endpoint]) -> Context:
    """What the program is told of its place; the agent knows the rest of it."""
    assert job.slice is not None
    slices = job.slice.tpu_slices
    return Context(
        job=job.id,
        attempt=_newest(job).number,
        host=host,
        hosts=len(endpoints),
        coordinator=f"{endpoints[0].internal_ip}:{COORDINATOR_PORT}",
        workdir=job.workdir,
        cache=CACHE,
        resume_before=_newest(job).resume_before,
        slice=host * slices // len(endpoints),
        slices=slices,
    )


def _megascale(context: Context) -> dict[str, str]:
    """How libtpu joins several slices; JAX reads the same variables. What a slice is within itself (`TPU_WORKER_ID` and
    the like) its hosts learn from their own metadata."""
    if context.slices == 1:
        return {}
    first = context.coordinator.rpartition(":")[0]
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": f"{first}:{MEGASCALE_PORT}",
        "MEGASCALE_NUM_SLICES": str(context.slices),
        "MEGASCALE_PORT": str(MEGASCALE_PORT),
        "MEGASCALE_SLICE_ID": str(context.slice),
    }


def _preflight(job: Job, endpoints: Sequence[Endpoint], spec: JobSpec) -> dict[str, Any]:
    """What the agent holds against what it finds, before the program starts."""
    assert job.slice is not None
    found = accelerators.find(job.slice.type)
    return {
        "slice": job.slice.name,
        "chips": found.chips * job.slice.tpu_slices,
        "hosts": found.hosts * job.slice.tpu_slices,
        "coordinator": f"{endpoints[0].internal_ip}:{PREFLIGHT_PORT}",
        "required": spec.run.workload is not None,
        "seconds": PREFLIGHT_SECONDS,
    }


def command_line(spec: JobSpec) -> str:
    """For people: what runs on each host."""
    return spec.run.command if spec.run.command is not None else shlex.join(_argv(spec))


def _argv(spec: JobSpec) -> list[str]:
    """The program as a list of words: nothing that a user wrote is ever part of another word's text."""
    if spec.run.command is not None:
        return ["bash", "-c", spec.run.command]
    options = [_option(key, value) for key, value in spec.run.args.items()]
    return ["python3", "-m", f"workloads.{spec.run.workload}", *options]


def _option(key: str, value: Json) -> str:
    name = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def _newest(job: Job) -> Attempt:
    assert job.attempt is not None, f"job {job.id} has no attempt in state {job.state}"
    return job.attempt


# Reports -------------------------------------------------------------------------------------------------------------


def read_reports(job: Job, blobs: Iterable[Stored], *, now: float) -> tuple[Report, ...]:
    """The reports among these objects that are about the newest attempt of `job`, by host. `now` is the storage's
    own time. What is not a report, or speaks of another job, attempt or host, is passed over."""
    prefix = reports_prefix(job)
    found: dict[int, Report] = {}
    for blob in blobs:
        number = blob.path.removeprefix(prefix)
        if not blob.path.startswith(prefix) or not re.fullmatch(r"0|[1-9][0-9]{0,5}", number):
            continue
        text = blob.metadata.get("report", "")
        report = read_report(int(number), text, age=max(0.0, now - blob.updated))
        if report and report.attempt == _newest(job).number and _loads(text).get("job") == job.id:
            found[report.host] = report
    return tuple(found[host] for host in sorted(found))


def read_report(host: int, text: str, *, age: float) -> Report | None:
    """What the agent on `host` says; None when that is no report of this host. A value of a wrong kind counts as
    not said."""
    said = _loads(text)
    phase, notice = _text(said.get("phase")), _text(said.get("notice"))
    attempt = _whole(said.get("attempt"))
    if _whole(said.get("host")) != host or attempt is None or phase not in PHASES:
        return None
    cause = said.get("cause")
    return Report(
        host=host,
        attempt=attempt,
        phase=phase,
        age=age,
        exit_code=_whole(said.get("exit_code")),
        error=_text(said.get("error")),
        error_cause=Cause(cause) if isinstance(cause, str) and cause in Cause.__members__ else None,
        notice=notice if notice in NOTICES else "",
        saved_in=_number(said.get("saved_in")),
        progress=_progress(said),
        idle=_number(said.get("idle")),
        looks=_whole(said.get("looks")) or 0,
        verdict=_verdict(said.get("verdict")),
        physical=_text(said.get("physical")),
        versions=_versions(said.get("versions")),
    )


def _versions(value: Json) -> dict[str, str]:
    known = cast("dict[str, Json]", value) if isinstance(value, dict) else {}
    found = {name: _text(known.get(name)) for name in VERSIONS}
    return {name: version for name, version in found.items() if version}


def _verdict(value: Json) -> Verdict | None:
    if not isinstance(value, dict):
        return None
    said = cast("dict[str, Json]", value)
    blame = _text(said.get("blame"))
    return Verdict(
        step=_whole(said.get("step")),
        host=_whole(said.get("host")),
        device=_text(said.get("device")),
        blame=blame if blame in ("device", "data", "model") else "",
        text=_text(said.get("text")),
    )


def read_evidence(body: bytes) -> tuple[str, ...]:
    """The lines that an agent kept of a bad end, from the body of its report; empty when it kept none."""
    lines = _loads(body[:MAX_EVIDENCE].decode("utf-8", "replace")).get("lines")
    if not isinstance(lines, list):
        return ()
    found = [
        clean(line[:MAX_TEXT]).rstrip()
        for line in cast("list[Json]", lines)
        if isinstance(line, str)
    ]
    return tuple(line for line in found if line)[-MAX_EVIDENCE_LINES:]


def _progress(said: Mapping[str, Json]) -> Progress:
    given = said.get("metrics")
    metrics = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
    numbers = {_text(name): _number(value) for name, value in metrics.items()}
    known = [(name, number) for name, number in numbers.items() if number is not None]
    return Progress(
        step=_whole(said.get("step")),
        steps=_whole(said.get("steps")),
        loss=_number(said.get("loss")),
        phase=_text(said.get("program_phase")),
        checkpoint=_whole(said.get("checkpoint")),
        resumed_from=_whole(said.get("resumed_from")),
        metrics=dict(known[:MAX_METRICS]),
    )


def _loads(text: str) -> dict[str, Json]:
    if len(text) > MAX_REPORT:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


def _whole(value: Json) -> int | None:
    """A store keeps 64 bits of it."""
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _text(value: Json) -> str:
    """One line that is safe to show."""
    return one_line(value, MAX_TEXT) if isinstance(value, str) else ""
