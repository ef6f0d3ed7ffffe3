"""A context refuses a store that is not the one that it used before."""

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stores import a_job, an_event, firestore
from tests.support.world import Bucket, Clock, Faults
from tpujob.adapters.firestore import FirestoreStore
from tpujob.adapters.sqlite import SqliteStore
from tpujob.config import settings as settings_module
from tpujob.config.settings import Settings, prepare
from tpujob.errors import Refused, StoreError, Transient
from tpujob.protocol import signing
from tpujob.wiring import store as wiring
from tpujob.wiring.store import OBJECT, open_file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = settings_module.load(tmp_path / "state", env={"USER": "ada"})
    prepare(made)
    return made


def begun(settings: Settings) -> str:
    """The identity of a store with a job."""
    store = open_file(settings)
    store.create(a_job(), an_event())
    store.close()
    return store.identity()


def empty(path: Path) -> None:
    os.truncate(path, 0)
    for beside in path.parent.glob("jobs.db-*"):
        beside.unlink()


def remove(path: Path) -> None:
    for file in path.parent.glob("jobs.db*"):
        file.unlink()


def put_another_in_its_place(path: Path) -> None:
    remove(path)
    SqliteStore(path).close()


LOSSES = [empty, remove, put_another_in_its_place]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_file_is_refused_with_both_ways_out_until_one_is_taken(
    settings: Settings, loss: Callable[[Path], None], tmp_path: Path
) -> None:
    identity = begun(settings)
    shutil.copy(settings.db, tmp_path / "backup.db")
    loss(settings.db)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"is lost.*{identity}") as raised:
            open_file(settings)
        assert f"--replace-store {identity}" in raised.value.hint
        assert "back, then run `tpujob up`" in raised.value.hint
    with pytest.raises(StoreError):
        open_file(replace(settings, replace_store="another"))
    remove(settings.db)
    shutil.copy(tmp_path / "backup.db", settings.db)
    restored = open_file(settings)
    assert (restored.identity(), [job.id for job in restored.list()]) == (identity, ["000001"])
    restored.close()
    loss(settings.db)
    new = open_file(replace(settings, replace_store=identity))
    assert new.list() == []
    assert new.identity() != identity
    new.close()
    assert open_file(settings).identity() == new.identity(), "it is asked for once"
    loss(settings.db)
    with pytest.raises(StoreError):  # the consent was for one store
        open_file(replace(settings, replace_store=identity))


def test_new_contexts_and_files_without_an_identity_open(settings: Settings) -> None:
    identity = begun(settings)
    (settings.home / "store-id").unlink()
    assert open_file(settings).identity() == identity
    assert (settings.home / "store-id").read_text().strip() == identity


def test_a_missing_file_beside_keys_of_slices_is_refused(settings: Settings) -> None:
    (settings.keys / "tj-000007-1").mkdir()
    with pytest.raises(StoreError, match="is lost") as raised:
        open_file(settings)
    assert "--replace-store unknown" in raised.value.hint
    assert not settings.db.exists(), "nothing is written where a backup belongs"
    assert open_file(replace(settings, replace_store="unknown")).list() == []
    assert open_file(settings).list() == []


# Firestore -----------------------------------------------------------------------------------------------------------

FOLDERS = ["gs://eu/lab-fs", "gs://us/lab-fs"]


@pytest.fixture
def bucket() -> Bucket:
    return Bucket(Clock(), Faults())


def database(place: str) -> FirestoreStore:
    return FirestoreStore(firestore(place))


def key(purpose: Sequence[str]) -> str:
    return signing.derive(b"a secret of the backend", *purpose)


def check_database(store: FirestoreStore, bucket: Bucket, settings: Settings) -> None:
    wiring.check_database(store, bucket, FOLDERS, settings, key)


