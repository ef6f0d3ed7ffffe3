"""`tpujob cost estimate`: what a job file would cost."""

from pathlib import Path
from typing import Annotated

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.commands.cost import compare as comparison
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import say, say_json, screen
from tpujob.errors import BadRequest


def estimate(
    file: Annotated[Path, argument("FILE", "A job file in YAML.")],
    hours: Annotated[
        float | None, option("H", "Run time. Default: from earlier jobs.", min=0)
    ] = None,
    steps: Annotated[int | None, option("N", "Steps, if the file does not say.", min=0)] = None,
    step_seconds: Annotated[float | None, option("S", "Seconds per step.", min=0)] = None,
    stored_gib: Annotated[
        float | None, option("GIB", "GiB kept in the bucket, with checkpoints.", min=0)
    ] = None,
    stored_days: Annotated[float | None, option("D", "Days they are kept.", min=0)] = None,
    objects_written: Annotated[int | None, option("N", "Objects written (class A).", min=0)] = None,
    objects_read: Annotated[int | None, option("N", "Objects read (class B).", min=0)] = None,
    read_gib: Annotated[float | None, option("GIB", "GiB read from another region.", min=0)] = None,
    written_gib: Annotated[
        float | None, option("GIB", "GiB written to another region.", min=0)
    ] = None,
    wait: Annotated[str, option("TIME", "Mean wait for a slice, such as 30m.")] = "",
    preempt_every: Annotated[
        str, option("TIME", "Mean time until a slice is lost, such as 6h.")
    ] = "",
    checkpoint_every: Annotated[
        str, option("TIME", "Time between two checkpoints. Default: 10m.")
    ] = "",
    quiet: Annotated[bool, flag("Assume almost no log output.", "--quiet-program")] = False,
    compare: Annotated[bool, flag("Compare types and zones.", "--compare")] = False,
    types: Annotated[str, option("TYPE,...", "Types to compare. Default: the file's.")] = "",
    zones: Annotated[
        str, option("ZONE,...", "Zones to compare. Default: the file's, or all.")
    ] = "",
    tokens: Annotated[str, option("N", "Work to compare by, such as 10B.")] = "",
    samples: Annotated[str, option("N", "The same, in samples.")] = "",
    throughput: Annotated[
        list[str] | None, option("TYPE=N", "Throughput of a type; repeatable.")
    ] = None,
    explain: Annotated[bool, flag("Show where each figure comes from.", "--explain")] = False,
    strict: Annotated[
        bool, flag("Exit with 6 if a price or quantity is unknown.", "--strict")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show what a job would cost: list value, and what you pay."""
    from tpujob.api import EstimateSaid
    from tpujob.domain.spec import dump
    from tpujob.submit import job_file

    spec = job_file.read(file, "", cross_region=False)
    given = dump(spec)
    options: EstimateSaid = {"quiet": quiet}
    for name, value in {
        "hours": hours,
        "steps": steps,
        "step_seconds": step_seconds,
        "stored_gib": stored_gib,
        "stored_days": stored_days,
        "objects_written": objects_written,
        "objects_read": objects_read,
        "read_gib": read_gib,
        "written_gib": written_gib,
    }.items():
        if value is not None:
            options[name] = value
    for name, text in {
        "wait": wait,
        "preempt_every": preempt_every,
        "checkpoint_every": checkpoint_every,
    }.items():
        if text:
            options[name] = comparison.time(text, f"--{name.replace('_', '-')}")
    work = comparison.asked(
        steps=steps, tokens=tokens, samples=samples, types=types, zones=zones,
        speeds=throughput or (),
    )  # fmt: skip
    if compare:
        from tpujob.submit.compile_check import rooflines

        kept = rooflines(
            spec,
            work.get("types", [*spec.tpu.types]),
            work.get("unit", "steps"),
            current_settings().cache,
        )
        if kept:
            work["rooflines"] = kept
        side_by_side = job_file.named(file, lambda: connect().compare(given, options, work))
        say_json(side_by_side) if as_json else comparison.show(side_by_side)
        return 0
    if set(work) - {"amount"}:
        raise BadRequest("--types, --zones, --tokens, --samples and --throughput go with --compare")
    found = job_file.named(file, lambda: connect().estimate(given, options))
    if as_json:
        say_json(found)
    else:
        from tpujob.cli.commands.cost.estimate_page import estimate_page

        on = screen()
        page = estimate_page(found, on.columns, color=on.color, explained=explain)
        say(page)
    return FOUND if strict and found["unknown"] else 0
