"""What attempts hold against machines: stories of jobs, and what is proved by them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.records import NOW, accusation, job_in
from tpujob.domain.failures import host_reputation
from tpujob.domain.failures.accusations import accusations, as_failure_of_program
from tpujob.domain.model import (
    Attempt,
    Cause,
    End,
    Job,
    NonfiniteLoss,
    Outcome,
    Progress,
    Standing,
    State,
    Suspect,
    Verdict,
)

OPEN, PROVED, REFUTED = Standing.OPEN, Standing.PROVED, Standing.REFUTED
DEVICE = Verdict(step=9, host=1, blame="device", text="device 2 of host 1 made a NaN")


def attempt(number: int, *racks: str, **fields: object) -> Attempt:
    values = {"physical": racks, "slice": f"tj-000001-{number}", "host": 0, "message": "no TPU"}
    return Attempt(number=number, started_at=NOW, **{**values, **fields})  # pyright: ignore[reportArgumentType]


def down(number: int, *racks: str, step: int | None = None, **fields: object) -> Attempt:
    """An attempt whose log says that the TPU does not come up."""
    how = {"cause": Cause.BAD_HOST, "progress": Progress(step=step), "ended_at": NOW}
    return attempt(number, *racks, **{**how, **fields})


def ran(
    number: int, *racks: str, step: int | None = None, bad: int | None = None, **fields: object
) -> Attempt:
    loss = None if bad is None else NonfiniteLoss("NaN", since=bad)
    progress = Progress(step=step, nonfinite=loss)
    return attempt(number, *racks, progress=progress, host=None, **fields)


def nan(number: int, *racks: str, step: int | None = None) -> Attempt:
    return attempt(number, *racks, cause=Cause.NONFINITE, verdict=Verdict(step=step))


def job(*attempts: Attempt) -> Job:
    return replace(job_in(State.RUNNING), attempts=attempts)


def charges(*attempts: Attempt, physical: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the accused machines, and the standing of each accusation."""
    found = accusations(job(*attempts), physical, NOW)
    return [("+".join(machines), str(made.standing)) for machines, made in found]


EVERYWHERE = down(3, "c", cause=Cause.CRASH, everywhere=True)
PREEMPTED = {"ended_at": NOW, "cause": Cause.PREEMPTED}


