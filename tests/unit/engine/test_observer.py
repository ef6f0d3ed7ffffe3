"""The facts of one look at a job, and those of several looks: since when, how often, whether it moved."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stage import Stage
from tpujob.domain.actions import Needs
from tpujob.domain.decide import active
from tpujob.domain.failures.stall import LATELY, WATCH_LASTS
from tpujob.domain.host import keys
from tpujob.domain.model import Job, Progress, State
from tpujob.domain.money.polling_cost import LASTS
from tpujob.domain.observations import (
    HostReport,
    Observation,
    Present,
    Silence,
    SliceState,
    Unknown,
)
from tpujob.engine.job_runtime import JobRuntime
from tpujob.engine.observer import PROBE_EVERY, PROBED
from tpujob.engine.slice_cache import LAG
from tpujob.protocol import Phase


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def job(stage: Stage) -> Job:
    """A job on three hosts."""
    return stage.running(stage.create(tpu={"type": "v4-24", "zones": ["us-central2-b"]}))


def look(stage: Stage, job: Job, *, after: float = 0.0) -> Observation:
    stage.clock.sleep(after)
    return stage.reconciler.observer.look(job)


def live(stage: Stage, job: Job) -> JobRuntime:
    return stage.reconciler.live[job.id]


def heard(stage: Stage, job: Job, *hosts: int) -> None:
    for host in hosts:
        stage.report(job.id, host)


# Hosts that fell silent ----------------------------------------------------------------------------------------------


def test_most_ticks_go_on_while_the_hosts_of_many_jobs_are_probed(stage: Stage, job: Job) -> None:
    """Reports of all jobs are late when the storage is, and a host that does not answer takes ten seconds."""
    observer, probes = stage.reconciler.observer, stage.hosts.asked
    stage.clock.sleep(LATELY + 1)
    for _ in range(PROBED):
        assert observer._probing.acquire(blocking=False)
    assert look(stage, job).silent == {}
    assert stage.hosts.asked == probes, "as many as may be are asked at the moment"
    observer._probing.release()
    look(stage, job)
    assert stage.hosts.asked == probes + 1, "and it has its turn at the next look"


def test_silent_hosts_are_probed_from_time_to_time(stage: Stage, job: Job) -> None:
    stage.hosts.dead = {1}
    pause = PROBE_EVERY
    heard(stage, job, 0, 2)
    assert look(stage, job, after=100).silent[1] == Silence(0.0, 1)
    assert look(stage, job, after=pause - 1).silent[1] == Silence(pause - 1, 1), "not yet again"
    assert look(stage, job, after=1).silent[1] == Silence(pause, 2)
    stage.hosts.dead = set()
    assert look(stage, job, after=pause).silent == {}, "it answers"
    stage.hosts.dead = {1}
    assert look(stage, job, after=pause).silent[1] == Silence(0.0, 1), "and that counts from anew"


def test_a_host_that_has_ended_or_reports_again_is_not_silent(stage: Stage, job: Job) -> None:
    stage.hosts.dead = {0, 1, 2}
    stage.report(job.id, 0, phase="exited", exit_code=0)
    assert set(look(stage, job, after=100).silent) == {1, 2}
    heard(stage, job, 1)
    assert set(look(stage, job, after=LASTS).silent) == {2}


def test_silent_hosts_that_answer_are_asked_if_their_agents_run(stage: Stage, job: Job) -> None:
    stage.hosts.dead, stage.hosts.killed_agents = {2}, frozenset({0, 1, 2})
    heard(stage, job, 0, 1, 2)
    assert look(stage, job, after=LATELY).agents_died == set(), "no host is silent"
    heard(stage, job, 0)
    assert look(stage, job, after=LASTS).agents_died == {1}, "host 0 reports, 2 does not answer"
    heard(stage, job, 1)
    assert look(stage, job, after=LASTS).agents_died == set()


# Reports -------------------------------------------------------------------------------------------------------------


def test_the_time_of_readable_reports_starts_after_the_outage(stage: Stage, job: Job) -> None:
    since = look(stage, job).readable_for
    assert look(stage, job, after=60).readable_for == since + 60
    stage.faults.broken.add("blobs")
    broken = look(stage, job, after=LASTS)
    assert isinstance(broken.reports, Unknown)
    assert broken.readable_for == 0
    assert broken.silent == {}
    stage.faults.broken.clear()
    assert look(stage, job, after=60).readable_for == 0
    assert look(stage, job, after=5).readable_for == 5


def test_a_program_that_has_ended_has_ended_while_its_reports_cannot_be_read(
    stage: Stage, job: Job
) -> None:
    """A budget that is used up in that outage does not make its end a stop for the budget."""
    for host in (0, 1):
        stage.report(job.id, host, phase="exited", exit_code=0)
    look(stage, job, after=LASTS)
    stage.faults.broken.add("blobs")
    assert isinstance(look(stage, job, after=LASTS).reports, Unknown), "host 2 may still run"
    stage.faults.broken.discard("blobs")
    stage.report(job.id, 2, phase="exited", exit_code=0)
    ended = look(stage, job, after=LASTS)
    assert not isinstance(ended.reports, Unknown)
    stage.faults.broken.add("blobs")
    later = look(stage, job, after=60)
    assert not isinstance(later.reports, Unknown)
    assert [r.exit_code for r in later.reports] == [0, 0, 0]
    assert [r.age - e.age for r, e in zip(later.reports, ended.reports, strict=True)] == [60] * 3


def test_a_process_that_was_held_up_knows_nothing_of_that_time(stage: Stage, job: Job) -> None:
    look(stage, job)
    assert look(stage, job, after=WATCH_LASTS).readable_for >= WATCH_LASTS
    assert look(stage, job, after=WATCH_LASTS + 1).readable_for == 0


def test_the_next_process_knows_when_the_hosts_had_taken_the_start(job: Job) -> None:
    assert job.attempt
    watch = JobRuntime(launched=50.0).watch(100.0)
    attempts = (*job.attempts[:-1], replace(job.attempt, watch=watch))
    after = JobRuntime()
    after.take_over(replace(job, attempts=attempts), 120.0)
    assert after.launched == 50.0
    late = JobRuntime()
    late.take_over(replace(job, attempts=attempts), 100.0 + WATCH_LASTS + 1)
    assert late.launched is None, "it is too old to say anything of now"


def test_a_host_that_started_after_the_look_is_not_called_silent(stage: Stage, job: Job) -> None:
    """Two backends: this one looked just before the other started the next attempt, and that look is still served. It
    has read the reports of this job for an hour: none of the new hosts has been silent for so long."""
    look(stage, job, after=3600.0)
    now = stage.clock.now()
    next_attempt = replace(job.attempts[-1], number=2, started_at=now, running_at=now)
    restarted = replace(job, attempts=(*job.attempts, next_attempt))
    seen = look(stage, restarted, after=1.0)
    assert [report.age for report in seen.heard] == [1.0, 1.0, 1.0]
    assert seen.silent == {}
    assert active.running(restarted, seen, stage.clock.now()).event is None


def test_when_the_step_moved_is_remembered_until_the_next_attempt(stage: Stage, job: Job) -> None:
    look(stage, job)
    assert live(stage, job).moved_at is None
    for host in range(3):
        stage.report(job.id, host, step=4)
    look(stage, job, after=9)
    moved = stage.clock.now()
    assert (live(stage, job).moved_at, live(stage, job).progress.step) == (moved, 4)
    look(stage, job, after=9)
    assert live(stage, job).moved_at == moved, "it stands"
    assert job.attempt is not None
    again = replace(job, attempts=(*job.attempts, replace(job.attempt, number=2)))
    stage.bucket.pens[job.workdir, 2] = stage.hosts.key(keys.of_attempt(again))
    stage.bucket.report(job.workdir, 2, 0, phase="running", step=9)
    look(stage, again, after=9)
    assert (live(stage, job).moved_at, live(stage, job).attempt) == (None, 2)


def test_a_new_backend_takes_the_time_of_the_newest_step_from_the_reports(job: Job) -> None:
    for step, moved in ((4, 71.0), (None, None)):
        fresh, made = JobRuntime(), Progress(step=step)
        reports = [
            HostReport(h, 1, Phase.RUNNING, 9.0, progress=made, idle=20.0 + h) for h in (0, 1)
        ]
        fresh.note_reports(job, tuple(reports), 100.0)
        assert fresh.moved_at == moved


def test_reports_are_read_only_in_states_that_need_them(stage: Stage, job: Job) -> None:
    for state in State:
        reads = state in (State.PREPARING, State.RUNNING, State.HOLDING)
        assert bool(look(stage, replace(job, state=state)).reports) is reads, state


def test_only_what_a_decision_needs_is_read_again(stage: Stage, job: Job) -> None:
    seen, (name,) = look(stage, job, after=LAG), stage.cloud.machines
    assert (seen.listed, seen.evidence) == ({name}, False)
    stage.cloud.preempt(name)
    stage.faults.broken.add("blobs")
    stage.clock.sleep(1)
    fresh = stage.reconciler.observer.extend(job, seen, Needs.FRESH)
    newest = fresh.slices[name]
    assert isinstance(newest, Present)
    assert (newest.state, fresh.listed) == (SliceState.PREEMPTED, frozenset())
    assert (fresh.at, fresh.took) == (seen.at, 1)
    assert (fresh.reports, fresh.evidence) == (seen.reports, False), "they were not read again"


# What is in the way --------------------------------------------------------------------------------------------------


def test_trouble_with_acting_stays_while_only_looking_works() -> None:
    job = JobRuntime()
    job.set_trouble("no route to host", 10.0, while_observing=False)
    job.set_trouble("", 20.0, while_observing=True)
    assert (job.trouble, job.trouble_since) == ("no route to host", 10.0)
    job.set_trouble("503", 30.0, while_observing=True)
    assert (job.trouble, job.trouble_since) == ("503", 10.0), "there was trouble all the time"
    job.set_trouble("", 40.0, while_observing=False)
    assert job.trouble == "503"
    job.set_trouble("", 50.0, while_observing=True)
    assert job.trouble == ""
    job.set_trouble("503", 60.0, while_observing=True)
    assert job.trouble_since == 60.0


def test_a_deletion_once_seen_is_remembered_while_the_slice_cannot_be_read() -> None:
    job = JobRuntime()
    ready, deleting = Present(SliceState.READY), Present(SliceState.DELETING)
    for a, b, leaving in (
        (deleting, ready, {"a"}),
        (Unknown("503"), Unknown("503"), {"a"}),
        (ready, deleting, {"b"}),  # a was not deleted after all
    ):
        job.note_look({"a": a, "b": b}, (), 0.0)
        assert job.deleting == leaving
    job.note_look({}, (), 0.0)
    assert job.deleting == set(), "b is no slice of the job any more"
