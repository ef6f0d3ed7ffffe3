"""A job that asks in several zones at once: the first slice serves, the others are handed on or deleted."""

from collections.abc import Callable

import pytest

from tests.support.callers import caller
from tests.support.stage import SPEC, Stage
from tpujob.domain import invariants
from tpujob.domain.access import Role
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.domain.model import Cause, Job, SliceRole, State, Suspect
from tpujob.domain.money.goodput import TimePart, spans
from tpujob.errors import BadSpec

ZONES = ["us-east5-b", "us-east5-a", "us-east5-c"]
RACE = {"type": "v6e-8", "zones": ZONES, "race": 3}
B, A, C = "tj-000001-1", "tj-000001-2", "tj-000001-3"


def asked(job: Job) -> list[tuple[str, str]]:
    """Return the last letter of the zone, and the role, of each slice that is not gone."""
    return [(s.zone[-1], s.role.value) for s in job.slices if s.gone_at is None]


def names(stage: Stage, machines: dict[str, object] | None = None) -> list[str]:
    return [name[:11] for name in sorted(stage.cloud.machines if machines is None else machines)]


def granted(stage: Stage, job_id: str, zone: str) -> None:
    """Give the job's request in that zone its slice."""
    slice = next(s for s in stage.job(job_id).slices if s.zone.endswith(zone) and not s.gone_at)
    stage.cloud.grant(slice.name)


@pytest.fixture
def waits(stage: Stage) -> str:
    """A job that waits in the queues of three zones."""
    stage.cloud.waiting = {*ZONES}
    job_id = stage.create(tpu=RACE)
    stage.until(job_id, lambda job: len(job.candidates) == 2)
    return job_id


def test_the_first_slice_serves_and_the_others_go_when_the_program_runs(
    stage: Stage, waits: str
) -> None:
    job = stage.job(waits)
    assert asked(job) == [("b", "serving"), ("a", "candidate"), ("c", "candidate")]
    assert stage.clock.now() - job.state_since < 10, "they are asked at once"
    granted(stage, waits, "a")
    job = stage.running(waits)
    assert job.slice is not None
    assert (job.slice.zone, job.slice.role) == ("us-east5-a", SliceRole.SERVING)
    stage.until(waits, lambda job: not job.beside)
    assert list(stage.cloud.machines) == [job.slice.name]
    job = stage.job(waits)
    assert [s.refused for s in job.slices] == [None] * 3, "a loser is no refusal"
    assert not stage.reconciler.circuits(), "and opens no circuit"
    assert len(stage.hosts.starts) == job.hosts
    assert invariants.of_job(job) == []
    stage.finish(waits, *[0] * job.hosts)
    stage.until(waits, State.SUCCEEDED)
    assert stage.cloud.machines == {}
    assert len(stage.cloud.created) == 3, "no loser is created again"


def test_one_zone_refuses_and_another_serves(stage: Stage) -> None:
    stage.cloud.waiting, stage.cloud.full = {ZONES[0], ZONES[2]}, {ZONES[1]}
    job_id = stage.create(tpu=RACE)
    job = stage.until(job_id, lambda job: len(job.candidates) == 1 and not job.losers)
    assert asked(job) == [("b", "serving"), ("c", "candidate")]
    assert [s.refused for s in job.slices] == [None, Cause.STOCKOUT, None]
    assert [c.what for c in stage.reconciler.circuits().values()] == ["v6e-8 spot in us-east5-a"]
    granted(stage, job_id, "c")
    assert stage.running(job_id).retries_used == {}


def test_a_serving_request_that_is_refused_leaves_its_place_to_a_candidate(stage: Stage) -> None:
    stage.cloud.waiting = {*ZONES}
    job_id = stage.create(tpu=RACE)
    stage.until(job_id, lambda job: len(job.candidates) == 2)
    stage.cloud.vanish(stage.job(job_id).slices[0].name)
    stage.cloud.full = {ZONES[0]}
    job = stage.until(job_id, lambda job: bool(job.slice) and job.slice.zone == ZONES[1])
    assert job.state is State.PROVISIONING, "without a release"
    assert job.slices[0].refused is Cause.STOCKOUT
    granted(stage, job_id, "c")
    job = stage.running(job_id)
    assert job.slice is not None
    assert job.slice.zone == ZONES[2]
    assert job.failed_requests == [], "it has a slice now"


def test_two_that_are_ready_at_once_leave_one(stage: Stage) -> None:
    """Without another job the loser is deleted before the program starts; it is billed and counted."""
    job_id = stage.create(tpu=RACE, budget={"usd": 50})
    stage.until(job_id, lambda job: len(job.slices) == 3)
    stage.clock.sleep(30)
    stage.reconciler.tick(job_id)
    job = stage.job(job_id)
    assert [s.delete_asked_at is not None for s in job.slices] == [False, True, True]
    assert list(stage.cloud.machines) == [job.slices[0].name]
    assert all(s.ready_at is not None for s in job.slices), "all were billed"
    job = stage.until(job_id, lambda job: not job.beside)
    lost = [span for span in spans(job, stage.clock.now()) if span.part is TimePart.CANDIDATE]
    assert [span.slice and span.slice.name for span in lost] == [s.name for s in job.slices[1:]]
    assert stage.api.get(job_id)["usd_spent"] or 0 > 0


