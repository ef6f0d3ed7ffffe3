"""Facts of a job in words, as several pages show them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render.text import clock
from tpujob.domain.text import clean, many, number, rate, seconds, span, usd

if TYPE_CHECKING:
    from tpujob.api import (
        AttemptView,
        BestView,
        CodeView,
        EstimateView,
        JobRow,
        JobView,
        PlanView,
        SliceView,
    )

FINAL = frozenset({"succeeded", "failed", "cancelled"})

#: What `tpujob wait` exits with when a job has ended so.
EXIT_OF_STATE = {"succeeded": 0, "failed": 1, "cancelled": 5}


def now(job: JobView) -> str:
    """Say why the job is in its state; while it waits for data or for capacity, the wait as it is now."""
    return job.get("why") or job["message"]


def cost(job: JobView) -> str:
    """Say what it costs now and has cost, by list price."""
    copies = job.get("usd_copies", 0.0)
    more = f", and {usd(copies)} for copies" if copies >= 0.0001 else ""
    return f"{rate(job['usd_per_hour'])} now, {usd(job['usd_spent'])} so far{more}{unpaid(job)}"


def unpaid(job: JobView) -> str:
    """The remark beside an amount that is not paid, as the job runs on the emulator."""
    return " (list price; the emulator bills nothing)" if job.get("emulated") else ""


def is_going_group(job: JobView | JobRow) -> bool:
    """Whether its state is that of its elements, so that its record does not say since when."""
    return bool(job.get("elements")) and job["state"] not in FINAL


def kind(of: JobView | JobRow | PlanView | SliceView | EstimateView) -> str:
    """The type of the hardware, and the number of slices when there are several."""
    if of["tpu_slices"] == 1:
        return of["type"]
    from tpujob.domain.hardware.accelerators import (
        several,  # its tables take longer than most commands
    )

    return several(of["type"], of["tpu_slices"])


def topology(of: JobView | PlanView) -> str:
    """Return `, topology 2x2x2`; empty if it is unknown."""
    return f", topology {of['topology']}" if of["topology"] else ""


def condemned(job: JobView) -> str:
    """Name the bad slices that a job is still billed for; empty: none."""
    prices = [s["usd_per_hour"] for s in job["slices"] if s["name"] in job["condemned"]]
    known = [price for price in prices if price is not None]
    cost = f", at {rate(sum(known) if len(known) == len(prices) else None)}," if prices else ""
    return swapped_out(job["condemned"], cost)


def swapped_out(names: Sequence[str], cost: str = "") -> str:
    if not names:
        return ""
    were = "was" if len(names) == 1 else "were"
    return f"{', '.join(names)} {were} swapped out as bad; kept{cost} until a replacement is ready"


def spending(job: JobView) -> str:
    """Say how much of its budgets is spent, and how long they last; empty: it has none."""
    sentences = (clean(one.get("said", "")) for one in job.get("spending", ()))
    return "; ".join(filter(None, sentences))


def what_next(job: JobView, now: float) -> str:
    """Say what happens next, by itself or by a command; empty: the backend does not say."""
    coming = job.get("next")
    if coming is None:
        return ""
    commands = ", ".join(f"`{one['command']}` {one['does']}" for one in coming["commands"])
    text = f"{coming['text']}; {commands}" if commands else coming["text"]
    due = seconds(coming["at"])
    if due is None or due <= now:
        return text
    return f"in {span(due - now)}, at {clock(coming['at'])}: {text}"


def trouble(job: JobView) -> str:
    """Say what is failing now, and since when; empty: nothing."""
    since = f", since {clock(job['trouble_since'])}" if job["trouble_since"] else ""
    return f"{job['trouble']}{since}; retrying" if job["trouble"] else ""


def ignored(job: JobView) -> str:
    """Count the reports in the bucket that were rejected; empty: none."""
    found = job.get("ignored")
    if not found:
        return ""
    counts = [
        f"{many(found['unverified'], 'report')} without a signature of its hosts",
        f"{many(found['replayed'], 'report')} that are old ones, sent again",
    ]
    counted = [text for text, n in zip(counts, found.values(), strict=True) if n]
    return f"{' and '.join(counted)}: another writer uses the folder of its hosts' reports"


def maintenance(job: JobView, now: float) -> str:
    """Say which maintenance the cloud announces for the hosts, and what happens then; empty: none."""
    coming = job.get("maintenance")
    starts = seconds(coming["starts"]) if coming else None
    if coming is None or starts is None:
        return ""
    kind = f"{coming['kind'].lower()} " if coming["kind"] else ""
    until = f" to {_utc(coming['ends'])}" if coming["ends"] else ""
    when = f"from {_utc(coming['starts'])}{until} UTC"
    soon = f", in {span(starts - now)}" if starts > now else ", which has begun"
    then = "no action before the notice; then the program saves, and continues afterwards"
    return f"{kind}maintenance of its hosts {when}{soon}; {then}"


def _utc(at: str | None) -> str:
    """`2026-11-29 04:00` of a view's time."""
    return (at or "")[:16].replace("T", " ")


