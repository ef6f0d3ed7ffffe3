"""What `tpujob hosts`, `tpujob leaks` and `tpujob fsck` print. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, wrap
from tpujob.domain.figures import age, rate
from tpujob.domain.text import clean, many

if TYPE_CHECKING:
    from tpujob.api import (
        BrokenView,
        LeakView,
        MemberView,
        SuspectView,
        SweptView,
    )

NO_HOSTS = "No machine is suspected of wrong numbers, and none is pinned."
NO_LEAKS = "Nothing is left over: every slice in the cloud belongs to a job."
NO_MEMBERS = "Nobody else may use this backend. `tpujob members add NAME ROLE` adds somebody."
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
    """Everybody on the list, one line each, in the order given."""
    if not found:
        return NO_MEMBERS
    rows = [(clean(m["name"]), m["role"], clean(m["id"]) or "not seen yet") for m in found]
    return table(_MEMBERS, rows, columns, color=color)


def hosts_table(found: Sequence[SuspectView], columns: int, *, color: bool = False) -> str:
    """Several machines, one line each, in the order given."""
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
    """The slices that no job claims, the sum of their prices, and what happens to them."""
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
    """What was or would be deleted; what was left, and why."""
    would = "would be " if dry_run else ""
    said = (
        (swept["deleted"], f"{would or 'being '}deleted:"),
        (swept["kept"], "left alone: so new that a job may still claim them:"),
        (swept["failed"], "could not be deleted; try again:"),
    )
    out: list[str] = []
    for found, text in said:
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
    """The rules that do not hold, one line each: rule, job, what is wrong."""
    if not found:
        return ALL_WELL
    lines = [f"{b['rule']}  {b['job'] or '-':6}  {b['text']}" for b in found]
    return "\n".join(clean(line) for line in lines)
