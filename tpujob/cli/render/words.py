"""Facts of a job in words, as several pages show them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.text import clock, rate, seconds, span, usd
from tpujob.domain.text import amount_of_bytes, clean, dollars

if TYPE_CHECKING:
    from tpujob.api import (
        AttemptView,
        CodeView,
        EstimateView,
        JobView,
        PlanView,
        SliceView,
        SpendingView,
    )

FINAL = frozenset({"succeeded", "failed", "cancelled"})

#: What `tpujob wait` exits with when a job has ended so.
EXIT_OF_STATE = {"succeeded": 0, "failed": 1, "cancelled": 5}


def now(job: JobView) -> str:
    """Why the job is in its state; while it waits for data or for capacity, the wait as it is now."""
    if job["state"] != "queued":
        return job["message"]
    return copying(job) or job["waiting"] or job["message"]


def copying(job: JobView) -> str:
    """What of its data a job waits for before it asks for a slice; empty: nothing."""
    waits = job.get("copying")
    if not waits:
        return ""
    total, there = waits["total_bytes"], amount_of_bytes(waits["bytes"])
    size = f"{there} of {amount_of_bytes(total)}" if total is not None else there
    left = "" if waits["left_s"] is None else f", {span(waits['left_s'])} left"
    cost = f", {usd(waits['usd'])} so far" if waits["usd"] else ""
    return f"waits for {waits['name']} to reach {waits['region']}: {size} are there{left}{cost}"


def kind(of: JobView | PlanView | SliceView | EstimateView) -> str:
    """The type of the hardware, and the number of slices when there are several."""
    if of["tpu_slices"] == 1:
        return of["type"]
    from tpujob.domain.hardware.accelerators import (
        several,  # its tables take longer than most commands
    )

    return several(of["type"], of["tpu_slices"])


def topology(of: JobView | PlanView) -> str:
    """`, topology 2x2x2`; empty: nobody knows it."""
    return f", topology {of['topology']}" if of["topology"] else ""


def condemned(job: JobView) -> str:
    """What a job is billed for beside the slice that it works on; empty: nothing."""
    if not job["condemned"]:
        return ""
    names = ", ".join(job["condemned"])
    were = "was" if len(job["condemned"]) == 1 else "were"
    prices = [s["usd_per_hour"] for s in job["slices"] if s["name"] in job["condemned"]]
    known = [price for price in prices if price is not None]
    cost = f", at {rate(sum(known) if len(known) == len(prices) else None)}," if prices else ""
    return f"{names} {were} swapped out as bad and kept{cost} until another slice is there"


def spending(job: JobView) -> str:
    """How much of its budgets is spent, and until when they last; empty: it has none."""
    return "; ".join(one_budget(one) for one in job.get("spending", ()))


def one_budget(one: SpendingView) -> str:
    """`$41.20 of $50.00 spent (82%), $8.50 an hour: lasts until 14:05`."""
    whose = "" if one["whose"] == "job" else f"{clean(one['whose'])}: "
    spent, limit = one["used_micros"], one["limit_micros"]
    said = f"{whose}{dollars(spent)} of {dollars(limit)} spent ({spent / limit:.0%})"
    if one["unpriced"]:
        return f"{said}; nobody knows the price of {clean(one['unpriced'])}"
    if one["used_up"]:
        return f"{said}; used up, with {dollars(one['reserve_micros'])} for the way out"
    if one["reached_at"]:
        return f"{said}, {rate(one['micros_per_hour'] / 1e6)} now: lasts until {_utc(one['reached_at'])} UTC"
    return said


def what_next(job: JobView, now: float) -> str:
    """What happens next, by itself or by a command; empty: the backend does not say."""
    coming = job.get("next")
    if coming is None:
        return ""
    commands = ", ".join(f"`{one['command']}` {one['does']}" for one in coming["commands"])
    said = f"{coming['text']}; {commands}" if commands else coming["text"]
    due = seconds(coming["at"])
    if due is None or due <= now:
        return said
    return f"in {span(due - now)}, at {clock(coming['at'])}: {said}"


def trouble(job: JobView) -> str:
    """What is in the way just now, and since when; empty: nothing."""
    since = f", since {clock(job['trouble_since'])}" if job["trouble_since"] else ""
    return f"{job['trouble']}{since}; it is tried again" if job["trouble"] else ""


def maintenance(job: JobView, now: float) -> str:
    """What the cloud announces for the hosts, and what comes of it; empty: nothing."""
    coming = job.get("maintenance")
    starts = seconds(coming["starts"]) if coming else None
    if coming is None or starts is None:
        return ""
    kind = f"{coming['kind'].lower()} " if coming["kind"] else ""
    until = f" to {_utc(coming['ends'])}" if coming["ends"] else ""
    when = f"from {_utc(coming['starts'])}{until} UTC"
    soon = f", in {span(starts - now)}" if starts > now else ", which has begun"
    then = "nothing is done before the notice; then the program saves and goes on afterwards"
    return f"{kind}maintenance of its hosts {when}{soon}; {then}"


def _utc(at: str | None) -> str:
    """`2026-11-29 04:00` of a view's time."""
    return (at or "")[:16].replace("T", " ")


def told(job: JobView) -> str:
    """What the cloud said when it last refused what the job waits for; empty: nothing, or nobody knows."""
    waits = job.get("capacity")
    return waits["said"] if waits else ""


def end_of(attempt: AttemptView) -> str:
    """How an attempt ended: `failed CRASH, host 1`."""
    host = f", host {attempt['host']}" if attempt["host"] is not None else ""
    end = " ".join(filter(None, (attempt["outcome"], attempt["cause"])))
    return end + host if end else "going on"


def verdict_of(attempt: AttemptView) -> str:
    """Where a number that is not finite came from; empty: there was none."""
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
    "": "not yet known whether the machine or the program is to blame",
}


def cut_off(attempt: AttemptView) -> str:
    """What to do about hosts that did not reach each other; empty: they did."""
    if not attempt.get("unreached"):
        return ""
    return (
        "the firewall of the network keeps its hosts apart: `tpujob doctor` prints the missing rule"
    )


def steps_of(attempt: AttemptView) -> str:
    """The steps that an attempt made: `, step 300 to 600`."""
    first, last = attempt["resumed_from"], attempt["step"]
    if last is None:
        return ""
    return f", step {first} to {last}" if first else f", to step {last}"


def code(code: CodeView) -> str:
    """The commit whose files are shipped."""
    branch = f" on {code['branch']}" if code["branch"] else ""
    changes = ", with changes" if code["dirty"] else ""
    return f"{code['commit'][:12]}{branch}{changes}" + (
        f" ({code['diff']})" if code["diff"] else ""
    )
