"""Ends that the loss of another host may have caused, over the whole backend with its clock turned by hand."""

from collections.abc import Callable

import pytest

from tests.support.stage import Stage
from tests.support.world import Faults
from tpujob.domain.failures import triage
from tpujob.domain.host import keys
from tpujob.domain.model import Attempt, Cause, Job, State
from tpujob.domain.observations import SliceState

ECHO = "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: PollForError: task 0 heartbeat timeout"
SOCKET = "E0000 grpc: Socket closed grpc_status:14"


def over(job: Job) -> bool:
    return job.attempts[0].ended_at is not None


def first_end(
    stage: Stage, job_id: str, also: Callable[[], None] = lambda: None
) -> tuple[Attempt, float]:
    """Return the first attempt once it has ended, and the seconds until then."""
    began = stage.clock.now()
    job = stage.until(job_id, over, also=also)
    return job.attempts[0], stage.clock.now() - began


def ends(stage: Stage, job_id: str, host: int, *lines: str, code: int = 1) -> None:
    stage.report(job_id, host, phase="exited", exit_code=code)
    stage.last_words(job_id, host, *lines)


@pytest.mark.parametrize(
    ("line", "code"),
    [("exit", 1), (ECHO, 1), (SOCKET, 1), (SOCKET, -6), ("ValueError: no", 1), ("", 76)],
)
@pytest.mark.parametrize("silent_for", [0, 60])
def test_an_end_beside_a_dead_host_is_the_loss_of_that_host(
    stage: Stage, line: str, code: int, silent_for: float
) -> None:
    """Whatever the framework makes of it, and however soon it notices."""
    job_id = stage.started(recovery={"failures": 0})
    stage.reports(job_id, phase="running", step=7)
    stage.hosts.dead = {0}
    stage.clock.sleep(silent_for)
    ends(stage, job_id, 1, line, code=code)
    attempt, seconds = first_end(stage, job_id)
    assert (attempt.cause, attempt.host) == (Cause.LOST_CONTACT, 0)
    assert 60 <= seconds <= 110, "soon, and after more than one look"
    stage.hosts.dead = set()
    job = stage.running(job_id, attempt=2)
    assert job.attempts[1].slice != attempt.slice
    assert job.retries_used == {"preemptions": 1}


def test_an_end_beside_living_hosts_waits_for_nobody(stage: Stage) -> None:
    job_id = stage.started()
    ends(stage, job_id, 1, "ValueError: no")
    attempt, seconds = first_end(stage, job_id)
    assert (attempt.cause, attempt.host) == (Cause.CRASH, 1)
    assert triage.SETTLE <= seconds <= triage.SETTLE + 5
    assert stage.kinds(job_id).count("watched") == 0, "no host was in question"


def test_hosts_that_report_need_no_answer_over_ssh(stage: Stage) -> None:
    job_id = stage.started()
    stage.hosts.dead = {0, 1}
    ends(stage, job_id, 1, ECHO)
    attempt, seconds = first_end(stage, job_id, also=lambda: stage.report(job_id, 0, step=9))
    assert (attempt.cause, attempt.host) == (Cause.CRASH, 1)
    assert seconds <= triage.SETTLE + 5


def test_a_silent_host_that_comes_back_with_its_own_end_is_believed(stage: Stage) -> None:
    job_id = stage.started()
    stage.hosts.dead = {0}
    ends(stage, job_id, 1, SOCKET, code=-6)
    for _ in range(20):
        stage.step(job_id)
    assert not over(stage.job(job_id))
    ends(stage, job_id, 0, "MemoryError: cannot allocate 3.2 GiB")
    attempt, _ = first_end(stage, job_id)
    assert (attempt.cause, attempt.host) == (Cause.OOM_HOST, 0)


def test_a_killed_agent_is_replaced_before_the_end_of_its_peer_is_judged(stage: Stage) -> None:
    job_id = stage.started()
    stage.hosts.killed_agents = frozenset({0})
    ends(stage, job_id, 1, ECHO)
    attempt, _ = first_end(stage, job_id)
    assert stage.hosts.taken_over == [(1, 0)], "its program runs on, so host 0 was not lost"
    assert (attempt.cause, attempt.host) == (Cause.CRASH, 1)


def in_set_up(stage: Stage) -> str:
    """Start a job of which the hosts are preparing."""
    job_id = stage.create(recovery={"failures": 0})
    stage.faults.broken.add("start")
    job = stage.until(job_id, State.PREPARING)
    stage.faults.broken.clear()
    for machine in stage.cloud.machines.values():
        machine.programs = dict.fromkeys(range(2), 1)
    stage.bucket.pens[job.workdir, 1] = stage.hosts.key(keys.of_attempt(job))
    stage.reports(job_id, phase="setup")
    return job_id


def test_an_agent_that_is_killed_in_set_up_is_replaced(stage: Stage) -> None:
    job_id = in_set_up(stage)
    stage.hosts.killed_agents = frozenset({0})
    until = stage.clock.now() + 300
    while stage.clock.now() < until:
        stage.report(job_id, 1, phase="setup")
        stage.step(job_id)
    assert stage.hosts.taken_over == [(1, 0)]
    assert not over(stage.job(job_id))


def test_the_end_of_another_host_in_set_up_waits_for_a_killed_agent(stage: Stage) -> None:
    job_id = in_set_up(stage)
    stage.hosts.killed_agents = frozenset({0})
    stage.clock.sleep(200)
    ends(stage, job_id, 1, "ValueError: no such optimizer", code=78)
    attempt, _ = first_end(stage, job_id)
    assert stage.hosts.taken_over == [(1, 0)]
    assert (attempt.cause, attempt.host) == (Cause.BAD_SPEC, 1)


