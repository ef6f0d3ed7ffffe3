"""The source of numbers that are not finite, and the accusations against machines."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, job_in, report
from tpujob.domain import progress
from tpujob.domain.failures import host_reputation, nonfinite
from tpujob.domain.model import (
    Attempt,
    Cause,
    Job,
    NonfiniteLoss,
    Outcome,
    Progress,
    State,
    Suspect,
    Verdict,
)


def attempt(
    number: int,
    *racks: str,
    step: int | None = None,
    cause: Cause | None = Cause.NONFINITE,
    **fields: object,
) -> Attempt:
    verdict = Verdict(step=step) if cause is Cause.NONFINITE else None
    values = {"cause": cause, "physical": racks, "verdict": verdict, "slice": f"tj-000001-{number}"}
    return Attempt(number=number, started_at=NOW, **{**values, **fields})  # pyright: ignore[reportArgumentType]


def job(*attempts: Attempt) -> Job:
    return replace(job_in(State.RUNNING), attempts=attempts)


def test_evidence_names_every_step_that_was_not_finite() -> None:
    first, second = attempt(1, "a", step=45), attempt(2, "b", step=47)
    text = nonfinite.evidence_text(job(first), Verdict(step=47))
    assert text.startswith("not finite at steps 45, 47 in 2 attempts, and neither")
    text = nonfinite.evidence_text(job(second), Verdict(step=47))
    assert text.startswith("not finite at step 47 in 2 attempts, and neither")


@pytest.mark.parametrize(
    ("step", "machines", "reason"),
    [
        (40, ("c", "d"), " at step 40, as in attempt 1 on other hardware"),
        (40, ("b", "c"), ""),
        (41, ("c", "d"), ""),
    ],
    ids=["other hardware", "partly the same hardware", "another step"],
)
def test_the_same_step_proves_the_maths(step: int, machines: tuple[str, ...], reason: str) -> None:
    running = job(attempt(1, "a", "b", step=40), attempt(2, cause=None))
    why = nonfinite.is_maths(running, Verdict(step=step), machines)
    assert reason in why
    assert bool(why) == bool(reason)


def test_where_machines_are_not_known_another_slice_counts_as_other_hardware() -> None:
    now = job(attempt(1, step=40), attempt(2, cause=None))
    assert nonfinite.is_maths(now, Verdict(step=40), ())
    for machines in ((), ("a",)):
        again = job(attempt(1, *machines, step=40), attempt(2, cause=None, slice="tj-000001-1"))
        assert nonfinite.is_maths(again, Verdict(step=40), ()) == "", "the same slice"


def test_a_program_that_says_nothing_of_its_numbers_fails_alike_anywhere() -> None:
    now = job(attempt(1, "a", verdict=None), attempt(2, cause=None))
    assert "it was not finite, as in attempt 1 on other hardware" in nonfinite.is_maths(
        now, None, ("b",)
    )
    assert nonfinite.is_maths(now, Verdict(step=40), ("b",)) == "", "this one says where"


def test_a_replay_that_blames_model_or_data_ends_it_at_once() -> None:
    now = job(attempt(1, cause=None))
    assert "blames the data" in nonfinite.is_maths(now, Verdict(step=3, blame="data"), ("a",))


def test_a_machine_that_a_replay_names_is_accused_alone() -> None:
    verdict = Verdict(step=9, host=1, blame="device", text="device 2 of host 1")
    accusations = nonfinite.accusations(
        job(attempt(1, "a", "b", cause=Cause.BAD_HOST, host=0, verdict=verdict)), ()
    )
    assert [(f.physicals, f.weight, f.op_id) for f in accusations] == [
        (("b",), host_reputation.NAMED, "000001:1")
    ]
    assert "device 2 of host 1" in accusations[0].reason


def test_a_machine_is_remembered_with_the_zone_that_it_is_in_not_the_one_the_job_went_to() -> None:
    bad = attempt(1, "a", cause=Cause.BAD_HOST, host=0)
    slice_ = job_in(State.RUNNING).slices[0]
    elsewhere = replace(slice_, name="tj-000001-2", k=2, zone="europe-west4-a")
    moved = replace(job(bad, attempt(2, cause=None)), slices=(slice_, elsewhere))
    (accusation,) = nonfinite.accusations(moved, ())
    assert accusation.zone == "us-central2-b"


def test_passing_the_step_on_other_hardware_accuses_the_machines_before() -> None:
    def now(step: int) -> Job:
        newest = attempt(2, cause=None, progress=Progress(step=step))
        return job(attempt(1, "a", "b", step=40), newest)

    assert nonfinite.accusations(now(40), ("c", "d")) == [], "not past it yet"
    assert nonfinite.accusations(now(41), ("b", "c")) == [], "the same hardware"
    (accusation,) = nonfinite.accusations(now(41), ("c", "d"))
    assert accusation.physicals == ("a", "b")
    assert accusation.weight == host_reputation.ONE_OF_SEVERAL


def test_steps_with_a_bad_loss_do_not_pass_a_bad_step() -> None:
    """The second machine meets the same NaN at step 41, and the program goes on."""
    bad = Progress(step=50, nonfinite=NonfiniteLoss("NaN", since=41))
    newest = attempt(2, cause=None, progress=bad)
    assert nonfinite.accusations(job(attempt(1, "a", step=41), newest), ("b",)) == []
    late = replace(newest, progress=replace(bad, nonfinite=NonfiniteLoss("NaN", since=43)))
    assert nonfinite.accusations(job(attempt(1, "a", step=41), late), ("b",)) != [], "42 was finite"


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([(9, 1.0, None), (9, None, None)], "None"),
        ([(9, None, 7), (9, None, 6)], "loss is NaN since step 6"),
        ([(9, None, 7), (6, 1.0, None)], "loss is NaN since step 7"),
        ([(9, None, 7), (7, 1.0, None)], "loss is NaN since step 7 on host 0"),
        ([(9, None, None), (9, None, 7)], "loss is NaN since step 7"),
        ([(9, None, 0), (9, None, 8)], "loss is NaN since step 0"),
    ],
    ids=[
        "finite or unknown",
        "both",
        "not that far yet",
        "differs",
        "one reports no loss",
        "step 0",
    ],
)
def test_the_earliest_bad_loss_of_any_host_counts(
    hosts: list[tuple[int, float | None, int | None]], text: str
) -> None:
    reports = [
        report(
            n,
            progress=Progress(
                step=step,
                loss=loss,
                nonfinite=None if since is None else NonfiniteLoss("NaN", since),
            ),
        )
        for n, (step, loss, since) in enumerate(hosts)
    ]
    assert str(nonfinite.reported_loss(reports)) == text


def test_what_a_bad_loss_leaves_in_words() -> None:
    loss = NonfiniteLoss("NaN", 60)
    assert nonfinite.not_kept(loss, 99, 50) == (
        "steps 60 to 99 are not kept, as the loss is NaN; the newest good checkpoint is step 50"
    )
    assert nonfinite.not_kept(NonfiniteLoss("not finite"), 99, None) == (
        "later steps are not kept, as the loss is not finite; no checkpoint from before that is known"
    )


@pytest.mark.parametrize(
    ("losses", "bounds"),
    [
        ([(0, 60, 50)], [60]),
        ([(0, 60, 50), (50, None, 75)], [60, 0]),
        ([(0, 60, 50), (50, 100, 75)], [60, 100]),
        ([(0, 60, 50), (50, 55, None)], [60, 55]),
        ([(0, 0, None)], [1]),
    ],
    ids=["from before it", "past it", "again later", "again earlier", "from the first step on"],
)
def test_an_attempt_resumes_before_the_first_bad_loss_of_the_one_before(
    losses: list[tuple[int, int | None, int | None]], bounds: list[int]
) -> None:
    attempts: list[Attempt] = []
    for number, (began, since, saved) in enumerate(losses, 1):
        bad = None if since is None else NonfiniteLoss("NaN", since)
        done = Progress(step=200, resumed_from=began, checkpoint=saved, nonfinite=bad)
        past = attempt(number, cause=Cause.PREEMPTED, progress=done)
        bound = progress.resume_before(job(*attempts)) if attempts else 0
        attempts.append(replace(past, resume_before=bound))
        assert progress.resume_before(job(*attempts)) == bounds[number - 1]


def test_the_machines_of_an_attempt_that_has_ended_are_those_of_its_record() -> None:
    """Reports of an ended attempt are read no more; another slice may have had the same machines."""
    passed = {"cause": None, "outcome": Outcome.SUCCEEDED}
    before = attempt(1, "a", "b", step=40)
    assert nonfinite.accusations(job(before, attempt(2, "b", "a", **passed)), ()) == []
    (accusation,) = nonfinite.accusations(job(before, attempt(2, "c", "d", **passed)), ())
    assert accusation.physicals == ("a", "b")


def test_while_nobody_can_tell_which_machines_it_runs_on_it_proves_nothing() -> None:
    before = attempt(1, "a", "b", step=40)
    now = job(before, attempt(2, cause=None, progress=Progress(step=99)))
    for unknown in ((), ("", "")):
        assert nonfinite.accusations(now, unknown) == []
        assert nonfinite.is_maths(now, Verdict(step=40), unknown) == ""
    (accusation,) = nonfinite.accusations(now, ("", "c"))
    assert accusation.physicals == ("a", "b")


def test_without_steps_only_a_success_elsewhere_accuses() -> None:
    newest = attempt(2, cause=None, progress=Progress(step=99))
    assert nonfinite.accusations(job(attempt(1, "a"), newest), ("c",)) == []
    done = replace(newest, outcome=Outcome.SUCCEEDED)
    (accusation,) = nonfinite.accusations(job(attempt(1, "a"), done), ("c",))
    assert (accusation.physicals, accusation.weight) == (("a",), host_reputation.NAMED)


def test_machines_that_nobody_can_name_are_not_accused() -> None:
    assert nonfinite.accusations(job(attempt(1, cause=Cause.BAD_HOST, host=0)), ()) == []


ADA, BOB = "uid:1", "uid:2"


def accused(suspect: Suspect, owner: str, at: float = NOW, weight: float = 2.0) -> Suspect:
    return host_reputation.accused(suspect, weight, f"by {owner}", at, owner)


NOBODYS = Suspect("a", "z", 0.0, 0.0)


def test_a_suspicion_fades_and_a_persons_word_does_not() -> None:
    fresh = accused(accused(NOBODYS, ADA), BOB)
    assert host_reputation.refused(fresh, NOW)
    assert host_reputation.score(fresh, NOW + host_reputation.HALF_LIFE) == 2.0
    assert not host_reputation.refused(fresh, NOW + 3 * host_reputation.HALF_LIFE)
    good = replace(fresh, physical="b", pinned="good")
    assert host_reputation.avoided([fresh, good], NOW, "uid:3") == ["a"]
    late = NOW + 100 * host_reputation.HALF_LIFE
    assert host_reputation.refused(replace(fresh, pinned="bad"), late)


def test_what_one_owners_jobs_say_keeps_only_their_own_off_a_machine() -> None:
    """A program can say anything of the machine below it, as often as it likes."""
    suspect = accused(accused(accused(NOBODYS, ADA), ADA), ADA)
    assert host_reputation.avoided([suspect], NOW, ADA) == ["a"]
    assert host_reputation.avoided([suspect], NOW, BOB) == []
    assert not host_reputation.refused(suspect, NOW)
    both = accused(suspect, BOB)
    assert host_reputation.avoided([both], NOW, "uid:3") == ["a"]
    week = host_reputation.HALF_LIFE
    assert not host_reputation.refused(accused(suspect, BOB, NOW + 4 * week), NOW + 4 * week), (
        "what the first one said has faded"
    )


def test_a_score_of_before_owners_were_noted_counts_as_it_did() -> None:
    old = Suspect("a", "z", 2.0, NOW, reasons=("job 000001 attempt 1",))
    assert host_reputation.refused(old, NOW)
    assert host_reputation.avoided([old], NOW, BOB) == ["a"]
    suspect = accused(old, ADA)
    assert host_reputation.refused(suspect, NOW), "whoever made the score before was somebody else"
    assert suspect.score == 4.0


def test_a_second_accusation_adds_to_what_is_left_of_the_first() -> None:
    first = accused(NOBODYS, ADA, weight=1.0)
    second = accused(first, BOB, NOW + host_reputation.HALF_LIFE, weight=1.0)
    assert second.score == 1.5
    assert second.reasons == ("by uid:1", "by uid:2")
    assert second.owners == {ADA: 0.5, BOB: 1.0}
