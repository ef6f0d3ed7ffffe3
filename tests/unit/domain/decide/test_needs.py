"""Observations that a decision asks for first: at most two, and it rests on nothing that is too old."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import ENDPOINTS, NOW, SLICES, job_in, report, with_condemned
from tests.unit.domain.decide.test_decide import REPORTS
from tpujob.domain.actions import Decision, MakeCopy, Needs, StartProgram
from tpujob.domain.decide import decide, decide_beside
from tpujob.domain.events import EventKind
from tpujob.domain.model import DesiredState, Job, Progress, State
from tpujob.domain.observations import Observation, Present, SliceSeen, SliceState

E = EventKind
ENDS = {E.ATTEMPT_ENDED, E.ATTEMPT_RETRIED, E.ATTEMPT_CONDEMNED}
OFTEN = {None, E.PROGRESSED, E.WATCHED, E.REPORTS_IGNORED, E.WARNED, E.COPY_ADVANCED}
NAMES = ("tj-000001-1", "tj-000001-2")


def observed(looks: tuple[SliceSeen, SliceSeen], reports: Any, **parts: Any) -> Observation:
    slices = dict(zip(NAMES, looks, strict=True))
    return Observation(slices, reports, readable_for=100.0, **parts)


def settled(
    job: Job, seen: Observation, read: Observation, step: Any = decide
) -> tuple[list[Needs], Decision, Observation]:
    """Give a decision what it needs of `read`. Returns what that was, what is decided then, and on what."""
    needs, decision = list[Needs](), step(job, seen, NOW)
    while decision.needs:
        assert (decision.event, decision.action) == (None, None)
        needs.append(decision.needs)
        if decision.needs is Needs.FRESH:
            assert seen.listed, "it is fresh"
            seen = replace(seen, slices=read.slices, listed=frozenset())
        else:
            assert not seen.evidence, "it was read"
            seen = replace(seen, reports=read.reports, evidence=True)
        decision = step(job, seen, NOW)
    return needs, decision, seen


LOOKS, HEARD = st.sampled_from(SLICES), st.sampled_from(REPORTS)
LOOK_AT_BOTH = st.tuples(LOOKS, LOOKS)
BAD = {"condemned_at": NOW - 3600, "stopped": True}


@settings(max_examples=500)
@given(
    state=st.sampled_from([*State]),
    desired=st.sampled_from([*DesiredState]),
    condemned=st.booleans(),
    first=LOOK_AT_BOTH,
    named=LOOK_AT_BOTH,
    reports=HEARD,
    later=HEARD,
    listed=st.sets(st.sampled_from(NAMES)),
    evidence=st.booleans(),
)
def test_a_decision_asks_at_most_twice_and_rests_on_nothing_that_is_too_old(
    state: State,
    desired: DesiredState,
    condemned: bool,
    first: tuple[SliceSeen, SliceSeen],
    named: tuple[SliceSeen, SliceSeen],
    reports: Any,
    later: Any,
    listed: set[str],
    evidence: bool,
) -> None:
    """Whatever is read the second time: something else than before, too."""
    job = job_in(state, desired=desired, next_state=State.FAILED)
    job = with_condemned(job, BAD) if condemned else job
    seen = observed(first, reports, listed=frozenset(listed), evidence=evidence)
    for step in (decide, decide_beside):
        needs, decision, after = settled(job, seen, observed(named, later), step)
        kind = decision.event and decision.event.kind
        assert len(needs) <= 2
        if after.listed:
            assert kind in OFTEN
            assert isinstance(decision.action, None | StartProgram | MakeCopy)
        assert after.evidence or kind not in ENDS


READY = Present(SliceState.READY, ENDPOINTS)
LOST = Present(SliceState.STOPPED)
PREEMPTED = Present(SliceState.PREEMPTED)
RUNS = (report(0, progress=Progress(5)), report(1, progress=Progress(5)))
ENDED = (report(0, "exited", 1), report(1, "exited", 1))
CANCELLED = job_in(State.RUNNING, desired=DesiredState.CANCEL)


@pytest.mark.parametrize(
    ("job", "look", "reports", "needs", "kind"),
    [
        (job_in(State.RUNNING), READY, RUNS, [], E.PROGRESSED),
        (job_in(State.PREPARING), READY, (), [], None),
        (job_in(State.RUNNING), LOST, RUNS, [Needs.FRESH, Needs.EVIDENCE], E.ATTEMPT_ENDED),
        (job_in(State.RUNNING), PREEMPTED, RUNS, [Needs.FRESH, Needs.EVIDENCE], E.ATTEMPT_ENDED),
        (job_in(State.RUNNING), READY, ENDED, [Needs.FRESH, Needs.EVIDENCE], E.ATTEMPT_RETRIED),
        (CANCELLED, READY, RUNS, [Needs.FRESH], E.HELD),
        (job_in(State.PROVISIONING), READY, (), [Needs.FRESH], E.SLICE_READY),
        (job_in(State.RELEASING), READY, (), [Needs.FRESH], None),
    ],
)
def test_nothing_ends_or_is_asked_for_on_a_list_and_no_attempt_without_evidence(
    job: Job, look: SliceSeen, reports: Any, needs: list[Needs], kind: EventKind | None
) -> None:
    read = observed((look, look), reports)
    seen = replace(read, listed=frozenset(NAMES), evidence=False)
    requested, decision, _ = settled(job, seen, read)
    assert (requested, decision.event and decision.event.kind) == (needs, kind)
    assert decision == decide(job, read, NOW), "as if all had been read at once"


def test_what_a_list_showed_is_forgotten_when_the_slice_itself_shows_something_else() -> None:
    read = observed((READY, READY), ())
    seen = observed((LOST, READY), RUNS, listed=frozenset(NAMES), evidence=False)
    needs, decision, _ = settled(job_in(State.RUNNING), seen, read)
    assert (needs, decision.event and decision.event.kind) == ([Needs.FRESH], E.PROGRESSED)
