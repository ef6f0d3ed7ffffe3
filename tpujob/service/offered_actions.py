"""The actions that a job allows, with their effect and cost, and the reasons for which others are not possible. Pure.

Buttons, confirmations and the command line show these sentences. `api/jobs_api.py` has the roles that each action
needs; `job_actions.py` carries actions out.
"""

from collections.abc import Sequence

from tpujob.api import ActionName, ActionView, AskView, RefusedView
from tpujob.domain.access import Principal
from tpujob.domain.capacity import circuits
from tpujob.domain.hardware.accelerators import several
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.model import Cause, DesiredState, Job, Progress, Slice, State
from tpujob.domain.money import budget
from tpujob.domain.observations import NO_FUNDS, Funds
from tpujob.domain.progress import JobProgress, job_progress
from tpujob.domain.text import dollars, duration, with_article
from tpujob.errors import Forbidden, IllegalInState
from tpujob.service import next_step
from tpujob.service.authorization import check_owner
from tpujob.service.money import budgets

ACTIONS: tuple[ActionName, ...] = ("resume", "cancel", "delete", "clean")
CHECKPOINTS = AskView(
    name="checkpoints", does="also removes its checkpoints and outputs", needed=False
)
NOTHING = "nothing; the job holds no slice"

_OF_ELEMENTS = "the hourly price of each slice of its elements, until it is gone"
_LEAVES = "record and logs are kept"
_ENDED = (State.SUCCEEDED, State.FAILED)


def offered(
    job: Job,
    caller: Principal,
    now: float,
    *,
    live: Progress | None = None,
    funds: Funds = NO_FUNDS,
    prices: PriceList = LIST,
) -> tuple[list[ActionView], list[RefusedView]]:
    """Return the actions that `caller` may take on `job`, and those refused. `live`: see `job_progress`."""
    has = job_progress(job, live)
    views: list[ActionView] = []
    refused: list[RefusedView] = []
    for name in ACTIONS:
        try:
            check_owner(caller, name, job)
            views.append(_action(name, job, has, funds, prices, now))
        except (Forbidden, IllegalInState) as error:
            forbidden = isinstance(error, Forbidden)
            refused.append(RefusedView(name=name, why=error.message, forbidden=forbidden))
    return views, refused


def emulated(actions: Sequence[ActionView]) -> list[ActionView]:
    """Add to each cost that the emulator bills nothing."""
    remark = "list price; the emulator bills nothing"
    return [
        action
        if action["costs"] == NOTHING
        else {**action, "costs": f"{action['costs']} ({remark})"}
        for action in actions
    ]


def _action(
    name: ActionName, job: Job, has: JobProgress, funds: Funds, prices: PriceList, now: float
) -> ActionView:
    """Describe the action. Raises IllegalInState if it would change nothing, or is not possible."""
    match name:
        case "resume":
            return _resume(job, has, funds, prices, now)
        case "cancel":
            check_stoppable(job, DesiredState.CANCEL)
            return _view(name, *_cancel(job))
        case "delete":
            check_stoppable(job, DesiredState.RELEASE)
            return _view(name, *_delete(job))
        case "clean":
            return _clean(job)


def _view(name: ActionName, does: str, costs: str, *asks: AskView) -> ActionView:
    return ActionView(name=name, does=does, costs=costs, asks=list(asks))


# Stop ----------------------------------------------------------------------------------------------------------------


def check_stoppable(job: Job, desired: DesiredState) -> None:
    """Raises IllegalInState when a cancel, or with RELEASE a delete, would change nothing."""
    if job.state.final:
        how = "been cancelled" if job.state is State.CANCELLED else job.state.value
        raise IllegalInState(f"job {job.id} has {how}")
    if job.desired is DesiredState.CLEAN:
        raise IllegalInState(f"job {job.id} is being cleaned")
    if job.desired is DesiredState.RELEASE:
        raise IllegalInState(f"job {job.id} is being deleted")
    is_kept = job.hold_until is not None and desired is DesiredState.RELEASE
    if job.state is State.RELEASING and job.next_state in _ENDED and not is_kept:
        raise IllegalInState(f"job {job.id} has {job.next_state}, and its slice is being released")
    if job.desired is desired:
        raise IllegalInState(f"a cancel of job {job.id} is already requested")


def _cancel(job: Job) -> tuple[str, str]:
    held, hold = job.slice, duration(job.spec.hold)
    if job.spec.is_group:
        return f"cancels its active elements; the slice of each is kept for {hold}", _OF_ELEMENTS
    if job.state is State.QUEUED or held is None:
        return f"cancels the job; {_LEAVES}", NOTHING
    if job.state is State.RELEASING:
        return f"cancels the job once its slice is gone; {_LEAVES}", _until_gone(job)
    price = _kept_for(held, job.spec.hold)
    if job.state is State.PROVISIONING:
        does = (
            f"withdraws the request for a slice; a slice granted by then is kept for {hold}, "
            "for a resume"
        )
        return does, f"nothing, or {price}"
    does = f"stops the program on all hosts and keeps the slice for {hold}, for a resume; then releases it"
    return does, price


