"""`tpujob outputs` and `tpujob cp` as a user types them: a scripted backend in front of an emulated storage."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.contract.data.rig import Rig
from tests.contract.emulator.storage_rig import ask
from tests.support.commands import Output, Tpujob, stand_in, withdraw
from tests.support.scripted import ScriptedJobs, api, front, url
from tpujob.api import FilesAccess
from tpujob.data.keys import PARTS_FOLDER

__all__ = ["api", "front", "url"]

WORKDIR = "u/ada/jobs/000042-1234"
SAVED = {
    "checkpoints/200/params/0": b"p" * 300_000,
    "checkpoints/200/_METADATA": b"{}",
    "checkpoints/300/_METADATA": b"{}",
    "outputs/host-0/loss.csv": b"0.5",
    "outputs/host-1/loss.csv": b"0.25",
}


class Desk:
    """A folder in which a person types commands, and a job with files."""

    def __init__(self, rig: Rig, folder: Path, api: ScriptedJobs, tpujob: Tpujob) -> None:
        self.rig, self.folder, self.api, self._tpujob = rig, folder, api, tpujob
        self.answers("000042", "digits")

    def answers(self, job: str, name: str) -> None:
        """Let the backend answer with the files of that job."""
        workdir = f"gs://{self.rig.bucket}/{WORKDIR.replace('000042', job)}"
        self.api.files = FilesAccess(
            id=job, name=name, workdir=workdir, endpoint=self.rig.url, token="", expires_at=""
        )

    def save(self, files: dict[str, bytes], job: str = "000042") -> None:
        for path, data in files.items():
            self.rig.put(f"{WORKDIR.replace('000042', job)}/{path}", data)

    def cp(self, *words: str, code: int = 0) -> Output:
        return self._tpujob("cp", *words, code=code)

    def files(self) -> dict[str, bytes]:
        """Return the files of the folder."""
        assert not [*self.folder.rglob(PARTS_FOLDER)]
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def stored(self, path: str) -> bytes:
        name = quote(f"{WORKDIR}/{path}", safe="")
        status, _, data = ask(
            self.rig.url, "GET", f"/storage/v1/b/{self.rig.bucket}/o/{name}?alt=media"
        )
        assert status == 200, (path, data)
        return data


@pytest.fixture
def desk(
    rig: Rig,
    tmp_path: Path,
    url: str,
    api: ScriptedJobs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Desk]:
    state, folder = tmp_path / "state", tmp_path / "desk"
    (state / "run").mkdir(parents=True, mode=0o700)
    folder.mkdir()
    stand_in(state, "backend", url=url)
    monkeypatch.setenv("TPUJOB_STATE", str(state))
    monkeypatch.setenv("TPUJOB_USER", "ada")
    monkeypatch.delenv("TPUJOB_CONTEXT", raising=False)
    monkeypatch.chdir(folder)
    made = Desk(rig, folder, api, Tpujob(state, capsys))
    made.save(SAVED)
    yield made
    withdraw(state, "backend")


def test_a_checkpoint_is_copied_here_whole_and_verified(desk: Desk) -> None:
    output = desk.cp("42:checkpoints/200", ".").out
    assert "Copied 2 objects, 293.0 KiB" in output
    assert "each verified by its CRC32C" in output
    assert desk.files() == {
        "200/_METADATA": b"{}",
        "200/params/0": SAVED["checkpoints/200/params/0"],
    }
    assert desk.api.named("read_files") == [{"job": "42"}]
    assert not desk.api.named("write_files"), "to read is enough"


def test_an_interrupted_copy_is_continued_by_the_same_command(desk: Desk) -> None:
    """The first copy has brought one file; another file of the folder is the user's own."""
    desk.cp("42:checkpoints/200/_METADATA", "200/_METADATA")
    (desk.folder / "200/mine").write_bytes(b"mine")
    for copied, there in ((1, 1), (0, 2)):
        record = desk.cp("42:checkpoints/200", ".", "--json").json
        assert (record["objects"], record["same"]) == (copied, there)
    assert desk.files()["200/mine"] == b"mine"


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (("42:outputs/host-0/loss.csv", "."), ["loss.csv"]),
        (("42:outputs/host-0/loss.csv", "first.csv"), ["first.csv"]),
        (("42:outputs/host-0/loss.csv", "new/"), ["new/loss.csv"]),
        (("42:outputs/host-0/loss.csv", "new/first.csv"), ["new/first.csv"]),
        (("42:outputs/host-*/*.csv", "."), ["host-0/loss.csv", "host-1/loss.csv"]),
        (("42:checkpoints/*/_METADATA", "x"), ["x/200/_METADATA", "x/300/_METADATA"]),
        (("42:checkpoints/3*", "42:outputs/host-1", "."), ["300/_METADATA", "host-1/loss.csv"]),
        (("42:checkpoints/300/", "x"), ["x/300/_METADATA"]),
    ],
)
def test_what_is_named_is_copied_under_the_name_that_one_expects(
    desk: Desk, words: tuple[str, ...], files: list[str]
) -> None:
    desk.cp(*words)
    assert [*desk.files()] == files


