"""From bucket to bucket: Cloud Storage copies the bytes, in one operation each, however many calls it takes."""

import json
import uuid
from dataclasses import replace

import pytest

from tests.contract.data.rig import Rig, named
from tests.contract.emulator.storage_rig import ask
from tpujob.adapters.web_files import WebFiles
from tpujob.cli.commands.data.pages import preview_page, preview_record
from tpujob.data.locations import S3Prefix
from tpujob.data.sync.run import Preview
from tpujob.data.sync.stream_copy import GONE
from tpujob.errors import BadRequest, NotFound

MIB = 1 << 20


@pytest.fixture
def far(rig: Rig) -> str:
    """A bucket in another region than the rig's, which is of a continent."""
    name = f"far-{uuid.uuid4().hex[:12]}"
    bucket = json.dumps({"name": name, "location": "europe-west4"}).encode()
    ask(rig.url, "POST", "/storage/v1/b?project=p", bucket)
    return name


def copied(rig: Rig, bucket: str) -> dict[str, int | None]:
    pages = rig.objects.pages(bucket, "")
    return {facts.name: facts.crc32c for page in pages for facts in page}


def test_each_object_is_one_operation_and_the_second_run_copies_nothing(rig: Rig, far: str) -> None:
    for name in ("a//b", "dir/x", "%2F", "cafe\u0301", "empty"):
        rig.put(f"data/{name}", b"" if name == "empty" else name.encode())
    target = f"gs://{far}/copy"
    preview = rig.preview(rig.place, target)
    done = rig.sync(rig.place, target)
    used = rig.objects.operations
    assert (done.copied, done.left_out, done.conflicts) == (5, 0, 0)
    assert (used.class_a, used.class_b) == (preview.class_a, preview.class_b) == (5 + 2, 2)
    assert (preview.objects, preview.bytes) == (done.copied, done.copied_bytes)
    assert copied(rig, far) == {
        f"copy/{name.removeprefix('data/')}": crc32c
        for name, crc32c in copied(rig, rig.bucket).items()
    }
    again = rig.sync(rig.place, target)
    assert (again.copied, again.same, again.sent_bytes) == (0, 5, 0)
    assert (rig.objects.operations.class_a, rig.objects.operations.class_b) == (2, 2)


def test_the_bytes_between_regions_are_priced(rig: Rig, far: str) -> None:
    rig.put("data/x", b"x")
    traffic = rig.preview(rig.place, f"gs://{far}/").traffic
    assert (traffic.route, traffic.here, traffic.there) == ("regions", "us", "europe-west4")
    hundred = Preview(objects=1, bytes=100 << 30, traffic=traffic)
    record = preview_record(hundred)
    assert record["usd_traffic"] == 5.0, "100 GiB from America to Europe at $0.05"
    assert "between regions   us to europe-west4: $5.00" in preview_page(record)
    local = replace(traffic, there=traffic.here)
    assert preview_record(replace(hundred, traffic=local))["usd_traffic"] == 0
    record = preview_record(replace(hundred, traffic=replace(traffic, here="")))
    assert record["usd_traffic"] is None
    assert "the price is not known" in preview_page(record), "unknown is not free"


def put_in(rig: Rig, bucket: str, name: str, data: bytes) -> None:
    path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    assert ask(rig.url, "POST", path, data)[0] == 200


@pytest.mark.parametrize(
    ("written", "copied", "problems"),
    [
        pytest.param(b"theirs", 0, {"x": "something else was written there meanwhile"}, id="other"),
        pytest.param(b"ours", 1, {}, id="the same"),
    ],
)
def test_what_another_program_writes_at_the_target_stays(
    rig: Rig, far: str, written: bytes, copied: int, problems: dict[str, str]
) -> None:
    rig.put("data/x", b"ours")
    objects = rig.before("rewrite", lambda: put_in(rig, far, "x", written))
    done = rig.sync(rig.place, f"gs://{far}/", objects)
    assert (done.copied, done.conflicts, named(done.problems)) == (copied, 1 - copied, problems)


def test_a_source_replaced_in_mid_copy_comes_later(rig: Rig, far: str) -> None:
    rig.put("data/x", b"before")
    objects = rig.before("rewrite", lambda: rig.put("data/x", b"after!"))
    done = rig.sync(rig.place, f"gs://{far}/", objects)
    assert (done.copied, named(done.problems)) == (0, {"x": GONE})
    assert rig.sync(rig.place, f"gs://{far}/").copied == 1
    assert list(copied(rig, far).values()) == list(copied(rig, rig.bucket).values())


def test_a_source_that_is_deleted_in_mid_copy_is_named(rig: Rig, far: str) -> None:
    rig.put("data/x", b"before")
    path = f"/storage/v1/b/{rig.bucket}/o/data%2Fx"
    objects = rig.before("rewrite", lambda: ask(rig.url, "DELETE", path))
    done = rig.sync(rig.place, f"gs://{far}/", objects)
    assert named(done.problems) == {"x": GONE}
    assert copied(rig, far) == {}


def test_two_places_that_lie_in_each_other_and_missing_ones_are_refused(rig: Rig, far: str) -> None:
    rig.put("data/x", b"x")
    with pytest.raises(BadRequest, match="contains the other"):
        rig.sync(rig.place, f"{rig.place}/below")
    with pytest.raises(NotFound, match="nothing below"):
        rig.sync(f"gs://{far}/nothing", rig.place)
    with pytest.raises(NotFound, match="bucket does not exist"):
        rig.sync(rig.place, "gs://no-such-bucket/x")


def test_a_missing_source_is_named_before_a_missing_target(rig: Rig) -> None:
    with pytest.raises(NotFound, match="gs://no-such-source"):
        rig.sync("gs://no-such-source/x", "gs://no-such-target/x")
    reader = WebFiles([], patience=1)
    with pytest.raises(NotFound, match="nothing below s3://empty/"):
        rig.from_outside(S3Prefix("empty", ""), "gs://no-such-target/x", reader)