def end_of(attempt: AttemptView) -> str:
    """Say how an attempt ended: `failed CRASH, host 1`."""
    host = f", host {attempt['host']}" if attempt["host"] is not None else ""
    end = " ".join(filter(None, (attempt["outcome"], attempt["cause"])))
    return end + host if end else "running"


def verdict_of(attempt: AttemptView) -> str:
    """Say where a number that is not finite came from; empty: there was none."""
    verdict = attempt["verdict"]
    if verdict is None:
        return ""
    host, machines = verdict["host"], attempt["physical"]
    known = host is not None and host < len(machines) and machines[host]
    where = [
        f"at step {verdict['step']}" if verdict["step"] is not None else "",
        f"on host {host}" if host is not None else "",
        verdict["device"],
        f"machine {machines[host]}" if known and host is not None else "",
    ]
    blame = _BLAME.get(verdict["blame"], f"{verdict['blame']} is to blame")
    return f"not finite {', '.join(filter(None, where))}: {blame}".replace(" :", ":")


_BLAME = {
    "device": "a replay blames the device",
    "data": "a replay blames the data",
    "model": "a replay blames the model",
    "": "the program did not replay the step, so this attempt alone does not show the cause",
}


def cut_off(attempt: AttemptView) -> str:
    """Say what to do about hosts that did not reach each other; empty: they did."""
    if not attempt.get("unreached"):
        return ""
    return (
        "the firewall of the network keeps its hosts apart: `tpujob doctor` prints the missing rule"
    )


def steps_of(attempt: AttemptView) -> str:
    """The steps that an attempt made: `, step 300 to 600`."""
    first, last = attempt.get("first_step"), attempt["step"]
    if last is None:
        return ""
    return f", to step {last}" if first is None else f", step {first} to {last}"


def code(code: CodeView) -> str:
    """The commit whose files are shipped."""
    branch = f" on {code['branch']}" if code["branch"] else ""
    changes = ", with changes" if code["dirty"] else ""
    return f"{code['commit'][:12]}{branch}{changes}" + (
        f" ({code['diff']})" if code["diff"] else ""
    )


def element(job: JobView) -> str:
    """Its place in its array or sweep: `7 of 24 of job 000012: lr=0.001 seed=0`; empty: it is in none."""
    if not job.get("group"):
        return ""
    row = params(job)
    place = f"{job.get('index')} of {job.get('group_size'):,} of job {job.get('group')}"
    return f"{place}: {row}" if row else place


def params(of: JobView | JobRow | BestView) -> str:
    """An element's row of the matrix: `lr=0.001 seed=0`."""
    return " ".join(f"{name}={value}" for name, value in of.get("params", {}).items())


def group_size(job: JobView) -> int:
    """How many jobs an array or a sweep has; 0: it is none."""
    return 0 if job.get("group") else job.get("group_size", 0)


def elements(job: JobView) -> str:
    """How many jobs of an array or a sweep are in each state; empty: it is none."""
    size = group_size(job)
    counts = [f"{count:,} {state}" for state, count in job.get("elements", {}).items()]
    return ", ".join([f"{size:,} in all", *counts]) if size else ""


def best(job: JobView) -> str:
    """The element of an array or a sweep with the lowest loss; empty: none has reported one."""
    found = job.get("best")
    if not found:
        return ""
    row = params(found)
    return f"{found['name']} ({found['id']}), loss {number(found['loss'])}: {row}".rstrip(": ")


def slice_jobs(slice: SliceView, job_id: str) -> str:
    """The jobs that have had a slice, one after the other; empty: this one alone."""
    return " → ".join(
        ("this job" if one["id"] == job_id else clean(one["id"] + " " + one["name"]))
        + f" {span(one['seconds'])}"
        for one in slice.get("jobs", ())
    )


def worst(job: JobView) -> list[str]:
    """Of an array or a sweep, a line for each of some that failed."""
    return [
        f"{one['name']} ({one['id']}) {one['cause'] or ''}: {one['why']}"
        for one in job.get("worst", ())
    ]