def waiting_for(stage: Stage, zone: str, **spec: object) -> str:
    """Return a job whose request in a full zone was refused."""
    stage.cloud.full = {zone}
    job_id = stage.create(name="second", tpu={"type": "v6e-8", "zones": [zone]}, **spec)
    stage.until(job_id, lambda job: job.state is State.QUEUED and bool(job.slices))
    return job_id


def test_a_ready_loser_goes_to_the_next_job_that_fits(stage: Stage, waits: str) -> None:
    other = waiting_for(stage, ZONES[2])
    granted(stage, waits, "a")
    granted(stage, waits, "c")
    stage.until(waits, State.PREPARING)
    heir = stage.until(other, lambda job: bool(job.slice), also=lambda: stage.step(waits))
    assert heir.slice is not None
    assert (heir.slice.received_from, heir.slice.epoch) == (waits, 1)
    lost = next(s for s in stage.job(waits).slices if s.zone == ZONES[2])
    assert (lost.handed_to, lost.gone_at) == (other, heir.slice.ready_at)
    assert stage.hosts.wiped == [], "no program has run on it"
    stage.running(waits)
    stage.running(other)
    assert invariants.of_job(stage.job(waits)) == []


def test_a_loser_is_not_handed_on_to_one_job_more_than_its_owner_may_run(stage: Stage) -> None:
    stage.queue = QueueSettings(limits=OwnerLimits(running=1))
    stage.reconciler = stage.new_backend()
    stage.cloud.waiting = {*ZONES}
    first = stage.create(tpu=RACE)
    stage.until(first, lambda job: len(job.candidates) == 2)
    second = stage.create(name="second", tpu={"type": "v6e-8", "zones": ZONES})
    granted(stage, first, "b")
    granted(stage, first, "a")
    stage.until(first, lambda job: not job.beside)
    assert stage.job(second).slices == ()


def broken_machines(stage: Stage, zone: str) -> None:
    """Let a person pin every machine of the zone as bad."""
    for number in range(256):
        suspect = Suspect(f"{zone}-h{number:03d}", zone, stage.clock.now(), pinned="bad")
        stage.store.reputation.put(suspect)


def test_a_waiting_runner_up_replaces_a_winner_that_fails_its_pre_flight(
    stage: Stage, waits: str
) -> None:
    broken_machines(stage, ZONES[1])
    granted(stage, waits, "a")
    job = stage.until(waits, lambda job: bool(job.condemned))
    assert job.state is State.PROVISIONING, "the request in the first zone goes on"
    assert asked(job) == [("b", "serving"), ("a", "condemned"), ("c", "candidate")]
    granted(stage, waits, "b")
    job = stage.running(waits, attempt=2)
    assert job.slice is not None
    assert job.slice.zone == ZONES[0]
    stage.until(waits, lambda job: not job.beside)
    assert len(stage.cloud.machines) == 1


def test_a_race_keeps_to_the_limits_of_its_owner(stage: Stage) -> None:
    stage.queue = QueueSettings(limits=OwnerLimits(chips=16))
    stage.reconciler = stage.new_backend()
    stage.cloud.waiting = {*ZONES}
    job_id = stage.create(tpu=RACE)
    stage.until(job_id, lambda job: len(job.candidates) == 1)
    for _ in range(50):
        stage.step(job_id)
    assert len(stage.job(job_id).slices) == 2, "three would hold 24 chips"


def test_a_race_takes_no_chips_that_another_job_waits_for(stage: Stage) -> None:
    quota = {f"{zone}/v6e/spot": 12 for zone in ZONES[1:]}
    stage.queue = QueueSettings(quota=quota)
    stage.reconciler = stage.new_backend()
    big = {"type": "v6e-16", "zones": ZONES[1:2]}
    stage.queue = QueueSettings(quota={**quota, f"{ZONES[1]}/v6e/spot": 16})
    stage.reconciler = stage.new_backend()
    holder = stage.started(name="holder", tpu={"type": "v6e-8", "zones": ZONES[1:2]})
    waiter = stage.create(name="waiter", tpu=big)
    stage.step(waiter)
    stage.cloud.waiting = {*ZONES}
    racer = stage.create(name="racer", tpu=RACE)
    for _ in range(20):
        stage.step(racer)
    assert [zone for zone, _ in asked(stage.job(racer))] == ["b", "c"]
    assert stage.job(holder).state is State.RUNNING


