"""`tpujob create` and `tpujob run`: submit a job from a job file or a command, and follow it if asked to."""

from __future__ import annotations

import contextlib
import io
import shlex
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tpujob.cli.backend import connect, current_settings, note_context, page_of, retrying_client
from tpujob.cli.errors import DOES_NOT_FIT, job_continues, on_interrupt
from tpujob.cli.options import Follow, Json, Variables, argument, flag, option, variables
from tpujob.cli.output import Screen, get_screen, note, say, say_json
from tpujob.cli.render import words
from tpujob.cli.render.answers import created_text, plan_page, steered_text
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import amount_text, clip_middle, paint, wrap
from tpujob.domain.text import amount_of_bytes, clean, dollars, many
from tpujob.errors import BackendGone, BadRequest, BadSpec, Busy, NotFound, Transient

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

    if check and (dry_run or follow):
        raise BadRequest("--check goes without --dry-run and --follow")
    spec = job_file.read(file, name, cross_region=allow_cross_region, values=values or ())
    if check:
        return _check(next(elements(spec)).spec if spec.is_group else spec, as_json=as_json)
    command = ["tpujob", "create", str(file), *(["--name", name] if name else [])]
    command += [word for value in values or () for word in ("--set", value)]
    command += ["--allow-cross-region"] if allow_cross_region else []
    command += ["--allow-keys"] if allow_keys else []
    again = shlex.join(command)
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
    from tpujob.submit import job_file

    if code and not Path(code).is_dir():
        raise BadRequest(f"--code: {code} is not a folder", hint="Name the folder of the program.")
    program = command[0] if len(command) == 1 else shlex.join(command)
    pricing = "on-demand" if on_demand else "spot"
    fields = {
        "name": name or job_file.name_of(program),
        "tpu": {"type": type_, "zones": zone or [], "pricing": pricing},
        "run": {"command": program, "env": variables(env)},
        "code": code or None,
    }
    file = Path("command line")
    options = SubmitOptions(file, "the same words and", key, allow_keys, dry_run, follow, as_json)
    return submit(job_file.prepare(fields, file), options)


class SubmitOptions(NamedTuple):
    """Options of `submit`."""

    file: Path  #: the job file; the paths in the spec are relative to its folder
    command: str  #: the command that submits the job again, without --key
    key: str
    allow_keys: bool
    dry_run: bool
    follow: bool
    as_json: bool


def submit(spec: JobSpec, options: SubmitOptions) -> int:
    """Submit the job, or print its plan, and return the exit code; follow the job if the options say so."""
    import secrets

    from tpujob.domain.spec import dump
    from tpujob.submit import job_file

    if options.dry_run and options.follow:
        raise BadRequest("--dry-run goes without --follow")
    spec_fields = dump(spec)
    screen = get_screen()
    note_context()
    api = connect()
    plan = job_file.naming_file(options.file, lambda: api.plan(spec_fields))
    if options.dry_run:
        _dry_run(api, spec_fields, plan, as_json=options.as_json)
    if refused := plan.get("refused"):  # before the code is shipped
        raise BadSpec(f"{options.file}: {refused[0]['message']}", hint=refused[0]["hint"])
    bundle = job_file.pack_code(spec, options.file, allow_keys=options.allow_keys)
    if bundle:
        shipped = f"code: {many(len(bundle.files), 'file')}, {amount_of_bytes(bundle.size)}"
        note(f"{shipped}, without what git ignores" if bundle.by_git else shipped)
    to_bring = [source for source in plan.get("data", ()) if source["to_bring"]]
    if options.dry_run:
        if to_bring:
            from tpujob.cli.commands.data.sync import check_sources

            check_sources(to_bring)
        return 0
    for warning in plan["warnings"]:
        note(f"warning: {clean(warning)}")
    if to_bring:
        from tpujob.cli.commands.data.sync import upload_sources

        upload_sources(to_bring)
    price = plan["usd_per_hour"]
    key = options.key or secrets.token_hex(12)
    unsure = "The job may have been submitted. This command does not submit it twice:"
    again = f"  {options.command} --key {key}"
    with on_interrupt(unsure, again):
        try:
            job = _submit(api, spec_fields, bundle, plan["bucket"], key)
        except (BackendGone, Transient) as error:
            if not isinstance(error, Busy):  # it says that nothing was submitted
                error.hint = f"{unsure}\n{again}"
            raise
    if not options.as_json:
        page = page_of(job["id"])
        text = created_text(job, screen.columns, price, color=screen.color, page=page)
        say(text, flush=True)
    if options.follow:
        return _follow(job, price, screen, as_json=options.as_json)
    if options.as_json:
        say_json(job)
    return 0


def _check(spec: JobSpec, *, as_json: bool) -> int:
    """Print for each type of the job whether its program fits, how fast it can be, and what the hours cost."""
    from tpujob.config import context, prices
    from tpujob.domain.hardware.prices import LIST
    from tpujob.submit import compile_check

    settings = current_settings()
    types = compile_check.targets_of(spec, spec.tpu.types)
    price_list = LIST
    if not settings.local:
        today = datetime.now(UTC).date()
        price_list = prices.in_force(settings, context.current(settings), today)
    findings = compile_check.check_job(spec, settings.cache)
    targets = [
        CheckedTarget(finding, *_zone_and_price(spec, types[finding["target"]], price_list))
        for finding in findings
    ]
    if as_json:
        say_json([{**t.finding, "zone": t.zone, "usd_per_hour": t.usd_per_hour} for t in targets])
    else:
        screen = get_screen()
        say(check_page(spec.name, targets, screen.columns, color=screen.color))
    return 0 if all(finding["fit"] == "yes" for finding in findings) else DOES_NOT_FIT


