"""`tpujob events`, `capacity` and `diff`: the events of jobs, all hardware, and the differences between two jobs."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import connect, retrying_client
from tpujob.cli.errors import job_continues, on_interrupt
from tpujob.cli.options import Follow, Json, argument, complete_job, option
from tpujob.cli.output import flush, get_screen, say, say_json_line, say_json_list, say_page
from tpujob.cli.render import words
from tpujob.cli.render.lines import event_line, event_lines, job_event_line
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import clip, clip_middle, paint
from tpujob.domain.paging import PAGE, newest
from tpujob.domain.text import clean, many, rate, seconds, span
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import (
        CapacityReport,
        ChangeView,
        DiffView,
        EventView,
        FileChangeView,
        JobEventView,
        OfferView,
        OpenCircuit,
    )


#: default of --limit
NEWEST = 50


def events(
    job: Annotated[str | None, argument("[JOB]", "Default: all jobs.")] = None,
    follow: Follow = False,
    kind: Annotated[
        list[str] | None, option("KIND", "All jobs: filter by kind, such as slice_gone.")
    ] = None,
    limit: Annotated[
        int | None,
        option("N", f"All jobs: number of events. Default: {NEWEST}.", min=1, max=PAGE),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the events of a job, or of all jobs, oldest first."""
    if job is None:
        if follow:
            raise BadRequest("--follow needs a job", hint="`tpujob list --watch` follows them all.")
        _print_newest(limit or NEWEST, kind or [], as_json=as_json)
        return
    if kind or limit:
        raise BadRequest("--kind and --limit go without a job")
    retrying = retrying_client()
    job_id = retrying.ask(lambda api: api.get(job))["id"]
    if not follow:
        history = retrying.ask(lambda api: api.events(job_id))
        say_json_list(history) if as_json else _say_events(history)
        return
    from tpujob.cli.live_display import poll_changes

    with on_interrupt(*job_continues(job_id, "events {} -f")):
        for _, fresh in poll_changes(retrying, job_id, timeout=10):
            if as_json:
                for event in fresh:
                    say_json_line(event)
            else:
                _say_events(fresh)


def _print_newest(limit: int, kinds: list[str], *, as_json: bool) -> None:
    """Print the newest events of all jobs."""
    retrying = retrying_client()

    def page(size: int, before: str) -> tuple[list[JobEventView], str]:
        answer = retrying.ask(lambda api: api.happened(before=before, kinds=kinds, limit=size))
        return answer["events"], answer["next"]

    events = newest(page, limit)
    if as_json:
        say_json_list(events)
        return
    screen = get_screen()
    for event in events:
        columns = screen.columns if screen.tty else 0
        say(job_event_line(event, columns, color=screen.color))


def _say_events(events: list[EventView]) -> None:
    screen = get_screen()
    for event in events:
        if screen.tty:
            say(event_lines(event, screen.columns, color=screen.color))
        else:
            say(event_line(event))
    flush()


def capacity(as_json: Json = False) -> None:
    """Show what jobs hold and wait for, and what the cloud refuses."""
    report = retrying_client().ask(lambda api: api.capacity())
    say_page(report, capacity_page, as_json, now=time.time())


# The capacity page ---------------------------------------------------------------------------------------------------


_OFFERS = (
    Column("Type", floors=(10, 8, 7), cut=clip_middle),
    Column("Zone", floors=(14, 13, 8), cut=clip_middle),
    Column("Pricing", floors=(9, 6, 4)),
    *numbers("Held", "$/h", "Asked", "Ready", "Wait", "Refused", "Preempted"),
)


def capacity_page(report: CapacityReport, columns: int, now: float, *, color: bool = False) -> str:
    """Return the page of hardware. Ready, refused and preempted count the last day; Wait is the median of that day."""
    out: list[str] = []
    if rows := [_offer_cells(offer) for offer in report["offers"]]:
        out.append(table(_OFFERS, rows, columns, color=color))
    elif not report["closed"]:
        out.append("No hardware is held or requested, and nothing happened within the last day.")
    out += [_circuit_line(circuit, now) for circuit in report["closed"]]
    if report["waiting"]:
        has = "has" if report["waiting"] == 1 else "have"
        out.append(f"{many(report['waiting'], 'job')} {has} no slice yet.")
    return "\n".join([*out, "`tpujob quota` shows how much more there may be."])


