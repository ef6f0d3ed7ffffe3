"""`--check`: parses its flags beside those of the workload, has each target compiled, and prints the findings.

No jax here: children import it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from tpujob.contract import Exit
from workloads.check import FLAGS, advice, children, flag_of, report
from workloads.check.finding import Finding, Order
from workloads.check.topologies import Target, targets
from workloads.frame.config import ConfigError, TrainConfig, least_batch, parse


def main(record: type[TrainConfig], workload: str, arguments: list[str]) -> NoReturn:
    """Run the check and exit: with 0 if the step fits every target, with 78 if it does not fit one or its settings do
    not suit it, with 70 if the check failed."""
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
    if tokens:
        return report.Work(tokens, "tokens")
    return report.Work(rows, "rows") if rows else report.Work(config.steps, "steps")


def _check_units(findings: list[Finding], work: report.Work) -> None:
    if work.unit == "tokens" and any(f.program and not f.tokens_per_row for f in findings):
        raise ConfigError("--check-tokens: the rows of this workload are no tokens; --check-rows")


def _can_compile() -> None:
    if importlib.util.find_spec("libtpu") is not None:
        return
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ConfigError(
            "--check needs libtpu, the TPU's compiler, which is made for Linux on x86-64 only: use such a machine"
        )
    raise ConfigError("--check needs libtpu, the TPU's compiler: python3 -m pip install 'jax[tpu]'")


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
    return Order(
        workload=workload,
        record=f"{record.__module__}:{record.__qualname__}",
        config=settings,
        target=on.name,
    )


def _compiled(orders: list[Order]) -> list[Finding]:
    """Compile the orders, at most two at a time: each takes 1 to 3 GB and all cores."""
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(_announced, orders))


def _announced(order: Order) -> Finding:
    sys.stderr.write(f"compiling for {order.target} ...\n")
    return children.check(order)


def _with_batch(finding: Finding, batch: int, per_chip: float) -> Finding:
    """Return the finding, with a warning if the check used another batch than the program's."""
    if per_chip or finding.batch in (0, batch):
        return finding
    text = (
        f"checked with --batch={finding.batch}, as the program's own {batch} rows cannot be split over "
        f"the devices of {finding.target}"
    )
    return finding.model_copy(update={"warnings": (text, *finding.warnings)})


def _with_advice(finding: Finding, order: Order, on: Target, record: type[TrainConfig]) -> Finding:
    """Return the finding with the first change that fits, found by compiling. The strongest change is tried first: if
    it does not help, none does, and a step that does not fit fails within seconds."""
    config = record.model_validate(order.config)
    candidates = advice.changes(config, on)
    if candidates and _fits_with(order, candidates[-1], on):
        first = next(
            (candidate for candidate in candidates[:-1] if _fits_with(order, candidate, on)),
            candidates[-1],
        )
        return finding.model_copy(update={"advice": f"it fits with {advice.flags(first)}"})
    larger = advice.larger(on, finding.needed_bytes)
    text = "none of its settings helps: chips with more memory, or a smaller model"
    if larger is not None:
        change = {"fsdp": 0, "batch": max(1, config.batch // on.chips) * larger.chips}
        if _fits_with(order, change, larger):
            text = f"it fits {larger.name} with {advice.flags(change)}"
    return finding.model_copy(update={"advice": text})


def _fits_with(order: Order, change: advice.Change, on: Target) -> bool:
    sys.stderr.write(f"it does not fit; trying {on.name} with {advice.flags(change)} ...\n")
    changed = {"config": {**order.config, **change}, "target": on.name}
    return children.check(order.model_copy(update=changed)).fit == "yes"


def _title(name: str, arguments: list[str]) -> str:
    return " ".join([name, *arguments]) + ": one training step, compiled and not run"
