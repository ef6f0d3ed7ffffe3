"""XLA's compiled programs outlive the host: the agent fills a folder from the bucket, and uploads new entries."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_host import NO_LIBTPU, Host, until
from tests.support.paths import ROOT
from tests.support.waiting import LONG
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.storage import Storage
from tpujob.agent.upload import SealedFiles
from tpujob.agent.upload.compile_cache import CompileCache, cache_name

PLACE = "gs://shed/x/"
CHECK = {"slice": "s", "chips": 4, "hosts": 1, "coordinator": "", "seconds": 120, "required": False}


def versioned(host: Host) -> dict[str, Any]:
    """Return a plan for a host with a JAX of which only the version can be read, and without libtpu."""
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


@pytest.fixture
def storage(host: Host, monkeypatch: pytest.MonkeyPatch) -> Storage:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host.bucket.url)
    return Storage(MetadataClient())


def left(storage: Storage, tmp_path: Path, name: str, data: bytes, key: str = "k") -> None:
    """Upload a file as a host with that key."""
    (tmp_path / "left").write_bytes(data)
    SealedFiles(storage, PLACE, key).put(name, str(tmp_path / "left"))


def names(host: Host) -> list[str]:
    return [str(item["name"]).removeprefix("x/") for item in host.bucket.list("x/")]


def end(compiled: CompileCache, *, whole: bool) -> None:
    thread = compiled.finish(whole)
    if thread is not None:
        thread.join(LONG)


def test_whole_entries_come_and_go_once(host: Host, storage: Storage, tmp_path: Path) -> None:
    notes = list[str]()
    left(storage, tmp_path, "a-cache", b"AAA")
    left(storage, tmp_path, "notes", b"no entry")
    folder = tmp_path / "cache"
    compiled = CompileCache(SealedFiles(storage, PLACE, "k"), str(folder), notes.append)
    compiled.fill()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"a-cache": b"AAA"}
    assert notes == ["compiled programs fetched from the bucket: 1"]
    (folder / "b-cache").write_bytes(b"BBB")
    (folder / "b-atime").write_bytes(b"1")
    (folder / "c-cache").write_bytes(b"half")
    old = time.time() - 60
    os.utime(folder / "b-cache", (old, old))
    end(compiled, whole=False)  # the program was killed: what it wrote last may be half
    assert names(host) == ["a-cache", "b-cache", "notes"]
    future = time.time() + 3600  # the clock was put back
    os.utime(folder / "c-cache", (future, future))
    end(compiled, whole=True)
    assert host.bucket.read("x/c-cache") == b"half"
    assert compiled.finish(whole=True) is None, "nothing is left"
    host.bucket.away()
    (folder / "d-cache").write_bytes(b"D")
    end(compiled, whole=True)
    compiled.fill()
    assert [text.partition(":")[0] for text in notes[1:]] == [
        "compiled programs cannot be kept",
        "compiled programs cannot be fetched",
    ]


def test_what_hosts_of_others_sealed_is_never_used(storage: Storage, tmp_path: Path) -> None:
    """Otherwise another user of the bucket could run code on every host that reads them."""
    notes, key = list[str](), "k"
    for name in ("a-cache", "b-cache", "d-cache"):
        left(storage, tmp_path, name, b"ours")
    seals = {file.name: dict(file.metadata) for file in storage.objects(PLACE)}
    storage.put(PLACE + "a-cache", b"planted")
    storage.put(PLACE + "b-cache", b"planted", seals["b-cache"])
    storage.put(PLACE + "c-cache", b"ours", seals["d-cache"])  # sealed, and for another name
    storage.delete(PLACE + "d-cache")
    left(storage, tmp_path, "e-cache", b"planted", key="of another owner")
    left(storage, tmp_path, "f-cache", b"planted", key="")
    folder = tmp_path / "cache"
    compiled = CompileCache(SealedFiles(storage, PLACE, key), str(folder), notes.append)
    compiled.fill()
    nothing = CompileCache(SealedFiles(storage, PLACE, ""), str(folder), notes.append)
    nothing.fill()
    assert [p.name for p in folder.iterdir()] == []
    text = (
        "a compiled program is not used: gs://shed/x/b-cache has another SHA-256 than it may have"
    )
    assert notes == [text]
    for name in ("a-cache", "b-cache", "e-cache"):
        (folder / name).write_bytes(b"compiled here")
    end(compiled, whole=True)
    again = CompileCache(SealedFiles(storage, PLACE, key), str(tmp_path / "other"), notes.append)
    again.fill()
    files = {p.name: p.read_bytes() for p in (tmp_path / "other").iterdir()}
    expected = dict.fromkeys(("a-cache", "b-cache", "e-cache"), b"compiled here")
    assert files == expected, "what is no good stays in the way"


def test_no_more_bytes_are_read_than_were_sealed(storage: Storage, tmp_path: Path) -> None:
    notes, sent = list[str](), list[int]()
    left(storage, tmp_path, "a-cache", b"ours")

    def endless(path: str, take: Any, generation: str) -> None:
        for _ in range(1000):
            sent.append(3)
            take(b"xxx")

    storage.read = endless  # type: ignore[method-assign]
    CompileCache(SealedFiles(storage, PLACE, "k"), str(tmp_path / "cache"), notes.append).fill()
    assert list((tmp_path / "cache").iterdir()) == []
    assert "has more bytes than were listed" in notes[0]
    assert len(sent) == 2


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
    chosen = {"JAX_COMPILATION_CACHE_DIR": "/mine"}  # a folder that a user chose is left alone
    show = "cat $TPUJOB_CACHE/*-cache; echo $JAX_COMPILATION_CACHE_DIR"
    host.run(show, attempt=2, env=chosen, **plan)
    fetched = "[tpujob] compiled programs fetched from the bucket: 1"
    assert host.bucket.log(2)[-3:] == [fetched, "program", "/mine"]


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
    prefix = "cache/xla/v4-16/"
    until(lambda: len(host.bucket.list(prefix)) == len(entries) > 0, "every entry in the bucket")
    for path in made:
        path.unlink()
    host.start([sys.executable, "-c", program], attempt=2, **plan)
    assert host.ended(2, 180)["exit_code"] == 0, host.bucket.log(2)
    assert "'compile_cache_misses': 0" in host.bucket.log(2)[-1], host.bucket.log(2)
