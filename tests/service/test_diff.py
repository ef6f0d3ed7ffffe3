"""What differs between two jobs, and between their archives."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace

import pytest

from tests.support.stores import a_job
from tpujob.api import ChangeView, FileChangeView
from tpujob.domain.model import State
from tpujob.service import diff


def archive(*files: tuple[str, bytes | str], programs: tuple[str, ...] = ()) -> bytes:
    """Bytes are a file, text is where a link leads."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755 if name in programs else 0o644
                tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def test_specs_differ_by_dotted_key() -> None:
    a = {"name": "x", "tpu": {"type": "v4-8", "zones": []}, "run": {"args": {"lr": 1}}}
    b = {"name": "x", "tpu": {"type": ["v4-8", "v4-16"], "zones": []}, "run": {"args": {}}}
    assert diff.specs(a, b) == [
        ChangeView(key="tpu.type", a="v4-8", b=["v4-8", "v4-16"]),
        ChangeView(key="run.args.lr", a=1, b=None),
        ChangeView(key="run.args", a=None, b={}),
    ]
    assert diff.specs(a, a) == []


def test_outcomes_say_how_far_and_for_how_much() -> None:
    a = a_job()
    b = replace(a, state=State.FAILED, spent={"preemptions": 2}, finished_at=a.created_at + 60)
    changed = {c["key"]: (c["a"], c["b"]) for c in diff.outcomes(a, b, a.created_at + 100)}
    assert changed["state"] == (a.state, "failed")
    assert changed["spent.preemptions"] == (None, 2)
    assert changed["seconds"] == (100, 60)


def test_files_differ_by_content_mode_and_presence() -> None:
    a = archive(("same", b"1\n"), ("text", b"a\nb\n"), ("run.sh", b"x"), ("gone", b"g"), ("l", "a"))
    b = archive(
        ("same", b"1\n"),
        ("text", b"a\nc\n"),
        ("run.sh", b"x"),
        ("l", "b"),
        ("bin", b"\0"),
        programs=("run.sh",),
    )
    found, cut = diff.files([a], [b])
    assert not cut
    assert [(f["path"], f["change"]) for f in found] == [
        ("bin", "added"),
        ("gone", "removed"),
        ("l", "changed"),
        ("run.sh", "mode"),
        ("text", "changed"),
    ]
    shown = {f["path"]: f["diff"] for f in found}
    assert shown["bin"] == ""
    assert shown["text"] == "--- a/text\n+++ b/text\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert "+link to b" in shown["l"]


def test_a_later_archive_lies_over_an_earlier_one() -> None:
    below, above = archive(("a", b"1\n")), archive(("a", b"2\n"))
    assert diff.files([below, above], [above]) == ([], False)
    found, _ = diff.files([below, above], [above, below])
    assert [f["path"] for f in found] == ["a"]
    assert "-2\n+1" in found[0]["diff"]


def test_text_that_is_too_long_is_left_out_and_marked() -> None:
    long = b"".join(b"%d\n" % n for n in range(30_000))
    found, cut = diff.files([archive()], [archive(("a", long), ("b", b"1\n"), ("c", long))])
    assert cut
    assert [bool(f["diff"]) for f in found] == [True, True, False]
    huge = bytes(diff.FILE_LIMIT + 1)
    assert diff.files([archive()], [archive(("huge", huge))])[0] == [
        FileChangeView(path="huge", change="added", diff="")
    ]


def test_binary_files_are_compared_without_their_lines() -> None:
    found, cut = diff.files([archive(("latin", b"caf\xe9"))], [archive(("latin", b"tea\n"))])
    assert (found, cut) == ([FileChangeView(path="latin", change="changed", diff="")], False)


def test_archives_that_unpack_to_very_much_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diff, "UNPACKED_LIMIT", 10)
    assert len(diff.files([], [archive(("a", b"1" * 6), ("b", b"1" * 4))])[0]) == 2
    with pytest.raises(ValueError, match="too large to compare"):
        diff.files([], [archive(("a", b"1" * 6)), archive(("b", b"1" * 5))])


@pytest.mark.parametrize(
    "bad", [b"", b"no archive", archive(("a", b"1" * 9999))[:-20]], ids=["empty", "text", "cut"]
)
def test_a_file_that_is_no_archive_is_reported(bad: bytes) -> None:
    with pytest.raises(ValueError, match="no archive"):
        diff.files([bad], [archive()])
