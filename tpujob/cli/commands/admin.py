"""The commands of an administrator: suspected machines, orphaned slices, inconsistent records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import connect, say_where
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json, argument, complete_host, flag
from tpujob.cli.output import note, say, say_json, say_page
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, wrap
from tpujob.domain.text import age, clean, many, rate
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import (
        BrokenView,
        JobsApi,
        LeakView,
        MemberView,
        SuspectView,
        SweptView,
    )


hosts = typer.Typer(
    invoke_without_command=True, help="Show machines that are suspected of wrong numbers; pin them."
)

Machine = Annotated[str, argument("NAME", "As in `tpujob hosts`.", autocompletion=complete_host)]


@hosts.callback()
def show_hosts(context: typer.Context, as_json: Json = False) -> None:
    """Show machines that are suspected of wrong numbers; pin them."""
    if context.invoked_subcommand:
        return
    say_page(connect().hosts(), hosts_table, as_json)


@hosts.command()
def pin(
    name: Machine,
    good: Annotated[bool, flag("Always use it.", "--good")] = False,
    bad: Annotated[bool, flag("Never use it.", "--bad")] = False,
    off: Annotated[bool, flag("Remove the mark.", "--off")] = False,
    as_json: Json = False,
) -> None:
    """Mark a machine good or bad, whatever its score."""
    if good + bad + off != 1:
        raise BadRequest(
            "give exactly one of --good, --bad and --off", hint=f"tpujob hosts pin {name} --bad"
        )
    api = connect()
    found = api.pin_host(_whole(api, name), "good" if good else "bad" if bad else "")
    say_json(found) if as_json else say(host_text(found))


@hosts.command()
def clear(name: Machine) -> None:
    """Forget a machine's score, pin and reasons."""
    api = connect()
    whole = _whole(api, name)
    api.clear_host(whole)
    say(f"{clean(whole)}: score, pin and reasons are forgotten.")


def _whole(api: JobsApi, name: str) -> str:
    """Return the whole name of a machine that a table cut at `…`; any other name unchanged."""
    head, cut, tail = name.partition("…")
    if not cut:
        return name
    known = [h["physical"] for h in api.hosts()]
    found = [k for k in known if k.startswith(head) and k.endswith(tail)]
    if len(found) != 1:
        raise BadRequest(
            f"{len(found)} machines match {name}", hint="`tpujob hosts --json` shows whole names."
        )
    return found[0]


def leaks(as_json: Json = False) -> int:
    """List slices in the cloud that no job claims, with age and price."""
    swept = connect().leaks()
    found, unlisted = [*swept["deleted"], *swept["kept"]], swept.get("unlisted", {})
    if as_json or found or not unlisted:
        say_page(found, leaks_table, as_json)
    for what, why in unlisted.items():
        note(f"{clean(what)} could not be listed: {clean(why)}")
    return FOUND if found or unlisted else 0


def sweep(
    dry_run: Annotated[bool, flag("Print only.", "--dry-run")] = False,
    as_json: Json = False,
) -> int:
    """Delete slices, requests and keys that no job claims.

    In all zones of the context."""
    say_where()
    swept = connect().sweep(dry_run=dry_run)
    say_page(swept, swept_page, as_json, dry_run=dry_run)
    return FOUND if swept["failed"] or swept.get("unlisted") else 0


def fsck(as_json: Json = False) -> int:
    """Check every record, its history and the slices in the cloud."""
    found = connect().fsck()
    say_json(found) if as_json else say(fsck_lines(found))
    return FOUND if found else 0


# The pages -----------------------------------------------------------------------------------------------------------


NO_HOSTS = "No machine is suspected of wrong numbers, and none is pinned."
NO_LEAKS = "No slice is left over: every slice in the cloud belongs to a job."
NO_MEMBERS = "This backend has no members. `tpujob members add NAME ROLE` adds one."
ALL_WELL = "All records, their histories and the slices in the cloud agree."

_HOSTS = (
    Column("Machine", floors=(64, 64, 32, 21), cut=clip_middle),
    Column("Zone", floors=(14, 13, 13, 8), cut=clip_middle),
    Column("Score", right=True),
    Column("Refused", style=lambda cell: "red" if cell == "yes" else ""),
    Column("Pin"),
    Column("Newest reason", floors=(24, 13)),
)
_MEMBERS = (
    Column("Name", floors=(40, 24), cut=clip_middle),
    Column("Role"),
    Column("Known as", floors=(24, 12), cut=clip_middle),
)
_LEAKS = (
    Column("Name", floors=(24, 16, 12), cut=clip_middle),
    Column("Zone", floors=(14, 13, 8), cut=clip_middle),
    Column("Age", right=True),
    Column("$/h", right=True),
    Column("Job"),
    Column("In the cloud", floors=(40, 20, 12)),
)


def members_table(found: Sequence[MemberView], columns: int, *, color: bool = False) -> str:
    """Return a line for each member, in the order given."""
    if not found:
        return NO_MEMBERS
    rows = [(clean(m["name"]), m["role"], clean(m["id"]) or "not seen yet") for m in found]
    return table(_MEMBERS, rows, columns, color=color)


