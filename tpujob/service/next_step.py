"""The next step of a job, its used retries, and its waits, as views. Pure."""

from math import ceil

from tpujob.api import (
    BudgetView,
    CapacityView,
    CommandView,
    CopyView,
    JobFacts,
    NextAction,
    NextView,
)
from tpujob.domain.capacity import circuits, datasets
from tpujob.domain.capacity.circuits import Wait
from tpujob.domain.capacity.waiting_reasons import describe
from tpujob.domain.failures import retry, starts
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Cause, DesiredState, Job, State
from tpujob.domain.money import budget
from tpujob.domain.observations import Place, Reason, ReasonKind
from tpujob.domain.progress import JobProgress
from tpujob.domain.spec import Recovery
from tpujob.domain.text import amount_of_bytes, dollars, duration, many, rfc3339, utc


def why(job: Job, wait: Wait | None, unpaid: str, now: float, place: Place | None = None) -> str:
    """Return why it is in its state; while it is queued, what it waits for now."""
    if job.state is not State.QUEUED:
        return job.message
    if reason := binding(place, wait):
        return describe(reason)
    copy = copying(job, now)
    if copy:
        return copy.get("text", "")
    return (circuits.describe_wait(wait, now) if wait else unpaid) or job.message


def binding(place: Place | None, wait: Wait | None) -> Reason | None:
    """Return the queue's reason why it requests no slice now; None: nothing but its own refused requests."""
    reason = next(iter(place.reasons), None) if place else None
    is_own = reason is not None and wait is not None and reason.kind is ReasonKind.REFUSED
    return None if reason is None or is_own or reason.kind is ReasonKind.RETRY else reason


def what_next(
    job: Job, has: JobProgress, wait: Wait | None, now: float, place: Place | None = None
) -> NextView:
    """Return what happens next, by itself or by a command."""
    if job.state.final:
        return _after_end(job, has)
    if (
        job.state is State.RELEASING
        and job.next_state in _ENDED
        and job.desired is not DesiredState.CLEAN
    ):
        return _ends_with_its_slice(job)
    if job.spec.is_group:
        return _group_ends(job)
    if job.desired is not DesiredState.RUN:
        return _on_its_way_out(job)
    again = f"another slice and {goes_on(job, has)}"
    match job.state:
        case State.QUEUED:
            return _in_queue(job, again if job.attempt else "a slice", wait, now, place)
        case State.PROVISIONING if job.candidates:
            text = f"when the first of {1 + len(job.candidates)} slices is ready, the program starts on its hosts"
            return _next("get_slice", text)
        case State.PROVISIONING:
            lasts = job.slice.run_for if job.slice else None
            ends = f"; {duration(lasts)} later the slice ends" if lasts else ""
            text = "when the slice is ready, the program starts on all hosts"
            return _next("get_slice", text + ends)
        case State.HOLDING if job.attempt and job.attempt.cause is Cause.PLANNED_END:
            then = "is queued again" if job.next_state is State.QUEUED else "ends"
            text = f"when the program has stopped, its slice is released, and the job {then}"
            return _next("release_slice", text)
        case State.PREPARING | State.RUNNING | State.HOLDING if job.next_state is State.QUEUED:
            text = "when the program has stopped, its slice is handed on or released"
            return _next("release_slice", f"{text}, and the job is queued again")
        case State.PREPARING if retry.due_at(job.wake, now) > now:
            text = "the program is started again on the same slice"
            return _next("start_program", text, at=job.wake)
        case State.PREPARING:
            return _next(
                "start_program", "when all hosts have started the program, the job is running"
            )
        case State.HOLDING if job.next_state is not None:
            text = "when the program has stopped, the slice is released and the job ends"
            more = _command(job, "resume", "resumes it", "--budget USD")
            return _next("release_slice", text, *((more,) if job.cause is Cause.BUDGET else ()))
        case State.HOLDING:
            text = "the program is being started again on the held slice"
            return _next("start_program", text)
        case State.RELEASING:
            return _next("request_slice", f"when the slice is confirmed gone, it requests {again}")
        case _:
            preemptible = job.slice and find_pricing(job.slice.pricing).preemptible
            lost = f"if the slice is preempted, it requests another and {goes_on(job, has)}"
            text = "it succeeds when every host exits with 0"
            if has.nonfinite:
                lost = f"if the slice is preempted, it requests {again}"
                if limit := job.spec.recovery.nonfinite_steps:
                    text = f"{many(limit, 'reported step')} with such a loss end the attempt as NONFINITE"
            if job.slice and job.slice.ends_at is not None:
                return _next("finish", f"{text}; {_before_end(job, has, job.slice.ends_at)}")
            return _next("finish", f"{text}; {lost}" if preemptible else text)


