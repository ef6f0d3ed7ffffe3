"""`tpujob create` and `tpujob run`: a job file or a command becomes a job, which may be followed until it ends."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tpujob.cli.backend import RetryingClient, connect, current_settings, page_of, say_where
from tpujob.cli.errors import DOES_NOT_FIT, goes_on, on_interrupt
from tpujob.cli.options import Follow, Json, Variables, argument, flag, option, variables
from tpujob.cli.output import Screen, note, say, say_json, screen
from tpujob.cli.render import words
from tpujob.cli.render.answers import created_text, plan_page, steered_text
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import amount_text, clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars
from tpujob.errors import BadSpec, NotFound

if TYPE_CHECKING:
    from tpujob.api import EstimateView, JobsApi, JobView, PlanView
    from tpujob.domain.hardware.prices import PriceList
    from tpujob.domain.spec import JobSpec
    from tpujob.submit.archive import Bundle
    from tpujob.submit.compile_check import TargetFinding


DryRun = Annotated[bool, flag("Print the resolved plan; submit nothing.", "--dry-run")]
AllowKeys = Annotated[bool, flag("Ship files of `code` that look like keys.", "--allow-keys")]
Key = Annotated[str, option("KEY", "Idempotency key: a repeat creates no second job.")]


def create(
    file: Annotated[Path, argument("FILE", "A job file in YAML.")],
    dry_run: DryRun = False,
    check: Annotated[
        bool, flag("Compile the program without a TPU; submit nothing.", "--check")
    ] = False,
    follow: Follow = False,
    name: Annotated[str, option("NAME", "Override the name in the file.")] = "",
    values: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "Set a key of the file, such as run.env.LR=1e-3; several values, with commas, make a sweep; repeatable.",
            "--set",
        ),
    ] = None,
    allow_cross_region: Annotated[
        bool,
        flag(
            "Also use zones outside the bucket's region; traffic is billed.", "--allow-cross-region"
        ),
    ] = False,
    allow_keys: AllowKeys = False,
    key: Key = "",
    as_json: Json = False,
) -> int:
    """Submit a job."""
    from tpujob.domain.spec.elements import elements
    from tpujob.submit import job_file

    spec = job_file.read(file, name, cross_region=allow_cross_region, values=values or ())
    if check:
        return _check(next(elements(spec)).spec if spec.is_group else spec, as_json=as_json)
    again = f"tpujob create {file}" + (f" --name {name}" if name else "")
    again += "".join(f" --set {shlex.quote(value)}" for value in values or ())
    again += " --allow-cross-region" if spec.tpu.allow_cross_region else ""
    again += " --allow-keys" if allow_keys else ""
    return submit(spec, SubmitOptions(file, again, key, allow_keys, dry_run, follow, as_json))


def run(
    command: Annotated[list[str], argument("-- COMMAND...", "The program, which every host runs.")],
    type_: Annotated[str, option("TYPE", "Such as v4-8.", "--type")],
    zone: Annotated[list[str] | None, option("ZONE", "Such as us-central2-b; repeatable.")] = None,
    name: Annotated[str, option("NAME", "Default: of the program.")] = "",
    on_demand: Annotated[bool, flag("Not spot.", "--on-demand")] = False,
    code: Annotated[str, option("DIR", "Folder to ship; the program starts in it.")] = "",
    env: Variables = None,
    dry_run: DryRun = False,
    follow: Follow = False,
    allow_keys: AllowKeys = False,
    key: Key = "",
    as_json: Json = False,
) -> int:
    """Submit a job without a job file."""
    import shlex

    from tpujob.submit import job_file

    program = command[0] if len(command) == 1 else shlex.join(command)
    pricing = "on-demand" if on_demand else "spot"
    asked = {
        "name": name or job_file.name_of(program),
        "tpu": {"type": type_, "zones": zone or [], "pricing": pricing},
        "run": {"command": program, "env": variables(env)},
        "code": code or None,
    }
    here = Path("command line")
    how = SubmitOptions(here, "the same words and", key, allow_keys, dry_run, follow, as_json)
    return submit(job_file.prepare(asked, here), how)


class SubmitOptions(NamedTuple):
    """How a job is submitted."""

    file: Path  #: to which its paths are relative
    again: str  #: how to submit it again, but for the key
    key: str
    allow_keys: bool
    dry_run: bool
    follow: bool
    as_json: bool


def submit(spec: JobSpec, how: SubmitOptions) -> int:
    """Submit the job, or print its plan; follow it if that is asked for."""
    import secrets

    from tpujob.domain.spec import dump
    from tpujob.submit import job_file

    given = dump(spec)
    on = screen()
    say_where()
    api = connect()
    plan = job_file.naming_file(how.file, lambda: api.plan(given))
    if how.dry_run:
        _dry_run(api, given, plan, as_json=how.as_json)
        return 0
    if refused := plan.get("refused"):  # before the code is shipped
        raise BadSpec(f"{how.file}: {refused[0]['message']}", hint=refused[0]["hint"])
    bundle = job_file.pack_code(spec, how.file, allow_keys=how.allow_keys)
    for warning in plan["warnings"]:
        note(f"warning: {clean(warning)}")
    if any(one["to_bring"] for one in plan.get("data", ())):
        from tpujob.cli.commands.data.sync import bring

        bring(plan.get("data", ()))
    key = how.key or secrets.token_hex(12)
    unsure = "The job may have been submitted. This command does not submit it twice:"
    with on_interrupt(unsure, f"  {how.again} --key {key}"):
        job = _submit(api, given, bundle, plan["bucket"], key)
    if not how.as_json:
        page = page_of(job["id"])
        text = created_text(job, on.columns, plan["usd_per_hour"], color=on.color, page=page)
        say(text, flush=True)
    if how.follow:
        return _follow(job, plan["usd_per_hour"], on, as_json=how.as_json)
    if how.as_json:
        say_json(job)
    return 0


def _check(spec: JobSpec, *, as_json: bool) -> int:
    """Print for each type of the job whether its program fits, how fast it can be, and what the hours cost."""
    from tpujob.config import context, prices
    from tpujob.domain.hardware.prices import LIST
    from tpujob.submit import compile_check

    now = current_settings()
    types = compile_check.targets_of(spec, spec.tpu.types)
    in_force = LIST
    if not now.local:
        in_force = prices.in_force(now, context.current(now), datetime.now(UTC).date())
    found = compile_check.check_job(spec, now.cache)
    rows = [CheckedTarget(one, *_price(spec, types[one["target"]], in_force)) for one in found]
    priced = [{**row.found, "zone": row.zone, "usd_per_hour": row.usd_per_hour} for row in rows]
    on = screen()
    say_json(priced) if as_json else say(check_page(spec.name, rows, on.columns, color=on.color))
    return 0 if all(one["fit"] == "yes" for one in found) else DOES_NOT_FIT


def _price(spec: JobSpec, type: str, prices: PriceList) -> tuple[str, float | None]:
    """The first zone of the job that has the type, with what its slices cost there an hour."""
    from tpujob.domain.hardware import accelerators

    zones = [z for z in spec.tpu.zones if accelerators.may_have(type, z)]
    for zone in zones or accelerators.zones(type):
        usd = prices.usd_per_hour(type, zone, spec.tpu.pricing, spec.tpu.slices)
        if usd is not None:
            return zone, usd
    return next(iter(zones), ""), None


def _dry_run(api: JobsApi, spec: dict[str, Any], plan: PlanView, *, as_json: bool) -> None:
    """The plan, and what the job would cost, if the backend is not too old to say. In JSON the estimate is a key of
    the plan."""
    found: EstimateView | None = None
    with contextlib.suppress(NotFound):
        found = api.estimate(spec)
    if as_json:
        say_json({**plan, "estimate": found})
        return
    on = screen()
    say(plan_page(plan, on.columns, color=on.color))
    if found is not None:
        from tpujob.cli.commands.cost.estimate_page import estimate_page

        say("\n" + estimate_page(found, on.columns, color=on.color))


def _submit(
    api: JobsApi, spec: dict[str, Any], bundle: Bundle | None, bucket: str, key: str
) -> JobView:
    def send() -> JobView:
        if bundle is None:
            return api.create(spec, idempotency_key=key)
        path = api.put_bundle(bundle.sha256, bundle.data, bucket=bucket)
        return api.create(spec, bundles=[path], code=bundle.standing, idempotency_key=key)

    try:
        return send()
    except NotFound:  # the last job with the same code was cleaned just now, and the code with it
        return send()


def _follow(job: JobView, list_price: float | None, on: Screen, *, as_json: bool) -> int:
    from tpujob.cli.live_display import follow, sink_for

    with on_interrupt(*goes_on(job["id"])):
        if as_json:
            from tpujob.cli.commands.jobs import wait

            return wait(job["id"], as_json=True)
        done = follow(RetryingClient(), job["id"], sink_for(on, list_price=list_price))
    say(steered_text(done, on.columns, time.time(), color=on.color))
    return words.EXIT_OF_STATE[done["state"]]


# The page of --check: the job's types side by side -------------------------------------------------------------------


GIB = 2**30
MEANING = (
    "Compiled on this machine, not run. The range of the step time is that of published figures of language models on "
    "the generation, and the other ranges follow from it. Dollars are the list price of those hours. "
    "`tpujob cost estimate --compare` adds waits and preemptions."
)
KEYS = "A flag `--name=value` is `name: value` below `run.args` of the job file."
_COLUMNS = (
    Column("Slices"),
    Column("Zone", floors=(14, 0), cut=clip_middle),
    Column("Fits", style=lambda cell: "green" if cell == "yes" else "red"),
    Column("Memory", right=True),
    Column("of", right=True),
    Column("At least", right=True),
    Column("Step", right=True),
    Column("Per s", right=True),
    Column("Hours", right=True),
    Column("List value", right=True),
)


class CheckedTarget(NamedTuple):
    found: TargetFinding
    zone: str
    usd_per_hour: float | None  #: of the slices; None: no price is known


def check_page(
    name: str, rows: Sequence[CheckedTarget], columns: int, *, color: bool = False
) -> str:
    work = next((one.found["pace"] for one in rows if "pace" in one.found), None)
    title = clean(name) + (f": {work['work']:,.0f} {work['unit']}" if work else "")
    out = [paint(title, "bold", color), ""]
    out += [table(_COLUMNS, [_cells(one) for one in rows], columns, color=color), ""]
    for one in rows:
        found = one.found
        notes = [found["reason"], found["advice"]] if found["fit"] != "yes" else []
        notes += [f"warning: {text}" for text in found["warnings"]]
        for text in filter(None, notes):
            out += wrap(f"{found['target']}: {clean(text)}", columns)
    if any("--" in row.found["reason"] + row.found["advice"] for row in rows):
        out += wrap(KEYS, columns)
    return "\n".join([*out, *wrap(MEANING, columns)])


def _cells(one: CheckedTarget) -> tuple[str, ...]:
    found, program = one.found, one.found["program"]
    takes = program["peak_bytes"] if program else found["needed_bytes"]
    start = (
        found["target"],
        one.zone,
        found["fit"],
        _memory(takes) if takes else "",
        _memory(found["limit_bytes"]),
    )
    if "pace" not in found or "step_seconds" not in found:
        return (*start, "", "", "", "", "")
    going = found["pace"]
    usd = [hours * one.usd_per_hour for hours in going["hours"]] if one.usd_per_hour else []
    return (
        *start,
        _time(found["step_seconds"]["bound"]),
        _span([_time(seconds) for seconds in going["step"]]),
        _span([amount_text(speed) for speed in reversed(going["per_second"])]),
        _span([f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}" for hours in going["hours"]]),
        _span([dollars(round(amount * 1e6)) for amount in usd]) if usd else "unknown",
    )


def _span(pair: Sequence[str]) -> str:
    low, high = pair
    return low if low == high else f"{low} to {high}"


def _memory(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.3g} MiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