def _zone_and_price(spec: JobSpec, type: str, prices: PriceList) -> tuple[str, float | None]:
    """Return a zone of the type and the price of the job's slices there, in USD an hour: the first zone with a known
    price, of the job's zones or else of all."""
    from tpujob.domain.hardware import accelerators

    zones = [zone for zone in spec.tpu.zones if accelerators.may_have(type, zone)]
    for zone in zones or accelerators.zones(type):
        usd = prices.usd_per_hour(type, zone, spec.tpu.pricing, spec.tpu.slices)
        if usd is not None:
            return zone, usd
    return next(iter(zones), ""), None


def _dry_run(api: JobsApi, spec: dict[str, Any], plan: PlanView, *, as_json: bool) -> None:
    """Print the plan and an estimate of the cost; a backend that is too old gives no estimate."""
    estimate: EstimateView | None = None
    with contextlib.suppress(NotFound):
        estimate = api.estimate(spec)
    if as_json:
        say_json({**plan, "estimate": estimate})
        return
    screen = get_screen()
    say(plan_page(plan, screen.columns, color=screen.color))
    if estimate is not None:
        from tpujob.cli.commands.cost.estimate_page import estimate_page

        say("\n" + estimate_page(estimate, screen.columns, color=screen.color))
        if any("--" in text for text in (estimate["length"], *estimate["unknown"])):
            say("These options are those of `tpujob cost estimate FILE`.")


WITHOUT_BAR = 1024 * 1024  #: bytes of a bundle that is uploaded without a bar


class _Upload(io.BytesIO):
    """The bytes of an upload, which reports those that are read."""

    def __init__(self, data: bytes, moved: Callable[[int], None]) -> None:
        super().__init__(data)
        self._moved = moved

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._moved(len(data))
        return data


def _submit(
    api: JobsApi, spec: dict[str, Any], bundle: Bundle | None, bucket: str, key: str
) -> JobView:
    from tpujob.cli.commands.data.sync import ProgressBar

    def upload_and_create() -> JobView:
        if bundle is None:
            return api.create(spec, idempotency_key=key)
        with ProgressBar(shown=len(bundle.data) > WITHOUT_BAR) as bar:
            bar.planned(len(bundle.data))
            upload = _Upload(bundle.data, bar.moved)
            path = api.put_bundle(bundle.sha256, upload, bucket=bucket)
        return api.create(spec, bundles=[path], code=bundle.standing, idempotency_key=key)

    try:
        return upload_and_create()
    except NotFound:  # the bundle was deleted meanwhile, with the last job that used it
        return upload_and_create()


def _follow(job: JobView, list_price: float | None, screen: Screen, *, as_json: bool) -> int:
    from tpujob.cli.live_display import follow, sink_for

    with on_interrupt(*job_continues(job["id"])):
        if as_json:
            from tpujob.cli.commands.jobs import wait

            return wait(job["id"], as_json=True)
        ended_job = follow(retrying_client(), job["id"], sink_for(screen, list_price=list_price))
    say(steered_text(ended_job, screen.columns, time.time(), color=screen.color))
    return words.EXIT_OF_STATE[ended_job["state"]]


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
    *numbers("Memory", "of", "At least", "Step", "Per s", "Hours", "List value"),
)


class CheckedTarget(NamedTuple):
    finding: TargetFinding
    zone: str
    usd_per_hour: float | None  #: price of the job's slices; None: unknown


def check_page(
    name: str, targets: Sequence[CheckedTarget], columns: int, *, color: bool = False
) -> str:
    findings = [target.finding for target in targets]
    pace = next((finding["pace"] for finding in findings if "pace" in finding), None)
    title = clean(name) + (f": {pace['work']:,.0f} {pace['unit']}" if pace else "")
    out = [paint(title, "bold", color), ""]
    out += [table(_COLUMNS, [_cells(target) for target in targets], columns, color=color), ""]
    for finding in findings:
        notes = [finding["reason"], finding["advice"]] if finding["fit"] != "yes" else []
        notes += [f"warning: {text}" for text in finding["warnings"]]
        for text in filter(None, notes):
            out += wrap(f"{finding['target']}: {clean(text)}", columns)
    if any("--" in finding["reason"] + finding["advice"] for finding in findings):
        out += wrap(KEYS, columns)
    return "\n".join([*out, *wrap(MEANING, columns)])


def _cells(target: CheckedTarget) -> tuple[str, ...]:
    finding = target.finding
    program = finding["program"]
    memory = program["peak_bytes"] if program else finding["needed_bytes"]
    start = (
        finding["target"],
        target.zone,
        finding["fit"],
        _memory(memory) if memory else "",
        _memory(finding["limit_bytes"]),
    )
    if "pace" not in finding or "step_seconds" not in finding:
        return (*start, "", "", "", "", "")
    pace = finding["pace"]
    usd = [hours * target.usd_per_hour for hours in pace["hours"]] if target.usd_per_hour else []
    return (
        *start,
        _time(finding["step_seconds"]["bound"]),
        _span([_time(seconds) for seconds in pace["step"]]),
        _span([amount_text(speed) for speed in reversed(pace["per_second"])]),
        _span([f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}" for hours in pace["hours"]]),
        _span([dollars(round(amount * 1e6)) for amount in usd]) if usd else "unknown",
    )


def _span(pair: Sequence[str]) -> str:
    low, high = pair
    return low if low == high else f"{low} to {high}"


def _memory(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.3g} MiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
