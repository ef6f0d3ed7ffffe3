"""Writes the plan that each host of an attempt is given. `tpujob/protocol/plan.py` says what is in it."""

import math
import shlex
from collections.abc import Collection, Sequence

from tpujob.domain.actions import HostPlan
from tpujob.domain.failures import stall
from tpujob.domain.hardware import accelerators
from tpujob.domain.host import data
from tpujob.domain.host.environment import environment_order, mount_order
from tpujob.domain.model import Attempt, Endpoint, Job, Json
from tpujob.domain.spec import JobSpec
from tpujob.protocol import Plan, PreflightOrder, paths
from workloads.contract import ProgramContext

#: where host 0 of a slice waits for the others
COORDINATOR_PORT = 8476
#: the same for the check before the program, which may still be going down when the program starts
PREFLIGHT_PORT = 8477
#: where the agent of host 0 waits for those of the others, before that check
MEETING_PORT = 8482
#: where the first host lets the slices of a Multislice find each other, for libtpu
MEGASCALE_PORT = 8080
#: bytes of output that an attempt may leave per host; more, and the middle is dropped
LOG_BYTES = 256 * 1024 * 1024


def plans(job: Job, *, report_every: float = 15.0, avoid: Collection[str] = ()) -> list[HostPlan]:
    """One plan for each host of the serving slice, by host: what makes it look like the newest attempt.
    `avoid`: physical machines on which the program must not run."""
    assert job.slice is not None, f"job {job.id} has no slice in state {job.state}"
    endpoints = sorted(job.slice.endpoints, key=lambda e: e.host)
    hosts = [endpoint.host for endpoint in endpoints]
    return [HostPlan(n, _plan(job, endpoints, n, report_every, avoid)) for n in hosts]


def _plan(
    job: Job, endpoints: Sequence[Endpoint], host: int, report_every: float, avoid: Collection[str]
) -> Plan:
    spec, context = job.spec, _context(job, host, endpoints)
    return {
        "v": 1,
        "job": job.id,
        "attempt": _newest(job).number,
        "host": host,
        "hosts": len(endpoints),
        "workdir": job.workdir,
        "bundles": [b if b.startswith("gs://") else f"{job.bucket}/{b}" for b in job.bundles],
        "setup": spec.setup,
        "argv": _argv(spec),
        "env": {
            **spec.run.env,
            **_megascale(context),
            **data.variables(job),
            **group_variables(job),
        },
        "context": {
            n: getattr(context, n) for n in ProgramContext.__dataclass_fields__ if n != "out"
        },
        "grace": spec.stop_grace,
        "report_every": report_every,
        "log_bytes": LOG_BYTES,
        "watch": {
            "nonfinite": spec.watch.nonfinite,
            "progress": spec.watch.progress,
            "checkpoint": spec.watch.checkpoint,
            "resume": spec.watch.resume,
        },
        "stall": stall.rule(spec.recovery.stall),
        "avoid": sorted(avoid),
        "preflight": _preflight(job, endpoints, spec) if spec.preflight else None,
        "environment": environment_order(spec),
        "mounts": [*map(mount_order, spec.mounts), *data.data_mounts(job)],
        "stage": data.stage_orders(job),
        "folders": data.folders(job),
        "outputs": list(spec.outputs),
        "created_at": float(job.created_at),
        "type": job.slice.type if job.slice else "",
        "shared": _cache(job),
        "epoch": job.slice.epoch if job.slice else 0,
    }


def group_variables(job: Job) -> dict[str, str]:
    """Return what an element of an array or a sweep learns of its place in it."""
    if not job.group:
        return {}
    params = {f"TPUJOB_PARAM_{name.upper()}": value for name, value in job.params.items()}
    return {"TPUJOB_INDEX": str(job.index), "TPUJOB_COUNT": str(job.group_size), **params}


def _cache(job: Job) -> str:
    """Return where its hosts share environments and compiled programs: only with those of its owner's other jobs, as
    hosts that read there run what others may have written."""
    bucket = (job.slice and job.slice.bucket) or job.bucket
    return f"{paths.owner_folder(bucket, job.folder)}/cache"


