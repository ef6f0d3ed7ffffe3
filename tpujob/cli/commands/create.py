"""`tpujob create` and `tpujob run`: submit a job from a job file or a command, and follow it if asked to."""

from __future__ import annotations

import contextlib
import io
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tpujob.cli.backend import connect, current_settings, note_context, page_of, retrying_client
from tpujob.cli.errors import job_continues, on_interrupt
from tpujob.cli.options import Follow, Json, Variables, argument, flag, option, variables
from tpujob.cli.output import Screen, get_screen, note, say, say_json
from tpujob.cli.render import words
from tpujob.cli.render.answers import created_text, plan_page, steered_text
from tpujob.domain.text import amount_of_bytes, clean, many
from tpujob.errors import BackendGone, BadRequest, BadSpec, Busy, NotFound, Transient

if TYPE_CHECKING:
    from tpujob.api import EstimateView, JobsApi, JobView, PlanView
    from tpujob.domain.spec import JobSpec
    from tpujob.submit.archive import Bundle


DryRun = Annotated[bool, flag("Print the resolved plan; submit nothing.", "--dry-run")]
AllowKeys = Annotated[bool, flag("Ship files of `code` that look like keys.", "--allow-keys")]
Key = Annotated[str, option("KEY", "Idempotency key: a repeat creates no second job.")]


def create(
    file: Annotated[Path, argument("FILE", "A job file in YAML.")],
    dry_run: DryRun = False,
    check: Annotated[
        bool, flag("Compile the program without a TPU; submit nothing.", "--check")
    ] = False,
    variants: Annotated[
        list[str] | None,
        option(
            "NAME=VALUE",
            "With --check: also compile with this setting, such as remat=dots, and say what it gives; repeatable.",
            "--with",
        ),
    ] = None,
    python: Annotated[
        str, option("PATH", "With --check: interpreter of the program.", "--python")
    ] = "",
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
    if (variants or python) and not check:
        raise BadRequest("--with and --python go with --check")
    if check:
        element = next(elements(spec)).spec if spec.is_group else spec
        return _check(element, file.parent, variants, python, as_json=as_json)
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


def _check(
    spec: JobSpec, folder: Path, variants: Sequence[str] | None, python: str, *, as_json: bool
) -> int:
    """Print for each type of the job whether its program fits, how fast it can be, and what the hours cost."""
    from tpujob.cli.commands import fit
    from tpujob.submit import compile_check

    findings = compile_check.check_job(
        spec,
        current_settings().cache,
        folder,
        python=python,
        variants=fit.changes(variants),
        reached=fit.reached_here(),
    )
    priced = [
        fit.with_price(finding, fit.wanted(finding["target"], spec.tpu.zones, spec.tpu.pricing))
        for finding in findings
    ]
    return fit.print_checked(spec.name, priced, as_json=as_json)


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
