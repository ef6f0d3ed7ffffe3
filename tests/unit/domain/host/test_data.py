"""A job's data in the plans of its hosts: its place in a bucket, or the folder that it is staged or mounted in."""

from dataclasses import replace
from typing import Any

from tests.support.records import TPU, a_job
from tpujob.domain.copies import Dataset
from tpujob.domain.host import data, plan
from tpujob.domain.host.plan import STAGING_APART, preflight_seconds
from tpujob.domain.model import Job
from tpujob.domain.spec import parse


def job_with(*entries: Any) -> Job:
    spec = parse({"name": "a", "tpu": TPU, "run": {"command": "x"}, "data": list(entries)})
    read = tuple(
        Dataset(
            entry.to, entry.source, entry.source, "us", (), {"us-central2": f"gs://near/{entry.to}"}
        )
        for entry in spec.data
    )
    return replace(a_job(), spec=spec, data=read)


def test_data_is_streamed_unless_the_file_says_otherwise() -> None:
    job = job_with("gs://far/one")
    assert data.places(job) == {"one": "gs://near/one"}
    assert (data.stage_orders(job), data.data_mounts(job), data.folders(job)) == ([], [], {})


def test_staged_data_comes_from_the_bucket_of_the_region_to_a_folder_of_its_own() -> None:
    job = job_with(
        {"from": "gs://far/one", "stage": "disk"},
        {"from": "gs://far/two", "stage": "memory"},
        {"from": "gs://far/three", "stage": "mount"},
        "gs://far/four",
    )
    assert data.stage_orders(job) == [
        {"name": "one", "source": "gs://near/one", "to": "~/.tpujob/data/one"},
        {"name": "two", "source": "gs://near/two", "to": "/dev/shm/tpujob/two"},
    ]
    (mount,) = data.data_mounts(job)
    assert (mount["bucket"], mount["only_dir"], mount["to"]) == (
        "gs://near",
        "three",
        "~/.tpujob/data/three",
    )
    assert data.folders(job) == {
        "TPUJOB_DATA": "~/.tpujob/data/one",
        "TPUJOB_DATA_ONE": "~/.tpujob/data/one",
        "TPUJOB_DATA_TWO": "/dev/shm/tpujob/two",
        "TPUJOB_DATA_THREE": "~/.tpujob/data/three",
    }
    (first, *_) = plan.plans(job)
    env: Any = first.document["env"]
    assert env["TPUJOB_DATA_FOUR"] == "gs://near/four"


def test_the_first_variable_is_that_of_the_first_data_set_only() -> None:
    job = job_with("gs://far/one", {"from": "gs://far/two", "stage": "disk"})
    assert data.folders(job) == {"TPUJOB_DATA_TWO": "~/.tpujob/data/two"}


def test_hosts_that_fetch_data_first_wait_longer_for_each_other() -> None:
    job = job_with({"from": "gs://far/one", "stage": "disk"})
    (first, *_) = plan.plans(job)
    check: Any = first.document["preflight"]
    assert check["seconds"] == preflight_seconds(2, 8) + STAGING_APART