def _before_end(job: Job, has: JobProgress, ends_at: float) -> str:
    """Say what happens before the planned end of the job's slice."""
    follows = retry.after(job, Cause.PLANNED_END)
    then = f"then it requests another and {goes_on(job, has)}"
    if isinstance(follows, retry.GiveUp):
        then = f"then the job ends: {follows.why}"
    return f"its slice ends at {utc(ends_at)}: the program is told to save before that, {then}"


def _in_queue(
    job: Job, request: str, wait: Wait | None, now: float, place: Place | None
) -> NextView:
    if reason := binding(place, wait):
        command = f"tpujob queue release {held_id(job)}"
        release = (CommandView(command=command, does="lets it start"),)
        return _next(
            "request_slice",
            f"it requests {request} {_AFTER[reason.kind]}".rstrip(),
            *(release if reason.kind is ReasonKind.HELD else ()),
            at=None if reason.kind is ReasonKind.TOO_BIG else reason.until,
        )
    if under_way := datasets.under_way(job):
        text = f"when {under_way.name} is in {under_way.region}, it requests a slice there"
        return _next("copy_data", text)
    due = max(retry.due_at(job.wake, now), wait.first_at if wait else 0.0)
    return _next("request_slice", f"it requests {request}", at=due if due > now else None)


def _ends_with_its_slice(job: Job) -> NextView:
    if job.hold_until is not None and job.desired is DesiredState.RUN:
        text = f"its slice is handed on or released; then the job has {job.next_state}"
        return _next("release_slice", text, _gives_back(job), at=job.hold_until)
    return _next("end", f"when the slice is confirmed gone, the job has {job.next_state}")


def held_id(job: Job) -> str:
    """Return the id by which a held job is released: its own, or that of its group."""
    return job.id if job.held_by or not job.group else job.group


def _group_ends(job: Job) -> NextView:
    if job.desired is DesiredState.CLEAN:
        text = "when its elements have ended, their records and logs are removed, then its own"
        return _next("end", text)
    if job.desired is not DesiredState.RUN:
        return _next(
            "end", "its elements are being cancelled; when they have ended, the group ends"
        )
    rest = "creates the rest of its elements and " if job.submitted < job.group_size else ""
    return _next("end", f"it {rest}ends when all {job.group_size:,} elements have ended")


def elements_text(job: JobFacts) -> str:
    """Return the progress of an active array or sweep: `97 of 100 ended, 5 failed; 2 running`. Empty: it has ended."""
    states = job.get("elements", {})
    if State(job["state"]).final:
        return ""
    ended = sum(n for state, n in states.items() if State(state).final)
    failed = f", {states['failed']:,} failed" if states.get("failed") else ""
    going = ", ".join(f"{n:,} {state}" for state, n in states.items() if not State(state).final)
    return f"{ended:,} of {job.get('group_size', 0):,} ended{failed}" + (going and f"; {going}")


_ENDED = (State.SUCCEEDED, State.FAILED)
#: when a job in the queue requests a slice
_AFTER = {
    ReasonKind.DEPENDENCY: "after that",
    ReasonKind.HELD: "once it is released",
    ReasonKind.NOT_BEFORE: "",
    ReasonKind.GROUP: "when one of those jobs has ended",
    ReasonKind.RUNNING: "when one of those jobs has ended",
    ReasonKind.CHIPS: "when its owner holds fewer chips",
    ReasonKind.QUOTA: "when enough chips are free",
    ReasonKind.RESERVED: "after that job",
    ReasonKind.ORDER: "after that",
    ReasonKind.REQUESTED: "when one of those requests is answered",
    ReasonKind.REFUSED: "",
    ReasonKind.TOO_BIG: "once so many chips are allowed",
    ReasonKind.HANDED_ON: "if it does not get that slice",
    ReasonKind.LARGER: "when one can be had",
    ReasonKind.GIVEN_WAY: "when their slices are gone",
}