def _context(job: Job, host: int, endpoints: Sequence[Endpoint]) -> ProgramContext:
    """Return what the program learns of its place; the agent adds the rest."""
    assert job.slice is not None
    slices = job.slice.tpu_slices
    return ProgramContext(
        job=job.id,
        attempt=_newest(job).number,
        host=host,
        hosts=len(endpoints),
        coordinator=f"{endpoints[0].internal_ip}:{COORDINATOR_PORT}",
        workdir=job.workdir,
        data=next(iter(data.places(job).values()), ""),
        cache=paths.HOST_CACHE,
        resume_before=_newest(job).resume_before,
        slice=host * slices // len(endpoints),
        slices=slices,
    )


def _megascale(context: ProgramContext) -> dict[str, str]:
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


def _preflight(job: Job, endpoints: Sequence[Endpoint], spec: JobSpec) -> PreflightOrder:
    """What the agent compares with what it finds, before the program starts."""
    assert job.slice is not None
    found = accelerators.find(job.slice.type)
    hosts = found.hosts * job.slice.tpu_slices if found.known else len(endpoints)
    chips = found.chips * job.slice.tpu_slices
    return {
        "slice": job.slice.name,
        "chips": chips if found.known else 0,
        "hosts": hosts,
        "coordinator": f"{endpoints[0].internal_ip}:{PREFLIGHT_PORT}",
        "meeting": f"{endpoints[0].internal_ip}:{MEETING_PORT}",
        "required": spec.run.workload is not None,
        "seconds": preflight_seconds(hosts, chips, staged=bool(data.stage_orders(job))),
        "ports": [COORDINATOR_PORT, *([MEGASCALE_PORT] if job.slice.tpu_slices > 1 else [])],
    }


def command_line(spec: JobSpec) -> str:
    """For people: what runs on each host."""
    return spec.run.command if spec.run.command is not None else shlex.join(_argv(spec))


def _argv(spec: JobSpec) -> list[str]:
    """The program as a list of words: nothing that a user wrote is ever part of another word's text."""
    if spec.run.command is not None:
        return ["bash", "-c", spec.run.command]
    return ["python3", "-m", f"workloads.{spec.run.workload}", *options(spec)]


def options(spec: JobSpec) -> list[str]:
    """The arguments of a bundled program, as its command line has them."""
    return [_option(key, value) for key, value in spec.run.args.items()]


def _option(key: str, value: Json) -> str:
    name = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def _newest(job: Job) -> Attempt:
    assert job.attempt is not None, f"job {job.id} has no attempt in state {job.state}"
    return job.attempt


# Time limits of the check --------------------------------------------------------------------------------------------


#: Seconds on one host of few chips: JAX is read from a cold disk (20 to 30), libtpu starts the chips (10 to 30), two
#: small programs are compiled and run (10 to 20). *Inferred*
#: (live: preflight), with half as much again: no figures are published.
ONE_HOST = 90.0
#: Seconds more each time that the hosts double: all wait for the slowest one, in JAX's meeting and in the global sum,
#: and the slowest of many is slower. An estimate.
EACH_DOUBLING = 20.0
#: Seconds more for each chip: libtpu joins all chips of a slice into one topology before any of them can be used.
#: An estimate.
EACH_CHIP = 0.05
#: Seconds between the first and the last host of a slice that have fetched the same data. An estimate.
STAGING_APART = 600.0


def preflight_seconds(hosts: int, chips: int, *, staged: bool = False) -> float:
    """Seconds that the check of so many hosts with so many chips in all may take: 90 for one host of 4 chips, 223 for
    64 hosts of 256 chips, 495 for 1,024 hosts of 4,096 chips. What takes longer is late, which is not wrong. `staged`:
    data is brought to the hosts first, which some of them end before others."""
    plain = ONE_HOST + EACH_DOUBLING * math.log2(max(1, hosts)) + EACH_CHIP * chips
    return plain + (STAGING_APART if staged else 0.0)
