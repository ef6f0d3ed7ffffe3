"""Writes the plan of each host of an attempt. `tpujob/protocol/plan.py` describes the fields."""

import math
import shlex
from collections.abc import Mapping, Sequence

from tpujob.contract import ProgramContext
from tpujob.domain.actions import HostPlan
from tpujob.domain.capacity import elastic
from tpujob.domain.failures import stall
from tpujob.domain.hardware import accelerators
from tpujob.domain.host import data
from tpujob.domain.host.environment import environment_order, mount_order
from tpujob.domain.model import Attempt, Endpoint, Job, Json, Slice
from tpujob.domain.spec import JobSpec
from tpujob.domain.spec.watch import OFF
from tpujob.protocol import Plan, PreflightOrder, WatchPatterns, coordinator_port, paths

#: the same port of the preflight check, which may still be open when the program starts
PREFLIGHT_PORT = 8477
#: port on which the agent of host 0 waits for the other agents, before the preflight check
MEETING_PORT = 8482
#: port on which libtpu of the first host waits for the other slices of a Multislice
MEGASCALE_PORT = 8080
#: limit of an attempt's output per host, in bytes; the middle of a longer output is dropped
LOG_BYTES = 256 * 1024 * 1024


def plans(
    job: Job, *, report_every: float = 15.0, avoid: Mapping[str, str] | None = None
) -> list[HostPlan]:
    """Return the newest attempt's plan for each host of the serving slice. `avoid`: physical machines
    on which it must not run, each with the reason."""
    endpoints = sorted(_serving(job).endpoints, key=lambda e: e.host)
    hosts = [endpoint.host for endpoint in endpoints]
    return [HostPlan(n, _plan(job, endpoints, n, report_every, avoid)) for n in hosts]


def _plan(
    job: Job,
    endpoints: Sequence[Endpoint],
    host: int,
    report_every: float,
    avoid: Mapping[str, str] | None,
) -> Plan:
    spec, slice, context = job.spec, _serving(job), _context(job, host, endpoints)
    return {
        "v": 1,
        "job": job.id,
        "attempt": _newest(job).number,
        "host": host,
        "hosts": len(endpoints),
        "workdir": job.workdir,
        "bundles": [b if b.startswith("gs://") else f"{job.bucket}/{b}" for b in job.bundles],
        "setup": spec.setup,
        "argv": _argv(spec, elastic.times_smaller(spec, slice.type)),
        "env": {
            **spec.run.env,
            **_megascale(context),
            **data.variables(job),
            **group_variables(job),
            **code_variables(job),
        },
        "context": {
            name: getattr(context, name)
            for name in ProgramContext.__dataclass_fields__
            if name != "out"
        },
        "grace": spec.stop_grace,
        "report_every": report_every,
        "log_bytes": LOG_BYTES,
        "watch": watch_patterns(spec),
        "stall": stall.rule(spec.recovery.stall),
        "nonfinite_steps": spec.recovery.nonfinite_steps,
        "avoid": dict(avoid or {}),
        "preflight": _preflight(job, endpoints, spec) if spec.preflight else None,
        "environment": environment_order(spec),
        "mounts": [*map(mount_order, spec.mounts), *data.data_mounts(job)],
        "stage": data.stage_orders(job),
        "folders": data.folders(job),
        "outputs": [o.folder for o in spec.outputs if o.source in (None, host)],
        "shared_outputs": [o.folder for o in spec.outputs if o.source is not None],
        "created_at": float(job.created_at),
        "type": slice.type,
        "shared": f"{paths.owner_folder(slice.bucket or job.bucket, job.folder)}/cache",
        "epoch": slice.epoch,
    }


def watch_patterns(spec: JobSpec) -> WatchPatterns:
    """Return what the agent searches the output for. Common forms are searched for where no pattern names a step; a
    bundled program needs none."""
    watch, patterns = spec.watch, spec.watch.patterns
    off = watch.trainer == OFF or spec.run.workload is not None
    return {
        "nonfinite": patterns.nonfinite,
        "progress": [*patterns.progress],
        "checkpoint": patterns.checkpoint,
        "resume": patterns.resume,
        "find": not off and not watch.names_steps,
    }


def group_variables(job: Job) -> dict[str, str]:
    """Return the variables of an element of an array or a sweep: index, count and parameters."""
    if not job.group:
        return {}
    params = {f"TPUJOB_PARAM_{name.upper()}": value for name, value in job.params.items()}
    return {"TPUJOB_INDEX": str(job.index), "TPUJOB_COUNT": str(job.group_size), **params}


def code_variables(job: Job) -> dict[str, str]:
    """Return the variables that name the commit of the code, and whether its files differ from it."""
    if job.code is None:
        return {}
    return {"TPUJOB_COMMIT": job.code.commit, "TPUJOB_DIRTY": str(int(job.code.dirty))}


