"""`data.sync` against the emulated Cloud Storage: what is copied, what is left out, what it costs, what conflicts."""

import errno
import os
import random
from functools import partialmethod
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from google.cloud.storage import Client

from tests.contract.data.rig import Requests, Rig, files_in, named, split_uploads
from tests.support.waiting import LONG
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.data.objects import LocalFile
from tpujob.data.sync import upload
from tpujob.data.sync.stream_copy import GONE
from tpujob.errors import BadRequest, NotFound, TpujobError, Transient

ODD = {
    "empty": b"",
    "a b": b"space",
    "%2F": b"percent",
    "plus+": b"plus",
    "cafe\u0301": b"NFD",
    "caf\u00e9": b"NFC",
    "a\tb": b"tab",
    "-r": b"dash",
    "deep/er/est": b"deep",
    "?#&=": b"query",
    "\U0001f600": b"smile",
    "x" * 255: b"long",
}


def test_a_folder_comes_back_byte_for_byte(rig: Rig) -> None:
    files = ODD | {f"many/{i:04d}": os.urandom(i % 50) for i in range(60)}
    rig.write(files)
    done = rig.sync()
    assert (done.copied, done.left_out, done.conflicts) == (len(files), 0, 0)
    assert rig.stored() == files
    back = rig.folder / "back"
    done = rig.sync(rig.place, back)
    assert (done.copied, done.copied_bytes) == (len(files), sum(map(len, files.values())))
    assert files_in(back) == files, "and nothing else, no unfinished file"


def test_a_second_run_only_lists_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "list_blobs", partialmethod(Client.list_blobs, page_size=100))
    rig.write({f"{i:04d}": b"x" * (i % 7) for i in range(101)})
    rig.sync()
    again = rig.sync()
    assert (again.copied, again.sent_bytes, again.same) == (0, 0, 101)
    assert (rig.objects.operations.class_a, rig.objects.operations.class_b) == (2, 0), "two pages"
    rig.sync(rig.place, rig.folder / "back")
    down = rig.sync(rig.place, rig.folder / "back")
    assert (down.copied, down.sent_bytes, down.same) == (0, 0, 101)
    assert (rig.objects.operations.class_a, rig.objects.operations.class_b) == (2, 0)


def test_a_manifest_comes_last_and_only_when_all_else_is_there(rig: Rig) -> None:
    """A packed set whose manifest is there counts as whole."""
    rig.write(
        {"set/manifest.json": b"{}", "set/z-shard": b"s", **{f"x{i:03d}": b"x" for i in range(99)}}
    )
    (rig.source / "set" / "gone").symlink_to(rig.source / "nowhere")
    broken = rig.sync()
    assert broken.left_out == 2
    assert "set/manifest.json" not in rig.stored()
    assert "set/z-shard" in rig.stored()
    (rig.source / "set" / "gone").unlink()
    assert rig.sync().left_out == 0
    assert rig.stored()["set/manifest.json"] == b"{}"


def test_only_the_content_says_what_differs(rig: Rig) -> None:
    rig.write({"same": b"same", "edited": b"before", "longer": b"short"})
    rig.sync()
    os.utime(rig.source / "same")
    old = (rig.source / "edited").stat()
    rig.write({"edited": b"after!", "longer": b"not short", "new": b"new"})
    os.utime(rig.source / "edited", ns=(old.st_atime_ns, old.st_mtime_ns))  # same size, same mtime
    done = rig.sync()
    assert (done.copied, done.same) == (3, 1)
    assert rig.stored() == {
        "same": b"same", "edited": b"after!", "longer": b"not short", "new": b"new",
    }  # fmt: skip


@pytest.mark.parametrize("up", [True, False])
def test_the_preview_says_what_the_run_does(rig: Rig, up: bool) -> None:
    rig.write({f"{i}": b"x" * i for i in range(30)})
    if not up:
        rig.sync()
    ends = ("", "") if up else (rig.place, rig.folder / "back")
    preview = rig.preview(*ends)
    assert rig.stored() == ({} if up else files_in(rig.source)), "nothing was written"
    assert not (rig.folder / "back").exists()
    done = rig.sync(*ends)
    counts = preview.objects, preview.bytes, preview.same
    assert counts == (done.copied, done.copied_bytes, done.same)
    used = rig.objects.operations
    assert (preview.class_a, preview.class_b) == (used.class_a, used.class_b)


def test_names_without_a_counterpart_are_left_out_by_name_and_the_others_go_on(rig: Rig) -> None:
    rig.write({"good": b"1", "line\nbreak": b"2"})
    (rig.source / "link").symlink_to("/etc/hostname")
    Path(os.fsdecode(os.fsencode(rig.source) + b"/caf\xe9")).write_bytes(b"3")
    done = rig.sync()
    assert (done.copied, done.left_out) == (1, 3)
    assert set(named(done.problems)) == {"line\nbreak", "link", "caf\\xe9"}
    for name in ("a//b", "dir/", "a/../b", "good/below"):
        rig.put(f"data/{name}", b"x")
    down = rig.sync(rig.place, rig.folder / "back")
    assert files_in(rig.folder / "back").keys() - {".tpujob-parts/lock"} == {"good"}
    assert set(named(down.problems)) == {"a//b", "dir/", "a/../b", "good/below"}


