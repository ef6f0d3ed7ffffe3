"""The command lines of the check: `--check` of a bundled program, and a request for any function (`request.py`).

Both compile the step of a function for each target, and print the findings. No jax here: children import it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from tpujob.contract import Exit
from workloads.check import FLAGS, advice, children, flag_of, report
from workloads.check.finding import Finding, Order
from workloads.check.roofline import Reached
from workloads.check.topologies import Target, target, targets
from workloads.errors import ConfigError
from workloads.frame.config import TrainConfig, least_batch, parse

BUNDLED = "workloads.check.bundled:step"


def main(record: type[TrainConfig], workload: str, arguments: list[str]) -> NoReturn:
    """Run the check of a bundled program and exit: with 0 if the step fits every target, with 78 if it does not fit one
    or its settings do not suit it, with 70 if the check failed."""
    name = workload.split(".")[-2]
    options, rest = _taken(arguments)
    as_json = "--json" in rest
    config = parse(record, name, [argument for argument in rest if argument != "--json"])
    try:
        chosen = targets(options.get("--check", ""))
        per_chip = _amount(options, "--check-batch-per-chip")
        if per_chip % 1:
            raise ConfigError(
                f"--check-batch-per-chip={per_chip:g}: must be a whole number of rows"
            )
        work = _work(options, config)
        _can_compile()
        fixed = "--check-own-batch" in options or "--batch" in map(flag_of, rest)
        orders = [_order(record, workload, config, on, per_chip, fixed) for on in chosen]
        findings = [_with_batch(f, config.batch, per_chip) for f in _compiled(orders)]
        _check_units(findings, work)
        variants = [_change(text) for text in options.get("--check-with", "").split(";") if text]
        findings = [_with_gains(*pair, variants) for pair in zip(findings, orders, strict=True)]
    except ConfigError as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(Exit.CONFIG)
    if len(chosen) == 1 and findings[0].fit == "no":
        findings = [_with_advice(findings[0], orders[0], chosen[0], record)]
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(findings, work), indent=1) + "\n")
    else:
        sys.stdout.write(report.page(_title(name, rest), findings, work) + "\n")
    sys.exit(code_of(findings))


class Request(BaseModel):
    """What `python -m workloads.check.request` reads as JSON: a function, targets, and the work of the training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str  #: `module:name` or `file.py:name`
    targets: str  #: `v4-128,v5e-64`
    folder: str = ""  #: from which it is imported
    python: str = ""  #: its interpreter
    mesh: str = ""
    #: other arguments of the function, or another `mesh`, to compare
    variants: list[dict[str, Any]] = []
    environment: dict[str, str] = {}
    patience: int = children.CPU_TIMEOUT  #: CPU seconds for each compilation
    amount: float = 1000
    unit: str = "steps"
    reached: dict[str, Reached] = {}


def check_function(text: str) -> NoReturn:
    """Run the check of a request, print its findings as JSON, and exit as `main` does."""
    try:
        request = Request.model_validate_json(text)
        chosen = targets(request.targets)
        _can_compile(request.python)
        orders = [
            Order(
                function=request.function,
                target=on.name,
                mesh=request.mesh,
                folder=request.folder,
                python=request.python,
                environment=request.environment,
            )
            for on in chosen
        ]
        compiled = _compiled(orders, request.patience)
        work = report.Work(request.amount, request.unit, request.reached)
        _check_units(compiled, work)
        findings = [
            _with_gains(_with_larger(finding, order, request.patience), order, request.variants, request.patience)
            for finding, order in zip(compiled, orders, strict=True)
        ]  # fmt: skip
    except (ConfigError, ValidationError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(Exit.CONFIG)
    sys.stdout.write(json.dumps(report.as_json(findings, work), indent=1) + "\n")
    sys.exit(code_of(findings))


def code_of(findings: list[Finding]) -> Exit:
    """Return the exit code of the command."""
    fits = {finding.fit for finding in findings}
    if fits & {"no", "refused"}:
        return Exit.CONFIG
    return Exit.DONE if fits == {"yes"} else Exit.ERROR


def _taken(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the flags of the check with their values, and the other arguments."""
    options: dict[str, str] = {}
    rest: list[str] = []
    waiting = ""
    for argument in arguments:
        flag, (_, equals, value) = flag_of(argument), argument.partition("=")
        if waiting and not argument.startswith("--"):
            options[waiting], waiting = argument, ""
        elif flag in FLAGS:
            options[flag], waiting = value, "" if equals else flag
        else:
            waiting = ""
            rest.append(argument)
    return options, rest


def _amount(options: dict[str, str], flag: str) -> float:
    """Return a flag's `10B`, `1.5M` or `300` as a number; 0 without the flag. Raises ConfigError."""
    text = options.get(flag)
    if text is None:
        return 0
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKMGBT]?)", text.replace(",", ""))
    if match is None or not float(match[1]):
        raise ConfigError(f"{flag}={text[:40]}: must be a number above 0, such as 300, 1.5M or 10B")
    letters = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
    return float(match[1]) * letters[match[2]]


