"""`tpujob list` and `tpujob status`: a line for each job or process. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpujob.cli.render import words
from tpujob.cli.render.lines import STATE_STYLE, elapsed
from tpujob.cli.render.table import GAP, Column, space, table
from tpujob.cli.render.text import clip_middle, wrap
from tpujob.domain.final_states import FINAL
from tpujob.domain.text import age, clean, count, rate, seconds, unreadable, usd
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import JobPage, JobRow, ListQuery

#: a command for a first job that needs no file
FIRST = "tpujob run --type v4-8 -- echo hello"
DEMO = "See one run from start to end, preemption included:\n  tpujob demo"

UNCUT = 100  #: a floor that no name exceeds, so that the name is cut last


#: name of a column -> the column, and the function that returns its text. Where the table is too wide, `_NARROW` are
#: left out, then long columns are cut
_CELLS: dict[str, tuple[Column, Callable[[JobRow, float], str]]] = {
    "id": (Column("Job ID"), lambda j, _: j["id"]),
    "user": (Column("User", floors=(8, 6, 4)), lambda j, _: j["user"]),
    "name": (Column("Name", floors=(UNCUT, UNCUT, UNCUT, 16, 8)), lambda j, _: j["name"]),
    "type": (Column("Accelerator", floors=(8, 7, 6), cut=clip_middle), lambda j, _: words.kind(j)),
    "zone": (Column("Zone", floors=(14, 13, 8), cut=clip_middle), lambda j, _: j["zone"] or "-"),
    "ip": (Column("Host0 IP"), lambda j, _: j["host0_ip"] or "-"),
    "state": (
        Column("Status", floors=(12, 12, 9), style=lambda s: STATE_STYLE.get(s, "yellow")),
        lambda j, _: j["state"] + (", error" if j.get("last_error") else ""),
    ),
    "step": (Column("Step", floors=(11, 11, 5), right=True), lambda j, _: step(j)),
    "age": (Column("Age", right=True), lambda j, now: age(elapsed(j["created_at"], now))),
    "pricing": (Column("Pricing"), lambda j, _: j["pricing"]),
    "attempts": (Column("Attempts", right=True), lambda j, _: str(j["attempt"])),
    "preemptions": (Column("Preemptions", right=True), lambda j, _: str(j["preemptions"])),
    "rate": (Column("Rate", right=True), lambda j, _: rate(j["usd_per_hour"])),
    "spent": (Column("Spent", right=True), lambda j, _: usd(j["usd_spent"])),
    "why": (Column("Why", floors=(24,)), lambda j, _: _why(j)),
    "tags": (Column("Tags", floors=(24, 16, 8)), lambda j, _: ", ".join(j.get("tags", ()))),
    "note": (Column("Note", floors=(24,)), lambda j, _: j.get("note", "")),
    "params": (Column("Params", floors=(24, 16, 8)), lambda j, _: words.params(j)),
    "loss": (
        Column("Loss", right=True),
        lambda j, _: words.loss(j) or "-",
    ),
}
#: default columns for the jobs of an array or a sweep
OF_GROUP = "id,name,params,state,step,loss,age"
_DEFAULT = ("id", "user", "name", "type", "zone", "ip", "state", "step", "age")
#: titles of columns left out, in this order, where the table is too wide; User only if all rows have the same user
_NARROW = ("Host0 IP", "User")
WHY_WIDTH = 24  #: free columns that a column Why needs


def chosen_columns(text: str) -> tuple[str, ...]:
    """Return the names of columns in a list with commas. Raises BadRequest for an unknown one."""
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    if unknown := [name for name in names if name not in _CELLS]:
        hint = f"Columns: {', '.join(_CELLS)}"
        raise BadRequest(f"--columns: there is no column {unknown[0]}", hint=hint)
    return names


def list_page(
    page: JobPage,
    request: ListQuery,
    columns: int,
    now: float,
    *,
    color: bool = False,
    chosen: Sequence[str] = (),
    hints: Sequence[str] = (),
) -> str:
    """Return the page of `tpujob list`: the table, or the meaning of an empty list and `hints` for a first job; at last
    the jobs that cannot be shown."""
    shown = _list_table(page, request, columns, now, color=color, chosen=chosen, hints=hints)
    unclear = unreadable(page["unreadable"])
    return "\n".join([shown, *(wrap(f"warning: {unclear}", columns) if unclear else [])])


def _list_table(
    page: JobPage,
    request: ListQuery,
    columns: int,
    now: float,
    *,
    color: bool,
    chosen: Sequence[str],
    hints: Sequence[str],
) -> str:
    if page["rows"] and chosen:
        cells = _cells(page["rows"], chosen, now)
        return table([_CELLS[name][0] for name in chosen], cells, columns, color=color)
    if page["rows"]:
        return job_table(page["rows"], columns, now, color=color)
    if request.keys() & {"mine", "states", "causes", "types", "zones", "text", "group"}:
        return f"No matching jobs ({page['total']} in all)."
    user = clean(request.get("user", ""))
    whose = f" of {user}" if user else ""
    option = f" --user {user}" if user else ""
    if not any(page["states"].values()):
        return f"There is no job{whose}." if user else "\n".join(["No jobs.", *hints])
    return f"No job{whose} is active or ended within the last day. `tpujob list --all{option}` shows older ones."


def first_hints(*, submits: bool, local: bool) -> list[str]:
    """Return how to make a first job, for a user who may, and on the local stack how to see one."""
    first = [f"Make the first one:\n  {FIRST}"] if submits else []
    return [*first, DEMO] if submits and local else first


def job_table(rows: Sequence[JobRow], columns: int, now: float, *, color: bool = False) -> str:
    """Return a line for each job, then a line for each job with swapped-out slices or a nearly spent budget."""
    defaults = [_CELLS[name][0] for name in _DEFAULT]
    shown, cells = _narrow(defaults, _cells(rows, _DEFAULT, now), columns)
    if space(shown, cells, columns) >= WHY_WIDTH:
        shown = (*(replace(column, floors=()) for column in shown), _CELLS["why"][0])
        whys = _cells(rows, ["why"], now)
        cells = [(*row, *why) for row, why in zip(cells, whys, strict=True)]
    out = [table(shown, cells, columns, color=color)]
    for job in rows:
        if job["condemned"]:
            price = f"{rate(job['usd_per_hour'])} in all"
            out += _note(job, f"{words.swapped_out(job['condemned'])}; {price}", columns)
        if job["candidates"]:
            out += _note(job, words.race(job["candidates"]), columns)
        if job["warned"]:
            out += _note(job, "; ".join(job["warned"]), columns)
    return "\n".join(out)


def _cells(rows: Sequence[JobRow], names: Sequence[str], now: float) -> list[tuple[str, ...]]:
    texts = [_CELLS[name][1] for name in names]
    return list(zip(*([clean(text(job, now)) for job in rows] for text in texts), strict=True))


def _narrow(
    shown: Sequence[Column], cells: list[tuple[str, ...]], columns: int
) -> tuple[Sequence[Column], list[tuple[str, ...]]]:
    """Leave out the least useful columns while the table is too wide; return the columns and cells that remain."""
    for title in _NARROW:
        index = next(position for position, column in enumerate(shown) if column.title == title)
        if space(shown, cells, columns) >= -GAP:
            break
        if title == "User" and len({row[index] for row in cells}) > 1:
            break
        shown = [*shown[:index], *shown[index + 1 :]]
        cells = [(*row[:index], *row[index + 1 :]) for row in cells]
    return shown, cells


def _why(job: JobRow) -> str:
    return clean(f"{job['trouble']}; retrying" if job["trouble"] else job["why"])


def _note(job: JobRow, text: str, columns: int) -> list[str]:
    return wrap(clean(f"{job['id']}: {text}"), max(20, columns))


def step(job: JobRow) -> str:
    """Return `480/600`, `480` or `-`; for a group, how many of its jobs have ended: `2 of 6`."""
    if states := job.get("elements"):
        ended = sum(states.get(state, 0) for state in FINAL)
        return f"{ended:,} of {job.get('group_size', 0):,}"
    if job["step"] is None:
        return "-"
    total = f"/{count(job['steps'])}" if job["steps"] else ""
    return count(job["step"]) + total


def stack_page(processes: Sequence[Mapping[str, Any]], columns: int, *, color: bool) -> str:
    """Return the processes of the local stack, for `tpujob status`."""
    titles = (
        Column("Process"),
        Column("State", style=lambda cell: "green" if cell == "up" else "dim"),
        Column("Pid"),
        Column("Address"),
    )
    rows = [
        (p["name"], "up" if p["running"] else "down", str(p["pid"] or "-"), p["url"] or "-")
        for p in processes
    ]
    return table(titles, rows, columns, color=color)


def health_lines(health: Mapping[str, Any] | None, now: float) -> list[str]:
    """Return the time of the backend's last pass and its troubles. `health`: `HealthView`, an error with its hint, or
    None for a backend that does not run."""
    if health is None:
        return []
    if "error" in health:
        return [
            f"Last pass: not known: {clean(health['error'])}",
            *filter(None, [clean(health["hint"])]),
        ]
    loop = health["loop"]
    passed = seconds(loop["passed_at"])
    ago = "not yet" if passed is None else f"{age(now - passed)} ago"
    troubles = (f"{trouble['text']}. {trouble['hint']}" for trouble in health["troubles"])
    return [f"Last pass: {ago}", *(clean(text[:1].upper() + text[1:]) for text in troubles)]
