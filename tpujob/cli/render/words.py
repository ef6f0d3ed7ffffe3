"""What a job's state means for the person who owns it, in plain words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.text import clock, rate

if TYPE_CHECKING:
    from tpujob.api import AttemptView, CodeView, JobView, PlanView, SliceView

FINAL = frozenset({"succeeded", "failed", "cancelled"})

#: What `tpujob wait` exits with when a job has ended so.
EXIT_OF_STATE = {"succeeded": 0, "failed": 1, "cancelled": 5}


def now(job: JobView) -> str:
    """Why it stands where it stands; of a wait for capacity, as it is now and not as it was when it began."""
    return job["waiting"] if job["waiting"] and job["state"] == "queued" else job["message"]


def kind(of: JobView | PlanView | SliceView) -> str:
    """Of which type the hardware is, and how many slices of it where that is more than one."""
    if of["tpu_slices"] == 1:
        return of["type"]
    from tpujob.domain.hardware.accelerators import (
        several,  # its tables take longer than most commands
    )

    return several(of["type"], of["tpu_slices"])


def condemned(job: JobView) -> str:
    """What a job is billed for beside the slice that it works on."""
    names = ", ".join(job["condemned"])
    were = "was" if len(job["condemned"]) == 1 else "were"
    prices = [s["usd_per_hour"] for s in job["slices"] if s["name"] in job["condemned"]]
    known = [price for price in prices if price is not None]
    cost = f", at {rate(sum(known) if len(known) == len(prices) else None)}," if prices else ""
    return f"{names} {were} swapped out as bad and kept{cost} until another slice is there"


def what_next(job: JobView) -> str:
    """What happens next, by itself or by a command."""
    state, wish, ref = job["state"], job["wish"], job["id"]
    if state in FINAL:
        return _after_end(job)
    if state == "queued" and wish == "clean":  # which owns no slice
        return "it ends; then its logs and its record are removed"
    if state == "queued" and wish != "run":
        return "it ends as cancelled; record and logs stay"
    if wish == "clean":
        return "it gives its slice back; then its logs and its record are removed"
    if wish == "release":
        return "it gives its slice back and ends as cancelled; record and logs stay"
    if state == "holding":
        until = clock(job["hold_until"])
        if wish == "run":
            return "the program is being started again on the slice that it holds"
        return (
            f"the slice is kept, and paid for, until {until}: `tpujob resume {ref}` goes on, "
            f"`tpujob delete {ref}` gives it back now"
        )
    if wish == "cancel" and state == "provisioning":
        return "the request for a slice is taken back; a slice that is there already is kept"
    if wish == "cancel" and state == "releasing":
        return "when the slice is seen to be gone, the job ends"
    if wish == "cancel":
        return "the program is being stopped; the slice is kept for a resume"
    return _by_itself(job)


def _by_itself(job: JobView) -> str:
    from_step = f" from checkpoint {job['checkpoint']}" if job["checkpoint"] is not None else ""
    match job["state"]:
        case "queued" if job["attempt"]:
            return f"it asks for another slice and goes on{from_step}"
        case "queued":
            return "it asks for a slice"
        case "provisioning":
            return "when the slice is ready, the program starts on all hosts"
        case "preparing":
            return "when all hosts have started the program, it is running"
        case "running" if job["pricing"] == "spot":
            return (
                "it succeeds when every host exits with 0; "
                "if the slice is preempted, it gets another and goes on from its last checkpoint"
            )
        case "running":
            return "it succeeds when every host exits with 0"
        case "releasing":
            return "when the slice is seen to be gone, the job goes on or ends"
        case _:
            return "unknown to this version of tpujob"


def _after_end(job: JobView) -> str:
    ref = job["id"]
    if job["wish"] == "clean":
        return "its logs and its record are being removed"
    if job["state"] == "succeeded":
        return f"nothing: it is done. `tpujob logs {ref}` has its output"
    if job["cause"] == "BAD_SPEC":  # a spec never changes, so the same would come of it
        return "nothing by itself: correct the job file and `tpujob create` it again"
    return f"nothing by itself: `tpujob resume {ref}` goes on from the last checkpoint"


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
    "": "nothing says yet whether it is the machine or the maths",
}


def why_ended(attempt: AttemptView) -> str:
    """The message of an attempt that has ended, without what `end_of` says as well."""
    said = f"attempt {attempt['number']} ended, {attempt['cause']}: "
    return attempt["message"].removeprefix(said)


def steps_of(attempt: AttemptView) -> str:
    """The steps that an attempt made: `, step 300 to 600`."""
    first, last = attempt["resumed_from"], attempt["step"]
    if last is None:
        return ""
    return f", step {first} to {last}" if first else f", to step {last}"


def code(code: CodeView) -> str:
    """Where the checkout stood whose files are shipped."""
    branch = f" on {code['branch']}" if code["branch"] else ""
    changes = ", with changes" if code["dirty"] else ""
    return f"{code['commit'][:12]}{branch}{changes}" + (
        f" ({code['diff']})" if code["diff"] else ""
    )
