"""A sync from the web, from S3 or between buckets that is killed at any byte goes on where it was.

TPUJOB_KILLS is how many points are tried in each direction; `make kills` tries many.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.data import moto
from tests.data.killed import MIB, UNDER_WAY, Killed
from tests.data.proxy import Proxy, between
from tests.data.rig import files_in
from tests.data.web import WebServer, serving
from tests.emulator import storage_rig
from tpujob.emulator.storage import json_api

SIZE = 30 * MIB + 321


def survives(killed: Killed, proxy: Proxy, source: str, target: object, total: int) -> None:
    """Killed some times, then done; what had arrived is not moved again."""
    seed = f"{source}{target}".rpartition("/")[2]
    kills = killed.often(proxy, seed, 9 * MIB, total - MIB, source, target)
    assert max(proxy.up, proxy.down) <= total + kills * (MIB + 2 * UNDER_WAY)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_large_file_of_the_web_goes_on_after_each_kill(killed: Killed) -> None:
    web = WebServer(files={"large": random.Random(1).randbytes(SIZE)})
    back = killed.rig.folder / "back"
    with serving(web):
        with between(killed.rig.url) as proxy:
            survives(killed, proxy, f"{web.url}/large", killed.rig.place, SIZE)
        with between(web.url) as proxy:
            survives(killed, proxy, f"{proxy.url}/large", back, SIZE)
    assert killed.rig.stored() == files_in(back) == web.files
    assert not list(killed.uploads.iterdir()), "no session is left"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_objects_of_s3_arrive_after_kills(killed: Killed, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(2)
    files = {f"{i:03d}": chance.randbytes(4096) for i in range(60)}
    files |= {"large": chance.randbytes(20 * MIB + 7)}
    with moto.running() as url:
        for name, value in moto.settings(url, killed.rig.folder).items():
            monkeypatch.setenv(name, value)
        s3 = moto.client()
        s3.create_bucket(Bucket="data")
        for name, data in files.items():
            s3.put_object(Bucket="data", Key=name, Body=data)
        s3.close()
        total = sum(map(len, files.values())) + 1000 * len(files)
        with between(killed.rig.url) as proxy:
            survives(killed, proxy, "s3://data", killed.rig.place, total)
        with between(url) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
            survives(killed, proxy, "s3://data", killed.rig.folder / "back", total)
    assert killed.rig.stored() == files_in(killed.rig.folder / "back") == files
    assert not list(killed.uploads.iterdir()), "no session is left"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_copies_between_buckets_are_done_once_however_often_they_are_killed(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_api, "REWRITE_BYTES", MIB)
    far = json.dumps({"name": "far-away", "location": "europe-west4"}).encode()
    storage_rig.ask(killed.rig.url, "POST", "/storage/v1/b?project=p", far)
    for i in range(200):
        killed.rig.put(f"data/{i:03d}", b"x" * i)
    killed.rig.put("data/large", b"y" * (20 * MIB))
    there = "gs://far-away/copy"
    with between(killed.rig.url) as proxy:
        killed.often(proxy, "far", 30_000, 110_000, killed.rig.place, there)
    names = [dict[str, int | None](), dict[str, int | None]()]
    for found, bucket in zip(names, (killed.rig.bucket, "far-away"), strict=True):
        for page in killed.rig.objects.pages(bucket, ""):
            found |= {facts.name.partition("/")[2]: facts.crc32c for facts in page}
    assert names[0] == names[1]
    assert len(names[1]) == 201
