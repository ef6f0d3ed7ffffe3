"""Suspected machines, orphaned slices, inconsistent records, members, and the caller's identity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import connect, note_context
from tpujob.cli.errors import PROBLEM_FOUND
from tpujob.cli.options import Json, argument, complete_host, flag, option
from tpujob.cli.output import get_screen, note, say, say_json, say_page
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import clip, clip_middle, wrap, wrap_indented
from tpujob.domain.text import age, clean, many, rate
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import BrokenView, JobsApi, LeakView, MemberView, SuspectView, SweptView


hosts = typer.Typer(invoke_without_command=True)

Machine = Annotated[str, argument("NAME", "As in `tpujob hosts`.", autocompletion=complete_host)]


@hosts.callback()
def show_hosts(context: typer.Context, as_json: Json = False) -> None:
    """Show machines that are suspected, and why; pin them."""
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
    machine = api.pin_host(_full_name(api, name), "good" if good else "bad" if bad else "")
    say_json(machine) if as_json else say(host_text(machine))


@hosts.command()
def clear(name: Machine) -> None:
    """Forget a machine's score, pin and reasons."""
    api = connect()
    full_name = _full_name(api, name)
    api.clear_host(full_name)
    say(f"{clean(full_name)}: score, pin and reasons are forgotten.")


def _full_name(api: JobsApi, name: str) -> str:
    """Return the full name of a machine whose name a table cut at `…`; any other name unchanged."""
    head, ellipsis, tail = name.partition("…")
    if not ellipsis:
        return name
    names = [machine["physical"] for machine in api.hosts()]
    matches = [full for full in names if full.startswith(head) and full.endswith(tail)]
    if len(matches) != 1:
        raise BadRequest(
            f"{len(matches)} machines match {name}", hint="`tpujob hosts --json` shows whole names."
        )
    return matches[0]


def leaks(as_json: Json = False) -> int:
    """List slices in the cloud that no job claims, with age and price."""
    swept = connect().leaks()
    leaked = [*swept["deleted"], *swept["kept"]]
    unlisted = swept.get("unlisted", {})
    unclear = swept["unclear"]
    if as_json:
        say_json([*leaked, *unclear])
    elif leaked or not (unlisted or unclear):
        say_page(leaked, leaks_table, as_json)
    for slice in unclear:
        note(clean(unclear_text(slice)))
    for resource, reason in unlisted.items():
        note(f"{clean(resource)} could not be listed: {clean(reason)}")
    return PROBLEM_FOUND if leaked or unlisted or unclear else 0


def sweep(
    dry_run: Annotated[bool, flag("Print only.", "--dry-run")] = False,
    name: Annotated[
        str,
        option(
            "NAME", "Delete this slice alone, also if its job's record cannot be read.", "--slice"
        ),
    ] = "",
    yes: Annotated[bool, flag("Do not ask.", "--yes")] = False,
    as_json: Json = False,
) -> int:
    """Delete slices, requests and keys that no job claims.

    In all zones of the context."""
    note_context()
    if name and not yes:
        if not get_screen().asks:
            raise BadRequest(f"{name} is deleted without a terminal only with --yes")
        question = f"Delete {name}? A program that runs on it ends without saving."
        if not typer.confirm(question, err=True):
            raise typer.Abort
    swept = connect().sweep(dry_run=dry_run, slice=name)
    say_page(swept, swept_page, as_json, dry_run=dry_run)
    return PROBLEM_FOUND if swept["failed"] or swept.get("unlisted") else 0


def fsck(as_json: Json = False) -> int:
    """Check every record, its history and the slices in the cloud."""
    violations = connect().fsck()
    say_json(violations) if as_json else say(fsck_lines(violations))
    return PROBLEM_FOUND if violations else 0


# The pages -----------------------------------------------------------------------------------------------------------


NO_HOSTS = "No machine is suspected, and none is pinned."
NO_LEAKS = "No slice is left over: every slice in the cloud belongs to a job."
NO_MEMBERS = "This backend has no members. `tpujob members add NAME ROLE` adds one."
ALL_WELL = "All records, their histories and the slices in the cloud agree."

