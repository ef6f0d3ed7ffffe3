"""Compiles the bundled program of a job for its slices on this machine, and caches the findings."""

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
from tpujob.errors import BadRequest, BadSpec, StoreError, TpujobError
from tpujob.submit import bundled, environment
from tpujob.submit.archive import workloads_bundle

Unit = Literal["steps", "tokens", "samples"]

#: variables of a job that change the compiler's output
FLAGS = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
_DOES_NOT_FIT = 78
#: arguments that do not change the findings of a check
_NO_MATTER = ("--steps=", "--seed=", "--lr=", "--checkpoint-every=", "--eval-every=", "--log-every=")  # fmt: skip


class ExpectedPace(TypedDict):
    """The likely pace of a program; each list is from best to worst."""

    step: list[float]  #: seconds
    per_second: list[float]  #: tokens, or rows
    hours: list[float]
    chip_hours: list[float]
    work: float
    unit: str


class TargetFinding(TypedDict):
    """The findings of a check for one target, as far as tpujob uses them."""

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
    step_seconds: NotRequired[dict[str, float]]  #: `bound`: the lower bound of a step
    pace: NotRequired[ExpectedPace]


@dataclass(frozen=True, slots=True)
class BundledProgram:
    """A bundled program with its options."""

    workload: str
    options: tuple[str, ...]  #: options of the command line
    flags: tuple[tuple[str, str], ...] = ()  #: variables of FLAGS that the job sets


def check_job(spec: JobSpec, cache: Path) -> list[TargetFinding]:
    """Compile the job's program for each of its types and cache the findings; takes seconds to minutes. Raise the
    errors of `program_of`, `require_compiler` and `check`."""
    program = program_of(spec)
    environment.require_compiler()
    findings = check(program, list(targets_of(spec, spec.tpu.types)))
    save(cache, program, _versions(), findings)
    return findings


def rooflines(spec: JobSpec, types: Sequence[str], unit: Unit, cache: Path) -> dict[str, float]:
    """Return the likely units a second of each type that was checked here with the same program and versions."""
    if spec.run.workload is None:
        return {}
    targets = targets_of(spec, types)
    speed_by_target = speeds(cache, program_of(spec), targets, _versions(), unit)
    return {targets[target]: speed for target, speed in speed_by_target.items()}


def targets_of(spec: JobSpec, types: Sequence[str]) -> dict[str, str]:
    """Return the types by the check's names of the job's slices."""
    return {target_of(type, spec.tpu.slices): type for type in types}


def program_of(spec: JobSpec) -> BundledProgram:
    """Return the job's bundled program. Raise BadRequest for a program that cannot be checked."""
    workload, env = spec.run.workload, spec.run.env
    if workload is None:
        raise BadRequest(
            "only the bundled programs can be compiled without a TPU; this job runs a command",
            hint="`run.workload` in place of `run.command`; `tpujob create --dry-run` shows the plan.",
        )
    flags = tuple((name, env[name]) for name in FLAGS if name in env)
    return BundledProgram(workload, tuple(options(spec)), flags)


def target_of(type: str, slices: int) -> str:
    """Return the check's name for a number of slices of a type."""
    name = type.replace("v5litepod-", "v5e-")
    return name if slices == 1 else f"{slices}x{name}"


def check(program: BundledProgram, targets: Sequence[str]) -> list[TargetFinding]:
    """Compile for each target, with the batch of the job; show progress on standard error. Raise BadSpec for arguments
    or a type that the program refuses, TpujobError for unreadable output."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TPUJOB_")}
    path = os.pathsep.join(filter(None, (str(bundled.ROOT), environ.get("PYTHONPATH"))))
    environ |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # before any `workloads` of the user
    done = subprocess.run(
        [
            *(sys.executable, "-m", f"workloads.{program.workload}", *program.options),
            *("--check-own-batch", f"--check={','.join(targets)}", "--json"),
        ],
        env={**environ, **dict(program.flags)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode == _DOES_NOT_FIT and not done.stdout:
        raise BadSpec(
            f"workloads.{program.workload} refuses its arguments: the line above says why"
        )
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise TpujobError(f"the check ended with {done.returncode} and printed nothing") from None


def save(
    cache: Path, program: BundledProgram, versions: str, findings: Iterable[TargetFinding]
) -> None:
    """Write the findings that have a pace, unless the cache cannot be written. `versions`: those of the compiler and of
    the programs."""
    for finding in findings:
        if "pace" in finding:
            file = _file(cache, program, finding["target"], versions)
            with contextlib.suppress(OSError, StoreError):
                file.parent.mkdir(parents=True, exist_ok=True)
                put(file, json.dumps(finding))


def speeds(
    cache: Path, program: BundledProgram, targets: Iterable[str], versions: str, unit: Unit
) -> dict[str, float]:
    """Return the likely units a second, at the mean pace, on each target that was checked with the same versions."""
    by_target: dict[str, float] = {}
    for target in targets:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = _file(cache, program, target, versions).read_text(encoding="utf-8")
            finding = cast("TargetFinding", json.loads(text))
            batch = finding["batch"]
            units = {"steps": 1, "samples": batch, "tokens": batch * finding["tokens_per_row"]}
            shortest, longest = finding["pace"]["step"] if "pace" in finding else (0.0, 0.0)
            if units[unit] and longest:
                by_target[target] = units[unit] / ((shortest + longest) / 2)
    return by_target


def _file(cache: Path, program: BundledProgram, target: str, versions: str) -> Path:
    options = sorted(option for option in program.options if not option.startswith(_NO_MATTER))
    key = json.dumps([program.workload, options, program.flags, target, versions])
    return cache / "checks" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _versions() -> str:
    """Return the versions of the compiler and of the programs: other versions may have other findings."""
    return f"{environment.versions()} {workloads_bundle().sha256}"
