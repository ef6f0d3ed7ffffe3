"""Compiles the bundled program of a job for its slices on this machine, and remembers what that found for each program,
arguments, target and versions."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired, cast

from typing_extensions import TypedDict

from tpujob.config.files import put
from tpujob.domain.host.plan import options
from tpujob.domain.spec import JobSpec
from tpujob.errors import BadRequest, BadSpec, TpujobError
from tpujob.submit import environment
from tpujob.submit.archive import workloads_bundle

Unit = Literal["steps", "tokens", "samples"]

#: variables of a job that change what the compiler makes
FLAGS = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
_DOES_NOT_FIT = 78
#: arguments that change nothing that a check finds
_NO_MATTER = ("--steps=", "--seed=", "--lr=", "--checkpoint-every=", "--eval-every=", "--log-every=")  # fmt: skip


class ExpectedPace(TypedDict):
    """Each from the best that is likely to the worst."""

    step: list[float]  #: seconds
    per_second: list[float]  #: tokens, or rows
    hours: list[float]
    chip_hours: list[float]
    work: float
    unit: str


class TargetFinding(TypedDict):
    """What a check says of one target; the part of it that is used here."""

    target: str
    fit: str  #: `yes`, `no`, `refused`, `crashed` or `unknown`
    reason: str
    advice: str
    batch: int
    tokens_per_row: int
    limit_bytes: int
    needed_bytes: int
    program: dict[str, float] | None  #: `peak_bytes`
    warnings: list[str]
    step_seconds: NotRequired[dict[str, float]]  #: `bound`: no step can be shorter
    pace: NotRequired[ExpectedPace]


@dataclass(frozen=True, slots=True)
class BundledProgram:
    workload: str
    options: tuple[str, ...]  #: as they are on the command line
    flags: tuple[tuple[str, str], ...] = ()  #: of FLAGS, those that the job sets


def check_job(spec: JobSpec, cache: Path) -> list[TargetFinding]:
    """Compile the job's program for each of its types and remember what was found; takes seconds to minutes. Raises as
    `check` and `require_compiler` do."""
    wanted = program_of(spec)
    environment.require_compiler()
    findings = check(wanted, list(targets_of(spec)))
    keep(cache, wanted, _versions(), findings)
    return findings


def rooflines(spec: JobSpec, types: Sequence[str], unit: Unit, cache: Path) -> dict[str, float]:
    """Units a second by type, of those types that were checked on this machine, with this program and these versions.
    Empty for a program that cannot be checked."""
    if spec.run.workload is None:
        return {}
    targets = {target_of(type, spec.tpu.slices): type for type in types}
    found = speeds(cache, program_of(spec), targets, _versions(), unit)
    return {targets[target]: speed for target, speed in found.items()}


def targets_of(spec: JobSpec) -> dict[str, str]:
    """The job's types, by what the check calls them."""
    return {target_of(type, spec.tpu.slices): type for type in spec.tpu.types}


def program_of(spec: JobSpec) -> BundledProgram:
    """Raises BadRequest for a program that cannot be checked."""
    workload, env = spec.run.workload, spec.run.env
    if workload is None:
        raise BadRequest(
            "only the bundled programs can be compiled without a TPU; this job runs a command",
            hint="`run.workload` in place of `run.command`; `tpujob create --dry-run` shows the plan.",
        )
    flags = tuple((name, env[name]) for name in FLAGS if name in env)
    return BundledProgram(workload, tuple(options(spec)), flags)


def target_of(type: str, slices: int) -> str:
    """What the check calls so many slices of a type."""
    name = type.replace("v5litepod-", "v5e-")
    return name if slices == 1 else f"{slices}x{name}"


def check(wanted: BundledProgram, targets: Sequence[str]) -> list[TargetFinding]:
    """Compile for each target, with the batch that a job has. Progress goes to standard error. Raises BadSpec for
    arguments or a type that the program refuses, TpujobError when it says nothing that can be read."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TPUJOB_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", f"workloads.{wanted.workload}", *wanted.options),
            *("--check-own-batch", f"--check={','.join(targets)}", "--json"),
        ],
        env={**own, **dict(wanted.flags)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode == _DOES_NOT_FIT and not done.stdout:
        raise BadSpec(f"workloads.{wanted.workload} refuses its arguments: the line above says why")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise TpujobError(f"the check ended with {done.returncode} and printed nothing") from None


def keep(
    cache: Path, wanted: BundledProgram, versions: str, findings: Iterable[TargetFinding]
) -> None:
    """Write those findings that have a pace. `versions`: of what compiles, and of the programs."""
    for found in findings:
        if "pace" in found:
            file = _file(cache, wanted, found["target"], versions)
            file.parent.mkdir(parents=True, exist_ok=True)
            put(file, json.dumps(found))


def speeds(
    cache: Path, wanted: BundledProgram, targets: Iterable[str], versions: str, unit: Unit
) -> dict[str, float]:
    """Units a second on each of these targets that was checked with the same versions: in the middle of what is likely.
    A target without a finding is left out."""
    found: dict[str, float] = {}
    for target in targets:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = _file(cache, wanted, target, versions).read_text(encoding="utf-8")
            one = cast("TargetFinding", json.loads(text))
            units = {"steps": 1, "samples": one["batch"], "tokens": one["batch"] * one["tokens_per_row"]}  # fmt: skip
            short, long = one["pace"]["step"] if "pace" in one else (0.0, 0.0)
            if units[unit] and long:
                found[target] = units[unit] / ((short + long) / 2)
    return found


def _file(cache: Path, wanted: BundledProgram, target: str, versions: str) -> Path:
    given = sorted(o for o in wanted.options if not o.startswith(_NO_MATTER))
    key = json.dumps([wanted.workload, given, wanted.flags, target, versions])
    return cache / "checks" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _versions() -> str:
    """Of what compiles, and of the programs: another version may compile to something else."""
    return f"{environment.versions()} {workloads_bundle().sha256}"