@pytest.mark.parametrize(
    ("story", "attempts", "proved"),
    [
        ("a replay names the host", [down(1, "a", "b", verdict=DEVICE)], [("b", PROVED)]),
        (
            "a device lies, and which one is not known",
            [down(1, "a", "b", verdict=Verdict(blame="device"))],
            [("a", OPEN)],
        ),
        ("of one machine", [down(1, "a", verdict=Verdict(blame="device"))], [("a", PROVED)]),
        ("a log says so", [down(1, "a")], [("a", OPEN)]),
        ("it steps elsewhere", [down(1, "a"), ran(2, "b", step=1)], [("a", PROVED)]),
        ("it steps there, too", [down(1, "a"), ran(2, "a", step=1)], [("a", OPEN)]),
        ("nothing is known of it", [down(1, "a"), ran(2, "b")], [("a", OPEN)]),
        (
            "it succeeds elsewhere",
            [down(1, "a"), ran(2, "b", outcome=Outcome.SUCCEEDED)],
            [("a", PROVED)],
        ),
        (
            "still before that step",
            [down(1, "a", step=5), ran(2, "b", step=5, **PREEMPTED)],
            [("a", OPEN)],
        ),
        (
            "past that step, and may yet fail",
            [down(1, "a", step=5), ran(2, "b", step=6)],
            [("a", OPEN)],
        ),
        (
            "past that step, and ends otherwise",
            [down(1, "a", step=5), ran(2, "b", step=6, **PREEMPTED)],
            [("a", PROVED)],
        ),
        (
            "fails alike on two",
            [down(1, "a"), down(2, "b", step=6)],
            [("a", OPEN), ("b", OPEN)],
        ),
        (
            "fails alike on three",
            [down(1, "a"), down(2, "b"), EVERYWHERE],
            [("a", REFUTED), ("b", REFUTED), ("c", REFUTED)],
        ),
        (
            "goes on after that",
            [down(1, "a"), down(2, "b"), EVERYWHERE, ran(4, "d", step=9)],
            [("a", REFUTED), ("b", REFUTED), ("c", REFUTED)],
        ),
        ("a machine without a name", [down(1)], []),
        ("not past it yet", [nan(1, "a", "b", step=40), ran(2, "c", "d", step=40)], []),
        ("the same hardware", [nan(1, "a", "b", step=40), ran(2, "b", "c", step=41)], []),
        (
            "passed elsewhere",
            [nan(1, "a", "b", step=40), ran(2, "c", "d", step=41)],
            [("a+b", PROVED)],
        ),
        (
            "its loss is bad from that step on, too",
            [nan(1, "a", step=41), ran(2, "b", step=50, bad=41)],
            [],
        ),
        (
            "its loss is bad from a later step on",
            [nan(1, "a", step=41), ran(2, "b", step=50, bad=43)],
            [("a", PROVED)],
        ),
        ("where it ran is unknown", [nan(1, "a", step=40), ran(2, step=99)], []),
        ("no step is known", [nan(1, "a"), ran(2, "c", step=99)], []),
        (
            "no step is known, and it succeeds",
            [nan(1, "a"), ran(2, "c", outcome=Outcome.SUCCEEDED)],
            [("a", PROVED)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_machine_is_accused_by_contradiction_alone(
    story: str, attempts: list[Attempt], proved: list[tuple[str, str]]
) -> None:
    assert charges(*attempts) == proved, story


def test_the_machines_of_the_newest_attempt_are_those_that_report_now() -> None:
    before = nan(1, "a", "b", step=40)
    assert charges(before, ran(2, step=41), physical=("", "c")) == [("a+b", PROVED)]
    assert charges(before, ran(2, step=41), physical=("", "")) == []


def test_an_accusation_has_its_facts_as_fields() -> None:
    (found,) = accusations(job(down(1, "a", "b", verdict=DEVICE)), (), NOW)
    made = found[1]
    assert (made.job, made.attempt, made.text) == ("000001", 1, DEVICE.text)
    assert (made.weight, made.zone) == (host_reputation.NAMED, "us-central2-b")
    assert made.op_id == "000001:1:proved"


def test_a_machine_is_remembered_with_the_zone_that_it_is_in_not_the_one_the_job_went_to() -> None:
    slice_ = job_in(State.RUNNING).slices[0]
    elsewhere = replace(slice_, name="tj-000001-2", k=2, zone="europe-west4-a")
    moved = replace(job(down(1, "a"), ran(2)), slices=(slice_, elsewhere))
    ((_, made),) = accusations(moved, (), NOW)
    assert made.zone == "us-central2-b"


# The program ---------------------------------------------------------------------------------------------------------


def ended(*attempts: Attempt, on: str, host: int | None = 0, verdict: Verdict | None = None) -> End:
    """Return the end of one more attempt on that machine, whose log says that its TPU does not come up."""
    newest = attempt(len(attempts) + 1, host=None)
    end = End(Outcome.FAILED, Cause.BAD_HOST, host, "host 0: no TPU", verdict=verdict)
    return as_failure_of_program(job(*attempts, newest), replace(end, physical=(on,) if on else ()))


def test_the_same_failure_on_several_machines_is_that_of_the_program() -> None:
    two = (down(1, "a"), down(2, "b"))
    again = ended(*two, on="a").message
    assert again.endswith(
        "; the same failure in 3 attempts on 2 machines: the program is the cause"
    )
    end = ended(*two, on="c")
    assert (end.cause, end.everywhere) == (Cause.CRASH, True)
    assert end.message == (
        "host 0: no TPU; the same failure on 3 machines: the program is the cause"
    )
    assert ended(*two, end_of(end), on="a").cause is Cause.CRASH, "wherever it fails after that"
    same = (down(1, "a"), down(2, "a"))
    for other in (ended(*same, on="a"), ended(two[0], on="c"), ended(*two, on="c", host=None)):
        assert other.cause is Cause.BAD_HOST
    assert ended(*two, on="c", verdict=DEVICE).cause is Cause.BAD_HOST, "the device proves it"
    worked = (down(1, "a"), ran(2, "b", step=8, **PREEMPTED), down(3, "b"))
    assert ended(*worked, on="c").cause is Cause.BAD_HOST, "it went on where the first was not"
    nameless = (down(1), down(2))
    assert ended(*nameless, on="").cause is Cause.CRASH, "three slices are three machines then"


def end_of(end: End) -> Attempt:
    return down(3, "c", cause=end.cause, everywhere=end.everywhere)


# What counts ---------------------------------------------------------------------------------------------------------

ADA, BOB = "uid:1", "uid:2"
NO_ONES = Suspect("a", "z", 0.0)


def against(*made: tuple[str, str] | tuple[str, str, float], at: float = NOW) -> Suspect:
    """Return a machine that jobs of these owners accuse with proof, perhaps with another weight."""
    suspect = NO_ONES
    for job_id, owner, *weight in made:
        weights = {"weight": weight[0]} if weight else {}
        suspect = host_reputation.accused(
            suspect, accusation(job_id, owner=owner, at=at, **weights)
        )
    return suspect


def test_a_suspicion_fades_and_a_persons_word_does_not() -> None:
    fresh = against(("1", ADA), ("2", BOB))
    assert host_reputation.refused(fresh, NOW)
    assert host_reputation.score(fresh, NOW + host_reputation.HALF_LIFE) == 2.0
    assert not host_reputation.refused(fresh, NOW + 3 * host_reputation.HALF_LIFE)
    good = replace(fresh, physical="b", pinned="good")
    assert [*host_reputation.avoided([fresh, good], NOW, "uid:3")] == ["a"]
    late = NOW + 100 * host_reputation.HALF_LIFE
    assert host_reputation.refused(replace(fresh, pinned="bad"), late)


def test_what_one_owners_jobs_say_keeps_only_their_own_off_a_machine() -> None:
    suspect = against(("1", ADA), ("2", ADA), ("3", ADA))
    assert [*host_reputation.avoided([suspect], NOW, ADA)] == ["a"]
    assert host_reputation.avoided([suspect], NOW, BOB) == {}
    assert not host_reputation.refused(suspect, NOW)
    weeks = NOW + 4 * host_reputation.HALF_LIFE
    later = host_reputation.accused(suspect, accusation("4", owner=BOB, at=weeks))
    assert not host_reputation.refused(later, weeks), "what the first one said has faded"


def guess(job_id: str, owner: str = ADA, *code: str) -> Suspect:
    program = code or (f"code of {job_id}",)
    made = accusation(job_id, owner=owner, standing=OPEN, program=program)
    return host_reputation.accused(NO_ONES, made)


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        (guess("2", BOB, "train.py"), True),
        (guess("2", ADA, "other.py"), True),
        (guess("2", ADA, "train.py"), False),
        (guess("2", ADA, "a bundle", "train.py"), False),
    ],
    ids=["another owner", "other code", "the same code", "partly the same code"],
)
def test_an_open_accusation_counts_once_other_code_agrees(other: Suspect, counts: bool) -> None:
    first = guess("1", ADA, "train.py")
    assert not host_reputation.refused(first, NOW, ADA), "it says so alone"
    both = host_reputation.accused(first, other.accusations[0])
    assert host_reputation.refused(both, NOW, ADA) is counts


def test_a_refuted_accusation_is_forgotten_with_what_rested_on_it() -> None:
    both = host_reputation.accused(guess("1"), guess("2", BOB).accusations[0])
    assert host_reputation.refused(both, NOW)
    left = host_reputation.accused(both, accusation("1", standing=REFUTED))
    assert host_reputation.counted(left) == []


def test_the_reason_for_which_a_machine_is_avoided_names_what_was_seen() -> None:
    suspect = against(("000007", ADA), ("000008", BOB))
    assert host_reputation.avoided([suspect], NOW, ADA) == {
        "a": "attempt 1 of job 000007 accuses it: wrong numbers"
    }
    assert host_reputation.avoided([suspect], NOW, "uid:3") == {
        "a": "attempt 1 of job 000007 accuses it, of another owner"
    }
    pinned = replace(suspect, pinned="bad")
    assert host_reputation.avoided([pinned], NOW, ADA) == {"a": "a person marked it as bad"}
