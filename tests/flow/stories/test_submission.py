"""Submission of a job: the figures of its plan, the shipped code, and its first record."""

import hashlib
import io
import tarfile
from typing import Any

import pytest

from tests.support.bundles import archive, bundle_of
from tests.support.stage import SPEC, Stage
from tests.support.world import service
from tpujob.domain.events import EventKind
from tpujob.domain.model import DesiredState, State
from tpujob.domain.spec import dump
from tpujob.errors import BadRequest, BadSpec, Refused
from tpujob.submit.archive import workloads_bundle


def test_a_plan_has_the_figures_of_all_its_slices(stage: Stage) -> None:
    plan = stage.api.plan(SPEC)
    figures = {
        "name": "digits",
        "type": "v4-16",
        "generation": "v4",
        "tpu_slices": 1,
        "chips": 8,
        "hosts": 2,
        "topology": "2x2x2",
        "zone": "us-central2-b",
        "zones": ["us-central2-b"],
        "pricing": "spot",
        "system_image": "tpu-ubuntu2204-base",
        "usd_per_hour": 7.372,
        "hbm_gib": 256,
        "peak_bf16_tflops": 2200,
        "command": "python3 train.py",
        "environment": "",
        "mounts": [],
        "data": [],
        "refused": [],
        "warnings": [],
    }
    assert plan == {**figures, "bucket": plan["bucket"], "spec": plan["spec"]}
    assert plan["spec"]["recovery"]["failures"] == 3, "every default is filled in"
    several = stage.api.plan({**SPEC, "tpu": {**SPEC["tpu"], "slices": 3}})
    times = {name: several[name] / plan[name] for name in ("chips", "hosts", "hbm_gib")}
    times |= {name: several[name] / plan[name] for name in ("usd_per_hour", "peak_bf16_tflops")}
    assert (several["tpu_slices"], set(times.values())) == (3, {3.0})
    assert stage.store.list() == [], "nothing is stored"


def test_a_bundled_program_is_shipped_below_what_the_user_ships(stage: Stage) -> None:
    spec: dict[str, Any] = {**SPEC, "run": {"workload": "mlp"}}
    bucket = stage.api.plan(spec)["bucket"]
    own, users = (
        f"{bucket}/u/ada/bundles/{workloads_bundle().sha256}.tar.gz",
        f"{bucket}/u/ada/bundles/u.tar.gz",
    )
    stage.bucket.put(users, b"", timeout=1)
    job = stage.job(stage.api.create(spec, bundles=[users, users])["id"])
    assert job.bundles == (own, users), "each once, and a later one lies over an earlier one"
    assert stage.bucket.objects[own][0] == workloads_bundle().data
    plain = stage.job(stage.api.create(SPEC, bundles=[users])["id"])
    assert plain.bundles == (users,)


def test_a_bundle_is_written_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []

    def ensure(bucket: str, region: str, *, timeout: float) -> None:
        assert stage.store.list() == []
        made.append((bucket, region))

    monkeypatch.setattr(stage.bucket, "ensure_bucket", ensure)
    bucket = stage.api.plan(SPEC)["bucket"]
    assert made == [], "a plan makes nothing"
    data = bundle_of("code")
    for _ in range(2):
        path = stage.api.put_bundle(hashlib.sha256(data).hexdigest(), data, bucket=bucket)
    assert stage.bucket.objects[path][1].generation == 1
    stage.api.create(SPEC, bundles=[path])
    assert set(made) == {(bucket, "us-central2")}
    assert len(made) == 3


def test_the_record_begins_with_what_was_asked_for(stage: Stage) -> None:
    several = {**SPEC, "tpu": {**SPEC["tpu"], "slices": 2, "pricing": "on-demand"}}
    job = stage.job(stage.api.create(several)["id"])
    now = stage.clock.now()
    assert (job.name, job.user, job.state, job.desired) == (
        "digits",
        "ada",
        State.QUEUED,
        DesiredState.RUN,
    )
    assert (job.created_at, job.state_since, job.wake) == (now, now, now)
    assert (dump(job.spec), job.tpu_slices) == (stage.api.plan(several)["spec"], 2)
    assert (job.bucket, job.code) == (stage.api.plan(several)["bucket"], None)
    (created,) = stage.store.events(job.id)
    assert (created.kind, created.text) == (EventKind.CREATED, job.message)
    assert job.message == "ada submitted digits for on-demand 2 x v4-16"


# What no table has ---------------------------------------------------------------------------------------------------


def new(type: str = "v9x-16", zone: str = "us-central2-x") -> dict[str, Any]:
    return {**SPEC, "tpu": {"type": type, "zones": [zone]}}


def test_a_new_type_in_a_new_zone_is_planned_with_a_warning_and_no_price(stage: Stage) -> None:
    zones: list[str] = []

    def offered(zone: str) -> frozenset[str]:
        zones.append(zone)
        return frozenset(["v9x-16"])

    api = service(stage.reconciler, offered=offered)
    plan = api.plan(new())
    assert (plan["generation"], plan["hosts"], plan["chips"]) == ("v9x", 4, 16)
    assert (plan["usd_per_hour"], plan["topology"], plan["hbm_gib"]) == (None, "", 0)
    assert [w.partition(";")[0] for w in plan["warnings"]] == [
        "tpujob does not know v9x-16",
        "tpujob does not know the zone us-central2-x (did you mean us-central2-b?)",
    ]
    job = api.create(new())
    assert (job["type"], job["usd_per_hour"]) == ("v9x-16", 0.0), "nothing is billed yet"
    api.plan(SPEC)
    assert zones == ["us-central2-x"] * 2, "what the tables know is not asked for"


def test_what_the_zone_does_not_list_is_refused_before_a_job_is_made(stage: Stage) -> None:
    api = service(stage.reconciler, offered=lambda _: frozenset(["v5litepod-8"]))
    with pytest.raises(BadSpec, match=r"has no v5litepo-8.*did you mean v5litepod-8"):
        api.create(new("v5litepo-8"))
    assert stage.store.list() == []


def test_a_zone_that_is_not_there_is_refused_before_a_job_is_made(stage: Stage) -> None:
    def offered(zone: str) -> frozenset[str]:
        raise Refused(f"Location {zone} is not found", cause="PERMISSION", scope="zone")

    api = service(stage.reconciler, offered=offered)
    with pytest.raises(BadSpec, match=r"tpu\.zones: us-central2-x: Location") as error:
        api.create(new("v4-8"))
    assert error.value.hint == "did you mean us-central2-b?"
    assert stage.store.list() == []


def test_a_bundle_that_no_host_can_unpack_is_refused_before_a_request(stage: Stage) -> None:
    deep = archive(tarfile.TarInfo("d/" * 2000 + "f"))
    bucket = stage.api.plan(SPEC)["bucket"]
    for data, why in ((deep, "more than 100 parts"), (b"text", "not a valid archive")):
        for body in (data, io.BytesIO(data)):
            with pytest.raises(BadRequest, match=why):
                stage.api.put_bundle(hashlib.sha256(data).hexdigest(), body, bucket=bucket)
    assert stage.bucket.objects == {}