def _on_its_way_out(job: Job) -> NextView:
    """Return what follows from a cancel, a delete or a clean."""
    match job.state, job.desired:
        case State.QUEUED, DesiredState.CLEAN:  # which owns no slice
            return _next("end", "the job ends; then its logs and its record are removed")
        case State.QUEUED, _:
            return _next("end", "the job is cancelled; record and logs are kept")
        case _, DesiredState.CLEAN:
            text = "the slice is released; then the logs and the record of the job are removed"
            return _next("release_slice", text)
        case _, DesiredState.RELEASE:
            text = "the slice is released, then the job is cancelled; record and logs are kept"
            return _next("release_slice", text)
        case State.HOLDING, _:
            resume = _command(job, "resume", "resumes it")
            text = "the slice, which is billed until then, is released"
            return _next("release_slice", text, resume, _gives_back(job), at=job.hold_until)
        case State.PROVISIONING, _:
            text = "the request for a slice is withdrawn; a slice that is already granted is kept"
            return _next("withdraw_request", text)
        case State.RELEASING, _:
            return _next("end", "when the slice is confirmed gone, the job ends")
        case _:
            text = "the program is being stopped; the slice is kept for a resume"
            return _next("stop_program", text)


def _gives_back(job: Job) -> CommandView:
    return _command(job, "delete", "releases it now")


def _after_end(job: Job, has: JobProgress) -> NextView:
    if job.desired is DesiredState.CLEAN:
        return _next("remove_record", "its logs and its record are being removed")
    if job.spec.is_group and job.state is not State.SUCCEEDED:
        again = _command(job, "resume", "resumes the elements that failed or were cancelled")
        return _next("nothing", "nothing happens by itself", again)
    if job.spec.is_group:
        jobs = _command(job, "list --group", "lists its jobs")
        return _next("nothing", "nothing is left to do", jobs)
    if job.state is State.SUCCEEDED:
        return _next("nothing", "nothing is left to do", _command(job, "logs", "prints its output"))
    if lacks_dependency(job):
        return _next("nothing", "it continues when the job that it depends on is resumed")
    options = ("--budget USD",) if needs_budget(job) else ()
    again = _command(job, "resume", goes_on(job, has), *options)
    if job.cause is Cause.BAD_SPEC:  # a spec never changes, so a resume would fail again
        does = "submits the corrected job file as a new job"
        again = CommandView(command="tpujob create FILE", does=does)
    return _next("nothing", "nothing happens by itself", again)


def after_group(group: Job) -> NextView:
    """Return what comes next for an element that ended, after its group was cancelled."""
    again = _command(group, "resume", f"resumes all of {group.name}")
    return _next("nothing", "nothing happens by itself: its group was cancelled", again)


def goes_on(job: Job, has: JobProgress) -> str:
    """Say how the next attempt begins: `resumes from checkpoint 480`."""
    where = _from_checkpoint(has)
    if where or not job.attempts:
        return f"resumes{where}" if where else "starts it again"
    empty = job.attempts[-1].warnings.empty
    if any(output.folder not in empty for output in job.spec.outputs):
        return "starts again with the files that `outputs` has kept; it has reported no checkpoint"
    return f"starts again{' from step 1' if has.step and not has.found else ''}: no checkpoint is known"


