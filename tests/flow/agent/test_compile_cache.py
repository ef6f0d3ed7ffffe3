"""What XLA compiled outlives the host: a folder that is filled from the bucket, and new entries that go there."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_host import NO_LIBTPU, Host, until
from tests.support.paths import ROOT
from tpujob.agent.storage import StorageError, StoredObject
from tpujob.agent.upload import SealedFiles
from tpujob.agent.upload.compile_cache import CompileCache, cache_name

CHECK = {"slice": "s", "chips": 4, "hosts": 1, "coordinator": "", "seconds": 120, "required": False}


def versioned(host: Host) -> dict[str, Any]:
    """What a plan says; a JAX is installed on the host, in so far as its version can be read. It has no libtpu, so that
    devices are not asked."""
    made = host.home / "lib" / "jax-0.6.0.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.6.0\n")
    host.env["PYTHONPATH"] = f"{host.home / 'lib'}:{NO_LIBTPU}"
    return {"preflight": CHECK, "type": "v4-16", "shared": "gs://shed/cache"}


def test_types_and_versions_have_separate_caches() -> None:
    assert cache_name("v4-16", {"jax": "0.6.0", "libtpu": "0.0.15"}) == "xla/v4-16/0.6.0-0.0.15"
    assert cache_name("v4-16", {"jax": "0.6.0"}) == "xla/v4-16/0.6.0-cpu"
    assert cache_name("v4-16", {"jax": "../x y"}) == "xla/v4-16/.._x_y-cpu"
    assert cache_name("v4-16", {"python": "3.10"}) == "", "without JAX there is nothing to keep"


class Shed:
    """A storage in memory, as the keeper of sealed files sees it."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.away = False

    def list(self, prefix: str) -> list[StoredObject]:
        if self.away:
            raise StorageError("away")
        found = [p for p in self.objects if p.startswith(prefix)]
        return [
            StoredObject(p[len(prefix) :], len(self.objects[p][0]), "1", "", self.objects[p][1])
            for p in found
        ]

    def read(self, path: str, take: Any, generation: str) -> None:
        take(self.objects[path][0])

    def put_file(self, path: str, file: str, *, metadata: dict[str, str], over: str) -> None:
        if self.away:
            raise StorageError("away")
        if (path in self.objects) != (over != "0"):
            raise StorageError("there is another", 412)
        self.objects[path] = (Path(file).read_bytes(), metadata)


class Storage:
    def __init__(self, shed: Shed) -> None:
        self.objects, self.read, self.put_file = shed.list, shed.read, shed.put_file


def sealed(shed: Shed, key: str = "k") -> SealedFiles:
    storage: Any = Storage(shed)
    return SealedFiles(storage, "gs://b/x/", key)


def left(shed: Shed, tmp_path: Path, name: str, data: bytes, key: str = "k") -> None:
    """A host with that key has left this."""
    (tmp_path / "left").write_bytes(data)
    sealed(shed, key).put(name, str(tmp_path / "left"))


def end(compiled: CompileCache, *, whole: bool) -> None:
    thread = compiled.finish(whole)
    if thread is not None:
        thread.join(20)


def test_entries_come_and_go_once_and_half_written_ones_stay(tmp_path: Path) -> None:
    shed, said = Shed(), list[str]()
    left(shed, tmp_path, "a-cache", b"AAA")
    left(shed, tmp_path, "notes", b"no entry")
    folder = tmp_path / "cache"
    compiled = CompileCache(sealed(shed), str(folder), said.append)
    compiled.fill()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"a-cache": b"AAA"}
    assert said == ["compiled programs fetched from the bucket: 1"]
    (folder / "b-cache").write_bytes(b"BBB")
    (folder / "b-atime").write_bytes(b"1")
    (folder / "c-cache").write_bytes(b"half")
    old = time.time() - 60
    os.utime(folder / "b-cache", (old, old))
    end(compiled, whole=False)  # the program was killed: what it wrote last may be half
    assert sorted(shed.objects) == ["gs://b/x/a-cache", "gs://b/x/b-cache", "gs://b/x/notes"]
    end(compiled, whole=True)
    assert shed.objects["gs://b/x/c-cache"][0] == b"half"
    assert compiled.finish(whole=True) is None, "nothing is left"
    shed.away = True
    (folder / "d-cache").write_bytes(b"D")
    end(compiled, whole=True)
    compiled.fill()
    assert said[1:] == [
        "compiled programs cannot be kept: away",
        "compiled programs cannot be fetched: away",
    ]


