"""Credentials that are not there or have expired: every adapter says what to run, and concludes nothing else."""

from pathlib import Path

import pytest

from tests.contract.slices.tpu_slices import KEY, SLICE
from tests.support.google_server import Error, GoogleServer
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.adapters.gcs import GcsBlobs
from tpujob.domain.observations import Unknown
from tpujob.errors import Refused, Transient

LOGIN = "gcloud auth application-default login"


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


def test_without_credentials_nothing_is_known_of_a_slice() -> None:
    slices = CloudTpuSlices("p")
    seen = slices.look(SLICE, timeout=5)
    assert isinstance(seen, Unknown)
    assert LOGIN in seen.error
    for act in (
        lambda: slices.create(SLICE, job_id="000007", public_key=KEY, timeout=5),
        lambda: slices.delete(SLICE, timeout=5),
        lambda: slices.list_all(["us-central2-b"], timeout=5),
    ):
        with pytest.raises(Transient, match=LOGIN):
            act()


def test_without_credentials_the_storage_says_what_to_run() -> None:
    blobs = GcsBlobs("p")
    for act in (
        lambda: blobs.list("gs://a-bucket/", timeout=5),
        lambda: blobs.place("gs://a-bucket", timeout=5),
        lambda: blobs.put("gs://a-bucket/a", b"", timeout=5),
    ):
        with pytest.raises(Refused) as refused:
            act()
        assert (refused.value.cause, LOGIN in refused.value.hint) == ("PERMISSION", True)


def test_expired_credentials_say_so_and_what_to_run(file: Path, tokens: GoogleServer) -> None:
    why = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
    tokens.answers["token"] = Error(400, why)
    blobs = GcsBlobs("p")
    with pytest.raises(Refused, match="Token has been expired or revoked") as refused:
        blobs.list("gs://a-bucket/", timeout=10)
    assert LOGIN in refused.value.hint
    blobs.close()