def _work(options: dict[str, str], config: TrainConfig) -> report.Work:
    tokens, rows = _amount(options, "--check-tokens"), _amount(options, "--check-rows")
    if tokens and rows:
        raise ConfigError("give one of --check-tokens and --check-rows")
    reached = reached_of(options.get("--check-reached", ""))
    if tokens:
        return report.Work(tokens, "tokens", reached)
    if rows:
        return report.Work(rows, "rows", reached)
    return report.Work(config.steps, "steps", reached)


def reached_of(text: str) -> dict[str, Reached]:
    """Return the parts of the peak in `v4=0.3:0.4,v5e=0.2:0.5`, by generation. Raises ConfigError."""
    reached: dict[str, Reached] = {}
    for part in filter(None, text.split(",")):
        name, _, values = part.partition("=")
        try:
            least, most = map(float, values.split(":"))
        except ValueError:
            least = most = 0.0
        if not name or not 0 < least <= most <= 1:
            raise ConfigError(f"--check-reached={part[:40]}: must be such as v4=0.3:0.4")
        reached[name] = least, most
    return reached


def _check_units(findings: list[Finding], work: report.Work) -> None:
    compiled = [finding for finding in findings if finding.program]
    if work.unit == "tokens" and any(not f.tokens for f in compiled):
        raise ConfigError(
            "hours cannot be those of tokens: the program does not say how many a step has; give its steps, or "
            'return {"tokens": N} as the third value of a function'
        )
    if work.unit == "rows" and any(not f.rows for f in compiled):
        raise ConfigError(
            "hours cannot be those of rows: the program does not say how many a step has"
        )


def _can_compile(python: str = "") -> None:
    """Raise ConfigError if the interpreter (default: this one) lacks what a child needs."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ConfigError(
            "the check needs libtpu, the TPU's compiler, which is made for Linux on x86-64 only: use such a machine"
        )
    lacks = _lacks_of(python) if python else [n for n in _NEEDS if not importlib.util.find_spec(n)]
    if lacks:
        raise ConfigError(
            f"the check needs libtpu, the TPU's compiler, and {python or 'this Python'} has no {', '.join(lacks)}: "
            f"{python or 'python3'} -m pip install 'jax[tpu]'"
        )


_NEEDS = ("jax", "numpy", "libtpu")


def _lacks_of(python: str) -> list[str]:
    script = (
        "import sys, importlib.util as u; print(*(n for n in sys.argv[1:] if not u.find_spec(n)))"
    )
    try:
        done = subprocess.run(
            [python, "-c", script, *_NEEDS], capture_output=True, text=True, timeout=120
        )
    except OSError as error:
        raise ConfigError(f"{python} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise ConfigError(f"{python} is no Python: it ended with {done.returncode}")
    return done.stdout.split()


def _order(
    record: type[TrainConfig],
    workload: str,
    config: TrainConfig,
    on: Target,
    per_chip: float,
    fixed: bool,
) -> Order:
    """Return the order for a target. `fixed`: keep the configured batch; else round it up to one that can be split."""
    settings = config.model_dump(mode="json")
    if per_chip:
        settings["batch"] = int(per_chip) * on.chips
    elif not fixed:
        settings["batch"] = least_batch(config.batch, max(1, on.devices // (config.tensor or 1)))
    named = f"{record.__module__}:{record.__qualname__}"
    arguments = {"workload": workload, "record": named, "config": settings}
    return Order(function=BUNDLED, arguments=arguments, target=on.name)


def _compiled(orders: list[Order], patience: int = children.CPU_TIMEOUT) -> list[Finding]:
    """Compile the orders, at most two at a time: each takes 1 to 3 GB and all cores."""
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(partial(_announced, patience=patience), orders))


def _announced(order: Order, patience: int) -> Finding:
    sys.stderr.write(f"compiling for {order.target} ...\n")
    return children.check(order, patience)


def _with_batch(finding: Finding, batch: int, per_chip: float) -> Finding:
    """Return the finding, with a warning if the check used another batch than the program's."""
    if per_chip or finding.rows in (0, batch):
        return finding
    text = (
        f"checked with --batch={finding.rows}, as the program's own {batch} rows cannot be split over "
        f"the devices of {finding.target}"
    )
    return replace(finding, warnings=(text, *finding.warnings))


