"""A group, which is an array or a sweep: it owns no slice. Its tick makes its elements, and ends it after them. Pure.

An element is a job of its own. It takes over its group's cancel or release in its own tick.
"""

from tpujob.domain.actions import CleanJob, Decision, MakeElements, ResumeElements
from tpujob.domain.events import Event, EventKind, Finished, GroupExtended
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, DesiredState, Job, State
from tpujob.domain.observations import Observation
from tpujob.domain.text import many

#: maximum number of elements that one action makes
BATCH = 200
#: maximum number of failed elements in a text, by name
NAMED = 5
#: seconds between two ticks of a group that waits for its elements, whose ends wake it earlier; the second while they
#: are being cancelled or removed
LOOK, LOOK_SOON = 60.0, 5.0

_E = EventKind
_STRENGTH = {desired: n for n, desired in enumerate(DesiredState)}


def decide(job: Job, seen: Observation, now: float) -> Decision:
    going = sum(n for state, n in seen.elements.items() if not state.final)
    if job.state.final:
        if job.desired is not DesiredState.CLEAN:
            return Decision(wake_in=3600)
        return Decision(wake_in=LOOK_SOON) if going else Decision(action=CleanJob())
    if job.desired is DesiredState.RUN:
        if job.submitted < job.group_size:
            left = job.group_size - job.submitted
            return Decision(action=MakeElements(job.submitted, min(BATCH, left)), wake_in=1)
        if seen.behind:
            return Decision(action=ResumeElements(), wake_in=1)
    if going:
        return Decision(wake_in=LOOK if job.desired is DesiredState.RUN else LOOK_SOON)
    return Decision(_end(job, seen, now), wake_in=0)


def note_made(job: Job, count: int, now: float) -> Event:
    made = job.submitted + count
    text = f"made {many(made, 'element')} of {job.group_size:,}"
    return event(job, _E.GROUP_EXTENDED, now, text, GroupExtended(made))


def _end(job: Job, seen: Observation, now: float) -> Event:
    """Return the end of a group whose elements have all ended."""
    succeeded, failed = (seen.elements.get(s, 0) for s in (State.SUCCEEDED, State.FAILED))
    if succeeded == job.group_size:
        text = f"all {job.group_size:,} elements succeeded"
        return event(job, _E.SUCCEEDED, now, text, Finished(None))
    text = f"{succeeded:,} of {job.group_size:,} succeeded"
    if failed:
        more = f" and {failed - len(seen.failed):,} more" if failed > len(seen.failed) else ""
        text += f", {failed:,} failed: {', '.join(seen.failed)}{more}"
    if failed and job.desired is DesiredState.RUN:
        return event(job, _E.FAILED, now, text, Finished(None))
    met = succeeded and not any(edge.each for edge in job.edges)
    never = job.edges and not met and job.desired is DesiredState.RUN
    cause = Cause.DEPENDENCY if never else Cause.CANCELLED
    return event(job, _E.CANCELLED, now, f"cancelled; {text}", Finished(cause))


# Elements ------------------------------------------------------------------------------------------------------------


def pass_on(job: Job, seen: Observation, now: float) -> Decision | None:
    """Return what its group's cancel or release requires of an element; None: nothing. An element of a group that is
    cleaned is only released: the group removes it after its end."""
    desired = min(seen.group_desired, DesiredState.RELEASE, key=_STRENGTH.__getitem__)
    if job.state.final or _STRENGTH[desired] <= _STRENGTH[job.desired]:
        return None
    text = f"cancelled with its group {job.name.removesuffix(f'-{job.index}')}"
    if job.state is State.QUEUED and not job.beside:
        ended = Finished(Cause.CANCELLED)
        return Decision(event(job, _E.CANCELLED, now, text, ended), wake_in=0)
    kind = _E.CANCEL_REQUESTED if desired is DesiredState.CANCEL else _E.RELEASE_REQUESTED
    return Decision(event(job, kind, now, text), wake_in=0)