def _context(job: Job, host: int, endpoints: Sequence[Endpoint]) -> ProgramContext:
    """Return the program's context on a host; the agent adds the rest."""
    slices = _serving(job).tpu_slices
    return ProgramContext(
        job=job.id,
        attempt=_newest(job).number,
        host=host,
        hosts=len(endpoints),
        coordinator=_coordinator(endpoints),
        workdir=job.workdir,
        data=next(iter(data.places(job).values()), ""),
        cache=paths.HOST_CACHE,
        resume_before=_newest(job).resume_before,
        slice=host * slices // len(endpoints),
        slices=slices,
    )


def _coordinator(endpoints: Sequence[Endpoint]) -> str:
    address = endpoints[0].internal_ip
    return f"{address}:{coordinator_port(address)}"


def _megascale(context: ProgramContext) -> dict[str, str]:
    """Return the variables by which libtpu and JAX join several slices. Those within a slice (`TPU_WORKER_ID` and the
    like) come from the metadata of its hosts."""
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
    """Return the agent's orders for the check of hosts and chips before the program starts."""
    slice = _serving(job)
    accelerator = accelerators.find(slice.type, slice.provider)
    hosts = accelerator.hosts * slice.tpu_slices if accelerator.known else len(endpoints)
    chips = accelerator.chips * slice.tpu_slices
    return {
        "slice": slice.name,
        "chips": chips if accelerator.known else 0,
        "hosts": hosts,
        "coordinator": f"{endpoints[0].internal_ip}:{PREFLIGHT_PORT}",
        "meeting": f"{endpoints[0].internal_ip}:{MEETING_PORT}",
        "required": spec.run.workload is not None,
        "seconds": preflight_seconds(hosts, chips, staged=bool(data.stage_orders(job))),
        "ports": [
            coordinator_port(endpoints[0].internal_ip),
            *([MEGASCALE_PORT] if slice.tpu_slices > 1 else []),
        ],
    }


def command_line(spec: JobSpec) -> str:
    """Return the command of each host, as people write it."""
    return spec.run.command if spec.run.command is not None else shlex.join(_argv(spec))


def _argv(spec: JobSpec, times: int = 1) -> list[str]:
    """Return the program as a list of arguments, so that no user's text becomes part of another argument. `times`: how
    often the slice fits the largest one of an elastic job, whose program computes its batch in as many more parts."""
    if spec.run.command is not None:
        return ["bash", "-o", "pipefail", "-c", spec.run.command]
    parts = spec.run.args.get("accumulate", 1) if times > 1 else 1
    options_ = [o for o in options(spec) if times == 1 or not o.startswith("--accumulate=")]
    more = [f"--accumulate={parts * times}"] if times > 1 and isinstance(parts, int) else []
    return ["python3", "-m", f"workloads.{spec.run.workload}", *options_, *more]


def options(spec: JobSpec) -> list[str]:
    """Return the command-line options of a bundled program."""
    return [_option(key, value) for key, value in spec.run.args.items()]


def _option(key: str, value: Json) -> str:
    name = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def _serving(job: Job) -> Slice:
    assert job.slice is not None, f"job {job.id} has no slice in state {job.state}"
    return job.slice


def _newest(job: Job) -> Attempt:
    assert job.attempt is not None, f"job {job.id} has no attempt in state {job.state}"
    return job.attempt


# Time limits of the check --------------------------------------------------------------------------------------------


#: seconds on one host of few chips: JAX is read from a cold disk (20 to 30), libtpu starts the chips (10 to 30), two
#: small programs are compiled and run (10 to 20). *Inferred* (live: preflight), plus a half: no figures are published.
ONE_HOST = 90.0
#: more seconds each time that the hosts double: all wait for the slowest host, in JAX's meeting and in the global sum
#: (an estimate)
EACH_DOUBLING = 20.0
#: more seconds for each chip: libtpu joins all chips of a slice into one topology first (an estimate)
EACH_CHIP = 0.05
#: seconds between the first and the last host of a slice that have fetched the same data (an estimate)
STAGING_APART = 600.0


def preflight_seconds(hosts: int, chips: int, *, staged: bool = False) -> float:
    """Return the time limit of the check in seconds: 90 for one host of 4 chips, 223 for 64 hosts of 256 chips, 495 for
    1,024 hosts of 4,096 chips. A longer check is late, not wrong. `staged`: the hosts fetch data first."""
    seconds = ONE_HOST + EACH_DOUBLING * math.log2(max(1, hosts)) + EACH_CHIP * chips
    return seconds + (STAGING_APART if staged else 0.0)
