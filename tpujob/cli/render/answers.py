"""What the commands print that make or steer a job: its plan, its id, its state and what comes next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.commands.data.where import data_words
from tpujob.cli.render import words
from tpujob.cli.render.lines import STATE_STYLE, labelled
from tpujob.cli.render.text import paint
from tpujob.domain.text import clean, many, rate

if TYPE_CHECKING:
    from tpujob.api import JobView, PlanView

#: of what lets `create` refuse a job
LATER = "the job cannot be submitted before it can be read"


def plan_page(plan: PlanView, columns: int, *, color: bool = False) -> str:
    """`tpujob create --dry-run`."""
    zones = ", ".join(plan["zones"])
    facts = [
        ("TPU", f"{words.kind(plan)} ({plan['generation']}), {plan['pricing']}"),
        (
            "Hosts",
            f"{many(plan['hosts'], 'host')}, {many(plan['chips'], 'chip')}{words.topology(plan)}",
        ),
        ("Memory", f"{plan['hbm_gib']} GiB of HBM" if plan["hbm_gib"] else ""),
        ("Peak", f"{plan['peak_bf16_tflops']:,.0f} bf16 TFLOP/s" if plan["hbm_gib"] else ""),
        ("Zone", plan["zone"] + (f" (of {zones})" if len(plan["zones"]) > 1 else "")),
        ("Software", plan["runtime_version"]),
        ("Cost", rate(plan["usd_per_hour"])),
        ("Jobs", _jobs(plan)),
        ("Bucket", plan["bucket"]),
        *_program(plan["command"], "First" if plan.get("elements") else "Program"),
        ("Runs in", plan["environment"]),
        *(("Mount", mount) for mount in plan["mounts"]),
        *(("Data", line) for one in plan.get("data", ()) for line in data_words(one)),
        *(("Refused", f"{one['message']}; {LATER}") for one in plan.get("refused", ())),
        *(("Warning", warning) for warning in plan["warnings"]),
    ]
    title = f"{clean(plan['name'])} would get (nothing was submitted):"
    out = [paint(title, "bold", color)]
    for label, text in facts:
        out += labelled(label, text, columns, color)
    return "\n".join(out)


def _jobs(plan: PlanView) -> str:
    """Say how many jobs an array or a sweep makes, and what those cost that may run at once; empty: it is one job."""
    count, most = plan.get("elements"), plan.get("at_once", 1)
    if not count:
        return ""
    usd = plan["usd_per_hour"]
    cost = rate(None if usd is None else usd * most)
    together = f"at most {most:,} at once" if most < count else "all at once"
    each = "; its budget is of each job" if plan["spec"].get("budget") else ""
    return (
        f"{count:,}, each as above; {together}: {many(most * plan['chips'], 'chip')}, {cost}{each}"
    )


def _program(command: str, label: str) -> list[tuple[str, str]]:
    """Each line of the program by itself: joined, they would read as one command. Of a group that of its first job."""
    lines = [line for line in command.splitlines() if line.strip()]
    return [("" if n else label, line) for n, line in enumerate(lines)]


def created_text(
    job: JobView, columns: int, list_price: float | None, *, color: bool, page: str = ""
) -> str:
    """Return what `tpujob create` prints: the id, the hardware, its price, the page, and the next commands."""
    name = paint(f"{job['id']}  {clean(job['name'])}", "bold", color)
    size = words.group_size(job)
    each = f"{many(size, 'job')}, each on a " if size else ""
    asked = (
        f"{each}{job['pricing']} {words.kind(job)}: {many(job['hosts'], 'host')}, {many(job['chips'], 'chip')}, "
        f"{rate(list_price)} while it holds the slice{words.unpaid(job)}"
    )
    return "\n".join(
        [
            f"Created job {name}",
            *labelled("Requests", clean(asked), columns, color),
            *labelled("Page", page, columns, color),
            *next_commands(
                job["id"], ("show", "cancel") if size else ("show", "logs -f", "cancel")
            ),
        ]
    )


def steered_text(job: JobView, columns: int, now: float, *, color: bool = False) -> str:
    """Return what a command that steered a job prints: the job's state, and what happens next."""
    state = paint(clean(job["state"]), STATE_STYLE.get(job["state"], ""), color)
    title = f"Job {clean(job['id'])} ({clean(job['name'])}): {state}"
    facts = [
        ("Now", words.now(job)),
        ("Trouble", words.trouble(job)),
        ("Next", words.what_next(job, now)),
    ]
    lines = [line for label, text in facts for line in labelled(label, text, columns, color)]
    return "\n".join([title, *lines])


def stop_question(job: JobView, verb: str, *, checkpoints: bool) -> str:
    """Return the question before a job is deleted or cleaned; empty: nothing would be lost."""
    held = any(not s["gone_at"] for s in job["slices"])
    if not held and not (job["attempts"] and verb == "Clean") and not checkpoints:
        return ""
    out = f"{verb} job {clean(job['id'])} ({clean(job['name'])})?"
    for one in job.get("actions", ()):
        if one["name"] == verb.lower():
            out += f" It {clean(one['does'])}. It costs {clean(one['costs'])}."
            asks = [ask for ask in one["asks"] if checkpoints and ask["name"] == "checkpoints"]
            out += "".join(f" It {clean(ask['does'])}." for ask in asks)
    return out


NEXT = {
    "show": "what it does and why",
    "logs -f": "its output, as it comes",
    "logs": "its output",
    "cancel": "stop the program, keep the slice for a while",
    "clean": "remove its logs and its record",
}


def next_commands(job_id: str, commands: Sequence[str]) -> list[str]:
    """One line for each command that makes sense now."""
    shown = {c: f"tpujob {c.split()[0]} {job_id}{c[len(c.split()[0]) :]}" for c in commands}
    room = max(map(len, shown.values()))
    return [f"  {line:{room}}  {NEXT[c]}" for c, line in shown.items()]
