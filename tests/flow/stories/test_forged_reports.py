"""A program of one job writes where the hosts of another job report: all programs may share one account."""

import json
from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.domain.events import EventKind
from tpujob.domain.model import Cause, State
from tpujob.protocol import paths, signing

WRONG = {"step": 41, "host": 0, "device": "device 2", "blame": "device", "text": "it lied"}


def forge(stage: Stage, victim: str, key: str = "", **fields: Any) -> None:
    """Replace the reports of both hosts by newer ones."""
    job = stage.job(victim)
    assert job.attempt is not None
    for host in range(2):
        about = {"v": 1, "job": job.id, "attempt": job.attempt.number, "host": host}
        text = json.dumps({**about, "seq": 10**15, **fields})
        signed = {"report": text, "mac": signing.sign(key, "report", text)}
        path = paths.report_path(job.workdir, job.attempt.number, host)
        stage.bucket.put(path, b"", metadata=signed, timeout=1)


def test_no_other_program_can_end_a_job_as_succeeded(stage: Stage) -> None:
    stage.running(victim := stage.create())
    own = next(iter(stage.bucket.pens.values()))
    attackers = stage.running(stage.create(name="attacker"))
    theirs = stage.bucket.pens[attackers.workdir, 1]
    assert own != theirs
    for key in ("", theirs):
        forge(stage, victim, key, phase="exited", exit_code=0)
        for _ in range(4):
            stage.step(victim)
    job = stage.job(victim)
    assert (job.state, len(job.attempts)) == (State.RUNNING, 1)
    assert stage.api.get(victim)["ignored"] == {"unverified": 4, "replayed": 0}
    stage.succeed(victim)
    assert stage.api.get(victim)["ignored"] == {"unverified": 4, "replayed": 0}, "it is stored"
    events = [e.text for e in stage.store.events(victim) if e.kind is EventKind.REPORTS_IGNORED]
    assert events == [f"{n} reports of attempt 1 ignored: not sent by its hosts" for n in (2, 4)]


def test_the_number_of_ignored_reports_is_stored_and_outlives_the_backend(stage: Stage) -> None:
    stage.running(victim := stage.create())
    for n in range(20):
        forge(stage, victim, phase="exited", exit_code=n)
        stage.step(victim)
    kinds = [e.kind for e in stage.store.events(victim)]
    assert kinds.count(EventKind.REPORTS_IGNORED) <= 6, "when it has doubled, or ten minutes later"
    stage.reconciler = stage.new_backend()
    for _ in range(2):
        stage.step(victim)
    ignored = stage.api.get(victim)["ignored"]
    assert ignored is not None
    assert ignored["unverified"] >= 20


@pytest.mark.parametrize("at", ['"y"', "NaN", "Infinity", "-Infinity", "[]"])
def test_nonsense_that_a_program_signs_ends_its_own_job_alone(stage: Stage, at: str) -> None:
    """The program has the key of its agent. No tick fails, and its silent hosts are found."""
    job = stage.running(own := stage.create())
    stage.running(other := stage.create(name="other"))
    key = stage.bucket.pens[job.workdir, 1]

    def forge_time() -> None:
        for host in range(2):
            about: Any = {"v": 1, "job": own, "attempt": 1, "seq": 10**15, "phase": "running"}
            text = json.dumps({**about, "host": host, "at": 5.0}).replace("5.0", at)
            signed = {"report": text, "mac": signing.sign(key, "report", text)}
            path = paths.report_path(job.workdir, 1, host)
            stage.bucket.put(path, b"", metadata=signed, timeout=1)

    forge_time()
    stage.hosts.dead = {0, 1}
    gone = stage.until(own, lambda j: j.attempts[0].ended_at is not None, also=forge_time)
    assert gone.attempts[0].cause is Cause.LOST_CONTACT
    stage.hosts.dead = set()
    stage.succeed(other)