def test_a_database_that_was_made_again_is_refused_by_what_its_buckets_keep(
    firestore_place: str, bucket: Bucket, settings: Settings
) -> None:
    first = database(firestore_place)
    check_database(first, bucket, settings)
    first.create(a_job(), an_event())
    copies = [bucket.get(f"{folder}/{OBJECT}", timeout=1).decode() for folder in FOLDERS]
    assert {copy.split()[0] for copy in copies} == {first.identity()}
    check_database(database(firestore_place), bucket, settings)
    again = database(firestore_place + "-again")
    for _ in range(2):
        with pytest.raises(StoreError, match=f"is lost.*{first.identity()}") as raised:
            check_database(again, bucket, settings)
        both = f"belongs to store {first.identity()}, but the Firestore database is store {again.identity()}"
        assert f"{FOLDERS[0]} {both}" in raised.value.message
        assert f"`tpujob up --replace-store {first.identity()}`" in raised.value.hint
    with pytest.raises(StoreError) as raised:
        check_database(again, bucket, replace(settings, service="tpujob"))
    assert "tpujob up" not in raised.value.hint, "no command of this machine reaches a deployed one"
    assert (
        "`gcloud run services update tpujob --region=REGION "
        f"--update-env-vars=TPUJOB_REPLACE_STORE={first.identity()}`" in raised.value.hint
    )
    check_database(again, bucket, replace(settings, replace_store=first.identity()))
    check_database(again, bucket, settings)
    with pytest.raises(StoreError):
        check_database(first, bucket, settings)


def test_an_empty_database_beside_objects_of_jobs_is_refused_and_a_used_one_is_taken(
    firestore_place: str, bucket: Bucket, settings: Settings
) -> None:
    bucket.put(f"{FOLDERS[1]}/u/ada/jobs/000001/outputs/x", b"", timeout=1)
    store = database(firestore_place)
    with pytest.raises(StoreError, match="with the id unknown"):
        check_database(store, bucket, settings)
    store.create(a_job(), an_event())
    check_database(store, bucket, settings)


def written_by_a_program(bucket: Bucket, content: str) -> None:
    for folder in FOLDERS:
        bucket.put(f"{folder}/u/ada/jobs/000001-5f0c9a1e/outputs/x", b"", timeout=1)
        bucket.put(f"{folder}/{OBJECT}", content.encode(), timeout=1)


@pytest.mark.parametrize(
    "content", ["", "0123456789abcdef " + 64 * "0" + "\n", "unknown", "of another folder", "longer"]
)
def test_what_a_program_writes_in_the_place_of_the_identity_counts_as_nothing(
    firestore_place: str,
    bucket: Bucket,
    settings: Settings,
    content: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = database(firestore_place + "-other")
    wiring.check_database(other, bucket, ["gs://eu/other", FOLDERS[0]], settings, key)
    if content == "of another folder":
        content = bucket.get("gs://eu/other/store-id", timeout=1).decode()
    if content == "longer":
        content = bucket.get(f"{FOLDERS[0]}/{OBJECT}", timeout=1).decode() + 10_000 * "x"
    written_by_a_program(bucket, content)
    store = database(firestore_place)
    with pytest.raises(
        StoreError, match="has objects of jobs, but the Firestore database"
    ) as raised:
        check_database(store, bucket, settings)
    assert "--replace-store unknown`" in raised.value.hint
    store.create(a_job(), an_event())
    caplog.set_level(logging.WARNING)
    check_database(store, bucket, settings)
    assert f"{FOLDERS[0]}/{OBJECT} is ignored: this backend has not signed it" in caplog.text
    caplog.clear()
    check_database(store, bucket, settings)
    assert caplog.text == "", "it has written its own over them"


@pytest.mark.parametrize("call", ["get", "put"])
@pytest.mark.parametrize(
    "error", [Transient("503"), Refused("403 Permission denied", cause="PERMISSION")]
)
def test_a_bucket_that_does_not_answer_stops_a_new_store_and_no_used_one(
    firestore_place: str,
    bucket: Bucket,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    call: str,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(bucket, call, fails)
    store = database(firestore_place)
    with pytest.raises(type(error)):
        check_database(store, bucket, settings)
    store.create(a_job(), an_event())
    caplog.set_level(logging.WARNING)
    check_database(store, bucket, settings)
    assert f"{FOLDERS[1]}/{OBJECT} could not be compared or written: {error}" in caplog.text
