"""Data and checkpoints that are brought into the region of a slice before it is asked for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.callers import ADA, caller
from tests.support.paths import ROOT
from tests.support.stage import Stage
from tpujob.domain.capacity.site import EVERYWHERE
from tpujob.domain.model import Job
from tpujob.domain.spec import dump
from tpujob.engine.reconciler import COPIED
from tpujob.errors import BadSpec
from tpujob.ports import BucketPlace
from tpujob.submit import job_file

CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
SOURCE = "gs://corpus/fineweb"
EAST, EUROPE = "us-east5-a", "europe-west4-a"
FILES = {"a/1": b"one", "a/2": b"two", "b": b"three", "c//d": b""}
JOB = {"name": "a", "tpu": {"type": "v6e-8", "zones": [EAST]}, "run": {"command": "x"}}


@pytest.fixture
def lab(stage: Stage) -> Stage:
    """There is data, in Europe."""
    put(stage, SOURCE, FILES)
    stage.bucket.places["corpus"] = BucketPlace("europe-west4", frozenset({"europe-west4"}))
    return stage


def put(stage: Stage, place: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        stage.bucket.put(f"{place}/{name}", data, timeout=1)


def below(stage: Stage, place: str) -> dict[str, bytes]:
    return {
        path[len(place) + 1 :]: data
        for path, (data, _) in stage.bucket.objects.items()
        if path.startswith(place + "/")
    }


def create(stage: Stage, *zones: str, data: Any = SOURCE) -> str:
    return stage.create(tpu={"type": "v6e-8", "zones": list(zones)}, data=data)


def target(stage: Stage, job_id: str, region: str) -> str:
    (data,) = stage.job(job_id).data
    return data.at[region]


def environment(stage: Stage, job: Job) -> dict[str, str]:
    from tpujob.domain.host import plan

    document = plan.plans(job)[0].document
    return {**document["env"], "TPUJOB_DATA": document["context"]["data"]}


def test_no_slice_is_asked_for_before_all_data_is_in_its_region(lab: Stage) -> None:
    job_id = create(lab, EAST)
    job = lab.until(job_id, lambda j: bool(j.slices))
    place = target(lab, job_id, "us-east5")
    assert place.startswith("gs://tpujob-us-east5/datasets/fineweb-")
    assert below(lab, place) == FILES
    kinds = lab.kinds(job_id)
    assert kinds[:2] == ["created", "copy_started"]
    assert kinds.index("copy_finished") < kinds.index("slice_requested")
    (copy,) = job.copies
    assert (copy.progress.objects, copy.progress.bytes) == (4, 11)
    assert copy.micros == 4 * 5 + 1, "four operations, and a part of a cent for 11 bytes"
    assert lab.api.cost().get("copies_micros") == copy.micros
    assert environment(lab, lab.running(job_id))["TPUJOB_DATA"] == place


def test_data_in_the_right_region_is_read_where_it_is(lab: Stage) -> None:
    job = lab.running(create(lab, EUROPE))
    assert (job.copies, lab.copies.made) == ((), [])
    assert environment(lab, job)["TPUJOB_DATA"] == SOURCE


def test_the_second_job_finds_the_copy_of_the_first(lab: Stage) -> None:
    first = create(lab, EAST)
    lab.running(first)
    made = list(lab.copies.made)
    again = create(lab, EAST)
    assert target(lab, again, "us-east5") == target(lab, first, "us-east5")
    (copy,) = lab.running(again).copies
    assert lab.copies.made == made
    assert (copy.progress.objects, copy.progress.same, copy.micros) == (0, 4, 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_backend_goes_on_with_the_copy_of_a_killed_one(lab: Stage, when: str) -> None:
    job_id = create(lab, EAST)
    killed = 0

    def strike() -> None:
        nonlocal killed
        if not lab.job(job_id).slices and killed < 6:
            lab.faults.kill_at = (lab.faults.effects + 1, when)
            killed += 1

    lab.until(job_id, lambda j: bool(j.slices), also=strike)
    assert killed == 6
    assert below(lab, target(lab, job_id, "us-east5")) == FILES
    assert len(lab.copies.made) == len(FILES), "nothing is copied twice"


def test_of_jobs_with_the_same_data_one_copies_it(lab: Stage) -> None:
    """Two that copy a large object in steps would pay for it twice."""
    jobs = [create(lab, EAST), create(lab, EAST)]
    pauses: list[float | None] = []
    for _ in range(40):
        pauses += [lab.reconciler.tick(job_id) for job_id in jobs]
        lab.clock.sleep(2)
    assert COPIED in pauses, "one that waits is not ticked often"
    copied = [lab.job(job_id).copies[0].progress for job_id in jobs]
    assert [(progress.objects, progress.same) for progress in copied] == [(4, 0), (0, 4)]
    assert all(lab.job(job_id).slices for job_id in jobs)


def test_a_slice_is_handed_on_to_a_job_that_lacks_no_data_there(lab: Stage) -> None:
    first, second, third = (
        lab.create(name=name, tpu={"type": "v6e-8", "zones": [EAST]}, data=data)
        for name, data in (("first", []), ("second", SOURCE), ("third", []))
    )
    lab.running(first)
    lab.finish(first, *[0] * lab.job(first).hosts)
    lab.until(first, lambda job: job.state.final)
    assert lab.job(first).slices[-1].handed_to == third
    assert lab.job(second).copies == ()


def test_another_job_copies_when_the_first_is_cancelled(lab: Stage) -> None:
    first, second = create(lab, EAST), create(lab, EAST)
    for _ in range(2):
        lab.reconciler.tick(first)
        lab.reconciler.tick(second)
    lab.api.delete(first)
    lab.until(second, lambda j: bool(j.slices))
    assert 0 < lab.job(second).copies[0].progress.objects < 4


def test_a_region_that_refuses_the_copy_makes_way_for_the_next(lab: Stage) -> None:
    job_id = create(lab, EAST, EUROPE)
    lab.copies.refused[target(lab, job_id, "us-east5")] = "PERMISSION"
    job = lab.running(job_id)
    assert [s.zone for s in job.slices] == [EUROPE]
    assert "copy_refused" in lab.kinds(job_id)


def test_the_wait_for_data_is_shown_with_its_size(lab: Stage) -> None:
    job_id = create(lab, EAST)
    lab.until(job_id, lambda j: bool(j.copies) and j.copies[0].progress.objects == 2)
    view = lab.api.get(job_id)
    waits = view.get("copying")
    assert waits is not None
    assert (waits["name"], waits["region"]) == ("fineweb", "us-east5")
    assert (waits["bytes"], waits["total_bytes"]) == (6, 11)
    from tpujob.cli.render import words

    assert "waits for fineweb to reach us-east5: 6 B of 11 B copied" in words.reason(view)
    assert view["next"]["action"] == "copy_data"  # pyright: ignore[reportTypedDictNotRequiredAccess]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("gs://nowhere/x", "there is no bucket gs://nowhere"),
        ("gs://corpus/nothing", "there is nothing below gs://corpus/nothing/"),
        ("s3://elsewhere/x", "s3://elsewhere/x is not in gs://tpujob-us-east5/datasets/x-"),
    ],
)
def test_missing_data_is_refused_before_there_is_a_job(lab: Stage, data: str, message: str) -> None:
    with pytest.raises(BadSpec) as error:
        create(lab, EAST, data=data)
    assert message in error.value.message
    assert lab.store.list() == []
    refused = [row["message"] for row in lab.api.plan({**JOB, "data": data}).get("refused", ())]
    assert refused == ([] if data.startswith("s3") else [error.value.message])
    if data.startswith("s3"):
        assert error.value.hint.startswith("tpujob data sync s3://elsewhere/x gs://tpujob-us-east5")


def test_no_job_or_plan_names_data_of_others_where_accounts_are_separate(lab: Stage) -> None:
    jobs, of_ben = lab.api, "gs://tpujob-us-east5/u/ben/x"
    jobs.parts.submission._site = replace(EVERYWHERE, separate_accounts=True)  # pyright: ignore[reportPrivateUsage]
    lab.bucket.places["tpujob-us-east5"] = BucketPlace("us-east5", frozenset({"us-east5"}))
    put(lab, of_ben, FILES)
    for method in ("plan", "create"):
        with pytest.raises(BadSpec, match="has files of other users"):
            getattr(jobs.acting_for(caller("ada")), method)({**JOB, "data": of_ben})
        getattr(jobs.acting_for(caller("ben")), method)({**JOB, "data": of_ben})
        getattr(jobs.acting_for(ADA), method)({**JOB, "data": of_ben})


def test_a_plan_and_an_estimate_do_not_need_the_bucket_of_the_data(lab: Stage) -> None:
    spec = {**JOB, "data": ["gs://nowhere/x", SOURCE]}
    plan = lab.api.plan(spec)
    missing = "gs://nowhere/x: there is no bucket gs://nowhere"
    assert plan.get("refused") == [{"message": f"data: {missing}", "hint": ""}]
    assert not any("nowhere" in entry for entry in plan["warnings"])
    assert [entry["name"] for entry in plan.get("data", ())] == ["fineweb"]
    view = lab.api.estimate(spec, {"hours": 1.0})
    assert f"copy of x: {missing}" in view["unknown"]
    assert view["list_micros"] > 0


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_are_estimated_without_their_data(stage: Stage, path: Path) -> None:
    spec = dump(job_file.read(path, "", cross_region=False))
    plan = stage.api.plan(spec)
    assert plan["chips"] > 0
    assert stage.api.estimate(spec, {"hours": 1.0})["list_micros"] > 0
    foreign = {entry["from"].split("/")[2] for entry in spec["data"] if "gs://" in entry["from"]}
    for bucket in foreign:
        refused = [entry["message"] for entry in plan.get("refused", ())]
        assert any(f"there is no bucket gs://{bucket}" in text for text in refused)
        with pytest.raises(BadSpec, match=f"there is no bucket gs://{bucket}"):
            stage.api.create(spec)


def test_an_estimate_has_the_copy_in_its_sums(lab: Stage) -> None:
    lab.bucket.put(f"{SOURCE}/large", bytes(1 << 20), timeout=1)
    spec = {**JOB, "data": SOURCE}
    lines = lab.api.estimate(spec, {"hours": 1.0})["lines"]
    by_name = {line["what"]: line for line in lines if "copy of fineweb" in line["what"]}
    traffic = by_name["copy of fineweb, europe-west4 to us-east5"]
    assert traffic["list_micros"] == 49
    assert by_name["copy of fineweb"]["formula"] == "5 objects, class A, once"
    lab.running(create(lab, EAST))
    lines = lab.api.estimate(spec, {"hours": 1.0})["lines"]
    assert {line["list_micros"] for line in lines if "copy of fineweb" in line["what"]} == {0}


# Checkpoints ---------------------------------------------------------------------------------------------------------


def moved(stage: Stage, *, step: int | None) -> str:
    """A job that saved in the first region, lost its slice, and finds the first region full."""
    job_id = create(stage, EAST, EUROPE, data=[])
    job = stage.running(job_id)
    assert job.workdir == f"gs://tpujob-us-east5/u/ada/jobs/{job_id}"
    put(stage, f"{job.workdir}/checkpoints", {"20/w": b"old", "40/w": b"known", "60/w": b"later"})
    stage.report(job_id, 0, step=50, **({} if step is None else {"checkpoint": step}))
    stage.report(job_id, 1, step=50)
    stage.cloud.full.add(EAST)
    stage.cloud.vanish()
    stage.until(job_id, lambda j: len(j.attempts) == 2)
    return job_id


def test_the_last_checkpoint_follows_the_job_into_another_region(stage: Stage) -> None:
    job_id = moved(stage, step=40)
    job = stage.running(job_id, attempt=2)
    assert job.slice is not None
    assert (job.slice.zone, job.workdir) == (
        EUROPE,
        f"gs://tpujob-europe-west4/u/ada/jobs/{job_id}",
    )
    assert below(stage, f"{job.workdir}/checkpoints") == {"40/w": b"known", "60/w": b"later"}
    kinds = stage.kinds(job_id)
    assert kinds.index("copy_finished") < len(kinds) - 1 - kinds[::-1].index("slice_requested")
    assert below(stage, f"{job.workdir_of(1)}/checkpoints").keys() >= {"40/w"}, "the old one stays"
    (copy,) = job.copies
    assert copy.micros_per_gib == 50_000
    assert copy.micros > 0


def test_a_job_that_moves_is_cleaned_in_every_region(stage: Stage) -> None:
    job_id = moved(stage, step=40)
    stage.api.clean(job_id, checkpoints=True)
    for _ in range(120):  # its hosts report no end, for which `stop_grace` and 20 s are waited
        if not stage.store.list():
            break
        stage.step(job_id)
    assert stage.store.list() == []
    assert [path for path in stage.bucket.objects if "/jobs/" in path] == []
