"""Buckets as tpujob makes them, against the emulated Cloud Storage and as Google's client sees them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.contract.blobs.storage_network import T, gcs
from tpujob.adapters.gcs import GcsBlobs
from tpujob.adapters.gcs.bucket import place_of
from tpujob.emulator.storage import StorageServer
from tpujob.errors import NotFound, Refused
from tpujob.ports import BucketFacts, BucketPlace
from tpujob.protocol.paths import log_path

BUCKET, REGION = "gs://my-lab-eu", "europe-west4"
MADE = BucketFacts(
    name="my-lab-eu",
    location=REGION,
    location_type="region",
    uniform_access=True,
    public_access="enforced",
    soft_delete_s=0,
    versioning=False,
    log_days=90,
    ours=True,
)


@pytest.fixture
def blobs(server: StorageServer) -> Iterator[GcsBlobs]:
    with gcs(server.url) as made:
        yield made


@pytest.fixture
def google(server: StorageServer) -> Iterator[storage.Client]:
    """Somebody else's program in the same project."""
    client = storage.Client(
        "p", credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url}
    )
    yield client
    client.close()


def make(
    blobs: GcsBlobs, region: str = REGION, *, log_days: int | None = 90, adopt: bool = False
) -> BucketFacts:
    return blobs.make_bucket(BUCKET, region, log_days=log_days, adopt=adopt, timeout=T)


def test_making_a_bucket_again_changes_nothing(blobs: GcsBlobs, google: storage.Client) -> None:
    assert make(blobs) == MADE
    before = google.get_bucket("my-lab-eu").metageneration
    assert make(blobs) == MADE
    assert blobs.bucket(BUCKET, timeout=T) == MADE
    assert google.get_bucket("my-lab-eu").metageneration == before
    assert blobs.place(f"{BUCKET}/ada", timeout=T).location == REGION, "also of a folder in it"


def test_only_old_logs_are_deleted(blobs: GcsBlobs, google: storage.Client) -> None:
    make(blobs)
    (rule,) = google.get_bucket("my-lab-eu").lifecycle_rules
    assert rule["action"] == {"type": "Delete"}
    (suffix,) = rule["condition"].pop("matchesSuffix")
    assert rule["condition"] == {"age": 90}
    assert log_path(f"{BUCKET}/ada/jobs/000001", 1, 0, 7).endswith(suffix)
    for other in ("checkpoints/100/d/0a1b", "bundles/ab12.tar.gz", "notes.txt", "run.log"):
        assert not other.endswith(suffix)


def test_days_are_changed_and_other_rules_stay(blobs: GcsBlobs, google: storage.Client) -> None:
    make(blobs)
    theirs = google.get_bucket("my-lab-eu")
    theirs.add_lifecycle_delete_rule(age=7, matches_prefix=["scratch/"])
    theirs.patch()
    assert make(blobs, log_days=30) == replace(MADE, log_days=30)
    assert make(blobs, log_days=None) == replace(MADE, log_days=None)
    (remaining,) = google.get_bucket("my-lab-eu").lifecycle_rules
    assert remaining["condition"] == {"age": 7, "matchesPrefix": ["scratch/"]}


def test_a_bucket_elsewhere_is_refused(blobs: GcsBlobs) -> None:
    make(blobs)
    with pytest.raises(Refused, match="my-lab-eu is in europe-west4, not in us-central2"):
        make(blobs, "us-central2")


def test_a_bucket_of_others_is_changed_on_demand(blobs: GcsBlobs, google: storage.Client) -> None:
    theirs = google.bucket("my-lab-eu")
    theirs.versioning_enabled = True
    google.create_bucket(theirs, location=REGION)
    with pytest.raises(Refused, match="exists, and tpujob did not make it") as refused:
        make(blobs)
    assert "--adopt" in refused.value.hint
    bucket = blobs.bucket(BUCKET, timeout=T)
    assert (bucket.ours, bucket.uniform_access, bucket.soft_delete_s) == (False, False, 604800)
    assert make(blobs, adopt=True) == replace(MADE, versioning=True)
    assert make(blobs) == replace(MADE, versioning=True), "it is looked after from now on"


def test_a_missing_bucket_is_not_found(blobs: GcsBlobs) -> None:
    for look in (blobs.bucket, blobs.place):
        with pytest.raises(NotFound, match="gs://my-lab-eu"):
            look(BUCKET, timeout=T)


@pytest.mark.parametrize(
    ("layout", "location", "local"),
    [
        ({"location": "US-EAST5", "locationType": "region"}, "us-east5", {"us-east5"}),
        ({"location": "US", "locationType": "multi-region"}, "us", set()),
        ({"location": "EUR4", "locationType": "dual-region"}, "eur4", {"europe-north1", "europe-west4"}),
        (
            {
                "location": "US",
                "locationType": "dual-region",
                "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]},
            },
            "us",
            {"us-east1", "us-west1"},
        ),
        ({"location": "NEW9", "locationType": "dual-region"}, "new9", set()),
    ],
)  # fmt: skip
def test_only_a_region_and_a_pair_of_regions_are_local(
    layout: dict[str, Any], location: str, local: set[str]
) -> None:
    assert place_of(layout) == BucketPlace(location, frozenset(local))
