"""Facts of a job as phrases that several pages show. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render.text import clock
from tpujob.domain.final_states import FINAL
from tpujob.domain.text import amount_of_bytes, clean, many, number, rate, seconds, span, usd

if TYPE_CHECKING:
    from tpujob.api import (
        AttemptView,
        BestView,
        CodeView,
        DataPlaceView,
        EstimateView,
        JobRow,
        JobView,
        PlanView,
        SliceView,
    )

#: final state -> exit code of `tpujob wait`
EXIT_OF_STATE = {"succeeded": 0, "failed": 1, "cancelled": 5}


def reason(job: JobView) -> str:
    """Say why the job is in its state; while it waits for data or for capacity, what it waits for."""
    return job.get("why") or job["message"]


def cost(job: JobView) -> str:
    """Say what the job costs per hour now and has cost, by list price."""
    copies = job.get("usd_copies", 0.0)
    extra = f", and {usd(copies)} for copies" if copies >= 0.0001 else ""
    return f"{rate(job['usd_per_hour'])} now, {usd(job['usd_spent'])} so far{extra}{unpaid(job)}"


def unpaid(job: JobView) -> str:
    """Return the remark beside an amount that is not paid, as the job runs on the emulator."""
    return " (list price; the emulator bills nothing)" if job.get("emulated") else ""


def is_active_group(job: JobView | JobRow) -> bool:
    """Return whether the job is a group that has not ended: its state is that of its elements, so it has no start."""
    return bool(job.get("elements")) and job["state"] not in FINAL


def kind(view: JobView | JobRow | PlanView | SliceView | EstimateView) -> str:
    """Return the type of the hardware, and the number of slices when there are several."""
    if view["tpu_slices"] == 1:
        return view["type"]
    from tpujob.domain.hardware.accelerators import (
        several,  # its tables take longer than most commands
    )

    return several(view["type"], view["tpu_slices"])


def topology(view: JobView | PlanView) -> str:
    """Return `, topology 2x2x2`; empty if it is unknown."""
    return f", topology {view['topology']}" if view["topology"] else ""


def condemned(job: JobView) -> str:
    """Name the bad slices that a job is still billed for; empty: none."""
    prices = [s["usd_per_hour"] for s in job["slices"] if s["name"] in job["condemned"]]
    numbers = [price for price in prices if price is not None]
    total = sum(numbers) if len(numbers) == len(prices) else None
    return swapped_out(job["condemned"], f", at {rate(total)}," if prices else "")


def race(names: Sequence[str]) -> str:
    """Name the candidates of a race; empty: there are none."""
    waits = f"also requested: {', '.join(names)}; the first slice that is ready serves"
    return waits if names else ""


def swapped_out(names: Sequence[str], cost: str = "") -> str:
    if not names:
        return ""
    verb = "was" if len(names) == 1 else "were"
    return f"{', '.join(names)} {verb} swapped out as bad; kept{cost} until a replacement is ready"


def spending(job: JobView) -> str:
    """Say how much of its budgets a job has spent, and how long they last; empty: the job has none."""
    sentences = (clean(budget.get("text", "")) for budget in job.get("spending", ()))
    return "; ".join(filter(None, sentences))


def deadline(job: JobView) -> str:
    """Say by when a job should end, and what that takes; empty: it has no deadline."""
    shown = job.get("deadline")
    return clean(shown["text"]) if shown else ""


def what_next(job: JobView, now: float) -> str:
    """Say what happens next, by itself or by a command; empty: the backend does not say."""
    step = job.get("next")
    if step is None:
        return ""
    commands = ", ".join(f"`{entry['command']}` {entry['does']}" for entry in step["commands"])
    text = f"{step['text']}; {commands}" if commands else step["text"]
    due = seconds(step["at"])
    if due is None or due <= now:
        return text
    return f"in {span(due - now)}, at {clock(step['at'])}: {text}"


def trouble(job: JobView, now: float) -> str:
    """Say what is failing now, for how long and since when; empty: nothing."""
    began = seconds(job["trouble_since"])
    since = (
        "" if began is None else f", for {span(now - began)}, since {clock(job['trouble_since'])}"
    )
    return f"{job['trouble']}{since}; retrying" if job["trouble"] else ""


def loss(job: JobView | JobRow) -> str:
    """Return the newest loss: `2.314` or `NaN`; empty: none is known."""
    if bad := job.get("nonfinite"):
        return bad["loss"]
    return "" if job["loss"] is None else number(job["loss"])


def loss_warning(job: JobView) -> str:
    """Say since when the loss is not finite; empty: it is."""
    bad = job.get("nonfinite")
    return bad["text"] if bad else ""


def metrics(job: JobView) -> str:
    """Return the newest metrics, other than the loss: `accuracy 0.98, gradient norm not finite`."""
    values = job["metrics"].items()
    return ", ".join(f"{name} {'not finite' if v is None else number(v)}" for name, v in values)


def ignored(job: JobView) -> str:
    """Count the reports in the bucket that were rejected; empty: none."""
    reports = job.get("ignored")
    if not reports:
        return ""
    counts = [
        f"{many(reports['unverified'], 'report')} without a signature of its hosts",
        f"{many(reports['replayed'], 'report')} that are old ones, sent again",
    ]
    texts = [text for text, count in zip(counts, reports.values(), strict=True) if count]
    return f"{' and '.join(texts)}: another writer uses the folder of its hosts' reports"


def maintenance(job: JobView, now: float) -> str:
    """Say which maintenance the cloud announces for the hosts, and what happens then; empty: none."""
    announced = job.get("maintenance")
    starts = seconds(announced["starts"]) if announced else None
    if announced is None or starts is None:
        return ""
    kind = f"{announced['kind'].lower()} " if announced["kind"] else ""
    until = f" to {_utc(announced['ends'])}" if announced["ends"] else ""
    when = f"from {_utc(announced['starts'])}{until} UTC"
    begins = f", in {span(starts - now)}" if starts > now else ", which has begun"
    consequence = "no action before the notice; then the program saves, and continues afterwards"
    return f"{kind}maintenance of its hosts {when}{begins}; {consequence}"


def planned_end(job: JobView, now: float) -> str:
    """Say when the cloud takes back the job's slice, as planned; empty: at no time that is known."""
    serving = (s for s in job["slices"] if s["role"] == "serving" and not s["gone_at"])
    at = next((s["ends_at"] for s in serving if "ends_at" in s), None)
    ends = seconds(at)
    if ends is None:
        return ""
    left = f", in {span(ends - now)}" if ends > now else ""
    return f"its slice, as planned: at {_utc(at)} UTC{left}"