def test_a_file_that_the_disk_cannot_read_is_left_out_and_a_full_disk_ends_the_sync(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.write({"bad": b"1", "good": b"2"})
    opened, trouble = upload.open_unchanged, errno.EIO

    def refuse(file: LocalFile) -> BinaryIO:
        if file.key == "bad":
            raise OSError(trouble, os.strerror(trouble))
        return opened(file)

    monkeypatch.setattr(upload, "open_unchanged", refuse)
    done = rig.sync()
    assert (done.copied, named(done.problems)) == (1, {"bad": "the file: Input/output error"})
    trouble = errno.ENOSPC
    with pytest.raises(TpujobError, match="No space left"):
        rig.sync()


def test_a_download_writes_through_no_link_and_over_no_folder(rig: Rig) -> None:
    rig.put("data/out/file", b"x")
    rig.put("data/folder", b"x")
    back = rig.folder / "back"
    (back / "folder" / "full").mkdir(parents=True)
    (rig.folder / "elsewhere").mkdir()
    (back / "out").symlink_to(rig.folder / "elsewhere")
    done = rig.sync(rig.place, back)
    assert (done.copied, done.left_out) == (0, 2)
    assert set(named(done.problems)) == {"out/file", "folder"}
    assert not list((rig.folder / "elsewhere").iterdir())


class Meddling(JsonObjects):
    """Cloud Storage in which another program writes between the list and the write of a sync."""

    def __init__(self, rig: Rig, data: bytes) -> None:
        super().__init__(rig.url, patience=LONG)
        self._rig, self._data = rig, data

    def pages(self, bucket: str, prefix: str) -> Any:
        pages = list(super().pages(bucket, prefix))
        self._rig.put("data/fought", self._data)
        return iter(pages)


@pytest.mark.parametrize("before", [b"", b"listed"])
def test_what_another_program_wrote_is_reported_once_and_kept(rig: Rig, before: bytes) -> None:
    if before:
        rig.put("data/fought", before)
    rig.write({"fought": b"ours", "free": b"free"})
    done = rig.sync(objects=Meddling(rig, b"theirs"))
    assert (done.copied, done.conflicts) == (1, 1)
    assert [problem.name for problem in done.problems] == ["fought"]
    assert rig.stored() == {"fought": b"theirs", "free": b"free"}


def test_the_same_bytes_from_another_program_are_no_conflict(rig: Rig) -> None:
    rig.write({"fought": b"ours"})
    assert rig.sync(objects=Meddling(rig, b"ours")).conflicts == 0


def test_an_object_may_change_in_mid_copy(rig: Rig) -> None:
    rig.put("data/file", b"before")
    replaced = rig.before("open", lambda: rig.put("data/file", b"after"))
    done = rig.sync(rig.place, rig.folder / "back", replaced)
    assert (done.copied, named(done.problems)) == (0, {"file": GONE})
    assert rig.sync(rig.place, rig.folder / "back").copied == 1
    assert files_in(rig.folder / "back") == {"file": b"after"}


def test_a_file_may_change_in_mid_copy(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    split_uploads(monkeypatch, 1 << 20)
    rig.write({"file": random.Random(1).randbytes(3 << 20), "still": b"still"})

    class Edited(Requests):
        """The file is changed before its second piece is read."""

        def write_request(self, send: Any, method: str, url: str, **options: Any) -> Any:
            if method == "PUT":
                with (rig.source / "file").open("r+b") as file:
                    file.write(b"changed")
            return super().write_request(send, method, url, **options)

    done = rig.sync(objects=Edited(rig.url, patience=LONG))
    assert named(done.problems) == {"file": "it was written to while it was being copied"}
    assert rig.stored() == {"still": b"still"}
    assert rig.sync().copied == 1


def test_a_local_file_that_was_edited_during_a_download_stays(rig: Rig) -> None:
    rig.put("data/file", b"theirs")
    back = rig.folder / "back"
    back.mkdir()

    edited = rig.before("open", lambda: (back / "file").write_bytes(b"edited"))
    done = rig.sync(rig.place, back, edited)
    assert done.conflicts == 1
    assert (back / "file").read_bytes() == b"edited"


def test_what_is_not_there_is_one_clear_error(rig: Rig) -> None:
    with pytest.raises(NotFound, match="no folder"):
        rig.sync(rig.folder / "missing")
    rig.write({"file": b"x"})
    with pytest.raises(BadRequest, match="not a folder"):
        rig.sync(rig.source / "file")
    with pytest.raises(NotFound, match=r"bucket does not exist"):
        rig.sync(target="gs://no-such-bucket/x")
    with pytest.raises(NotFound, match=r"nothing below gs://"):
        rig.sync(rig.place, rig.folder / "back")
    with pytest.raises(BadRequest):
        rig.sync(rig.source, rig.folder / "back")
    with pytest.raises(TpujobError):
        rig.sync(rig.place, rig.source / "file")
    with pytest.raises(Transient, match="does not answer"):
        rig.sync(objects=JsonObjects("http://127.0.0.1:9", patience=0.3))
