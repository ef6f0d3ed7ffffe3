"""`tpujob events`, `capacity` and `diff`: what happened to a job or to all, all hardware, and how two jobs differ."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import RetryingClient, connect
from tpujob.cli.errors import goes_on, on_interrupt
from tpujob.cli.options import Follow, Json, argument, complete_job, option
from tpujob.cli.output import flush, say, say_json_line, say_json_list, say_page, screen
from tpujob.cli.render import words
from tpujob.cli.render.lines import event_line, event_lines, job_event_line
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip, clip_middle, paint
from tpujob.domain.paging import PAGE as MOST
from tpujob.domain.paging import newest
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


#: events of all jobs, unless a number is given
NEWEST = 50


def events(
    job: Annotated[str | None, argument("[JOB]", "Default: all jobs.")] = None,
    follow: Follow = False,
    kind: Annotated[
        list[str] | None, option("KIND", "All jobs: filter by kind, such as slice_gone.")
    ] = None,
    limit: Annotated[int, option("N", "All jobs: number of events.", min=1, max=MOST)] = NEWEST,
    as_json: Json = False,
) -> None:
    """Print the events of a job, or of all jobs, oldest first."""
    if job is None:
        if follow:
            raise BadRequest("--follow needs a job", hint="`tpujob list --watch` follows them all.")
        _all(limit, kind or [], as_json=as_json)
        return
    if kind:
        raise BadRequest("--kind goes without a job")
    retrying = RetryingClient()
    job_id = retrying.ask(lambda api: api.get(job))["id"]
    if not follow:
        found = retrying.ask(lambda api: api.events(job_id))
        if as_json:
            say_json_list(found)
        else:
            _say_events(found)
        return
    with on_interrupt(*goes_on(job_id)):
        for _, fresh in retrying.changes(job_id, timeout=10):
            if as_json:
                for event in fresh:
                    say_json_line(event)
            else:
                _say_events(fresh)


def _all(limit: int, kinds: list[str], *, as_json: bool) -> None:
    """The newest events of all jobs."""
    retrying = RetryingClient()

    def page(most: int, before: str) -> tuple[list[JobEventView], str]:
        found = retrying.ask(lambda api: api.happened(before=before, kinds=kinds, limit=most))
        return found["events"], found["next"]

    found = newest(page, limit)
    if as_json:
        say_json_list(found)
        return
    on = screen()
    for event in found:
        say(job_event_line(event, on.columns if on.tty else 0, color=on.color))
    flush()


def _say_events(found: list[EventView]) -> None:
    on = screen()
    for event in found:
        if on.tty:
            say(event_lines(event, on.columns, color=on.color))
        else:
            say(event_line(event))
    flush()


def capacity(as_json: Json = False) -> None:
    """Show what jobs hold and wait for, and what the cloud refuses."""
    found = RetryingClient().ask(lambda api: api.capacity())
    say_page(found, capacity_page, as_json, now=time.time())


# The capacity page ---------------------------------------------------------------------------------------------------


_OFFERS = (
    Column("Type", floors=(10, 8, 7), cut=clip_middle),
    Column("Zone", floors=(14, 13, 8), cut=clip_middle),
    Column("Pricing", floors=(9, 6, 4)),
    Column("Held", right=True),
    Column("$/h", right=True),
    Column("Asked", right=True),
    Column("Ready", right=True),
    Column("Wait", right=True),
    Column("Refused", right=True),
    Column("Preempted", right=True),
)


def capacity_page(found: CapacityReport, columns: int, now: float, *, color: bool = False) -> str:
    """Ready, wait (half of them waited no longer), refused and preempted are of the last day."""
    out: list[str] = []
    if found["offers"]:
        out.append(table(_OFFERS, [_offer(one) for one in found["offers"]], columns, color=color))
    elif not found["closed"]:
        out.append("No hardware is held or requested, and nothing happened within the last day.")
    out += [_closed(one, now) for one in found["closed"]]
    if found["waiting"]:
        wait = "waits" if found["waiting"] == 1 else "wait"
        out.append(f"{many(found['waiting'], 'job')} {wait} for a slice.")
    return "\n".join([*out, "`tpujob quota` shows how much more there may be."])


def _offer(one: OfferView) -> tuple[str, ...]:
    waited = one["wait_p50_s"]
    return (
        clean(one["type"]),
        clean(one["zone"]),
        clean(one["pricing"]),
        _count(one["held"]),
        rate(one["usd_per_hour"]) if one["held"] else "-",
        _count(one["asked"]),
        _count(one["ready"]),
        "-" if waited is None else span(waited),
        _count(one["refused"]),
        _count(one["preempted"]),
    )


def _count(number: int) -> str:
    return str(number) if number else "-"


def _closed(one: OpenCircuit, now: float) -> str:
    """`STOCKOUT of v4-32 spot in us-central2-b: 3 refusals since 12m ago, asked again in 40s`."""
    since, again = seconds(one["since"]) or now, seconds(one["again_at"]) or now
    then = (
        f"next request in {span(again - now)}" if one["open"] else "requested when a job needs it"
    )
    what = f"{clean(one['what'])} {clean(one['pricing'])} in {clean(one['place'])}"
    refusals = f"{many(one['refusals'], 'refusal')} within {span(max(0.0, now - since))}"
    return f"{one['cause']} of {what}: {refusals}, {then}"


# What differs between two jobs ---------------------------------------------------------------------------------------


Side = Annotated[str, argument("JOB", "Its id or name.", autocompletion=complete_job)]
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def diff(a: Side, b: Side, as_json: Json = False) -> None:
    """Show what differs between two jobs: spec, code, outcome."""
    say_page(connect().diff(a, b), diff_page, as_json)


def diff_page(found: DiffView, columns: int, *, color: bool = False) -> str:
    """Return the changes from the first job to the second; what is equal is left out."""
    a, b = found["a"], found["b"]
    out = [clean(f"a: job {a['id']}, {a['name']}"), clean(f"b: job {b['id']}, {b['name']}")]
    for title, changes in (("Spec", found["spec"]), ("Outcome", found["outcome"])):
        out += ["", paint(title, "bold", color), *_changes(changes, columns)]
    out += ["", paint("Code", "bold", color), *_code(found)]
    for file in found["files"]:
        out += _file(file, color)
    if found["cut"]:
        out += ["", "There are more changes than are shown."]
    return "\n".join(out)


def _changes(changes: list[ChangeView], columns: int) -> list[str]:
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


def _code(found: DiffView) -> list[str]:
    out: list[str] = []
    for name, side in (("a", found["a"]), ("b", found["b"])):
        files = "files without a commit" if side["bundles"] else "nothing is shipped"
        out.append(f"  {name}: {clean(words.code(side['code'])) if side['code'] else files}")
    if found["files_unknown"]:
        return [*out, f"  {clean(found['files_unknown'])}"]
    if not found["files"]:
        return [*out, "  the files are the same"]
    differ = "differs" if len(found["files"]) == 1 else "differ"
    return [*out, f"  {many(len(found['files']), 'file')} {differ}"]


def _file(file: FileChangeView, color: bool) -> list[str]:
    head = f"{file['change']}  {clean(file['path'])}"
    lines = (clean(line) for line in file["diff"].splitlines()[2:])  # without its own heading
    painted = [paint(line, _DIFF_STYLES.get(line[:1], ""), color) for line in lines]
    return ["", paint(head, "bold", color), *painted]
