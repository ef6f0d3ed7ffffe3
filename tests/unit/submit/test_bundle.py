"""The content of bundles; the same files give the same bytes."""

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tpujob.domain.host import environment
from tpujob.errors import BadSpec
from tpujob.submit import archive
from tpujob.submit import git as checkout
from tpujob.submit.archive import pack, workloads_bundle
from tpujob.submit.git import NOWHERE


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}\n")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    git(folder, *identity, "commit", "-q", "--no-gpg-sign", "-m", "one more")


def opened(data: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(data), mode="r:gz")


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for name, seconds in (("one", 1), ("two", 2_000_000_000)):
        write(tmp_path / name, "b.py", "a/x.py", "ä 'q'.txt")
        for path in (tmp_path / name).rglob("*.*"):
            os.utime(path, (seconds, seconds))
    first, second = pack(tmp_path / "one"), pack(tmp_path / "two")
    assert first == second
    assert first.sha256 == hashlib.sha256(first.data).hexdigest()
    assert first.files == ("a/x.py", "b.py", "ä 'q'.txt")
    with opened(first.data) as tar:
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


def test_git_decides_which_files_are_packed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, "tracked.py", "new.py", "deleted.py", "big.bin", "forced.bin", "a/.hidden")
    write(tmp_path, "scratch/a.py")
    (tmp_path / ".gitignore").write_text("*.bin\nscratch\n")
    git(tmp_path, "add", "-f", "forced.bin", "tracked.py", "deleted.py")
    (tmp_path / "deleted.py").unlink()
    assert pack(tmp_path).files == (".gitignore", "a/.hidden", "forced.bin", "new.py", "tracked.py")
    assert pack(tmp_path / "a").files == (".hidden",), "a folder inside a repository"
    with pytest.raises(BadSpec, match=r"no file to ship in .*/scratch: it ignores the folder"):
        pack(tmp_path / "scratch")


def test_excluded_files_are_not_packed(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.log", "data/x", "data/sub/y", "deep/data/z", "notes/keep")
    write(tmp_path, "notes/drop", ".venv/x", "p/__pycache__/x.pyc", ".git-not/x")
    write(tmp_path, "node_modules/x.js", "env3/pyvenv.cfg", "env3/bin/python", ".hidden/x")
    write(tmp_path, "p/.pytest_cache/x", ".DS_Store", "p/.mypy_cache/y")
    (tmp_path / ".tpujobignore").write_text("# comment\n\n*.log\n/data/\nnotes/dr*\n")
    expected = {".git-not/x", ".hidden/x", ".tpujobignore", "a.py", "deep/data/z", "notes/keep"}
    assert set(pack(tmp_path).files) == expected


def test_a_pattern_means_what_git_means_by_it_and_beats_what_git_tracks(tmp_path: Path) -> None:
    patterns = "*.log\n!keep.log\ndeep/**/z\nwith space.txt\n\\#odd\n/top.txt\n"
    names = ["a.log", "keep.log", "deep/data/z", "with space.txt", "#odd", "top.txt", "sub/top.txt"]
    for kind in ("plain", "checkout"):
        folder = tmp_path / kind
        write(folder, *names, "tracked.py")
        (folder / ".tpujobignore").write_text(patterns)
        if kind == "checkout":
            git(folder, "init", "-q")
            (folder / ".gitignore").write_text("!a.log\n")  # says nothing about what is shipped
            git(folder, "add", "-f", ".")
        packed = set(pack(folder).files) - {".gitignore", ".tpujobignore"}
        assert packed == {"keep.log", "sub/top.txt", "tracked.py"}, kind


def test_submodules_travel_with_their_files(tmp_path: Path) -> None:
    library, project = tmp_path / "library", tmp_path / "project"
    for folder in (library, project):
        write(folder, f"{folder.name}.py")
        git(folder, "init", "-q")
        commit(folder)
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    commit(project)
    write(project, "lib/new.py")
    git(tmp_path, "init", "-q", "project/untracked-repository")
    write(project, "untracked-repository/x.py")
    packed = pack(project)
    expected = {"project.py", "lib/library.py", "lib/new.py", "untracked-repository/x.py"}
    assert set(packed.files) == {".gitmodules"} | expected
    assert packed.warnings == ()

    git(tmp_path, "clone", "-q", "project", "clone")
    bare = pack(tmp_path / "clone")
    assert bare.files == (".gitmodules", "project.py")
    assert bare.warnings == ("the submodule lib is not checked out, so nothing of it is shipped",)


def test_files_that_look_like_keys_are_refused_unless_they_are_allowed(tmp_path: Path) -> None:
    write(tmp_path, ".env", ".env.example", "train.py", "sub/server.pem")
    keys = [".env", "sub/server.pem"]
    with pytest.raises(BadSpec, match=r"2 files .*\.env, sub/server\.pem$"):
        pack(tmp_path)
    warnings = pack(tmp_path, allow_keys=True).warnings
    assert [warning.split()[0] for warning in warnings] == keys
    assert all(".tpujobignore" in warning for warning in warnings)
    (tmp_path / ".tpujobignore").write_text(".env\n*.pem\n")
    assert pack(tmp_path).warnings == ()


def test_the_commit_and_branch_of_a_checkout_are_recorded(tmp_path: Path) -> None:
    assert pack(tmp_path).standing == NOWHERE, "no repository"
    git(tmp_path, "init", "-q", "-b", "main")
    write(tmp_path, "train.py", "old.py", "secret.txt", "data.txt")
    assert pack(tmp_path).standing == NOWHERE, "no commit"
    commit(tmp_path)
    clean = pack(tmp_path).standing
    assert len(clean["commit"]) == 40
    assert (clean["branch"], clean["dirty"], clean["diff"]) == ("main", False, "")

    (tmp_path / "train.py").write_text("print('changed')\n")
    (tmp_path / "secret.txt").write_text("TOKEN=hidden\n")
    (tmp_path / "old.py").unlink()
    (tmp_path / ".tpujobignore").write_text("secret.txt\n")
    dirty = pack(tmp_path).standing
    assert (dirty["commit"], dirty["branch"], dirty["dirty"]) == (clean["commit"], "main", True)
    assert "+print('changed')" in dirty["diff"]
    assert "-this is old.py" in dirty["diff"]
    assert "hidden" not in dirty["diff"], "the diff has only what is shipped"
    (tmp_path / "data.txt").write_text("line\n" * 100_000)
    long = pack(tmp_path).standing["diff"]
    assert len(long) < checkout.DIFF_LIMIT + 100
    assert long.endswith("[cut at 128 KiB]\n")
    git(tmp_path, "checkout", "-q", "--detach")
    assert pack(tmp_path).standing["branch"] == ""


def test_a_repository_that_git_refuses_is_no_reason_to_ship_everything(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, "secret")
    (tmp_path / ".git" / "config").write_text("[broken")
    with pytest.raises(BadSpec, match="git cannot list the files"):
        pack(tmp_path)


def test_without_the_list_of_git_nothing_of_a_repository_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, folder = tmp_path / "plain", tmp_path / "checkout" / "deep"
    write(tmp_path, "plain/a.py", "checkout/deep/secret")
    git(tmp_path / "checkout", "init", "-q")
    (folder / ".gitignore").write_text("*\n")
    with pytest.raises(BadSpec, match="there is none, or it ignores them all"):
        pack(folder)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(BadSpec, match="git, which knows the files to leave out, is not installed"):
        pack(folder)
    assert (pack(plain).files, pack(plain).by_git) == (("a.py",), False)


def test_variables_of_git_do_not_name_another_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        write(tmp_path / name, f"{name}.py", "secret")
        (tmp_path / name / ".gitignore").write_text("secret\n")
        git(tmp_path / name, "init", "-q")
        commit(tmp_path / name)
    other = tmp_path / "other"
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path / "one"))
    (tmp_path / "one" / "sub").mkdir()
    write(tmp_path / "one" / "sub", "b.py")
    assert pack(tmp_path / "one").files == (".gitignore", "one.py", "sub/b.py")
    assert pack(tmp_path / "one" / "sub").files == ("b.py",)
    (tmp_path / "one" / ".tpujobignore").write_text("one.py\n")
    assert pack(tmp_path / "one").files == (".gitignore", ".tpujobignore", "sub/b.py")