def test_files_of_several_jobs_get_a_folder_for_each(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.save({"outputs/host-0/loss.csv": b"0.1"}, job="000043")

    def read_files(_: ScriptedJobs, job: str) -> FilesAccess:
        desk.answers(*{"42": ("000042", "digits"), "sweep-1": ("000043", "sweep-1")}[job])
        return desk.api.files

    monkeypatch.setattr(ScriptedJobs, "_on_read_files", read_files, raising=False)
    output = desk.cp("42:outputs/host-0", "sweep-[1-1]:outputs/host-0", "all").out
    assert "sweep-1 (000043): Copied 1 object" in output
    assert desk.files() == {
        "all/digits/host-0/loss.csv": b"0.5",
        "all/sweep-1/host-0/loss.csv": b"0.1",
    }


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("mine/a.txt", "42:outputs"), "outputs/a.txt"),
        (("mine/a.txt", "42:outputs/b.txt"), "outputs/b.txt"),
        (("mine/a.txt", "42:outputs/new/"), "outputs/new/a.txt"),
        (("mine/a.txt", "42:outputs/host-0"), "outputs/host-0/a.txt"),
        (("mine", "42:checkpoints"), "checkpoints/mine/a.txt"),
        (("mine/", "42:checkpoints/x"), "checkpoints/x/mine/a.txt"),
    ],
)
def test_files_are_copied_to_the_job_and_a_repeat_sends_nothing(
    desk: Desk, words: tuple[str, ...], path: str
) -> None:
    (desk.folder / "mine").mkdir()
    (desk.folder / "mine/a.txt").write_bytes(b"hello")
    assert desk.cp(*words, "--json").json["objects"] == 1
    assert desk.stored(path) == b"hello"
    assert desk.cp(*words, "--json").json["same"] == 1
    assert desk.api.named("write_files") == [{"job": "42"}] * 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("42:checkpoints/999", "."), 3, "job 000042: it has nothing at 'checkpoints/999'"),
        (("42:checkpoints/200",), 2, "where to?"),
        (("42:checkpoints", "43:checkpoints"), 2, "nothing is copied between two jobs"),
        (("a", "b"), 2, "nothing is copied between two folders of this machine"),
        (("missing", "42:outputs/"), 3, "there is no file or folder missing"),
        (("mine.txt", "42:attempts/1/x"), 2, "files are copied below checkpoints/ and outputs/"),
        (("mine.txt", "42:"), 2, "files are copied below checkpoints/ and outputs/"),
        (("gs://b/x", "."), 2, "`tpujob data sync` copies from and to buckets"),
        (("42:../000041/checkpoints", "."), 2, "names no place in the bucket"),
        (("42:outputs/host-0/loss.csv", "42:outputs/host-1/loss.csv", "."), 2, "two of the named"),
    ],
)
def test_a_wrong_command_copies_nothing(
    desk: Desk, words: tuple[str, ...], code: int, says: str
) -> None:
    (desk.folder / "mine.txt").write_bytes(b"mine")
    assert says in desk.cp(*words, code=code).err
    assert desk.files() == {"mine.txt": b"mine"}


def test_a_file_in_the_place_of_a_folder_is_kept_and_named(desk: Desk) -> None:
    (desk.folder / "300").write_bytes(b"mine")
    output = desk.cp("42:checkpoints/300", ".", code=6).out
    assert "Not copied: 1 name" in output
    assert (desk.folder / "300").read_bytes() == b"mine"


def test_a_job_of_somebody_else_is_refused_in_one_sentence(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpujob.errors import Forbidden

    def refuse(_: ScriptedJobs, job: str) -> FilesAccess:
        raise Forbidden(f"`tpujob cp` of job {job}, which is not eve's, needs the role admin")

    monkeypatch.setattr(ScriptedJobs, "_on_read_files", refuse, raising=False)
    err = desk.cp("41:checkpoints", ".", code=Forbidden.exit_code).err
    assert "which is not eve's, needs the role admin" in err
    assert json.loads(desk.cp("41:x", ".", "--json", code=Forbidden.exit_code).err)