def test_what_the_owners_hosts_have_not_sealed_is_never_used(tmp_path: Path) -> None:
    """Programs are code: whoever can write to the bucket could have them run by every host that reads them."""
    shed, said = Shed(), list[str]()
    for name in ("a-cache", "b-cache", "c-cache", "d-cache"):
        left(shed, tmp_path, name, b"ours")
    objects = shed.objects
    objects["gs://b/x/a-cache"] = (b"planted", {})
    objects["gs://b/x/b-cache"] = (b"planted", objects["gs://b/x/b-cache"][1])
    objects["gs://b/x/c-cache"] = objects["gs://b/x/d-cache"]  # sealed, and for another name
    del objects["gs://b/x/d-cache"]
    left(shed, tmp_path, "e-cache", b"planted", key="of somebody else")
    folder = tmp_path / "cache"
    compiled = CompileCache(sealed(shed), str(folder), said.append)
    compiled.fill()
    assert [p.name for p in folder.iterdir()] == []
    assert said == [
        "a compiled program is not used: gs://b/x/b-cache has another SHA-256 than it may have"
    ]
    for name in ("a-cache", "b-cache", "e-cache"):
        (folder / name).write_bytes(b"compiled here")
    end(compiled, whole=True)
    again = CompileCache(sealed(shed), str(tmp_path / "other"), said.append)
    again.fill()
    kept = {p.name: p.read_bytes() for p in (tmp_path / "other").iterdir()}
    names = ("a-cache", "b-cache", "e-cache")
    assert kept == dict.fromkeys(names, b"compiled here"), "what is no good stays in the way"


def test_no_more_bytes_are_read_than_were_sealed(tmp_path: Path) -> None:
    shed, said, sent = Shed(), list[str](), list[int]()
    left(shed, tmp_path, "a-cache", b"ours")

    def endless(path: str, take: Any, generation: str) -> None:
        for _ in range(1000):
            sent.append(3)
            take(b"xxx")

    shed.read = endless
    CompileCache(sealed(shed), str(tmp_path / "cache"), said.append).fill()
    assert list((tmp_path / "cache").iterdir()) == []
    assert said == [
        "a compiled program is not used: gs://b/x/a-cache has more bytes than were listed"
    ]
    assert len(sent) == 2


def test_what_was_sealed_with_an_empty_key_is_never_used(tmp_path: Path) -> None:
    shed = Shed()
    left(shed, tmp_path, "a-cache", b"planted", key="")
    CompileCache(sealed(shed, key=""), str(tmp_path / "cache"), list[str]().append).fill()
    assert [*(tmp_path / "cache").iterdir()] == []


def test_a_later_host_begins_with_what_an_earlier_one_compiled(host: Host) -> None:
    plan = versioned(host)
    write = 'echo $TPUJOB_CACHE; test "$JAX_COMPILATION_CACHE_DIR" = "$TPUJOB_CACHE" && echo same; '
    report = host.run(write + "echo program > $TPUJOB_CACHE/k-cache", **plan)
    assert report["exit_code"] == 0, host.bucket.log()
    folder = host.home / ".tpujob/cache/xla/v4-16/0.6.0-cpu"
    assert host.bucket.log()[-2:] == [str(folder), "same"]
    name = "cache/xla/v4-16/0.6.0-cpu/k-cache"
    until(lambda: host.bucket.list(name), "the entry in the bucket")
    (folder / "k-cache").unlink()  # as on a new machine
    host.run("cat $TPUJOB_CACHE/*-cache", attempt=2, **plan)
    assert host.bucket.log(2)[-2:] == [
        "[tpujob] compiled programs fetched from the bucket: 1",
        "program",
    ]


def test_another_folder_that_a_user_chose_is_left_alone(host: Host) -> None:
    plan = versioned(host)
    report = host.run(
        "echo $JAX_COMPILATION_CACHE_DIR", env={"JAX_COMPILATION_CACHE_DIR": "/mine"}, **plan
    )
    assert (report["exit_code"], host.bucket.log()[-1]) == (0, "/mine")


@pytest.mark.slow
def test_jax_finds_in_a_filled_folder_what_another_process_compiled(host: Host) -> None:
    """The installed JAX, on CPU: the second attempt has an empty folder, and compiles nothing."""
    host.env.update(JAX_PLATFORMS="cpu", PYTHONPATH=str(ROOT))
    program = """
import jax
from workloads.frame import cache_stats
cache_stats.listen()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.jit(lambda x: x @ x + 1)(jax.numpy.ones((8, 8))).block_until_ready()
print(cache_stats.counts())
"""
    plan = {"preflight": CHECK, "type": "v4-16", "shared": "gs://shed/cache"}
    plan["preflight"] = {**CHECK, "chips": 1}
    host.start([sys.executable, "-c", program], **plan)
    assert host.ended(1, 180)["exit_code"] == 0, host.bucket.log()
    assert "'compile_cache_hits': 0" in host.bucket.log()[-1]
    made = sorted(host.home.glob(".tpujob/cache/xla/v4-16/*/*"))
    entries = {path.name for path in made if path.name.endswith("-cache")}
    kept = "cache/xla/v4-16/"
    until(lambda: len(host.bucket.list(kept)) == len(entries) > 0, "every entry in the bucket")
    for path in made:
        path.unlink()
    host.start([sys.executable, "-c", program], attempt=2, **plan)
    assert host.ended(2, 180)["exit_code"] == 0, host.bucket.log(2)
    assert "'compile_cache_misses': 0" in host.bucket.log(2)[-1], host.bucket.log(2)
