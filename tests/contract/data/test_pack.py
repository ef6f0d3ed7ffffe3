"""`tpujob data pack` and `unpack` between folders: every byte comes back, and nothing damaged passes for whole."""

import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.data.rig import Silent, files_in, named
from tpujob.data import records
from tpujob.data.checksums import extend
from tpujob.data.manifest import IndexEntry, decode, entries_of
from tpujob.data.objects import LocalFile
from tpujob.data.pack import LARGEST, Pack, PackSummary, split_into_shards
from tpujob.data.unpack import Unpack, UnpackOutcome
from tpujob.errors import BadRequest, Conflict, IllegalInState, NotFound, TpujobError

MIB = 1 << 20


def tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def some(count: int, seed: int = 1) -> dict[str, bytes]:
    chance = random.Random(seed)
    return {
        f"{chance.choice(('cat', 'dog'))}/{i:04d}.jpg": chance.randbytes(chance.randrange(20_000))
        for i in range(count)
    }


def pack(
    source: Path, target: Path, *, size: int = MIB, seed: int | None = None, replace: bool = False
) -> PackSummary:
    job = Pack(str(source), shard_bytes=size, seed=seed)
    return job.run(str(target), Silent(), replace=replace)


def unpack(source: Path, target: Path) -> UnpackOutcome:
    return Unpack(str(source), str(target), Silent()).run()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tree(tmp_path / "source", some(200))


@pytest.fixture
def packed(source: Path, tmp_path: Path) -> Path:
    pack(source, tmp_path / "packed")
    return tmp_path / "packed"


@pytest.mark.parametrize("seed", [None, 7])
def test_every_file_comes_back_byte_for_byte(tmp_path: Path, seed: int | None) -> None:
    files = some(200) | {
        "cat/empty": b"",
        "dog/a\nb": b"a line break",
        "dog/%2F \u00e4 a\u0308": b"both forms of an umlaut",
        "x/" * 30 + "y" * 255: b"a long name",
        "large": random.Random(2).randbytes(3 * MIB),
    }
    made = pack(tree(tmp_path / "source", files), tmp_path / "packed", seed=seed)
    assert (made.files, made.left_out) == (len(files), 0)
    assert made.shards > 3
    assert not made.labels.names(), "a file lies in no folder"
    done = unpack(tmp_path / "packed", tmp_path / "back")
    assert (done.files, done.left_out, done.conflicts) == (len(files), 0, 0)
    assert files_in(tmp_path / "back") == files
    again = unpack(tmp_path / "packed", tmp_path / "back")
    assert (again.files, again.same) == (0, len(files))


def test_equal_sets_make_equal_files_wherever_they_lie(source: Path, tmp_path: Path) -> None:
    elsewhere = tree(tmp_path / "elsewhere", dict(reversed(files_in(source).items())))
    for place, name in ((source, "one"), (elsewhere, "two"), (source, "one")):
        pack(place, tmp_path / name)
        pack(place, tmp_path / f"{name}-mixed", seed=3)
    plain, mixed = files_in(tmp_path / "one"), files_in(tmp_path / "one-mixed")
    assert plain == files_in(tmp_path / "two")
    assert mixed == files_in(tmp_path / "two-mixed")
    assert plain["manifest.json"] != mixed["manifest.json"]


def test_shards_are_cut_by_size_and_by_number() -> None:
    def file(size: int) -> LocalFile:
        return LocalFile("", b"", size, 0, 0, 0)

    def sizes(lengths: list[int], limit: int = 10) -> list[list[int]]:
        return [[f.size for f in run] for run in split_into_shards(map(file, lengths), 100, limit)]

    assert sizes([]) == []
    assert sizes([50, 50, 1, 200, 99, 1]) == [[50, 50], [1], [200], [99, 1]]
    assert sizes([0] * 5, limit=2) == [[0, 0], [0, 0], [0]]


def shard(path: Path, contents: list[bytes]) -> list[IndexEntry]:
    records.write(str(path), contents)
    return [IndexEntry("", len(content), extend(0, content)) for content in contents]