def _utc(at: str | None) -> str:
    """Return a view's time as `2026-11-29 04:00`."""
    return (at or "")[:16].replace("T", " ")


def end_of(attempt: AttemptView) -> str:
    """Say how an attempt ended: `failed CRASH, host 1`."""
    host = f", host {attempt['host']}" if attempt["host"] is not None else ""
    end = " ".join(filter(None, (attempt["outcome"], attempt["cause"])))
    return end + host if end else "running" if attempt["running_at"] else "starting"


def verdict_of(attempt: AttemptView) -> str:
    """Say where a number that is not finite came from; empty: there was none."""
    verdict = attempt["verdict"]
    if verdict is None:
        return ""
    host, machines = verdict["host"], attempt["physical"]
    machine = machines[host] if host is not None and host < len(machines) else ""
    places = [
        f"at step {verdict['step']}" if verdict["step"] is not None else "",
        f"on host {host}" if host is not None else "",
        verdict["device"],
        f"machine {machine}" if machine else "",
    ]
    blame = _BLAME.get(verdict["blame"], f"{verdict['blame']} is to blame")
    return f"not finite {', '.join(filter(None, places))}: {blame}".replace(" :", ":")


_BLAME = {
    "device": "a replay blames the device",
    "data": "a replay blames the data",
    "model": "a replay blames the model",
    "": "the program did not replay the step, so this attempt alone does not show the cause",
}


def firewall_hint(attempt: AttemptView) -> str:
    """Say what to do about hosts that did not reach each other; empty: all did."""
    if not attempt.get("unreached"):
        return ""
    return (
        "the firewall of the network keeps its hosts apart: `tpujob doctor` prints the missing rule"
    )


def steps_of(attempt: AttemptView) -> str:
    """Return the steps that an attempt made: `, step 300 to 600`."""
    first, last = attempt.get("first_step"), attempt["step"]
    if last is None:
        return ""
    return f", to step {last}" if first is None else f", step {first} to {last}"


def code(code: CodeView) -> str:
    """Return the commit whose files are shipped."""
    branch = f" on {code['branch']}" if code["branch"] else ""
    changes = ", with changes" if code["dirty"] else ""
    return f"{code['commit'][:12]}{branch}{changes}" + (
        f" ({code['diff']})" if code["diff"] else ""
    )


def element(job: JobView) -> str:
    """Return the job's place in its array or sweep: `7 of 24 of job 000012: lr=0.001 seed=0`; empty: it is in none."""
    if not job.get("group"):
        return ""
    row = params(job)
    place = f"{job.get('index')} of {job.get('group_size'):,} of job {job.get('group')}"
    return f"{place}: {row}" if row else place


def missing_bytes(place: DataPlaceView) -> str:
    """Return the size of what a place of a data set lacks."""
    return amount_of_bytes(place["missing_bytes"]) if place["missing"] else "nothing"


def params(view: JobView | JobRow | BestView) -> str:
    """Return an element's parameters: `lr=0.001 seed=0`."""
    return " ".join(f"{name}={value}" for name, value in view.get("params", {}).items())


def group_size(job: JobView) -> int:
    """Return how many jobs an array or a sweep has; 0: the job is none."""
    return 0 if job.get("group") else job.get("group_size", 0)


def elements(job: JobView) -> str:
    """Return how many jobs of an array or a sweep are in each state; empty: the job is none."""
    size = group_size(job)
    counts = [f"{count:,} {state}" for state, count in job.get("elements", {}).items()]
    return ", ".join([f"{size:,} in all", *counts]) if size else ""


def best(job: JobView) -> str:
    """Return the element of an array or a sweep with the lowest loss; empty: none has reported one."""
    element = job.get("best")
    if not element:
        return ""
    text = f"{element['name']} ({element['id']}), loss {number(element['loss'])}"
    return f"{text}: {params(element)}".rstrip(": ")


def slice_jobs(slice: SliceView, job_id: str) -> str:
    """Return the jobs that have used a slice, in order; empty: only this job has."""
    return " → ".join(
        ("this job" if job["id"] == job_id else clean(job["id"] + " " + job["name"]))
        + f" {span(job['seconds'])}"
        for job in slice.get("jobs", ())
    )


def worst(job: JobView) -> list[str]:
    """Return a line for each of some failed jobs of an array or a sweep."""
    return [
        f"{element['name']} ({element['id']}) {element['cause'] or ''}: {element['why']}"
        for element in job.get("worst", ())
    ]
