"""Runs the compile check of a bundled program and reads what it found."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired

from typing_extensions import TypedDict

from tpujob.errors import BadRequest, BadSpec, TpujobError
from tpujob.fit.environment import Environment

#: variables of a job that change what the compiler makes
FLAGS = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
_DOES_NOT_FIT = 78


class StepSeconds(TypedDict):
    mxu: float
    hbm: float
    ici: float
    dcn: float
    model: float
    bound: float  #: no step can be shorter
    apart: float


class Pace(TypedDict):
    """Each from the best that is likely to the worst."""

    step: list[float]  #: seconds
    per_second: list[float]  #: tokens, or rows
    hours: list[float]
    chip_hours: list[float]
    work: float
    unit: str


class Program(TypedDict):
    peak_bytes: int
    flops: float


class Finding(TypedDict):
    """What a check says of one target; the part of it that is used here."""

    target: str
    chips: int
    fit: str  #: `yes`, `no`, `refused`, `crashed` or `unknown`
    reason: str
    advice: str
    batch: int
    tokens_per_row: int
    limit_bytes: int
    needed_bytes: int
    program: Program | None
    warnings: list[str]
    versions: dict[str, str]
    step_seconds: NotRequired[StepSeconds]
    pace: NotRequired[Pace]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A bundled program with its arguments."""

    workload: str
    options: tuple[str, ...]  #: as they are on the command line
    flags: tuple[tuple[str, str], ...] = ()  #: of FLAGS, those that the job sets


@dataclass(frozen=True, slots=True)
class Checked:
    findings: tuple[Finding, ...]
    fits: bool  #: all targets


def wanted_of(workload: str | None, options: Sequence[str], env: Mapping[str, str]) -> Wanted:
    """Raises BadRequest for a program that cannot be checked."""
    if workload is None:
        raise BadRequest(
            "only the bundled programs can be compiled without a TPU; this job runs a command",
            hint="`run.workload` in place of `run.command`; `tpujob create --dry-run` shows the plan.",
        )
    return Wanted(workload, tuple(options), tuple((n, env[n]) for n in FLAGS if n in env))


def target_of(type: str, slices: int) -> str:
    """What the check calls so many slices of a type."""
    name = type.replace("v5litepod-", "v5e-")
    return name if slices == 1 else f"{slices}x{name}"


def check(wanted: Wanted, targets: Sequence[str], within: Environment) -> Checked:
    """Compile for each target, with the batch that a job has; takes seconds to minutes. Progress goes to standard
    error. Raises BadSpec for arguments or a type that the program refuses, TpujobError when it says nothing that can be
    read."""
    command = [
        str(within.python),
        *("-m", f"workloads.{wanted.workload}", *wanted.options),
        *("--check-own-batch", f"--check={','.join(targets)}", "--json"),
    ]
    done = subprocess.run(
        command,
        env=_variables(wanted, within),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode == _DOES_NOT_FIT and not done.stdout:
        raise BadSpec(f"workloads.{wanted.workload} refuses its arguments: the line above says why")
    try:
        found: list[Any] = json.loads(done.stdout)
    except ValueError:
        raise TpujobError(f"the check ended with {done.returncode} and said nothing") from None
    return Checked(tuple(found), fits=done.returncode == 0)


def _variables(wanted: Wanted, within: Environment) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("TPUJOB_")}
    path = {"PYTHONPATH": within.path} if within.path else {}
    return {**own, **dict(wanted.flags), **path}