# What would help -----------------------------------------------------------------------------------------------------


def _with_advice(finding: Finding, order: Order, on: Target, record: type[TrainConfig]) -> Finding:
    """Return the finding with the first change that fits, found by compiling. The strongest change is tried first: if
    it does not help, none does, and a step that does not fit fails within seconds."""
    config = record.model_validate(order.arguments["config"])
    candidates = advice.changes(config, on)
    if candidates and _fits_with(order, candidates[-1], on):
        first = next(
            (candidate for candidate in candidates[:-1] if _fits_with(order, candidate, on)),
            candidates[-1],
        )
        return replace(finding, advice=f"it fits with {advice.flags(first)}")
    larger = advice.larger(on, finding.needed_bytes)
    text = "none of its settings helps: chips with more memory, or a smaller model"
    if larger is not None:
        change = {"fsdp": 0, "batch": max(1, config.batch // on.chips) * larger.chips}
        if _fits_with(order, change, larger):
            text = f"it fits {larger.name} with {advice.flags(change)}"
    return replace(finding, advice=text)


def _fits_with(order: Order, change: advice.Change, on: Target) -> bool:
    sys.stderr.write(f"it does not fit; trying {on.name} with {advice.flags(change)} ...\n")
    changed = replace(advice.changed(order, change), target=on.name)
    return children.check(changed).fit == "yes"


def _with_larger(finding: Finding, order: Order, patience: int) -> Finding:
    """Return the finding of a step that does not fit, with the smallest slice of the generation that it fits."""
    larger = advice.larger(target(order.target), finding.needed_bytes)
    if finding.fit != "no" or larger is None:
        return finding
    sys.stderr.write(f"it does not fit {order.target}; trying {larger.name} ...\n")
    fits = children.check(replace(order, target=larger.name), patience).fit == "yes"
    return replace(finding, advice=f"it fits {larger.name}") if fits else finding


def _with_gains(
    finding: Finding,
    order: Order,
    variants: Sequence[advice.Change],
    patience: int = children.CPU_TIMEOUT,
) -> Finding:
    """Return the finding with what each variant changes, found by compiling."""
    gains: list[str] = []
    for change in variants:
        sys.stderr.write(f"compiling for {order.target} with {advice.words(change)} ...\n")
        other = children.check(advice.changed(order, change), patience)
        gains.append(f"with {advice.words(change)}: {advice.gain(finding, other)}")
    return replace(finding, gains=tuple(gains))


def _change(text: str) -> Mapping[str, Any]:
    """Return the settings in `remat=dots batch=64` of a bundled program. Raises ConfigError."""
    pairs = [word.partition("=") for word in text.split()]
    if bad := next((name for name, equals, _ in pairs if not name or not equals), None):
        raise ConfigError(f"--check-with {bad}: must be NAME=VALUE, such as remat=dots")
    return {name.strip("-").replace("-", "_"): value for name, _, value in pairs}


def _title(name: str, arguments: list[str]) -> str:
    return " ".join([name, *arguments]) + ": one training step, compiled and not run"
