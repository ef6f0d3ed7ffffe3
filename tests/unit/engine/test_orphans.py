"""The sweep, and what it shows: slices that no job claims, and keys of slices that are gone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stage import Stage, leftover
from tests.support.stores import DAMAGE, EMPTY
from tests.support.world import orphans
from tpujob.adapters.sqlite import SqliteStore
from tpujob.api import LeakView
from tpujob.domain.decide import SUSPENDED_WITHIN
from tpujob.domain.events import Event
from tpujob.domain.model import Job, Slice, State
from tpujob.engine import zones
from tpujob.errors import NotFound, Refused, StoreError, Transient
from tpujob.ports import Owned

HOUR = 3600.0
RARE = "us-east1-q"  #: no catalogue names this zone


def damage(folder: Path, job_id: str) -> None:
    (folder / "jobs.db").symlink_to(folder / "tpujob.db")
    DAMAGE["sqlite"](str(folder), job_id)


def leaks(stage: Stage) -> list[LeakView]:
    swept = stage.api.leaks()
    assert (swept["failed"], swept["unlisted"]) == ([], {})
    return [*swept["deleted"], *swept["kept"]]


def test_slices_that_no_job_claims_are_listed_oldest_first(stage: Stage) -> None:
    running = stage.started()
    assert leaks(stage) == [], "a slice of a live job is no leak"
    leftover(stage, "tj-000009-1", "europe-west4-b", age=60)
    leftover(stage, "tj-000001-9", "us-central2-b", job_id=running)
    orphans = leaks(stage)
    assert [(leak["name"], leak["age_s"], leak["job"]) for leak in orphans] == [
        ("tj-000001-9", HOUR, running),
        ("tj-000009-1", 60.0, "000009"),
    ], "of another number of a live job, and in a zone that nobody here used"
    assert [broken["rule"] for broken in stage.api.fsck()] == ["I2", "I2"]


def test_a_zone_that_only_a_cleaned_job_used_is_still_looked_into(stage: Stage) -> None:
    job_id = stage.started()
    job = stage.job(job_id)
    moved = replace(job, slices=tuple(replace(s, zone=RARE) for s in job.slices))
    stage.store.commit(moved, None, expected_version=job.version, op_id="x", lease=None)
    stage.store.remove(job_id, lease=None)
    assert RARE in zones(stage.store)
    leftover(stage, "tj-000001-2", RARE)
    assert "tj-000001-2" in [leak["name"] for leak in leaks(stage)]


def test_slices_are_looked_for_in_the_site_and_in_every_zone_ever_asked(stage: Stage) -> None:
    assert {"us-central2-b", "europe-west4-b"} <= set(zones(stage.store)), "without a site"
    stage.running(stage.create())
    assert zones(stage.store, ["europe-west4-b"]) == ["europe-west4-b", "us-central2-b"]


def test_prices_are_shown_where_they_are_known(stage: Stage) -> None:
    leftover(stage, "tj-000009-1", "us-central2-b")
    listed = stage.cloud.list_all

    def price(type: str, pricing: str, tpu_slices: int = 1) -> float | None:
        stage.cloud.list_all = lambda zones, timeout: [  # type: ignore[method-assign]
            replace(o, type=type, pricing=pricing, tpu_slices=tpu_slices)
            for o in listed(zones, timeout=timeout)
        ]
        (leak,) = leaks(stage)
        return leak["usd_per_hour"]

    assert price("v4-16", "spot") == pytest.approx(8 * 0.9215)
    assert price("v4-16", "on-demand") == pytest.approx(8 * 3.22)
    assert price("v4-16", "spot", 3) == pytest.approx(3 * 8 * 0.9215), "Multislice"
    assert price("v99-16", "spot") is None
    assert price("", "") is None


def test_a_job_whose_record_is_damaged_may_claim_its_slices(stage: Stage, tmp_path: Path) -> None:
    job_id = stage.started()
    damage(tmp_path, job_id)
    assert stage.api.list()["rows"] == []
    assert leaks(stage) == [], "what nobody can know is not called a leak"
    broken, slice = stage.api.fsck()
    assert (broken["rule"], broken["job"]) == ("I6", job_id)
    assert "damaged" in broken["text"]
    assert (slice["rule"], slice["job"]) == ("I2", job_id)
    leftover(stage, "tj-000077-1", "us-central2-b", job_id="000077")
    stage.clock.sleep(HOUR)
    assert [o.name for o in stage.sweep().deleted] == ["tj-000077-1"]
    assert list(stage.cloud.machines) == ["tj-000001-1"], "a healthy slice was deleted unseen"


def handed_on_by_a_removed_job(stage: Stage) -> str:
    """Return a job that has the slice of a job without a record."""
    first = stage.create()
    stage.running(first)
    stage.cloud.full.add("us-central2-b")
    second = stage.create(name="second")
    stage.until(second, lambda job: bool(job.slices) and job.state is State.QUEUED)
    stage.finish(first, 0, 0)
    stage.until(first, State.SUCCEEDED)
    assert stage.job(second).slices[-1].name == stage.job(first).slices[-1].name
    stage.api.clean(first)
    stage.reconciler.tick(first)
    return second


@pytest.mark.parametrize("begin", [Stage.started, handed_on_by_a_removed_job])
def test_a_record_that_is_repaired_during_a_sweep_claims_its_slices(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Stage], str]
) -> None:
    begin(stage)
    real, lists = stage.store.list, iter([[]])
    monkeypatch.setattr(stage.store, "list", lambda **how: next(lists, real(**how)))
    stage.clock.sleep(HOUR)
    assert stage.sweep().deleted == []
    assert list(stage.cloud.machines) == stage.hosts.kept() == ["tj-000001-1"]


def test_a_handed_on_slice_of_a_removed_job_may_belong_to_a_damaged_record(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = handed_on_by_a_removed_job(stage)
    damage(tmp_path, second)
    stage.clock.sleep(HOUR)
    assert stage.sweep().deleted == []

    def fail(*_: object) -> list[Event]:
        raise StoreError("the events of job 000002 are damaged")

    monkeypatch.setattr(stage.store, "events", fail)
    assert stage.sweep().deleted == []
    assert list(stage.cloud.machines) == stage.hosts.kept() == ["tj-000001-1"]


def test_a_sweep_reads_only_what_it_needs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = stage.create(name="ended")
    stage.running(ended)
    stage.api.delete(ended)
    stage.until(ended, State.CANCELLED)
    stage.running(stage.create())
    read: list[str] = []
    real = stage.store.get

    def get(job_id: str) -> Job:
        read.append(job_id)
        return real(job_id)

    monkeypatch.setattr(stage.store, "get", get)
    monkeypatch.setattr(stage.store, "damaged", lambda: pytest.fail("every record is read"))
    stage.sweep()
    assert read == [], "all is as the live jobs say"
    leftover(stage, "tj-000001-9", "us-central2-b", job_id=ended)
    leftover(stage, "tj-probe-1", "us-central2-b", job_id="probe")
    stage.sweep()
    assert read == [ended]


def test_an_unlisted_zone_stops_no_sweep(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    leftover(stage, "tj-000077-1", "us-central2-b", job_id="000077")
    real = stage.cloud.list_all

    def list_all(zones: Sequence[str], *, timeout: float) -> list[Owned]:
        if "us-east5-b" in zones:
            raise Refused("us-east5-b is not enabled for this project", cause="PERMISSION")
        return real(zones, timeout=timeout)

    monkeypatch.setattr(stage.cloud, "list_all", list_all)
    stage.hosts.keys |= {"tj-000066-1", "tj-000077-1"}
    swept = stage.sweep("us-central2-b", "us-east5-b")
    assert [o.name for o in swept.deleted] == ["tj-000077-1"]
    assert swept.unlisted == {"us-east5-b": "us-east5-b is not enabled for this project"}
    assert stage.hosts.kept() == ["tj-000066-1"], "its slice may be in the zone that was not listed"
    (broken,) = stage.api.fsck()
    assert "us-east5-b could not be listed" in broken["text"]
    assert stage.api.leaks()["unlisted"] == swept.unlisted
    monkeypatch.undo()
    assert stage.sweep().keys == ["tj-000066-1"]
    assert stage.hosts.kept() == []


def test_unremoved_keys_are_left_for_later(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[str]:
        raise Refused("secrets: Permission denied", cause="PERMISSION")

    stage.hosts.keys.add("tj-000066-1")
    leftover(stage, "tj-000077-1", "us-central2-b", job_id="000077")
    with monkeypatch.context() as patch:
        patch.setattr(stage.hosts, "kept", refuse)
        swept = stage.sweep()
        assert [o.name for o in swept.deleted] == ["tj-000077-1"]
        assert swept.unlisted == {"keys": "secrets: Permission denied"}
    with monkeypatch.context() as patch:
        patch.setattr(stage.hosts, "forget", refuse)
        assert stage.sweep().keys == []
    assert stage.sweep().keys == ["tj-000066-1"]


def test_an_outage_ends_the_sweep_in_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def list_all(zones: Sequence[str], *, timeout: float) -> list[Owned]:
        counts.append(len(zones))
        stage.clock.sleep(timeout)
        raise Transient("no answer in time")

    monkeypatch.setattr(stage.cloud, "list_all", list_all)
    with pytest.raises(Transient, match="no answer in time"):
        stage.sweep()
    assert len(counts) < 10


def test_a_person_sweeps_by_the_rule_by_which_leaks_are_shown(stage: Stage) -> None:
    stage.started()
    leftover(stage, "tj-000077-1", "us-central2-b", job_id="000077")
    leftover(stage, "tj-000078-1", "us-central2-b", job_id="000078", age=10)
    leftover(stage, "tj-000079-1", "us-central2-b", job_id="000079")
    stage.reconciler.actor.hosts.keys |= {"tj-000077-1", "tj-000066-1"}
    machines = dict(stage.cloud.machines)

    def swept(dry_run: bool) -> list[list[str]]:
        answer = stage.api.sweep(dry_run=dry_run)
        shown = [[slice["name"] for slice in answer[key]] for key in ("deleted", "kept", "failed")]
        return [*shown, answer["keys"]]

    both = ["tj-000077-1", "tj-000079-1"]
    assert swept(dry_run=True) == [both, ["tj-000078-1"], [], ["tj-000066-1"]]
    assert stage.cloud.machines == machines, "a dry run does nothing"
    assert {leak["name"] for leak in leaks(stage)} == {*both, "tj-000078-1"}
    assert swept(dry_run=False) == [both, ["tj-000078-1"], [], ["tj-000066-1"]]
    assert swept(dry_run=False) == [[], ["tj-000078-1"], [], []]
    assert set(stage.cloud.machines) == {"tj-000001-1", "tj-000078-1"}
    assert stage.reconciler.actor.hosts.kept() == ["tj-000001-1"], "the keys of a live job stay"


def test_slices_that_cannot_be_listed_or_deleted_are_reported_and_kept(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = stage.started()
    leftover(stage, "tj-000077-1", "us-central2-b", job_id="000077")
    stage.reconciler.actor.hosts.keys.add("tj-000066-1")
    stage.faults.broken.add("list")
    with pytest.raises(Transient):
        stage.api.sweep()
    stage.faults.broken.clear()
    assert stage.reconciler.actor.hosts.kept() == ["tj-000001-1", "tj-000066-1"]
    damage(tmp_path, job_id)
    monkeypatch.setattr(stage.cloud, "list_all", lambda zones, timeout: [])
    assert stage.api.sweep()["keys"] == ["tj-000066-1"], "a damaged record may need its keys"
    monkeypatch.undo()

    def delete(slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        raise Refused("deleting it: Permission denied", cause="PERMISSION")

    monkeypatch.setattr(stage.cloud, "delete", delete)
    stage.reconciler.actor.hosts.keys.add("tj-000077-1")
    (failed,) = stage.api.sweep()["failed"]
    assert (failed["name"], failed["detail"]) == ("tj-000077-1", "deleting it: Permission denied")
    with_keys = stage.reconciler.actor.hosts.kept()
    assert "tj-000077-1" in with_keys, "its keys stay as long as it is there"


def test_parts_of_slices_are_swept_as_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cloud lists them as one, with how many nodes there may be behind it: all of these are to be deleted."""
    leftover(stage, "tj-000077-1", "us-central2-b", job_id="000077")
    listed, delete = stage.cloud.list_all, stage.cloud.delete
    deleted: list[tuple[str, int]] = []

    def list_all(zones: Sequence[str], *, timeout: float) -> list[Owned]:
        return [replace(o, tpu_slices=3) for o in listed(zones, timeout=timeout)]

    def noted(slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        deleted.append((slice.name, slice.tpu_slices))
        delete(slice, timeout=timeout)

    monkeypatch.setattr(stage.cloud, "list_all", list_all)
    monkeypatch.setattr(stage.cloud, "delete", noted)
    stage.sweep("us-central2-b")
    assert deleted == [("tj-000077-1", 3)]


def test_an_orphan_that_the_cloud_is_suspending_is_given_its_time(stage: Stage) -> None:
    """A forced deletion could leave it there for good; and the sweep does not wait without an end."""
    leftover(stage, "tj-000009-1", "us-central2-b")
    listed, deletions = stage.cloud.list_all, list[bool]()
    stage.cloud.list_all = lambda zones, timeout: [  # type: ignore[method-assign]
        replace(o, suspending=True) for o in listed(zones, timeout=timeout)
    ]

    def delete(slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        deletions.append(even_suspending)
        if not even_suspending:
            raise Transient("waiting until the cloud has suspended it")

    stage.cloud.delete = delete  # type: ignore[method-assign]
    sweeps = orphans(stage.reconciler)
    assert [why for _, why in sweeps.sweep().failed] == ["waiting until the cloud has suspended it"]
    stage.clock.sleep(SUSPENDED_WITHIN - 1)
    sweeps.sweep()
    stage.clock.sleep(1)
    assert [o.name for o in sweeps.sweep().deleted] == ["tj-000009-1"]
    assert deletions == [False, False, True]


def test_a_slice_of_a_lost_store_is_deleted(stage: Stage, tmp_path: Path) -> None:
    def created(word: str) -> Job:
        job = stage.job(stage.create())
        named = replace(job, suffix=word)
        stage.store.commit(named, None, expected_version=job.version, op_id=word, lease=None)
        return stage.running(job.id)

    lost = created("10570b5e")
    stage.store = SqliteStore(tmp_path / "in-its-place.db")
    stage.reconciler = stage.new_backend()
    new = created("5f0c9a1e")
    assert new.id == lost.id
    names = [job.slices[0].name for job in (lost, new)]
    assert names == ["tj-000001-1-10570b5e", "tj-000001-1-5f0c9a1e"]
    assert stage.cloud.created == names, "it was not taken over"
    assert [leak["name"] for leak in leaks(stage)] == names[:1]
    stage.clock.sleep(HOUR)
    assert [o.name for o in stage.sweep().deleted] == names[:1]
    assert list(stage.cloud.machines) == stage.hosts.kept() == names[1:]


def test_an_emptied_or_replaced_store_claims_nothing_and_deletes_nothing(stage: Stage) -> None:
    stage.running(stage.create())
    sweeping = orphans(stage.reconciler)
    assert sweeping.sweep().deleted == []
    stage.clock.sleep(HOUR)
    (stage.folder / "jobs.db").symlink_to(stage.folder / "tpujob.db")
    EMPTY["sqlite"](str(stage.folder))
    with pytest.raises(StoreError, match="was emptied or replaced"):
        sweeping.sweep()
    assert list(stage.cloud.machines) == ["tj-000001-1"]


def test_a_job_whose_record_is_damaged_is_named_wherever_jobs_are(
    stage: Stage, tmp_path: Path
) -> None:
    fine = stage.started()
    job_id = stage.started(name="second")
    (name,) = [s.name for s in stage.job(job_id).slices]
    assert stage.api.list()["unreadable"] == stage.api.cost()["unreadable"] == []
    damage(tmp_path, job_id)
    for _ in range(2):  # also in a backend that starts later
        stage.store = SqliteStore(tmp_path / "tpujob.db")
        stage.reconciler = stage.new_backend()
        page = stage.api.list()
        assert ([row["id"] for row in page["rows"]], page["unreadable"]) == ([fine], [job_id])
        assert stage.api.cost()["unreadable"] == [job_id]
        assert "records" in [trouble["about"] for trouble in stage.api.health()["troubles"]]
        assert [leak["name"] for leak in stage.api.leaks()["unclear"]] == [name]
    assert list(stage.cloud.machines) == [stage.job(fine).slices[0].name, name]
    with pytest.raises(NotFound, match="without a job"):
        stage.api.sweep(slice=stage.job(fine).slices[0].name)
    assert [leak["name"] for leak in stage.api.sweep(slice=name)["deleted"]] == [name]
    assert stage.api.leaks()["unclear"] == []