def _offer_cells(offer: OfferView) -> tuple[str, ...]:
    wait = offer["wait_p50_s"]
    return (
        clean(offer["type"]),
        clean(offer["zone"]),
        clean(offer["pricing"]),
        _count(offer["held"]),
        rate(offer["usd_per_hour"]) if offer["held"] else "-",
        _count(offer["asked"]),
        _count(offer["ready"]),
        "-" if wait is None else span(wait),
        _count(offer["refused"]),
        _count(offer["preempted"]),
    )


def _count(number: int) -> str:
    return str(number) if number else "-"


def _circuit_line(circuit: OpenCircuit, now: float) -> str:
    """Return a line such as `STOCKOUT of v4-32 spot in us-central2-b: 3 refusals within 12m, next request in 40s`."""
    since, retry_at = seconds(circuit["since"]) or now, seconds(circuit["again_at"]) or now
    wait = f"next request in {span(retry_at - now)}"
    next_request = wait if circuit["open"] else "requested when a job needs it"
    request = f"{clean(circuit['what'])} {clean(circuit['pricing'])} in {clean(circuit['place'])}"
    refusals = f"{many(circuit['refusals'], 'refusal')} within {span(now - since)}"
    return f"{circuit['cause']} of {request}: {refusals}, {next_request}"


# What differs between two jobs ---------------------------------------------------------------------------------------


Side = Annotated[str, argument("JOB", "Its id or name.", autocompletion=complete_job)]
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def diff(a: Side, b: Side, as_json: Json = False) -> None:
    """Show what differs between two jobs: spec, code, outcome."""
    say_page(connect().diff(a, b), diff_page, as_json)


def diff_page(view: DiffView, columns: int, *, color: bool = False) -> str:
    """Return the changes from the first job to the second; what is equal is left out."""
    a, b = view["a"], view["b"]
    out = [clean(f"a: job {a['id']}, {a['name']}"), clean(f"b: job {b['id']}, {b['name']}")]
    for title, changes in (("Spec", view["spec"]), ("Outcome", view["outcome"])):
        out += ["", paint(title, "bold", color), *_change_lines(changes, columns)]
    out += ["", paint("Code", "bold", color), *_code_lines(view)]
    for file in view["files"]:
        out += _file_lines(file, color)
    if view["cut"]:
        out += ["", "There are more changes than are shown."]
    return "\n".join(out)


def _change_lines(changes: list[ChangeView], columns: int) -> list[str]:
    if not changes:
        return ["  the same"]
    wide = min(32, max(len(change["key"]) for change in changes))
    return [
        clip(
            clean(f"  {change['key']:{wide}}  {_value(change['a'])} -> {_value(change['b'])}"),
            columns,
        )
        for change in changes
    ]


def _value(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _code_lines(view: DiffView) -> list[str]:
    out: list[str] = []
    for name, side in (("a", view["a"]), ("b", view["b"])):
        files = "files without a commit" if side["bundles"] else "nothing is shipped"
        out.append(f"  {name}: {clean(words.code(side['code'])) if side['code'] else files}")
    if view["files_unknown"]:
        return [*out, f"  {clean(view['files_unknown'])}"]
    if not view["files"]:
        return [*out, "  the files are the same"]
    differ = "differs" if len(view["files"]) == 1 else "differ"
    return [*out, f"  {many(len(view['files']), 'file')} {differ}"]


def _file_lines(file: FileChangeView, color: bool) -> list[str]:
    head = f"{file['change']}  {clean(file['path'])}"
    lines = (clean(line) for line in file["diff"].splitlines()[2:])  # without its own heading
    painted = [paint(line, _DIFF_STYLES.get(line[:1], ""), color) for line in lines]
    return ["", paint(head, "bold", color), *painted]
