"""`tpujob list` and `tpujob status`: one line for each job or process. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpujob.cli.render import words
from tpujob.cli.render.lines import STATE_STYLE, elapsed
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import age, clip_middle, count, rate, wrap
from tpujob.domain.text import clean

if TYPE_CHECKING:
    from tpujob.api import JobView

NO_JOBS = """\
No jobs. Make the first one:
  tpujob create configs/quickstart.yaml
See one run from start to end, preemption included:
  tpujob demo"""

#: on a narrow terminal the long columns are cut first, then those that the id stands for as well
_JOB_COLUMNS = (
    Column("Job ID"),
    Column("User", floors=(8, 6, 4)),
    Column("Name", floors=(16, 12, 8)),
    Column("Accelerator", floors=(8, 7, 6), cut=clip_middle),
    Column("Zone", floors=(14, 13, 8), cut=clip_middle),
    Column("Host0 IP"),
    Column("Status", floors=(12, 12, 9), style=lambda cell: STATE_STYLE.get(cell, "")),
    Column("Step", floors=(11, 11, 5), right=True),
    Column("Age", right=True),
)


def job_table(
    jobs: Sequence[JobView],
    columns: int,
    now: float,
    *,
    color: bool = False,
    all: bool = True,
    user: str = "",
) -> str:
    """`tpujob list`: one line for each job; for an empty list what that means, and how to make a first job."""
    if not jobs:
        return _none(all=all, user=clean(user))
    rows = [
        (
            clean(job["id"]),
            clean(job["user"]),
            clean(job["name"]),
            clean(words.kind(job)),
            clean(job["zone"]) or "-",
            clean(job["host0_ip"]) or "-",
            clean(job["state"]),
            step(job),
            age(elapsed(job["created_at"], now)),
        )
        for job in jobs
    ]
    out = [table(_JOB_COLUMNS, rows, columns, color=color)]
    out += [line for job in jobs if job["condemned"] for line in _condemned(job, columns)]
    out += [line for job in jobs if _warned(job) for line in _spent(job, columns)]
    return "\n".join(out)


def _warned(job: JobView) -> bool:
    return job["state"] not in words.FINAL and any(one["warned"] for one in job.get("spending", ()))


def _spent(job: JobView, columns: int) -> list[str]:
    """A line for a job of whose budgets little is left."""
    told = [words.one_budget(one) for one in job.get("spending", ()) if one["warned"]]
    return wrap(clean(f"{job['id']}: {'; '.join(told)}"), max(20, columns))


def _none(*, all: bool, user: str) -> str:
    whose, option = (f" of {user}", f" --user {user}") if user else ("", "")
    if all:
        return f"There is no job{whose}." if user else NO_JOBS
    return (
        f"No job{whose} is going on. `tpujob list --all{option}` also shows those that have ended."
    )


def _condemned(job: JobView, columns: int) -> list[str]:
    """A line for a job that is billed for more than the slice in its row."""
    text = f"{job['id']}: {words.condemned(job)}; {rate(job['usd_per_hour'])} in all"
    return wrap(clean(text), max(20, columns))


def step(job: JobView) -> str:
    """How far it is: `480/600`, `480` or `-`."""
    if job["step"] is None:
        return "-"
    of = f"/{count(job['steps'])}" if job["steps"] else ""
    return count(job["step"]) + of


def stack_page(processes: Sequence[Mapping[str, Any]], columns: int, *, color: bool) -> str:
    """`tpujob status`: the processes of the local stack."""
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