def hosts_table(found: Sequence[SuspectView], columns: int, *, color: bool = False) -> str:
    """Return a line for each machine, in the order given."""
    if not found:
        return NO_HOSTS
    rows = [
        (
            clean(one["physical"]),
            clean(one["zone"]) or "-",
            f"{one['score']:.2f}",
            _refused(one),
            clean(one["pinned"]) or "-",
            clean(one["reasons"][-1]) if one["reasons"] else "-",
        )
        for one in found
    ]
    return table(_HOSTS, rows, columns, color=color)


def _refused(one: SuspectView) -> str:
    if one["refused"]:
        return "yes"
    return "to one" if one.get("accusers") else "no"


def host_text(one: SuspectView) -> str:
    """A machine after it was pinned."""
    kept = "programs are kept off it" if one["refused"] else "programs may run on it"
    pin = f"pinned as {one['pinned']}" if one["pinned"] else "not pinned"
    return clean(f"{one['physical']}: {pin}, score {one['score']:.2f}; {kept}.")


def leaks_table(found: Sequence[LeakView], columns: int, *, color: bool = False) -> str:
    """Return the slices that no job claims, the sum of their prices, and what happens to them."""
    if not found:
        return NO_LEAKS
    known = [one["usd_per_hour"] for one in found if one["usd_per_hour"] is not None]
    least = "at least " if 0 < len(known) < len(found) else ""
    total = (
        f"{many(len(found), 'slice')} that no job claims, {least}{rate(sum(known) if known else None)} in all. "
        "The backend deletes such slices some minutes after it finds them; `tpujob sweep` does it now."
    )
    return "\n".join([_leak_rows(found, columns, color=color), *wrap(total, columns)])


def swept_page(
    swept: SweptView, columns: int, *, color: bool = False, dry_run: bool = False
) -> str:
    """Return what was or would be deleted; what was left, and why."""
    would = "would be " if dry_run else ""
    sections = (
        (swept["deleted"], f"{would or 'being '}deleted:"),
        (swept["kept"], "left alone: new, so that a job may still claim them:"),
        (swept["failed"], "could not be deleted; try again:"),
    )
    out: list[str] = []
    for found, text in sections:
        if found:
            out += [f"{many(len(found), 'slice')} {text}", _leak_rows(found, columns, color=color)]
    if swept["keys"]:
        whose = clean(", ".join(swept["keys"]))
        out += wrap(
            f"Keys that {would or 'were '}removed, of slices that are gone: {whose}", columns
        )
    for what, why in swept.get("unlisted", {}).items():
        out += wrap(
            f"{clean(what)} could not be listed, and was left as it is: {clean(why)}", columns
        )
    return "\n".join(out) or NO_LEAKS


def _leak_rows(found: Sequence[LeakView], columns: int, *, color: bool) -> str:
    rows = [
        (
            clean(one["name"]),
            clean(one["zone"]),
            age(one["age_s"]),
            "?" if one["usd_per_hour"] is None else f"{one['usd_per_hour']:,.2f}",
            clean(one["job"]) or "-",
            clean(one["detail"]) or "-",
        )
        for one in found
    ]
    return table(_LEAKS, rows, columns, color=color)


def fsck_lines(found: Sequence[BrokenView]) -> str:
    """Return a line for each rule that does not hold: rule, job, what is wrong."""
    if not found:
        return ALL_WELL
    lines = [f"{b['rule']}  {b['job'] or '-':6}  {b['text']}" for b in found]
    return "\n".join(clean(line) for line in lines)


# Members -------------------------------------------------------------------------------------------------------------


members = typer.Typer(invoke_without_command=True, help="Show members and roles.")

Name = Annotated[str, argument("NAME", "Login or e-mail address.")]


def whoami(as_json: Json = False) -> None:
    """Print your identity and role."""
    found = connect().whoami()
    who = f"{clean(found['name'])} ({clean(found['id'])}), {found['role']}"
    say_json(found) if as_json else say(who)


@members.callback()
def show_members(context: typer.Context, as_json: Json = False) -> None:
    """Show members and roles."""
    if context.invoked_subcommand:
        return
    say_page(list(connect().members()), members_table, as_json)


@members.command()
def add(
    name: Name,
    role: Annotated[str, argument("ROLE", "viewer, submitter or admin.")],
    as_json: Json = False,
) -> None:
    """Add a member, or change their role."""
    found = connect().give_role(name, role)
    say_json(found) if as_json else say(f"{clean(found['name'])} is {_a(found['role'])} now.")


@members.command()
def remove(name: Name) -> None:
    """Remove a member; their jobs continue."""
    connect().remove_member(name)
    say(
        f"{clean(name)} is refused from now on. Their jobs continue: `tpujob list --user {clean(name)}`."
    )


@members.command()
def apply(
    file: Annotated[Path, argument("FILE", "A line `NAME: ROLE` per member.")],
) -> None:
    """Replace the list by that of a file."""
    from tpujob.config.members import read
    from tpujob.domain.members import differences

    wanted, api = read(file), connect()
    now = {member["name"]: member["role"] for member in api.members()}
    give, gone = differences(now, wanted)
    for name, role in give.items():
        api.give_role(name, role)
        say(f"{name} is {_a(role)} now.")
    for name in gone:
        api.remove_member(name)
        say(f"{clean(name)} is refused from now on.")


def _a(role: str) -> str:
    return f"an {role}" if role == "admin" else f"a {role}"
