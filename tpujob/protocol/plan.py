"""The plan of one host's part in an attempt, as JSON. `domain/host/plan.py` writes it, the agent carries it out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict, cast


class WatchPatterns(TypedDict, total=False):
    """Regular expressions that the agent searches lines of output for; None or absent: no search."""

    nonfinite: str | None
    #: their groups `step`, `steps` and `loss` are facts that the program reports, any other group is a metric
    progress: list[str]
    checkpoint: str | None  #: without the group `step` it is the newest step of `progress`
    resume: str | None
    find: bool  #: search for common forms of progress, which are shown and decide nothing


class StallRule(TypedDict):
    """The limits after which a program counts as hung. 0 seconds: never."""

    seconds: float  #: seconds without progress
    first: float  #: seconds without progress before the first step
    looks: int  #: least number of polls in that time


class PreflightOrder(TypedDict):
    """The values that the check before the program expects."""

    slice: str
    chips: int  #: chips of all hosts; 0: unknown, as no table has the type
    hosts: int
    coordinator: str  #: `address:port` where JAX on host 0 waits for the other hosts
    meeting: str  #: `address:port` where the agent of host 0 waits for the other hosts
    required: bool  #: the program is a bundled workload: it needs JAX and devices
    seconds: float
    ports: list[int]  #: ports on which programs of host 0 listen for the other hosts


class EnvironmentOrder(TypedDict, total=False):
    """The environment of the program: a Docker image, or the packages that a file of the bundle names."""

    kind: str  #: docker, uv, pip or conda
    image: str  #: docker only
    args: list[str]  #: docker only: arguments of `docker run`
    file: str
    python: str | None  #: a version; None: any
    #: use the host's `python3` where it is of that version or later and has all packages that the file pins
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
    """Data that the agent copies to a folder of the host before the program starts."""

    name: str  #: for people
    source: str  #: a `gs://` URL; all objects below it are copied
    to: str  #: a folder without other files, which may begin with `~` or `paths.MEMORY`


class _Needed(TypedDict):
    v: int  #: 1; another number is refused
    job: str
    attempt: int
    host: int
    hosts: int
    workdir: str  #: a `gs://` URL
    #: `gs://` URLs that end in a hash and `.tar.gz`; a later bundle replaces files of an earlier one
    bundles: list[str]
    setup: str | None
    argv: list[str]
    env: dict[str, str]
    context: dict[str, str | int]  #: fields of `tpujob.contract.ProgramContext`
    grace: float  #: seconds between SIGTERM and SIGKILL
    report_every: float  #: seconds between two reports in the bucket while nothing happens
    log_bytes: int  #: most bytes of output that are kept; beyond this the middle is dropped


class Plan(_Needed, total=False):
    watch: WatchPatterns
    stall: StallRule
    #: reported steps in a row with a loss that is not finite after which the program is killed; 0: it is not
    nonfinite_steps: int
    avoid: dict[str, str]  #: why it must not run on some physical machines, by machine
    preflight: PreflightOrder | None
    environment: EnvironmentOrder | None
    mounts: list[MountOrder]
    stage: list[StageOrder]
    #: variables of the program whose values are folders of the host, written as `to` is
    folders: dict[str, str]
    #: folders below the program's that this host saves to the bucket, and restores in the next attempt
    outputs: list[str]
    #: folders that host 0 saves for all hosts: every host restores the files of host 0
    shared_outputs: list[str]
    created_at: float  #: creation of the job: in the signature of its outputs, as another store may reuse the id
    type: str  #: the TPU's type; part of the path of compiled programs
    shared: str  #: a `gs://` folder that all jobs share
    epoch: int  #: number of the slice's jobs so far: a host refuses jobs of an earlier epoch than its newest


#: types of the keys whose wrong value could do harm
_KINDS: dict[str, Any] = {
    "job": str, "attempt": int, "host": int, "workdir": str, "bundles": list, "argv": list,
    "env": dict, "context": dict, "grace": (int, float), "report_every": (int, float),
    "log_bytes": int,
}  # fmt: skip


def check_plan(document: Mapping[str, Any]) -> Plan:
    """Return `document` as a Plan. Raises ValueError if this agent cannot carry it out."""
    wrong = [key for key, kind in _KINDS.items() if not isinstance(document.get(key), kind)]
    if document.get("v") != 1 or wrong:
        raise ValueError("this agent does not understand the plan: %s" % ", ".join(wrong or ["v"]))
    plan = cast(Plan, document)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", plan["job"]) or not plan["argv"]:
        raise ValueError("the plan names no job or no program")
    if not plan["workdir"].startswith("gs://"):
        raise ValueError("the plan has no workdir in a bucket")
    return plan
