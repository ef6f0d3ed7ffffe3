"""Compiles the step of a program for slices on this machine: of a bundled program, whose findings are cached, or of any
function."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
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
    reached: list[float]  #: the part of the peak at which the range begins and ends
    own: bool  #: it is what the lab's own jobs reached; else it is published


class StepBound(TypedDict):
    """The shortest possible time of a step."""

    bound: float  #: seconds
    limited_by: str  #: `MXU`, `HBM`, `ICI` or `DCN`


class TargetFinding(TypedDict):
    """The findings of a check for one target, as far as tpujob uses them."""

    target: str
    fit: str  #: `yes`, `no`, `refused`, `crashed` or `unknown`
    reason: str
    advice: str
    rows: int  #: in a step; 0: unknown, as are the tokens
    tokens: int
    limit_bytes: int
    needed_bytes: int
    program: dict[str, float] | None  #: `peak_bytes`
    warnings: list[str]
    gains: list[str]  #: what other arguments or another mesh change
    step_seconds: NotRequired[StepBound]
    pace: NotRequired[ExpectedPace]


@dataclass(frozen=True, slots=True)
class BundledProgram:
    """A bundled program with its options."""

    workload: str
    options: tuple[str, ...]  #: options of the command line
    flags: tuple[tuple[str, str], ...] = ()  #: variables of FLAGS that the job sets


@dataclass(frozen=True, slots=True)
class CheckedFunction:
    """A function of a user's program, and how to call it."""

    name: str  #: `module:function` or `file.py:function`
    folder: str  #: from which it is imported
    python: str = ""  #: its interpreter; empty: that of tpujob
    mesh: str = ""
    environment: tuple[tuple[str, str], ...] = ()


#: the part of the peak that a lab's own jobs reached, least and greatest, by generation
Reached = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What is asked beside whether the step fits."""

    amount: float = 1000
    unit: Unit = "steps"
    #: other arguments, or another `mesh`, to compare
    variants: tuple[Mapping[str, object], ...] = ()
    patience: int = 1200  #: CPU seconds for each compilation
    reached: Reached = field(default_factory=dict[str, tuple[float, float]])


def check_job(
    spec: JobSpec,
    cache: Path,
    folder: Path,
    *,
    python: str = "",
    variants: Sequence[Mapping[str, object]] = (),
    reached: Reached = MappingProxyType({}),
) -> list[TargetFinding]:
    """Compile the job's program for each of its types: the function that it names as `check`, imported from its `code`
    in the job file's `folder`, or its bundled program, whose findings are cached. Takes seconds to minutes. Raise the
    errors of `program_of`, `require_compiler`, `check` and `check_function`."""
    targets = list(targets_of(spec, spec.tpu.types))
    if spec.check is not None:
        environment_of = tuple((name, str(value)) for name, value in spec.run.env.items())
        code = str((folder / (spec.code or ".")).resolve())
        function = CheckedFunction(
            spec.check.function, code, python, spec.check.mesh, environment_of
        )
        amount = spec.check.steps or 1000
        options = CheckOptions(amount, variants=tuple(variants), reached=reached)
        return check_function(function, targets, options)
    program = program_of(spec)
    environment.require_compiler()
    findings = check(program, targets, variants, reached)
    save(cache, program, _versions(), findings)
    return findings


def check_function(
    function: CheckedFunction, targets: Sequence[str], options: CheckOptions
) -> list[TargetFinding]:
    """Compile the step that a function returns for each target; show progress on standard error. Raise BadSpec for what
    cannot be checked, TpujobError for unreadable output."""
    request = {
        "function": function.name,
        "targets": ",".join(targets),
        "folder": function.folder,
        "python": function.python,
        "mesh": function.mesh,
        "variants": options.variants,
        # that of the user, in place of the one which finds the bundled programs
        "environment": {
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **dict(function.environment),
        },
        "patience": options.patience,
        "amount": options.amount,
        "unit": "rows" if options.unit == "samples" else options.unit,
        "reached": options.reached,
    }
    words = ["workloads.check.request"]
    return _run(words, {}, json.dumps(request, default=dict), f"{function.name} cannot be checked")


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
            "this job runs a command, of which no function is named that returns its training step",
            hint="`check: train.py:step` in the job file names one; docs/workloads.md shows how to write it.",
        )
    flags = tuple((name, env[name]) for name in FLAGS if name in env)
    return BundledProgram(workload, tuple(options(spec)), flags)


def target_of(type: str, slices: int) -> str:
    """Return the check's name for a number of slices of a type."""
    name = type.replace("v5litepod-", "v5e-")
    return name if slices == 1 else f"{slices}x{name}"


def check(
    program: BundledProgram,
    targets: Sequence[str],
    variants: Sequence[Mapping[str, object]] = (),
    reached: Reached = MappingProxyType({}),
) -> list[TargetFinding]:
    """Compile for each target, with the batch of the job; show progress on standard error. Raise BadSpec for arguments
    or a type that the program refuses, TpujobError for unreadable output."""
    words = [
        *(f"workloads.{program.workload}", *program.options),
        *("--check-own-batch", f"--check={','.join(targets)}", "--json"),
    ]
    changes = (" ".join(f"{name}={value}" for name, value in v.items()) for v in variants)
    if variants:
        words.append(f"--check-with={';'.join(changes)}")
    if reached:
        parts = (f"{name}={least}:{most}" for name, (least, most) in reached.items())
        words.append(f"--check-reached={','.join(parts)}")
    refused = f"workloads.{program.workload} refuses its arguments"
    return _run(words, dict(program.flags), "", refused)


def _run(
    words: Sequence[str], variables: Mapping[str, str], text: str, refused: str
) -> list[TargetFinding]:
    """Run a module of the bundled programs with that input, and return the findings that it prints."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TPUJOB_")}
    path = os.pathsep.join(filter(None, (str(bundled.ROOT), environ.get("PYTHONPATH"))))
    environ |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # before any `workloads` of the user
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env={**environ, **variables},
        input=text,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode == _DOES_NOT_FIT and not done.stdout:
        raise BadSpec(f"{refused}: the line above says why")
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
            units = {"steps": 1, "samples": finding["rows"], "tokens": finding["tokens"]}
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