@pytest.mark.parametrize("how", ["cancel", "delete", "clean"])
def test_whatever_ends_the_job_releases_all_its_requests(
    stage: Stage, waits: str, how: str
) -> None:
    ends: dict[str, Callable[[], object]] = {
        "cancel": lambda: stage.api.cancel(waits),
        "delete": lambda: stage.api.delete(waits),
        "clean": lambda: stage.api.clean(waits),
    }
    ends[how]()
    for _ in range(30):
        if stage.cloud.machines:
            stage.step(waits)
    assert stage.cloud.machines == {}


def test_the_sweep_knows_candidates_as_claimed(stage: Stage, waits: str) -> None:
    stage.clock.sleep(3600)
    swept = stage.sweep()
    assert (swept.deleted, len(stage.cloud.machines)) == ([], 3)
    assert stage.job(waits).candidates


@pytest.mark.parametrize("effect", range(1, 16))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_backend_that_dies_at_any_effect_leaves_one_program(
    stage: Stage, effect: int, moment: str
) -> None:
    stage.faults.kill_at = effect, moment
    stage.cloud.waiting = {ZONES[0]}
    job_id = stage.create(tpu=RACE)
    job = stage.running(job_id)
    assert len(stage.hosts.starts) == job.hosts
    job = stage.until(job_id, lambda job: not job.beside)
    assert job.slice is not None
    assert list(stage.cloud.machines) == [job.slice.name]
    assert len(stage.cloud.created) <= 3
    stage.finish(job_id, *[0] * job.hosts)
    stage.until(job_id, State.SUCCEEDED)
    assert stage.cloud.machines == {}
    events = stage.store.events(job_id)
    job = stage.job(job_id)
    assert invariants.of_history(invariants.first_record(job), events, job) == []


def test_a_race_without_a_second_place_or_on_a_reservation_is_refused(stage: Stage) -> None:
    with pytest.raises(BadSpec, match="3 places cannot be asked at once"):
        stage.create(tpu={"type": "v6e-8", "zones": ZONES[:1], "race": 3})
    with pytest.raises(BadSpec, match="race must be 1 with pricing: reserved"):
        stage.create(tpu={**RACE, "pricing": "reserved"})
    with pytest.raises(BadSpec, match="must be from 1 to 5"):
        stage.create(tpu={**RACE, "race": 6})


def test_a_job_that_was_refused_asks_in_two_places(stage: Stage) -> None:
    """Unless its file says one, its pricing costs more, it is of low priority, or an element."""
    stage.cloud.full, stage.cloud.waiting = {ZONES[0]}, {*ZONES[1:]}
    plain = {"type": "v6e-8", "zones": ZONES}
    for name, racers, fields in (
        ("plain", ["a", "c"], {"tpu": plain}),
        ("alone", ["a"], {"tpu": {**plain, "race": 1}}),
        ("dear", ["a"], {"tpu": {**plain, "pricing": "on-demand"}}),
        ("low", ["a"], {"tpu": plain, "priority": "low"}),
    ):
        job_id = stage.create(name=name, **fields)
        for _ in range(12):
            stage.step(job_id)
        assert [zone for zone, _ in asked(stage.job(job_id))] == racers, name
        stage.api.delete(job_id)
        stage.until(job_id, State.CANCELLED)
        stage.clock.sleep(3600)


def test_a_job_asks_in_two_places_where_others_have_waited_for_long(stage: Stage) -> None:
    one = {"type": "v6e-8", "zones": ZONES[:1]}
    for number in range(5):
        stage.cloud.waiting = {*ZONES}
        earlier = stage.create(name=f"earlier-{number}", tpu=one)
        stage.until(earlier, State.PROVISIONING)
        stage.clock.sleep(900)
        granted(stage, earlier, "b")
        stage.running(earlier)
        stage.finish(earlier, 0)
        stage.until(earlier, State.SUCCEEDED)
    both = {"type": "v6e-8", "zones": ZONES[:2]}
    unknown = stage.create(name="unknown", tpu=both)
    for _ in range(12):
        stage.step(unknown)
    assert len(stage.job(unknown).slices) == 1, "no job has asked what the records say"
    stage.clock.sleep(400)
    stage.step(unknown)
    known = stage.create(name="known", tpu=both)
    stage.until(known, lambda job: bool(job.candidates))


def test_another_owner_gets_no_loser_unless_the_lab_hands_on(stage: Stage, waits: str) -> None:
    bob = caller("bob", Role.SUBMITTER)
    stage.cloud.full = {ZONES[2]}
    other = stage.api.acting_for(bob).create(
        {**SPEC, "name": "second", "tpu": {"type": "v6e-8", "zones": [ZONES[2]]}}
    )["id"]
    stage.until(other, lambda job: job.state is State.QUEUED and bool(job.slices))
    granted(stage, waits, "a")
    granted(stage, waits, "c")
    stage.until(waits, lambda job: not job.beside and job.state is State.RUNNING)
    assert stage.job(other).slice is None
    assert len(stage.cloud.machines) == 1