def test_pointers_of_git_lfs_are_named(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    write(tmp_path, "a.py")
    (tmp_path / "model.bin").write_text(pointer)
    (tmp_path / "notes.txt").write_text(pointer + "x" * 2000)
    assert pack(tmp_path).warnings == (
        "shipped as pointers of git-LFS, without their contents: model.bin; `git lfs pull` fetches them",
    )


def test_too_many_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a", "b")
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(archive.LIMIT)
    with pytest.raises(BadSpec, match=r"weights\.bin \(100\.0 MiB\)") as error:
        pack(tmp_path)
    assert ".tpujobignore" in error.value.hint
    write(tmp_path, "weights.bin")
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    pack(tmp_path)
    write(tmp_path, "d")
    with pytest.raises(BadSpec, match="has 4 files, more than 3"):
        pack(tmp_path)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "a/../../secret"])
def test_a_link_that_leads_outside_is_refused(tmp_path: Path, target: str) -> None:
    write(tmp_path, "secret", "code/a/b.py")
    (tmp_path / "code" / "link").symlink_to(target)
    with pytest.raises(BadSpec, match="link"):
        pack(tmp_path / "code")


def test_pipes_are_skipped_and_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert pack(tmp_path).files == ()
    with pytest.raises(BadSpec, match="nowhere is not a folder"):
        pack(tmp_path / "nowhere")
    unreadable = Path("/proc/self/mem")  # to anybody, root too
    with pytest.raises(BadSpec, match="cannot read /proc/self/mem"):
        archive._archive([("a.py", unreadable)])  # pyright: ignore[reportPrivateUsage]


def test_the_bundled_workloads_are_packed_once_as_their_package() -> None:
    packed = workloads_bundle()
    assert packed is workloads_bundle()
    assert {"workloads/__init__.py", "tpujob/contract/context.py"} <= set(packed.files)
    others = [name for name in packed.files if not name.endswith(".py")]
    assert others == [environment.LOCK]
