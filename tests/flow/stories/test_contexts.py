"""Two people, one project, one bucket, each with a backend of their own: real clients, the emulated cloud, no hosts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.callers import ADA
from tests.support.tpu_rig import Cloud, until
from tpujob.cli.render.job_page import why_page
from tpujob.config import context
from tpujob.config.settings import Settings, load
from tpujob.emulator import inject
from tpujob.emulator.cloud.records import Latencies
from tpujob.emulator.storage import StorageServer
from tpujob.errors import BadSpec
from tpujob.wiring import backend as wiring
from tpujob.wiring import client

PROJECT, US, EU = "my-lab-1", "us-central2-b", "europe-west4-b"
ACCOUNT = "jobs@my-lab-1.iam.gserviceaccount.com"
NEVER = Latencies(accept=0.01, create=1e6, delete=0.02)


@dataclass
class Person:
    settings: Settings
    backend: wiring.Backend

    def create(self, **tpu: Any) -> Any:
        spec = {"name": "same", "tpu": {"type": "v4-8"} | tpu, "run": {"command": "train"}}
        return self.backend.api.acting_for(ADA).create(spec)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud(latencies=NEVER)
    inject.add(cloud.world, "network", "net")
    inject.add(cloud.world, "service-account", ACCOUNT)
    yield cloud
    cloud.stop()


@pytest.fixture
def people(cloud: Cloud, tmp_path: Path) -> Iterator[list[Person]]:
    storage = StorageServer(tmp_path / "storage")
    people: list[Person] = []
    for user in ("ada", "ben"):
        env = {
            "USER": user,
            "TPUJOB_TPU_ENDPOINT": cloud.tpu.address,
            "STORAGE_EMULATOR_HOST": storage.url.removeprefix("http://"),
        }
        settings = load(tmp_path / user, context="lab", env=env)
        lab = {
            "name": "lab",
            "project": PROJECT,
            "zones": [US, EU],
            "buckets": {"us-central2": "gs://lab-us"},
            "network": "net",
            "ssh": "internal",
            "tags": ["tpu"],
            "labels": {"team": "vision", "tpujob-job": "mine"},
            "service_account": ACCOUNT,
        }
        context.write(settings, context.make(lab))
        people.append(Person(settings, wiring.backend(settings)))
    with client.blobs(people[0].settings, PROJECT) as blobs:
        blobs.make_bucket("gs://lab-us", "us-central2", log_days=90, adopt=False, timeout=30)
    for person in people:
        person.backend.loop.start()
    yield people
    for person in people:
        person.backend.stop()
    storage.stop()


def nodes(cloud: Cloud, zone: str = US) -> list[Any]:
    parent = f"projects/{PROJECT}/locations/{zone}"
    return sorted(cloud.client().list_nodes(parent=parent), key=lambda node: node.name)


def test_jobs_of_one_id_share_neither_slice_nor_folder(cloud: Cloud, people: list[Person]) -> None:
    jobs = [person.create() for person in people]
    assert [job["id"] for job in jobs] == ["000001", "000001"]
    until(lambda: len(nodes(cloud)) == 2, "each has asked for a slice", 60)
    by_name = {node.name.rpartition("/")[2]: node for node in nodes(cloud)}
    for person, job in zip(people, jobs, strict=True):
        word = context.owner(person.settings, context.current(person.settings))
        own = job["workdir"].removeprefix(f"gs://lab-us/{word}/u/ada/jobs/000001-")
        node = by_name[f"tj-000001-1-{own}"]
        assert dict(node.labels) == {
            "team": "vision",
            "tpujob": "1",
            "tpujob-job": "000001",
            "tpujob-owner": word,
        }
        assert node.network_config.network == "net"
        assert not node.network_config.enable_external_ips
        assert list(node.tags) == ["tpu"]
        assert node.service_account.email == ACCOUNT
    for person in people:
        leaks = person.backend.api.leaks()
        assert [*leaks["deleted"], *leaks["kept"]] == [], "slices of other backends are no leaks"
        swept = person.backend.api.sweep()
        assert [swept["deleted"], swept["keys"]] == [[], []]
    assert len(nodes(cloud)) == 2


def test_a_wrong_bucket_is_refused_before_a_request(cloud: Cloud, people: list[Person]) -> None:
    ada, _ = people
    lied = context.current(ada.settings)
    for bucket, message in (
        ("gs://none", "there is no bucket gs://none/ada-.*, which the context lab names for europe"),
        ("gs://lab-us", r"gs://lab-us/ada-.* is in us-central2, but europe-west4-b in europe-west4: .*\$0\.05"),
    ):  # fmt: skip
        fields = lied.model_dump() | {"buckets": {"europe-west4": bucket}}
        context.write(ada.settings, context.make(fields))
        backend = wiring.backend(ada.settings)
        spec = {"name": "a", "tpu": {"type": "v5e-8"}, "run": {"command": "x"}}
        for act in (backend.api.plan, lambda s, b=backend: b.api.create(s)):
            with pytest.raises(BadSpec, match=message):
                act(spec)
        backend.stop()
    assert nodes(cloud, EU) == []


@pytest.mark.parametrize(
    ("typo", "pricing", "named"),
    [
        ({"network": "nett"}, "spot", "networks/nett"),
        ({"subnetwork": "nett"}, "spot", "subnetworks/nett"),
        (
            {"service_account": "job@my-lab-1.iam.gserviceaccount.com"},
            "spot",
            "serviceAccounts/job@my-lab-1.iam.gserviceaccount.com",
        ),
        ({"reservation": "ourz"}, "reserved", "reservations/ourz"),
    ],
    ids=["network", "subnetwork", "service-account", "reservation"],
)
def test_a_name_in_the_context_that_the_project_lacks_ends_the_job_and_the_page_names_it(
    people: list[Person], typo: dict[str, str], pricing: str, named: str
) -> None:
    ada, _ = people
    fields = context.current(ada.settings).model_dump() | typo
    context.write(ada.settings, context.make(fields))
    ada.backend.stop()
    ada.backend = wiring.backend(ada.settings)
    ada.backend.loop.start()
    job_id = ada.create(pricing=pricing)["id"]
    api = ada.backend.api
    until(lambda: api.get(job_id)["state"] == "failed", "the job has failed", 60)
    job = api.get(job_id)
    assert job["cause"] == "BAD_SPEC"
    page = " ".join(why_page(job, api.events(job_id), 200, 0).split())
    assert f"The resource '{named}' was not found" in page
    assert "correct the name in the file of the context, then run `tpujob doctor`" in page