_HOSTS = (
    Column("Machine", floors=(64, 64, 32, 21), cut=clip_middle),
    Column("Zone", floors=(14, 13, 13, 8), cut=clip_middle),
    Column("Score", right=True),
    Column("Refused", style=lambda cell: "red" if cell == "yes" else ""),
    Column("Pin"),
)
_MEMBERS = (
    Column("Name", floors=(40, 24), cut=clip_middle),
    Column("Role"),
    Column("Known as", floors=(24, 12), cut=clip_middle),
)
_LEAKS = (
    Column("Name", floors=(24, 16, 12), cut=clip_middle),
    Column("Zone", floors=(14, 13, 8), cut=clip_middle),
    *numbers("Age", "$/h"),
    Column("Job"),
    Column("In the cloud", floors=(40, 20, 12)),
)


def members_table(members: Sequence[MemberView], columns: int, *, color: bool = False) -> str:
    """Return a line for each member, in the order given."""
    rows = [
        (clean(m["name"]), m["role"], clean(m["id"]) or "not seen yet")
        for m in members
        if m["role"]
    ]
    texts = [f"{clean(m['name'])} has left, and {_owned(m)}" for m in members if "jobs" in m]
    texts += [
        f"{clean(m['name'])} is no member, but is named in {', '.join(m['named'])}."
        for m in members
        if "named" in m
    ]
    head = table(_MEMBERS, rows, columns, color=color) if rows else NO_MEMBERS
    return "\n".join([head, *(line for text in texts for line in wrap(text, columns))])


def removed_text(member: MemberView, to: str = "") -> str:
    """Return who is refused now, and what they still own."""
    name = clean(member["name"])
    if to:
        read = " and could be read" if member.get("unread") else ""
        return f"{name} is refused from now on. What was theirs{read} is {clean(to)}'s now."
    rest = (
        f", and {_owned(member)}"
        if any(member.get(key) for key in ("jobs", "unread", "secrets"))
        else "."
    )
    return f"{name} is refused from now on{rest}"


def _owned(member: MemberView) -> str:
    """Return what a member who has left owns, and how it gets another owner."""
    name, jobs, active = clean(member["name"]), member.get("jobs", 0), member.get("active", 0)
    going = f" ({active} of them active, which continue)" if active else ""
    if unread := member.get("unread", 0):
        going += f" (and perhaps {many(unread, 'record')} that cannot be read)"
    return (
        f"owns {many(jobs, 'job')}{going} and {many(member.get('secrets', 0), 'secret')}: `tpujob list --user {name}`. "
        f"`tpujob members remove {name} --to NAME` gives them to another member."
    )


def hosts_table(machines: Sequence[SuspectView], columns: int, *, color: bool = False) -> str:
    """Return a line for each machine, in the order given, and below it the accusations; open ones do not count."""
    if not machines:
        return NO_HOSTS
    rows = [
        (
            clean(machine["physical"]),
            clean(machine["zone"]) or "-",
            f"{machine['score']:.2f}",
            _refused(machine),
            clean(machine["pinned"]) or "-",
        )
        for machine in machines
    ]
    head, *shown = table(_HOSTS, rows, columns, color=color).split("\n")
    text = [head]
    for line, machine in zip(shown, machines, strict=True):
        reasons = [*machine["reasons"], *(f"open: {reason}" for reason in machine["open"])]
        wrapped = (part for reason in reasons for part in wrap_indented(reason, columns, 2))
        text += [line, *(clip(part, columns) for part in wrapped)]
    return "\n".join(text)


def _refused(machine: SuspectView) -> str:
    if machine["refused"]:
        return "yes"
    return "to one" if machine.get("accusers") else "no"


def host_text(machine: SuspectView) -> str:
    """Return a line about a machine that was pinned."""
    effect = "programs are kept off it" if machine["refused"] else "programs may run on it"
    pin = f"pinned as {machine['pinned']}" if machine["pinned"] else "not pinned"
    return clean(f"{machine['physical']}: {pin}, score {machine['score']:.2f}; {effect}.")