def test_a_flipped_byte_of_a_shard_is_found_or_is_padding(tmp_path: Path) -> None:
    """By the check that stands before publishing: each record is read back and compared."""
    chance = random.Random(3)
    contents = [chance.randbytes(chance.randrange(1, 400)) for _ in range(300)]
    path = tmp_path / "shard"
    entries = shard(path, contents)
    assert list(records.read(str(path), entries)) == contents
    whole = bytearray(path.read_bytes())
    data_ends = whole.rindex(contents[-1][-8:]) + 8
    damaged = 0
    places = [*range(200), *(chance.randrange(data_ends) for _ in range(150))]
    for place in places:
        whole[place] ^= 0x10
        path.write_bytes(whole)
        whole[place] ^= 0x10
        try:
            list(records.read(str(path), entries))
        except records.Damaged:
            damaged += 1
        else:
            assert place < 64 or whole[place] == 0, f"byte {place} is no padding"
    assert damaged > 250


def test_a_shard_that_was_cut_short_is_found(tmp_path: Path) -> None:
    """The package's reader raises nothing for it."""
    path = tmp_path / "shard"
    entries = shard(path, [b"x" * 1000] * 100)
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(records.Damaged):
            list(records.read(str(path), entries))
    path.write_bytes(whole)
    with pytest.raises(records.Damaged, match="100 records instead of 99"):
        list(records.read(str(path), entries[1:]))
    with pytest.raises(records.Damaged, match="record 99 does not have its checksum"):
        list(records.read(str(path), [*entries[:-1], IndexEntry("", 1000, 0)]))


@pytest.mark.parametrize("which", ["arrayrecord", "jsonl.gz"])
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_damaged_set_gives_back_nothing_wrong(
    packed: Path, source: Path, tmp_path: Path, which: str, how: str
) -> None:
    victim = min(packed.glob(f"*.{which}"))
    data = bytearray(victim.read_bytes())
    data[len(data) // 3] ^= 1
    victim.unlink()
    if how != "gone":
        victim.write_bytes(data if how == "flipped" else data[: len(data) // 2])
    with pytest.raises((Conflict, NotFound), match=victim.name):
        unpack(packed, tmp_path / "back")
    originals = files_in(source)
    for name, content in files_in(tmp_path / "back").items():
        if not name.startswith(".tpujob-parts/"):
            assert content == originals[name]


HOSTILE = ("../out", "/etc/out", "a/../../out", "a//b", "", ".", "x/", "nul\0", "y" * 300)


def rewritten(packed: Path, change: Callable[[list[list[Any]]], None]) -> None:
    """The set with other lines in its index, and everything else right."""
    manifest = json.loads((packed / "manifest.json").read_bytes())
    index = packed / manifest["index"]["name"]
    lines = [json.loads(line) for line in gzip.decompress(index.read_bytes()).splitlines()]
    change(lines)
    (shard,) = manifest["shards"]
    data = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    index.write_bytes(data)
    shard["index_bytes"] = manifest["index"]["bytes"] = len(data)
    manifest["index"]["crc32c"] = extend(0, data)
    manifest["index"]["sha256"] = hashlib.sha256(data).hexdigest()
    (packed / "manifest.json").write_text(json.dumps(manifest))


def test_hostile_names_are_refused_by_name_and_the_rest_is_written(tmp_path: Path) -> None:
    files = {f"{i:03d}": b"%d" % i for i in range(20)}
    pack(tree(tmp_path / "source", files), tmp_path / "packed")

    def other_names(lines: list[list[Any]]) -> None:
        for line, key in zip(lines, (*HOSTILE, "link/in"), strict=False):
            line[0] = key

    rewritten(tmp_path / "packed", other_names)
    back = tmp_path / "a" / "back"
    back.mkdir(parents=True)
    (back / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    done = unpack(tmp_path / "packed", back)
    assert done.left_out == len(HOSTILE) + 1
    assert set(named(done.problems)) == {*HOSTILE, "link/in"}
    assert done.files == 20 - len(HOSTILE) - 1
    assert not files_in(tmp_path / "elsewhere")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"back"}


def test_a_file_that_is_not_what_the_index_says_is_not_written(tmp_path: Path) -> None:
    files = {f"{i:03d}": b"%d" % i for i in range(20)}
    pack(tree(tmp_path / "source", files), tmp_path / "packed")
    rewritten(tmp_path / "packed", lambda lines: lines[7].__setitem__(2, 12345))
    with pytest.raises(Conflict, match="record 7 does not have its checksum"):
        unpack(tmp_path / "packed", tmp_path / "back")
    assert not (tmp_path / "back" / "007").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'["a", 1, 2]\n' * 1_000_000, "another number of files"),
        (b" " * 100_000_000, "the index is damaged"),
    ],
    ids=["lines", "bytes"],
)
def test_an_index_that_would_fill_the_memory_is_not_unpacked(
    packed: Path, tmp_path: Path, line: bytes, message: str
) -> None:
    manifest = decode((packed / "manifest.json").read_bytes())
    bomb = gzip.compress(line, 1)
    (tmp_path / "bomb").write_bytes(bomb)
    shard = replace(manifest.shards[0], index_start=0, index_bytes=len(bomb))
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest, match=message):
            entries_of(tmp_path / "bomb", shard)
        assert tracemalloc.get_traced_memory()[1] < 50 * MIB
    finally:
        tracemalloc.stop()


