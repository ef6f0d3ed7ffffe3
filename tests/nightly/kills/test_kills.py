"""A sync that is killed at any byte goes on with the files that are not whole: the real command as a process, killed by
its proxy.

TPUJOB_KILLS is how many points are tried in each direction; tests/bench/README.md tries many.
"""

import json
import random
import resource
import signal

import pytest

from tests.contract.data import moto
from tests.contract.data.killed import MIB, UNDER_WAY, Killed
from tests.contract.data.proxy import between
from tests.contract.data.rig import files_in
from tests.contract.data.web import WebServer, serving
from tests.contract.emulator import storage_rig
from tpujob.emulator.storage import json_api

LARGE = 10 * MIB
#: bytes of each request that are not content
HEADS = 1000


@pytest.mark.timeout(1800)
def test_whole_files_are_not_moved_again_after_kills(killed: Killed) -> None:
    chance = random.Random(2)
    files = {f"{i:04d}": chance.randbytes(4096) for i in range(600)}
    files["large"] = chance.randbytes(LARGE)
    killed.rig.write(files)
    back = killed.rig.folder / "back"

    def check() -> None:
        for name, data in files_in(back).items() if back.exists() else ():
            if not name.startswith(".tpujob-parts/"):
                assert data == files[name], "nothing half-written has its final name"

    for places in ((killed.rig.source, killed.rig.place), (killed.rig.place, back)):
        with between(killed.rig.url) as proxy:
            seed = str(places[1] == back)
            kills = killed.often(proxy, seed, 20_000, 6 * MIB, *places, check=check)
            total = sum(map(len, files.values())) + HEADS * len(files)
            moved = proxy.up if places[1] == killed.rig.place else proxy.down
            assert moved <= total + kills * (LARGE + MIB + UNDER_WAY)
    assert killed.rig.stored() == files
    assert files_in(back) == files, "and no unfinished file is left"


@pytest.mark.timeout(1800)
def test_web_and_s3_arrive_after_kills(killed: Killed, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(2)
    files = {f"{i:03d}": chance.randbytes(4096) for i in range(60)}
    files |= {"large": chance.randbytes(LARGE)}
    back = killed.rig.folder / "back"
    with moto.running() as url:
        for name, value in moto.settings(url, killed.rig.folder).items():
            monkeypatch.setenv(name, value)
        s3 = moto.client()
        s3.create_bucket(Bucket="data")
        for name, data in files.items():
            s3.put_object(Bucket="data", Key=name, Body=data)
        s3.close()
        with between(killed.rig.url) as proxy:
            killed.often(proxy, "s3 up", 20_000, LARGE, "s3://data", killed.rig.place)
        with between(url) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
            killed.often(proxy, "s3 down", 20_000, LARGE, "s3://data", back)
    assert killed.rig.stored() == files_in(back) == files
    web = WebServer(files={"of-the-web": files["large"]})
    with serving(web), between(killed.rig.url) as proxy:
        source = f"{web.url}/of-the-web"
        killed.often(proxy, "web", 9 * MIB, LARGE, source, killed.rig.place)
    assert killed.rig.stored()["of-the-web"] == files["large"]


@pytest.mark.timeout(1800)
def test_copied_objects_arrive_after_kills(killed: Killed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_api, "REWRITE_BYTES", MIB)
    far = json.dumps({"name": "far-away", "location": "europe-west4"}).encode()
    storage_rig.ask(killed.rig.url, "POST", "/storage/v1/b?project=p", far)
    for i in range(200):
        killed.rig.put(f"data/{i:03d}", b"x" * i)
    killed.rig.put("data/large", b"y" * (20 * MIB))
    with between(killed.rig.url) as proxy:
        killed.often(proxy, "far", 30_000, 110_000, killed.rig.place, "gs://far-away/copy")
    names = [dict[str, int | None](), dict[str, int | None]()]
    for checksums, bucket in zip(names, (killed.rig.bucket, "far-away"), strict=True):
        for page in killed.rig.objects.pages(bucket, ""):
            checksums |= {facts.name.partition("/")[2]: facts.crc32c for facts in page}
    assert names[0] == names[1]
    assert len(names[1]) == 201


def test_a_full_disk_is_one_clear_error_and_nothing_has_its_final_name(killed: Killed) -> None:
    """By a limit on the size of a file, as a small disk needs an administrator."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    killed.rig.put("data/large", b"x" * (3 * MIB))
    killed.rig.put("data/small", b"y")
    back = killed.rig.folder / "back"
    with between(killed.rig.url) as proxy:
        code, errors = killed.run(proxy, killed.rig.place, back, fsize=2 * MIB)
        assert code == 1
        assert "cannot read or write a file: File too large" in errors
        assert "Traceback" not in errors
        assert not (back / "large").exists()
        assert killed.run(proxy, killed.rig.place, back)[0] == 0
    assert files_in(back) == {"large": b"x" * (3 * MIB), "small": b"y"}


def test_ctrl_c_says_that_the_same_command_goes_on(killed: Killed) -> None:
    killed.rig.write({f"{i}": b"x" * 40_000 for i in range(100)})
    with between(killed.rig.url) as proxy:
        places = killed.rig.source, killed.rig.place
        code, errors = killed.run(proxy, *places, kill_at=MIB, by=signal.SIGINT)
        assert code == 130
        assert "The same command continues." in errors
        assert "Traceback" not in errors
        assert killed.run(proxy, *places)[0] == 0
    assert len(killed.rig.stored()) == 100
