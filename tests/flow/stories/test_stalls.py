"""Hangs and lost contact, over the whole backend with its clock turned by hand."""

from itertools import pairwise

from tests.support.stage import Stage
from tpujob.domain.model import Cause, Job, State


def quiet(stage: Stage, job_id: str, idle: float) -> None:
    stage.reports(job_id, idle=idle, looks=int(idle), step=12, program_phase="train")


def pass_time(stage: Stage, job_id: str, seconds: float, idle: float = 0.0) -> None:
    """Let time pass while the agents report every 15 seconds."""
    until = stage.clock.now() + seconds
    while stage.clock.now() < until:
        idle += 15 if idle else 0
        quiet(stage, job_id, idle)
        stage.reconciler.tick(job_id)
        stage.clock.sleep(15)


def test_a_hang_is_ended_named_and_started_again_on_the_same_slice(stage: Stage) -> None:
    job_id = stage.started(recovery={"stall": "5m"})
    pass_time(stage, job_id, 120)
    stage.last_words(job_id, 1, "Thread 1: psum (collective.py:31)")
    began = stage.clock.now()
    for n in range(40):
        stage.reports(job_id, idle=15.0 * n, looks=15 * n, step=12, program_phase="train")
        stage.last_words(job_id, 1, "Thread 1: psum (collective.py:31)")
        stage.reconciler.tick(job_id)
        if len(stage.job(job_id).attempts) == 2:
            break
        stage.clock.sleep(15)
    job = stage.job(job_id)
    assert [a.cause for a in job.attempts] == [Cause.HANG, None]
    assert 300 <= stage.clock.now() - began <= 330, "found at the stall, not long after"
    assert any("psum" in line.text for line in job.attempts[0].evidence), job.attempts[0].evidence
    assert job.attempts[1].slice == job.attempts[0].slice
    assert job.retries_used == {"hangs": 1}


def test_a_slice_that_is_ready_but_dead_is_replaced_within_five_minutes(stage: Stage) -> None:
    job_id = stage.started()
    pass_time(stage, job_id, 120)
    stage.hosts.dead = {0, 1}
    began = stage.clock.now()
    job = stage.until(job_id, lambda j: len(j.slices) == 2, limit=2000)
    assert job.attempts[0].cause is Cause.LOST_CONTACT
    assert "does not answer over SSH" in job.attempts[0].message
    assert 150 <= stage.clock.now() - began <= 300
    assert "failures" not in job.retries_used


def test_out_of_memory_is_retried_once(stage: Stage) -> None:
    job_id = stage.create()
    for _ in range(2):
        stage.running(job_id)
        stage.finish(job_id, 137, 76)
        stage.last_words(job_id, 0, "Out of memory: Killed process 4242 (python3)")
        stage.step(job_id)
    job = stage.until(job_id, State.FAILED)
    assert job.cause is Cause.OOM_HOST
    assert len(job.attempts) == 2
    assert "1 retry allowed by `recovery.memory`, all used" in job.message


def test_a_set_up_without_an_end_is_not_billed_for_ever(stage: Stage) -> None:
    job_id = stage.create(recovery={"failures": 0})
    stage.faults.broken.add("start")
    stage.until(job_id, State.PREPARING)
    stage.faults.broken.clear()
    began = stage.clock.now()
    for _ in range(600):
        stage.reports(job_id, phase="setup")
        stage.step(job_id)
        stage.clock.sleep(15)
        if stage.job(job_id).state is State.FAILED:
            break
    job = stage.job(job_id)
    assert (job.state, job.cause) == (State.FAILED, Cause.SETUP)
    assert 7000 <= stage.clock.now() - began <= 8000
    assert "host 0 is still in setup after 2 h" in job.message
    assert stage.cloud.machines == {}


def test_set_up_counts_from_the_start_that_every_host_accepted(stage: Stage) -> None:
    """Which may be hours after the attempt, if the way to the hosts was closed."""
    job_id = stage.create(recovery={"failures": 0})
    stage.faults.broken.add("start")
    stage.until(job_id, State.PREPARING)
    stage.clock.sleep(3 * 3600)
    stage.faults.broken.clear()
    for _ in range(5):
        stage.step(job_id)
        stage.reports(job_id, phase="setup")
    assert stage.job(job_id).state is State.PREPARING
    stage.reports(job_id, phase="running")
    stage.until(job_id, State.RUNNING)


# A backend that does not live long -----------------------------------------------------------------------------------


def called_once_a_minute(stage: Stage, job_id: str, minutes: int) -> Job:
    """Tick once a minute, with a new backend each time."""
    for _ in range(minutes):
        stage.reconciler = stage.new_backend()
        stage.reconciler.tick(job_id)
        stage.clock.sleep(60)
        if stage.job(job_id).attempts[0].ended_at is not None:
            break
    return stage.job(job_id)


def test_a_dead_host_is_given_up_by_backends_that_live_for_one_tick(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    stage.hosts.dead = {1}
    before = stage.job(job_id).version

    def goes_on() -> None:
        stage.report(job_id, 0, step=1)

    for _ in range(12):
        goes_on()
        if called_once_a_minute(stage, job_id, 1).attempts[0].ended_at is not None:
            break
    ended = stage.job(job_id)
    assert "host 1 has not reported" in ended.attempts[0].message
    assert ended.attempts[0].cause == "LOST_CONTACT"
    stored = [e for e in stage.kinds(job_id) if e == "watched"]
    assert 2 <= len(stored) <= 8 < 60 * 8 / 10, "as often as ticks come"
    events = stage.api.events(job_id)
    shown = [e for e in events if e["kind"] == "watched"]
    assert len(shown) < len(stored), "a watch that only renews the one before it is not shown"
    assert all(before["text"] != after["text"] for before, after in pairwise(shown))
    assert all(
        stage.api.events(job_id, after=event["seq"]) == events[number:]
        for number, event in enumerate(events, 1)
    ), "wherever one begins to read"
    assert before < ended.version


def test_an_agent_that_is_gone_is_noticed_by_backends_that_live_for_one_tick(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    job = called_once_a_minute(stage, job_id, 45)
    assert "answers over SSH: its agent is gone" in job.attempts[0].message


def test_an_agent_that_was_killed_is_replaced_at_the_first_silence(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    stage.hosts.killed_agents = frozenset({1})
    began = stage.clock.now()
    stage.until(
        job_id, lambda _: bool(stage.hosts.taken_over), also=lambda: stage.report(job_id, 0)
    )
    assert stage.clock.now() - began < 120
    assert stage.hosts.taken_over == [(1, 1)]
    job = stage.succeed(job_id)
    assert (len(job.attempts), job.retries_used) == (1, {}), "its program has run on"
    assert stage.hosts.starts == [(1, 0), (1, 1)]


def test_an_agent_that_was_killed_beside_a_host_that_is_lost_is_lost_with_it(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    stage.hosts.killed_agents, stage.hosts.dead = frozenset({1}), {0}
    job = stage.until(job_id, lambda j: j.attempts[0].ended_at is not None)
    assert stage.hosts.taken_over == []
    assert job.attempts[0].cause in (Cause.LOST_CONTACT, Cause.CRASH)


def test_nothing_is_stored_while_there_is_word_of_every_host(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    version = stage.job(job_id).version
    for _ in range(10):
        stage.reports(job_id)
        called_once_a_minute(stage, job_id, 1)
    assert stage.job(job_id).version == version