def test_unpacking_overwrites_nothing(packed: Path, source: Path, tmp_path: Path) -> None:
    first, second, third = sorted(files_in(source))[:3]
    back = tree(tmp_path / "back", {first: b"mine", third.split("/")[0] + "/0": b""})
    (back / second).mkdir()
    done = unpack(packed, back)
    assert named(done.problems) == {
        first: "another file of that name is there, and is kept",
        second: "there is a folder of that name",
    }
    assert (done.files, done.conflicts, done.left_out) == (198, 1, 1)
    assert (back / first).read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(version=2), "version: .*equal to 1"),
        (lambda manifest: manifest.update(format="else"), "format: "),
        (lambda manifest: manifest.update(records=3), "do not add up"),
        (lambda manifest: manifest["shards"][0].update(name="../x"), r"shards.0.name"),
        (lambda manifest: manifest["shards"][0].update(bytes=-1), r"shards.0.bytes"),
        (lambda manifest: manifest.pop("index"), "index: Field required"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_one_clear_error(packed: Path, change, message) -> None:
    manifest = json.loads((packed / "manifest.json").read_bytes())
    change(manifest)
    with pytest.raises(BadRequest, match=message):
        decode(json.dumps(manifest).encode())


def test_without_a_manifest_there_is_no_set(packed: Path, tmp_path: Path) -> None:
    (packed / "manifest.json").unlink()
    with pytest.raises(NotFound, match=r"no packed set.*manifest.json is missing"):
        unpack(packed, tmp_path / "back")
    with pytest.raises(NotFound, match="there is no folder"):
        unpack(tmp_path / "missing", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_what_cannot_be_packed_is_left_out_by_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "link").symlink_to("/etc/hostname")
    os.mkfifo(source / "pipe")
    with open(source / "sparse", "wb") as file:
        file.truncate(LARGEST + 1)
    made = pack(source, tmp_path / "packed")
    assert (made.files, made.left_out) == (200, 3)
    reasons = named(made.problems)
    assert set(reasons) == {"link", "pipe", "sparse"}
    assert "tpujob data sync" in reasons["sparse"]


def test_bad_places_are_refused_and_nothing_is_written(source: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        pack(tmp_path / "missing", tmp_path / "packed")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadRequest, match="there is no file in"):
        pack(tmp_path / "empty", tmp_path / "packed")
    with pytest.raises(BadRequest, match="packed into itself"):
        pack(source, source / "packed")
    assert not (source / "packed").exists()
    assert not (tmp_path / "packed").exists()
    mine = tree(tmp_path / "mine", {"notes.txt": b"mine"})
    with pytest.raises(BadRequest, match=r"holds other files, such as notes\.txt"):
        pack(source, mine)
    assert files_in(mine) == {"notes.txt": b"mine"}
    with pytest.raises(BadRequest, match="cannot write to"):
        pack(source, mine / "notes.txt")


def test_another_set_stays_unless_it_is_to_be_replaced(packed: Path, tmp_path: Path) -> None:
    before = files_in(packed)
    same_sizes = {name: data[::-1] for name, data in some(200).items()}
    for files in (some(20, seed=9), same_sizes):
        other = tree(tmp_path / f"other-{len(files)}", files)
        with pytest.raises(BadRequest, match="another packed set"):
            pack(other, packed)
        whole = {n: d for n, d in files_in(packed).items() if n in before}
        assert whole == before
    pack(other, packed, replace=True)
    unpack(packed, tmp_path / "back")
    assert files_in(tmp_path / "back") == same_sizes
    assert len(list(packed.glob("index-*"))) == 1, "nothing of the old set is left"


def test_a_link_for_unfinished_files_is_not_followed(source: Path, tmp_path: Path) -> None:
    elsewhere = tree(tmp_path / "elsewhere", {"thesis": b"the only copy"})
    parts = tmp_path / "packed" / ".tpujob-parts"
    parts.mkdir(parents=True)
    (parts / "pack").symlink_to(elsewhere)
    pack(source, tmp_path / "packed")
    assert (elsewhere / "thesis").read_bytes() == b"the only copy"


def test_a_file_that_changes_meanwhile_ends_the_pack(source: Path, tmp_path: Path) -> None:
    class Meddler(Silent):
        def moved(self, size: int) -> None:
            (source / "zzz").write_bytes(os.urandom(10))

    tree(source, {"zzz": b""})
    with pytest.raises(Conflict, match="zzz was changed"):
        Pack(str(source), shard_bytes=8 * MIB).run(str(tmp_path / "packed"), Meddler())
    assert not (tmp_path / "packed" / "manifest.json").exists()


def test_two_packs_into_one_place_do_not_mix(source: Path, tmp_path: Path) -> None:
    outcomes: list[str] = []

    class Second(Silent):
        def planned(self, size: int) -> None:
            with pytest.raises(IllegalInState, match="another `tpujob data"):
                pack(source, tmp_path / "packed")
            outcomes.append("refused")

    Pack(str(source), shard_bytes=MIB).run(str(tmp_path / "packed"), Second())
    assert outcomes


def test_what_a_disk_damages_is_found_before_it_has_a_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = records.write

    def rotten(path: str, contents: Iterable[bytes]) -> None:
        write(path, contents)
        with open(path, "r+b") as file:
            file.seek(100_000)
            byte = file.read(1)[0] ^ 1
            file.seek(100_000)
            file.write(bytes([byte]))

    monkeypatch.setattr(records, "write", rotten)
    with pytest.raises(TpujobError, match="shard 0 was not written as it should be"):
        pack(source, tmp_path / "packed")
    assert not list((tmp_path / "packed").glob("*.*rd")), "nothing is visible"
    monkeypatch.setattr(records, "write", write)
    pack(source, tmp_path / "packed")


@pytest.mark.parametrize("shards", [0, 1, 6])
def test_a_killed_pack_can_be_run_again(source: Path, tmp_path: Path, shards: int) -> None:
    pack(source, tmp_path / "whole", size=MIB // 16)
    packed = tmp_path / "packed"
    code = (
        "import sys; from tests.contract.data.test_pack import Path, pack;"
        f"pack(Path(sys.argv[1]), Path(sys.argv[2]), size={MIB // 16})"
    )
    process = subprocess.Popen([sys.executable, "-c", code, source, packed])
    while not packed.exists() or len(list(packed.glob("*.arrayrecord"))) < shards:
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    visible = {name: data for name, data in files_in(packed).items() if "/" not in name}
    assert visible.items() <= files_in(tmp_path / "whole").items(), "each visible shard is whole"
    for name, data in visible.items():
        (packed / name).write_bytes(data[:1000] + b"!" + data[1001:])
    pack(source, packed, size=MIB // 16)
    assert files_in(packed) == files_in(tmp_path / "whole"), "a shard that is there is not trusted"


def test_after_a_full_disk_the_same_command_packs_it_all(source: Path, tmp_path: Path) -> None:
    """By a limit on the size of a file, as a small disk needs an administrator."""
    limited = (
        "import resource as r, signal, sys; r.setrlimit(r.RLIMIT_FSIZE, (300_000, 300_000));"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from tpujob.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    words = ["data", "pack", str(source), str(tmp_path / "packed"), "--shard-mib", "1"]
    ended = subprocess.run(
        [sys.executable, "-c", limited, *words], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert "run the same command again" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert set(os.listdir(tmp_path / "packed")) == {".tpujob-parts"}
    assert not list((tmp_path / "packed").rglob("0*.part")), "what was begun takes no space"
    pack(source, tmp_path / "packed")
    unpack(tmp_path / "packed", tmp_path / "back")
    assert files_in(tmp_path / "back") == files_in(source)


def test_without_the_package_the_error_says_what_to_install(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    with pytest.raises(TpujobError, match="needs the package array_record") as raised:
        pack(source, tmp_path / "packed")
    assert "array-record" in raised.value.hint


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 2
