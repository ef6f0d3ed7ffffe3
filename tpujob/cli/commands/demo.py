"""`tpujob demo`: runs a training job on the local stack through a preemption, and shows the job live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import connect, current_settings, page_of, retrying_client, running
from tpujob.cli.errors import job_continues, on_interrupt
from tpujob.cli.options import flag
from tpujob.cli.output import get_screen, note, say
from tpujob.cli.render.answers import next_commands
from tpujob.cli.render.text import clip, clock, pad, paint
from tpujob.domain.text import clean, many, rate, seconds, span, usd
from tpujob.errors import BadRequest, TpujobError

if TYPE_CHECKING:
    from tpujob.api import AttemptView, JobView, PlanView


NOTICE_S = 5.0  #: seconds that a preempted host has; Google Cloud gives 30
#: fractions of all steps: from the first on the slice is preempted after a checkpoint, from the second on at once
EARLY, LATE = 0.25, 0.6


def demo(
    preempt: Annotated[
        bool, flag("Preempt the slice during training.", "--preempt/--no-preempt")
    ] = True,
    keep: Annotated[bool, flag("Keep the local stack running.", "--keep")] = False,
) -> int:
    """Run a training job on the local stack, through a preemption."""
    from tpujob.config import packages

    if not current_settings().local:
        raise BadRequest(
            "the demo preempts a slice, so it runs on the local stack only",
            hint="`tpujob use local`, or only this time `TPUJOB_CONTEXT=local tpujob demo`",
        )
    # hosts on this machine run the program with this Python's packages
    if missing := packages.missing("emulator") | packages.missing("workloads"):
        raise packages.lacking("the demo trains on this machine", missing)
    was_running = running() is not None
    job, plan = _submit()
    code = _watch(job, plan, preempt)
    page = page_of(job["id"])
    if code == 0 and not (keep or was_running):
        from tpujob.config import stack_processes

        stack_processes.down(current_settings())
        where = f" at\n{page}" if page.startswith("http") else "."
        command = f"`tpujob open {job['id']}`"
        say(f"The local stack is stopped. {command} starts it and shows the job{where}")
    elif page:
        say(f"Its page: {page}")
    return code


def _submit() -> tuple[JobView, PlanView]:
    import secrets

    from tpujob.config import files
    from tpujob.domain.spec import jobspec
    from tpujob.submit import bundled

    text = files.read(bundled.CONFIGS / "quickstart.yaml")
    spec = jobspec.dump(jobspec.load(text, "the demo"))
    api = connect()
    job = api.create(spec, idempotency_key=secrets.token_hex(12))
    return job, api.plan(spec)


def _watch(job: JobView, plan: PlanView, preempt: bool) -> int:
    from tpujob.cli.commands.cost.report import time_lines
    from tpujob.cli.live_display import follow, sink_for
    from tpujob.cli.render.text import wrap

    screen = get_screen()
    attempts = 2 if preempt else 1
    hardware = "a spot slice that is preempted during training" if preempt else "a spot slice"
    text = f"Job {job['id']} is configs/quickstart.yaml on {hardware}. Ctrl-C leaves it running."
    say("\n".join(wrap(text, screen.columns)))
    if page := page_of(job["id"]):
        say(f"Its page: {page}")
    price = plan["usd_per_hour"]
    with on_interrupt(*job_continues(job["id"])):
        sink = sink_for(screen, list_price=price)
        ended = follow(retrying_client(), job["id"], sink, on_poll=Preemption(enabled=preempt))
    total = connect().cost(job=job["id"])["total"]
    say(summary(ended, screen.columns, list_price=price, attempts=attempts, color=screen.color))
    say("\n".join(["", *time_lines(total, screen.columns, color=screen.color), ""]))
    say("All of it: tpujob cost report\n\n" + try_next(ended))
    return 1 if shortcomings(ended, attempts=attempts) else 0


class Preemption:
    """Preempts the slice once, well after a checkpoint and well before the end; called at each poll."""

    def __init__(self, *, enabled: bool) -> None:
        self._done = not enabled

    def __call__(self, job: JobView) -> str:
        if self._done or not time_to_preempt(job):
            return ""
        from tpujob.emulator.client import EmulatorClient

        self._done = True
        try:
            emulator = EmulatorClient.from_ready(current_settings().ready_file("emulator"))
            emulator.do("preempt", target=job["id"], notice_s=NOTICE_S)
        except TpujobError as error:
            note(f"tpujob: could not preempt: {error}")
            return ""
        return f"the emulator preempts the slice: {NOTICE_S:g} s of notice"


def time_to_preempt(job: JobView) -> bool:
    """Return whether the first attempt has saved a checkpoint and is between `EARLY` and `LATE` with a later step, or
    beyond `LATE`."""
    step, steps, checkpoint = job["step"], job["steps"], job["checkpoint"]
    if job["state"] != "running" or job["attempt"] != 1 or not (step and steps and checkpoint):
        return False
    return step >= LATE * steps or (step >= EARLY * steps and step > checkpoint)


# The summary ---------------------------------------------------------------------------------------------------------


MIN_ACCURACY = 0.98
ACCURACY = "test_accuracy"  #: the metric of the quickstart's program
BAR = 30  #: columns of an attempt's bar in the timeline


def steps_lost(job: JobView) -> int | None:
    """Return the number of steps that later attempts repeated; None: unknown."""
    repeated = [attempt.get("redone") for attempt in job["attempts"]]
    return sum(filter(None, repeated)) if None not in repeated else None


def shortcomings(job: JobView, *, attempts: int) -> list[str]:
    """Return why the demo did not succeed; empty: the demo succeeded."""
    problems: list[str] = []
    accuracy = job["metrics"].get(ACCURACY)
    if job["state"] != "succeeded":
        problems.append(f"the job is {job['state']}: {clean(job['message'])}")
    elif accuracy is None:
        problems.append("the program reported no test accuracy")
    elif accuracy < MIN_ACCURACY:
        problems.append(f"the test accuracy is {accuracy:.1%}, less than {MIN_ACCURACY:.0%}")
    if len(job["attempts"]) != attempts:
        problems.append(f"it took {many(len(job['attempts']), 'attempt')} instead of {attempts}")
    return problems


def summary(
    job: JobView, columns: int, *, list_price: float | None, attempts: int, color: bool = False
) -> str:
    problems = shortcomings(job, attempts=attempts)
    preempted = sum(a["cause"] == "PREEMPTED" for a in job["attempts"])
    through = f" through {many(preempted, 'preemption')}" if preempted else ""
    good = f"Job {job['id']} succeeded{through}."
    style, verdict = ("red", "; ".join(problems)) if problems else ("green", good)
    out = ["", paint(verdict, style, color), ""]
    out += [clip(line, columns) for line in _timeline(job)]
    return "\n".join([*out, "", *_facts(job, list_price)])


def try_next(job: JobView) -> str:
    """Return the commands that a person may want to type after the demo."""
    out = ["Try next:"]
    out += next_commands(job["id"], ("show", "logs", "clean"))
    out += ["  tpujob create configs/hello.yaml --follow", "  tpujob emulator --help"]
    return "\n".join(out)


def _facts(job: JobView, list_price: float | None) -> list[str]:
    accuracy = job["metrics"].get(ACCURACY)
    lost = steps_lost(job)
    facts = {
        "Test accuracy": "unknown" if accuracy is None else f"{accuracy:.2%}",
        "Steps lost": "unknown"
        if lost is None
        else f"{lost} of {job['steps'] or job['step'] or 0}",
        "On Google Cloud": f"about {usd(job['usd_spent'])}, at {rate(list_price)} for a "
        f"{job['pricing']} {job['type']} from ready to gone",
        "Here": "$0.00, on this machine's emulator",
    }
    return [f"  {label:16} {text}" for label, text in facts.items()]


def _timeline(job: JobView) -> list[str]:
    """Return a bar for each attempt on one scale of time, between a line with the scale and a legend."""
    created = seconds(job["created_at"]) or 0.0
    ends = [_end_of(attempt, job, created) for attempt in job["attempts"]]
    ended = max(ends, default=created + 1)
    scale = BAR / max(1.0, ended - created)
    requested = {slice["name"]: seconds(slice["requested_at"]) for slice in job["slices"]}
    out: list[str] = []
    for attempt, end in zip(job["attempts"], ends, strict=True):
        running = seconds(attempt["running_at"]) or seconds(attempt["started_at"]) or created
        waiting = requested.get(attempt["slice"]) or running
        first = min(BAR - 1, round((running - created) * scale))
        idle = min(first, round((waiting - created) * scale))
        last = max(first + 1, min(BAR, round((end - created) * scale)))
        bar = pad(" " * idle + "·" * (first - idle) + "█" * (last - first), BAR)
        out.append(f"  attempt {attempt['number']}  {bar}  {_outcome(attempt)}")
    length = f"+{span(ended - created)}"
    legend = f"  {'':9}  · waiting for the slice  █ running"
    return [f"  {'':9}  {pad(clock(job['created_at']), BAR - len(length))}{length}", *out, legend]


def _end_of(attempt: AttemptView, job: JobView, fallback: float) -> float:
    end = attempt["ended_at"] or job["finished_at"]
    return seconds(end) or seconds(attempt["started_at"]) or fallback


def _outcome(attempt: AttemptView) -> str:
    first, last = attempt.get("first_step"), attempt["step"]
    steps = "" if last is None else f"to step {last}" if first is None else f"steps {first}-{last}"
    end = " ".join(filter(None, (attempt["outcome"] or "running", attempt["cause"])))
    return f"{steps}  {end}" if steps else end
