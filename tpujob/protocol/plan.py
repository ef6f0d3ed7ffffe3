"""What one host of an attempt is given, as JSON. `domain/host/plan.py` writes it, the agent carries it out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict, cast


class WatchPatterns(TypedDict):
    """Regular expressions that lines of output are searched for; None: nothing."""

    nonfinite: str | None
    progress: str | None
    checkpoint: str | None
    resume: str | None


class StallRule(TypedDict):
    """When a program hangs: so many seconds without progress, and so many looks in them. 0 seconds: never."""

    seconds: float
    first: float  #: instead of `seconds`, until the first step
    looks: int


class PreflightOrder(TypedDict):
    """What the check before the program expects."""

    slice: str
    chips: int  #: of all hosts; 0: not known, as the type is in no table
    hosts: int
    coordinator: str  #: `address:port` where JAX on host 0 waits for the others
    meeting: str  #: `address:port` where the agent of host 0 waits for the others
    required: bool  #: the program is one of ours: it needs JAX and devices
    seconds: float
    ports: list[int]  #: of host 0, on which programs let the other hosts find it


class EnvironmentOrder(TypedDict, total=False):
    """What the program runs in: an image, or what a file of the bundle names."""

    kind: str  #: docker, uv, pip or conda
    image: str  #: of docker
    args: list[str]  #: of docker, for `docker run`
    file: str
    python: str | None  #: a version; None: any
    #: none is made where the host's own `python3`, of that version or later, has all that the file pins
    unless_installed: bool


class CacheOrder(TypedDict):
    mib: int
    ttl: float  #: seconds


class MountOrder(TypedDict):
    bucket: str
    to: str  #: a folder; may begin with `~`
    read_only: bool
    only_dir: str | None
    cache: CacheOrder | None


class StageOrder(TypedDict):
    """Data that is brought to a folder of the host before the program starts."""

    name: str  #: for people
    source: str  #: a `gs://` URL; what lies below it is brought
    to: str  #: a folder of its own, which may begin with `~` or `paths.MEMORY`


class _Needed(TypedDict):
    v: int  #: 1; another number is refused
    job: str
    attempt: int
    host: int
    hosts: int
    workdir: str  #: a `gs://` URL
    #: `gs://` URLs that end in a hash and `.tar.gz`; of two files with one name the later wins
    bundles: list[str]
    setup: str | None
    argv: list[str]
    env: dict[str, str]
    context: dict[str, str | int]  #: fields of `workloads.contract.ProgramContext`
    grace: float  #: seconds between SIGTERM and SIGKILL
    report_every: float  #: seconds between two reports in the bucket while nothing happens
    log_bytes: int  #: of output that is kept; of more, the middle is dropped


class Plan(_Needed, total=False):
    watch: WatchPatterns
    stall: StallRule
    avoid: list[str]  #: physical machines on which the program must not run
    preflight: PreflightOrder | None
    environment: EnvironmentOrder | None
    mounts: list[MountOrder]
    stage: list[StageOrder]
    #: variables of the program that name a folder of the host, as `to` does
    folders: dict[str, str]
    #: folders below the program's that are kept in the bucket, and are there again in the next attempt
    outputs: list[str]
    created_at: float  #: of the job: part of what signs its outputs, as another store may use its number again
    type: str  #: of the TPU; part of where compiled programs are kept
    shared: str  #: a `gs://` folder that all jobs share
    epoch: int  #: counts the jobs that have had the slice: a host refuses those before the last that it was started for


#: As far as a wrong value could do harm.
_KINDS: dict[str, Any] = {
    "job": str, "attempt": int, "host": int, "workdir": str, "bundles": list, "argv": list,
    "env": dict, "context": dict, "grace": (int, float), "report_every": (int, float),
    "log_bytes": int,
}  # fmt: skip


def check_plan(document: Mapping[str, Any]) -> Plan:
    """The plan, if it is one that this agent can carry out. Raises ValueError."""
    wrong = [key for key, kind in _KINDS.items() if not isinstance(document.get(key), kind)]
    if document.get("v") != 1 or wrong:
        raise ValueError("this agent does not understand the plan: %s" % ", ".join(wrong or ["v"]))
    plan = cast(Plan, document)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", plan["job"]) or not plan["argv"]:
        raise ValueError("the plan names no job or no program")
    if not plan["workdir"].startswith("gs://"):
        raise ValueError("the plan has no workdir in a bucket")
    return plan