def test_an_echo_on_every_host_leaves_the_cloud_time_to_report_the_loss(stage: Stage) -> None:
    job_id = stage.started(recovery={"failures": 0})
    for host in (0, 1):
        ends(stage, job_id, host, ECHO)
    for _ in range(3):
        stage.step(job_id)
    assert not over(stage.job(job_id))
    stage.preempt()
    attempt, _ = first_end(stage, job_id)
    assert attempt.cause is Cause.PREEMPTED


def test_an_echo_on_every_host_of_a_sound_slice_is_a_crash(stage: Stage) -> None:
    job_id = stage.started()
    for host in (0, 1):
        ends(stage, job_id, host, ECHO)
    attempt, seconds = first_end(stage, job_id)
    assert attempt.cause is Cause.CRASH
    assert seconds <= triage.SETTLE + 5


def test_a_wrong_number_ends_the_attempt_whatever_has_become_of_the_others(stage: Stage) -> None:
    """The other hosts may save more of them."""
    job_id = stage.started()
    stage.hosts.dead = {0}
    verdict = {"step": 7, "host": 1, "device": "", "blame": "", "text": "loss=nan"}
    stage.report(job_id, 1, phase="exited", cause="NONFINITE", error="nan", verdict=verdict)
    attempt, seconds = first_end(stage, job_id)
    assert (attempt.cause, seconds <= 5) == (Cause.NONFINITE, True)


def test_a_host_lost_in_set_up_comes_before_the_failure_that_it_causes(stage: Stage) -> None:
    job_id = stage.create(recovery={"failures": 0})
    stage.faults.broken.add("start")
    job = stage.until(job_id, State.PREPARING)
    stage.bucket.pens[job.workdir, 1] = stage.hosts.key(keys.of_attempt(job))
    stage.report(job_id, 0, phase="setup")
    stage.hosts.dead = {0}
    stage.clock.sleep(5)
    unreached = {"source": 1, "target": 0, "port": 8477}
    failure = {"error": "host 0:8477 gave no answer", "cause": "SETUP", "unreached": unreached}
    stage.report(job_id, 1, phase="exited", **failure)
    attempt, seconds = first_end(stage, job_id)
    assert (attempt.cause, attempt.host) == (Cause.LOST_CONTACT, 0)
    assert seconds <= 110


def test_while_the_cloud_does_not_answer_no_host_is_given_up_and_no_other_blamed(
    stage: Stage,
) -> None:
    job_id = stage.started()
    stage.hosts.dead = {0}
    ends(stage, job_id, 1, ECHO)
    stage.faults.broken.add("look")
    until = stage.clock.now() + 1800
    while stage.clock.now() < until:
        stage.step(job_id)
    assert not over(stage.job(job_id))
    stage.faults.broken.clear()
    attempt, _ = first_end(stage, job_id)
    assert (attempt.cause, attempt.host) == (Cause.LOST_CONTACT, 0)


def test_after_an_outage_of_the_storage_a_living_host_gets_time_to_report(stage: Stage) -> None:
    job_id = stage.started()
    stage.hosts.dead = {0}  # over SSH alone
    ends(stage, job_id, 1, "ValueError: no")
    stage.faults.broken.add("blobs")
    until = stage.clock.now() + 900
    while stage.clock.now() < until:
        stage.step(job_id)
    stage.faults.broken.clear()
    for _ in range(10):
        stage.step(job_id)
    assert not over(stage.job(job_id)), "old reports prove nothing yet"
    stage.report(job_id, 0, step=9)
    attempt, _ = first_end(stage, job_id)
    assert (attempt.cause, attempt.host) == (Cause.CRASH, 1)


def test_a_backend_that_was_away_finds_the_host_that_died_and_not_its_peer(stage: Stage) -> None:
    job_id = stage.started()
    stage.hosts.dead = {0}
    stage.clock.sleep(30)
    ends(stage, job_id, 1, ECHO)
    stage.clock.sleep(3600)
    stage.reconciler = stage.new_backend()
    attempt, seconds = first_end(stage, job_id)
    assert (attempt.cause, attempt.host) == (Cause.LOST_CONTACT, 0)
    assert 60 <= seconds <= 110


def test_a_program_does_not_start_again_beside_a_dead_host(stage: Stage) -> None:
    job_id = stage.started()
    for host in (0, 1):
        ends(stage, job_id, host, "ValueError: no")
    stage.until(job_id, lambda j: len(j.attempts) == 2)
    assert stage.job(job_id).attempts[1].slice == stage.job(job_id).attempts[0].slice
    stage.hosts.dead = {0}
    stage.faults.broken.add("start")
    began = stage.clock.now()
    job = stage.until(job_id, lambda j: j.attempts[1].ended_at is not None)
    assert (job.attempts[1].cause, job.attempts[1].host) == (Cause.LOST_CONTACT, 0)
    assert stage.clock.now() - began < 300
    stage.hosts.dead, stage.faults = set(), Faults()


def test_where_no_host_answers_the_way_to_them_may_be_closed(stage: Stage) -> None:
    job_id = stage.started()
    for host in (0, 1):
        ends(stage, job_id, host, "ValueError: no")
    stage.until(job_id, lambda j: len(j.attempts) == 2)
    stage.hosts.dead = {0, 1}
    stage.faults.broken.add("start")
    until = stage.clock.now() + 1200
    while stage.clock.now() < until:
        stage.step(job_id)
    assert stage.job(job_id).attempts[1].ended_at is None
    assert all(m.state is SliceState.READY for m in stage.cloud.machines.values())