def _kept_for(held: Slice, seconds: float) -> str:
    """`$12.88/h while it is kept, $3.22 at most`."""
    if held.usd_per_hour is None:
        return "the held slice, at an unknown price"
    cost = dollars(round(held.usd_per_hour * seconds / 3600 * 1e6))
    return f"{_rate(held.usd_per_hour)} while the slice is kept, {cost} at most"


def _delete(job: Job) -> tuple[str, str]:
    if job.spec.is_group:
        return (f"cancels its active elements and releases their slices; {_LEAVES}", _OF_ELEMENTS)
    return f"{_give_back(job)}; {_LEAVES}", _until_gone(job)


def _give_back(job: Job) -> str:
    """Say how a live job ends and its slices are released."""
    if job.state is State.RELEASING and job.hold_until is not None and job.slice:
        return f"releases {job.slice.name}, which is kept for another job"
    if job.state is State.RELEASING:
        return "cancels the job once its slice is gone"
    held = [s for s in job.slices if s.gone_at is None]
    named = " and ".join(
        f"{s.name}, {with_article(s.pricing)} {several(s.type, s.tpu_slices)}" for s in held
    )
    if job.state is State.QUEUED or not held:
        return f"releases {named}, and cancels the job" if held else "cancels the job"
    if job.state is State.PROVISIONING:
        return f"withdraws the request for {named}, and cancels the job"
    stops = "" if job.state is State.HOLDING and job.stopped else "stops the program on all hosts, "
    return f"{stops}releases {named}, and cancels the job"


#: of a job that is removed
_STAYS = "its cost stays in the report"


def _clean(job: Job) -> ActionView:
    if job.desired is DesiredState.CLEAN:
        raise IllegalInState(f"job {job.id} is being cleaned already")
    removes = f"removes its logs and its record for good; {_STAYS}"
    if job.spec.is_group:
        does = f"ends its elements, then removes their logs and records for good, and its own; {_STAYS}"
        return _view("clean", does, _OF_ELEMENTS, CHECKPOINTS)
    if job.state.final:
        return _view("clean", removes, NOTHING, CHECKPOINTS)
    first = "ends it" if job.desired is DesiredState.RELEASE else _give_back(job)
    return _view("clean", f"{first}, then {removes}", _until_gone(job), CHECKPOINTS)


def _until_gone(job: Job) -> str:
    """Say what the slices cost until they are gone."""
    billed = [s for s in job.slices if s.ready_at is not None and s.gone_at is None]
    if not billed:
        return NOTHING
    rates = [s.usd_per_hour for s in billed if s.usd_per_hour is not None]
    if len(rates) < len(billed):
        return "the slice until it is gone, at an unknown price"
    return f"{_rate(sum(rates))} until the slice is gone"


def _rate(usd_per_hour: float) -> str:
    return f"{dollars(round(usd_per_hour * 1e6))}/h"


# Resume --------------------------------------------------------------------------------------------------------------


def check_resumable(job: Job) -> None:
    """Raises IllegalInState for a job that is done for good."""
    if job.state is State.SUCCEEDED:
        raise IllegalInState(
            f"job {job.id} has succeeded; there is nothing to resume",
            hint="`tpujob create` starts a new one.",
        )
    if job.desired is DesiredState.CLEAN:
        raise IllegalInState(
            f"job {job.id} is being cleaned", hint="`tpujob create` starts a new one."
        )
    if next_step.lacks_dependency(job) and not job.spec.is_group:
        raise IllegalInState(
            f"job {job.id} {job.message}", hint="`tpujob resume` of that job resumes this one too."
        )


def _resume(job: Job, has: JobProgress, funds: Funds, prices: PriceList, now: float) -> ActionView:
    check_resumable(job)
    if job.spec.is_group:
        does = "resumes those of its elements that failed or were cancelled"
        return _view("resume", does, "the slices of those elements")
    ending = job.state is State.HOLDING and job.next_state is State.FAILED
    needed = next_step.needs_budget(job) or (ending and job.cause is Cause.BUDGET)
    if job.desired is DesiredState.RUN and not job.state.final and not needed:
        raise IllegalInState(f"job {job.id} is already active")
    if job.cause is Cause.BAD_SPEC and job.state.final:
        raise IllegalInState("a job file never changes: submit the corrected one as a new job")
    try:
        budgets.check_resume(job, funds, prices, now)
        needed = False
    except IllegalInState:
        if not needed:
            raise
    says = AskView(name="budget", does="sets its total budget, in US dollars", needed=needed)
    asks = [says] if budget.limit(job) is not None else []
    on, held = next_step.goes_on(job, has), job.slice
    if held and job.state is not State.RELEASING:
        price = "the slice, at an unknown price"
        if held.usd_per_hour is not None:
            price = f"{_rate(held.usd_per_hour)} while it holds the slice"
        where = "on the slice that it holds" if held.ready_at else "when its slice is ready"
        return _view("resume", f"{on} {where}", price, *asks)
    first = next(iter(circuits.allowed(job, prices)), None)
    kind = several(first.type, job.tpu_slices) if first else "slice"
    rate = first.usd_per_hour if first else None
    price = "an unknown price" if rate is None else _rate(rate)
    does = f"requests {with_article(job.spec.tpu.pricing)} {kind} and {on}"
    return _view("resume", does, f"{price} while it holds the slice", *asks)