def _from_checkpoint(has: JobProgress) -> str:
    """` from checkpoint 480`; empty: none is known."""
    if has.checkpoint is None and has.partial is not None:
        return (
            f" from different checkpoints on its hosts, up to {has.partial}: none is on all of them"
        )
    if has.checkpoint is None:
        before = has.resume_before
        return f" from a checkpoint before step {before}, if there is one" if before else ""
    bound = f", the newest before step {has.resume_before}" if has.resume_before else ""
    if has.doubtful:
        bound += ", which may hold bad numbers: the step at which they began is not known"
    if has.partial is not None:
        bound += f", the newest that all hosts have reported; some have reported {has.partial}"
    return f" from checkpoint {has.checkpoint}{bound}"


def lacks_dependency(job: Job) -> bool:
    """Return whether the job ended because a dependency could not be met."""
    ended = job.state.final and job.cause is Cause.DEPENDENCY
    return ended and job.desired is DesiredState.RUN


def needs_budget(job: Job) -> bool:
    """Return whether it has used up its own budget of money, so that a resume must raise the budget."""
    return job.cause is Cause.BUDGET and budget.limit(job) is not None


def _next(
    action: NextAction, text: str, *commands: CommandView, at: float | None = None
) -> NextView:
    return NextView(
        action=action, at=None if at is None else rfc3339(at), text=text, commands=list(commands)
    )


def _command(job: Job, verb: str, does: str, *options: str) -> CommandView:
    return CommandView(command=" ".join(("tpujob", verb, job.id, *options)), does=does)


def budgets(job: Job) -> list[BudgetView]:
    """Return the retries that were used, that the job file sets, or that are common; none for a group."""
    if job.spec.is_group:
        return []
    rules = {rule.budget: rule for rule in retry.POLICIES.values() if rule.budget}
    views: list[BudgetView] = []
    for name, rule in rules.items():
        used, limit = job.retries_used.get(name, 0), retry.limit_of(rule, job.spec.recovery)
        if used or name in _COMMON or limit != retry.limit_of(rule, _DEFAULT):
            views.append(_budget(name, used, limit))
    if job.spec.recovery.attempts is not None:
        views.append(_budget("attempts", starts.count_starts(job), job.spec.recovery.attempts))
    return views


#: retry budgets that are always shown
_COMMON = ("preemptions", "failures", "hangs", "nonfinite")
_DEFAULT = Recovery()  # pyright: ignore[reportCallIssue]


def _budget(name: str, used: int, limit: int | None) -> BudgetView:
    left = None if limit is None else max(0, limit - used)
    return BudgetView(name=name, used=used, left=left, limit=limit)


def copying(job: Job, now: float) -> CopyView | None:
    """Return the copy that a queued job waits for; None: there is none."""
    copy = datasets.under_way(job)
    if copy is None or job.state is not State.QUEUED:
        return None
    progress = copy.progress
    total, took = progress.total_bytes, now - copy.started_at
    has_rate = total is not None and progress.bytes > 0 and took > 0
    left = max(0, (total or 0) - progress.there) / (progress.bytes / took) if has_rate else None
    view = CopyView(
        name=copy.name,
        region=copy.region,
        source=copy.source,
        target=copy.target,
        bytes=progress.there,
        total_bytes=total,
        left_s=left,
        usd=copy.micros / 1e6,
        since=rfc3339(copy.started_at),
    )
    view["text"] = _summary(view)
    return view


def _summary(copy: CopyView) -> str:
    total, copied = copy["total_bytes"], amount_of_bytes(copy["bytes"])
    size = f"{copied} of {amount_of_bytes(total)}" if total is not None else copied
    left = "" if copy["left_s"] is None else f", {duration(copy['left_s'])} left"
    cost = f", {dollars(ceil(copy['usd'] * 1e6))} so far" if copy["usd"] else ""
    return f"waits for {copy['name']} to reach {copy['region']}: {size} copied{left}{cost}"


def capacity(wait: Wait) -> CapacityView:
    last = wait.refused
    return CapacityView(
        cause=last.refused or Cause.STOCKOUT,
        type=last.type,
        zone=last.zone,
        refusals=wait.times,
        since=rfc3339(wait.since),
        answer=last.delete_reason,
        asking=wait.asking,
        again_at=rfc3339(wait.again_at),
        first_type=wait.first.type,
        first_zone=wait.first.zone,
        first_at=rfc3339(wait.first_at),
    )