def leaks_table(leaks: Sequence[LeakView], columns: int, *, color: bool = False) -> str:
    """Return the slices that no job claims, the sum of their prices, and what happens to them."""
    if not leaks:
        return NO_LEAKS
    prices = [leak["usd_per_hour"] for leak in leaks if leak["usd_per_hour"] is not None]
    least = "at least " if 0 < len(prices) < len(leaks) else ""
    total = (
        f"{many(len(leaks), 'slice')} that no job claims, {least}{rate(sum(prices) if prices else None)} in all. "
        "The backend deletes such slices some minutes after it finds them; `tpujob sweep` does it now."
    )
    return "\n".join([_leak_table(leaks, columns, color=color), *wrap(total, columns)])


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
    for slices, text in sections:
        if slices:
            out.append(f"{many(len(slices), 'slice')} {text}")
            out.append(_leak_table(slices, columns, color=color))
    if swept["keys"]:
        names = clean(", ".join(swept["keys"]))
        text = f"Keys that {would or 'were '}removed, of slices that are gone: {names}"
        out += wrap(text, columns)
    for slice in swept["unclear"]:
        out += wrap(clean(unclear_text(slice)), columns)
    for resource, reason in swept.get("unlisted", {}).items():
        text = f"{clean(resource)} could not be listed, and was left as it is: {clean(reason)}"
        out += wrap(text, columns)
    return "\n".join(out) or NO_LEAKS


def unclear_text(leak: LeakView) -> str:
    """Return the sentence about a slice of a job whose record cannot be read."""
    price = "" if leak["usd_per_hour"] is None else f", {rate(leak['usd_per_hour'])}"
    return (
        f"slice {leak['name']} in {leak['zone']}{price}: the record of its job {leak['job'] or '?'} cannot be read, so "
        f"it is neither used nor deleted; `tpujob sweep --slice {leak['name']}` releases it"
    )


def _leak_table(leaks: Sequence[LeakView], columns: int, *, color: bool) -> str:
    rows = [
        (
            clean(leak["name"]),
            clean(leak["zone"]),
            age(leak["age_s"]),
            "?" if leak["usd_per_hour"] is None else f"{leak['usd_per_hour']:,.2f}",
            clean(leak["job"]) or "-",
            clean(leak["detail"]) or "-",
        )
        for leak in leaks
    ]
    return table(_LEAKS, rows, columns, color=color)


def fsck_lines(violations: Sequence[BrokenView]) -> str:
    """Return a line for each violation: rule, job, what is wrong."""
    if not violations:
        return ALL_WELL
    lines = [
        f"{violation['rule']}  {violation['job'] or '-':6}  {violation['text']}"
        for violation in violations
    ]
    return "\n".join(clean(line) for line in lines)


# Members -------------------------------------------------------------------------------------------------------------


members = typer.Typer(invoke_without_command=True)

Name = Annotated[str, argument("NAME", "Login or e-mail address.")]


def whoami(as_json: Json = False) -> None:
    """Print your identity and role."""
    caller = connect().whoami()
    text = f"{clean(caller['name'])} ({clean(caller['id'])}), {caller['role']}"
    say_json(caller) if as_json else say(text)


@members.callback()
def show_members(context: typer.Context, as_json: Json = False) -> None:
    """Show members and roles."""
    if context.invoked_subcommand:
        return
    say_page(connect().members(), members_table, as_json)


@members.command()
def add(
    name: Name,
    role: Annotated[str, argument("ROLE", "viewer, submitter or admin.")],
    as_json: Json = False,
) -> None:
    """Add a member, or change their role."""
    member = connect().give_role(name, role)
    say_json(member) if as_json else say(_role_text(member["name"], member["role"]))
    _note_warnings(member)


@members.command()
def remove(
    name: Name,
    to: Annotated[str, option("NAME", "The member who gets their jobs and secrets.")] = "",
    secrets: Annotated[bool, flag("Remove their secrets.", "--secrets")] = False,
    as_json: Json = False,
) -> None:
    """Remove a member; their jobs continue.

    Both options also work later, on a member who has left."""
    member = connect().remove_member(name, to=to, secrets=secrets)
    say_json(member) if as_json else say(removed_text(member, to))
    _note_warnings(member)


@members.command()
def apply(file: Annotated[Path, argument("FILE", "A line `NAME: ROLE` per member.")]) -> None:
    """Replace the list by that of a file."""
    from tpujob.config.members import read
    from tpujob.domain.members import differences

    desired = read(file)
    api = connect()
    current = {member["name"]: member["role"] for member in api.members()}
    changed, removed = differences(current, desired)
    for name, role in changed.items():
        member = api.give_role(name, role)
        say(_role_text(name, role))
        _note_warnings(member)
    for name in removed:
        say(removed_text(api.remove_member(name)))


def _note_warnings(member: MemberView) -> None:
    for text in member.get("warnings", ()):
        note(f"warning: {clean(text)}")


def _role_text(name: str, role: str) -> str:
    return f"{clean(name)} is {'an' if role == 'admin' else 'a'} {role} now."
