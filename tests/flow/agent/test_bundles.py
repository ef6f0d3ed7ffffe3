"""Bundles on a host: only the named bytes are unpacked, and nothing leaves the bundle's folder."""

import hashlib
import tarfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.agent_host import Host
from tests.support.bundles import archive
from tests.support.waiting import LONG
from tpujob.agent import base
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.setup import bundles
from tpujob.agent.storage import Storage


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


HOSTILE = {
    "absolute": [member("/tmp/tpujob-escaped")],
    "parent": [("ok", "1"), member("../escaped")],
    "hidden parent": [member("a/../../escaped")],
    "link out": [member("out", tarfile.SYMTYPE, "../../..")],
    "absolute link": [member("out", tarfile.SYMTYPE, "/etc")],
    "through a link": [
        member("d", tarfile.DIRTYPE),
        member("l", tarfile.SYMTYPE, "d"),
        ("l/x", "1"),
    ],
    "two links": [
        member("d", tarfile.DIRTYPE),
        member("d/up", tarfile.SYMTYPE, ".."),
        member("far", tarfile.SYMTYPE, "d/up/../../x"),
    ],
    "hard link": [("a", "1"), member("b", tarfile.LNKTYPE, "a")],
    "device": [member("null", tarfile.CHRTYPE)],
    "pipe": [member("pipe", tarfile.FIFOTYPE)],
    "twice": [("a", "1"), ("a", "2")],
    "nested without end": [("d/" * 2000 + "f", "1")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "archive").write_bytes(archive(*HOSTILE[name]))
    with pytest.raises(base.Failure, match="bundle") as failure:
        bundles.unpack(str(tmp_path / "archive"), str(tmp_path / "files"))
    assert failure.value.cause == "SETUP"
    assert {p.name for p in tmp_path.iterdir()} == {"archive", "files"}


def test_a_bundle_that_cannot_be_used_is_named_and_nothing_runs(host: Host) -> None:
    changed = host.bucket.bundle(archive(("a", "1")))
    host.bucket.put(changed.removeprefix("gs://shed/"), archive(("a", "2")))
    errors = {
        host.bucket.bundle(archive(*HOSTILE["parent"])): "leaves it",
        changed: "hash",
        f"gs://shed/bundles/{'0' * 64}.tar.gz": "404",
        host.bucket.bundle(b"no archive"): "not a valid archive",
    }
    for attempt, (bundle, error) in enumerate(errors.items(), 1):
        report = host.run("echo never", attempt=attempt, bundles=[bundle])
        assert (report["exit_code"], report["cause"]) == (None, "SETUP"), report
        assert error in report["error"]
        assert "never" not in host.bucket.log(attempt)
    assert list((host.home / ".tpujob" / "bundles").iterdir()) == []


def test_damaged_bytes_are_fetched_again(tmp_path: Path) -> None:
    good = archive(("a", "1"))
    answers = iter([b"damaged", good])
    storage: Any = SimpleNamespace(read=lambda path, take: take(next(answers)))
    name = hashlib.sha256(good).hexdigest()
    folder = bundles.fetch_bundle(storage, f"gs://shed/bundles/{name}.tar.gz", str(tmp_path))
    assert (Path(folder) / "a").read_text() == "1"


def test_bundles_are_laid_over_each_other_afresh_for_each_attempt(host: Host) -> None:
    lower = archive(("a.txt", "old"), member("link", tarfile.SYMTYPE, "a.txt"))
    upper = archive(("sub/b.txt", "new"))
    bundles = [host.bucket.bundle(lower), host.bucket.bundle(upper)]
    host.run("cat link sub/b.txt; echo; echo spoilt > a.txt", bundles=bundles)
    assert host.bucket.log() == ["oldnew"]
    host.run("cat link; echo", attempt=2, bundles=bundles)
    assert host.bucket.log(2) == ["old"]


def test_two_may_fetch_one_bundle_at_once(tmp_path: Path) -> None:
    data, both = archive(("a", "1")), threading.Barrier(2)

    class Slow(Storage):
        def read(self, path: str, take: Callable[[bytes], object]) -> None:
            both.wait(LONG)  # each has seen that there is no such folder
            take(data)

    where = f"gs://shed/{hashlib.sha256(data).hexdigest()}.tar.gz"
    with ThreadPoolExecutor(2) as pool:
        folders = list(
            pool.map(
                lambda _: bundles.fetch_bundle(Slow(MetadataClient()), where, str(tmp_path)),
                range(2),
            )
        )
    assert folders[0] == folders[1]
    assert (Path(folders[0]) / "a").read_text() == "1"
    assert len(list(tmp_path.iterdir())) == 1, "something was left lying about"
