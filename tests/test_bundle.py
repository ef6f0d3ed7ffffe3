"""What is packed, and that the same files give the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tpujob import bundle
from tpujob.bundle import pack, workloads_bundle
from tpujob.errors import BadRequest


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}\n")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def opened(data: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(data), mode="r:gz")


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for name, seconds in (("one", 1), ("two", 2_000_000_000)):
        write(tmp_path / name, "b.py", "a/x.py", "ä 'q'.txt")
        for path in (tmp_path / name).rglob("*.*"):
            os.utime(path, (seconds, seconds))
    one, two = pack(tmp_path / "one"), pack(tmp_path / "two")
    assert one == two
    assert one.sha256 == hashlib.sha256(one.data).hexdigest()
    assert one.files == ("a/x.py", "b.py", "ä 'q'.txt")
    with opened(one.data) as tar:
        content = tar.extractfile("a/x.py")
        assert content is not None
        assert content.read() == b"this is a/x.py\n"
        assert {(m.mtime, m.uid, m.uname, m.mode) for m in tar} == {(0, 0, "", 0o644)}


def test_execute_bits_and_links_inside_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "run.sh", "sub/a.txt")
    (tmp_path / "run.sh").chmod(0o700)
    (tmp_path / "sub/up").symlink_to("../run.sh")
    (tmp_path / "folder").symlink_to("sub")
    with opened(pack(tmp_path).data) as tar:
        assert tar.getmember("run.sh").mode == 0o755
        assert tar.getmember("sub/up").linkname == "../run.sh"
        assert tar.getmember("folder").issym()


def test_git_says_which_files(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, "tracked.py", "new.py", "deleted.py", "big.bin", "forced.bin", "a/.hidden")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    git(tmp_path, "add", "-f", "forced.bin", "tracked.py", "deleted.py")
    (tmp_path / "deleted.py").unlink()
    assert pack(tmp_path).files == (".gitignore", "a/.hidden", "forced.bin", "new.py", "tracked.py")
    assert pack(tmp_path / "a").files == (".hidden",), "a folder inside a repository"


def test_a_folder_that_git_ignores_is_packed_as_it_is(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("scratch\n")
    write(tmp_path, "scratch/a.py")
    assert pack(tmp_path / "scratch").files == ("a.py",)


def test_what_is_left_out(tmp_path: Path) -> None:
    write(
        tmp_path, "a.py", "b.log", "data/x", "data/sub/y", "deep/data/z", "notes/keep", "notes/drop"
    )
    write(tmp_path, ".venv/x", "p/__pycache__/x.pyc", ".git-not/x")
    (tmp_path / ".tpujobignore").write_text("# comment\n\n*.log\n/data/\nnotes/dr*\n")
    packed = pack(tmp_path).files
    assert packed == (".git-not/x", ".tpujobignore", "a.py", "deep/data/z", "notes/keep")


def test_a_large_folder_is_refused_and_its_biggest_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(bundle.LIMIT)
    with pytest.raises(BadRequest, match=r"weights\.bin \(100\.0 MiB\)") as error:
        pack(tmp_path)
    assert ".tpujobignore" in error.value.hint


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "a/../../secret"])
def test_a_link_that_leaves_is_refused(tmp_path: Path, target: str) -> None:
    write(tmp_path, "secret", "code/a/b.py")
    (tmp_path / "code" / "link").symlink_to(target)
    with pytest.raises(BadRequest, match="link"):
        pack(tmp_path / "code")


def test_pipes_are_passed_over_and_missing_folders_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert pack(tmp_path).files == ()
    with pytest.raises(BadRequest, match="nowhere is not a folder"):
        pack(tmp_path / "nowhere")


def test_an_unreadable_file_is_named() -> None:
    unreadable = Path("/proc/self/mem")  # to anybody, root too
    with pytest.raises(BadRequest, match="cannot read /proc/self/mem"):
        bundle._archive([("a.py", unreadable)])  # pyright: ignore[reportPrivateUsage]


def test_the_bundled_workloads_are_packed_once_as_their_package() -> None:
    packed = workloads_bundle()
    assert packed is workloads_bundle()
    assert {"workloads/__init__.py", "workloads/contract.py"} <= set(packed.files)
    assert all(name.endswith(".py") for name in packed.files)
