"""The hosts on the page of a job, and who sees what of them."""

from dataclasses import replace

from tests.support.callers import ADA, caller
from tests.support.records import accusation
from tests.support.stage import SPEC, Stage
from tpujob.domain.access import Role
from tpujob.domain.text import rfc3339

BOB, EVE = caller("bob"), caller("eve")


def test_hosts_say_when_they_were_heard_and_what_their_machines_did_wrong(stage: Stage) -> None:
    bob = stage.api.acting_for(BOB)
    job = bob.create(SPEC)["id"]
    assert bob.get(job)["on_hosts"] == []
    stage.running(job)
    now = stage.clock.now()
    for owner in ("uid:1", "uid:2"):
        made = accusation(owner, owner=owner, weight=1.0, at=now)
        stage.store.reputation.accuse(["rack-1"], made)
    stage.report(job, 0, step=7, physical="rack-0")
    stage.report(job, 1, step=7, physical="rack-1", notice="preempted", error="disk full")
    wrote = stage.clock.now()
    stage.clock.sleep(5)
    stage.reconciler.observer.look(stage.job(job))
    stage.clock.sleep(20)
    first, second = bob.get(job)["on_hosts"]
    assert first["heard_at"] == second["heard_at"] == rfc3339(wrote), "as old as it is"
    assert (first["step"], first["phase"], first["address"]) == (7, "running", "10.0.1.0")
    assert (first["suspicion"], first["refused"]) == (0.0, False)
    assert (second["suspicion"], second["refused"]) == (2.0, True)
    assert (second["notice"], second["error"]) == ("preempted", "disk full")
    assert [h["suspicion"] for h in stage.api.acting_for(ADA).get(job)["on_hosts"]] == [0.0, 2.0]
    for stranger in (EVE, replace(EVE, role=Role.VIEWER)):
        on_hosts = stage.api.acting_for(stranger).get(job)["on_hosts"]
        assert [(h["suspicion"], h["refused"]) for h in on_hosts] == [(None, False)] * 2


def test_a_host_that_has_not_reported_and_one_that_does_not_answer_are_told(stage: Stage) -> None:
    bob = stage.api.acting_for(BOB)
    job = bob.create(SPEC)["id"]
    stage.running(job)
    live = stage.reconciler.live[job]
    live.reports, live.dead = live.reports[:1], {1: (stage.clock.now() - 60, 3)}
    first, second = bob.get(job)["on_hosts"]
    assert first["heard_at"]
    assert first["silent_since"] is None
    assert second["heard_at"] is None
    assert second["silent_since"] == rfc3339(stage.clock.now() - 60)
    live.dead = {}
    stage.succeed(job)
    assert bob.get(job)["on_hosts"] == [], "it has none any more"
