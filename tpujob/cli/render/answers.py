"""The output of the commands that create or steer a job: its plan, its id and state, and what happens next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.lines import STATE_STYLE, labelled
from tpujob.cli.render.text import paint
from tpujob.domain.text import clean, many, rate, usd

if TYPE_CHECKING:
    from tpujob.api import DataView, JobView, PlanView


REFUSED = "the job cannot be submitted before it can be read"


def plan_page(plan: PlanView, columns: int, *, color: bool = False) -> str:
    """Return the page of `tpujob create --dry-run`."""
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
        ("Software", plan["system_image"]),
        ("Cost", rate(plan["usd_per_hour"])),
        ("Jobs", _jobs(plan)),
        ("Bucket", plan["bucket"]),
        *_program(plan["command"], "First" if plan.get("elements") else "Program"),
        ("Runs in", plan["environment"]),
        *(("Mount", mount) for mount in plan["mounts"]),
        *(("Data", line) for source in plan.get("data", ()) for line in data_lines(source)),
        *(("Refused", f"{refusal['message']}; {REFUSED}") for refusal in plan.get("refused", ())),
        *(("Warning", warning) for warning in plan["warnings"]),
    ]
    title = f"{clean(plan['name'])} would get (nothing was submitted):"
    out = [paint(title, "bold", color)]
    for label, text in facts:
        out += labelled(label, text, columns, color)
    return "\n".join(out)


def _jobs(plan: PlanView) -> str:
    """Say how many jobs an array or a sweep makes, and the price of those that run at once; empty: it is one job."""
    count = plan.get("elements")
    parallel = plan.get("at_once", 1)
    if not count:
        return ""
    usd = plan["usd_per_hour"]
    cost = rate(None if usd is None else usd * parallel)
    parallel_text = f"at most {parallel:,} at once" if parallel < count else "all at once"
    budget = "; its budget is of each job" if plan["spec"].get("budget") else ""
    return f"{count:,}, each as above; {parallel_text}: {many(parallel * plan['chips'], 'chip')}, {cost}{budget}"


def _program(command: str, label: str) -> list[tuple[str, str]]:
    """Return each line of the program on a line: joined, the lines would read as one command."""
    lines = [line for line in command.splitlines() if line.strip()]
    return [("" if n else label, line) for n, line in enumerate(lines)]


def data_lines(source: DataView) -> list[str]:
    """Return a line for each region in which a data set of a plan may be read."""
    lines: list[str] = []
    for place in source["places"]:
        if not place["copied"] and source["to_bring"]:
            text = f"is copied from {source['source']} first"
        elif not place["copied"]:
            text = "is read where it is"
            if place["usd_epoch"]:
                text += f", across regions: {usd(place['usd_epoch'])} an epoch"
        elif place["missing"]:
            text = f"{words.missing_bytes(place)} are copied first, for {usd(place['usd_copy'])}"
        else:
            text = "is already there" if source["objects"] else "is copied first"
        lines.append(clean(f"{source['name']} in {place['region']}: {text} ({place['path']})"))
    return lines


def created_text(
    job: JobView, columns: int, list_price: float | None, *, color: bool, page: str = ""
) -> str:
    """Return what `tpujob create` prints: the id, the hardware, its price, the page, and the next commands."""
    name = paint(f"{job['id']}  {clean(job['name'])}", "bold", color)
    size = words.group_size(job)
    quantity = f"{many(size, 'job')}, each on a " if size else ""
    hardware = (
        f"{quantity}{job['pricing']} {words.kind(job)}: {many(job['hosts'], 'host')}, {many(job['chips'], 'chip')}, "
        f"{rate(list_price)} while it holds the slice{words.unpaid(job)}"
    )
    return "\n".join(
        [
            f"Created job {name}",
            *labelled("Requests", clean(hardware), columns, color),
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
        ("Now", words.reason(job)),
        ("Trouble", words.trouble(job, now)),
        ("Next", words.what_next(job, now)),
    ]
    lines = [line for label, text in facts for line in labelled(label, text, columns, color)]
    return "\n".join([title, *lines])


def noted_text(job: JobView) -> str:
    """Return what people noted about the job, in one line."""
    return f"{clean(job['id'])} {clean(job['name'])}: {clean(job.get('note', '')) or 'no note'}"


def tagged_text(job: JobView, columns: int, now: float, *, color: bool = False) -> str:
    """Return the job's tags, in one line."""
    del columns, now, color  # a tag is not cut
    tags = clean(", ".join(job.get("tags", ()))) or "no tag"
    return f"{clean(job['id'])} {clean(job['name'])}: {tags}"


def stop_question(job: JobView, verb: str, *, checkpoints: bool) -> str:
    """Return the question before a job is deleted or cleaned; empty: nothing would be lost."""
    holds_slice = any(not slice["gone_at"] for slice in job["slices"])
    if not holds_slice and not (job["attempts"] and verb == "Clean") and not checkpoints:
        return ""
    out = f"{verb} job {clean(job['id'])} ({clean(job['name'])})?"
    for action in job.get("actions", ()):
        if action["name"] == verb.lower():
            out += f" It {clean(action['does'])}. It costs {clean(action['costs'])}."
            for option in action["asks"] if checkpoints else ():
                if option["name"] == "checkpoints":
                    out += f" It {clean(option['does'])}."
    return out


#: command with its options -> what it does
NEXT = {
    "show": "what it does and why",
    "logs -f": "its output, as it comes",
    "logs": "its output",
    "cancel": "stop the program, keep the slice for a while",
    "clean": "remove its logs and its record",
}


def next_commands(job_id: str, commands: Sequence[str]) -> list[str]:
    """Return a line for each command: the command and what it does."""
    typed: dict[str, str] = {}
    for command in commands:
        name, *options = command.split()
        typed[command] = " ".join(["tpujob", name, job_id, *options])
    width = max(map(len, typed.values()))
    return [f"  {text:{width}}  {NEXT[command]}" for command, text in typed.items()]
