"""Differences between two jobs, and between their archives."""

import io
import random
import tarfile
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest

from tests.support.stage import Stage
from tests.support.stores import a_job
from tpujob.api import ChangeView, FileChangeView
from tpujob.domain.model import Outcome, State
from tpujob.protocol.bundle import BadBundle
from tpujob.service import diff


def archive(*files: tuple[str, bytes | str], programs: tuple[str, ...] = ()) -> diff.Opens:
    """Bytes are a file, text is where a link leads."""
    return opened(packed(files, programs))


def opened(data: bytes) -> diff.Opens:
    return partial(io.BytesIO, data)


def packed(files: Iterable[tuple[str, bytes | str]], programs: tuple[str, ...] = ()) -> bytes:
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


def test_variables_that_differ_are_shown_but_for_secrets() -> None:
    a = {"run": {"env": {"SAME": "1", "LR": "0.1", "HF_TOKEN": "canary-1", "MY_KEY": "canary-2"}}}
    b = {"run": {"env": {"SAME": "1", "LR": "0.2", "HF_TOKEN": "canary-3", "X_KEY": "canary-4"}}}
    assert diff.specs(a, b) == [
        ChangeView(key="run.env.LR", a="0.1", b="0.2"),
        ChangeView(key="run.env.HF_TOKEN", a="set", b="changed"),
        ChangeView(key="run.env.MY_KEY", a="set", b=None),
        ChangeView(key="run.env.X_KEY", a=None, b="set"),
    ]


def test_what_a_running_job_has_is_compared_as_it_is_now(stage: Stage) -> None:
    a, b = stage.create(run={"command": "t", "env": {"LR": "1"}}), stage.create()
    stage.running(a)
    for step, loss in ((10, 2.5), (780, 0.5166123456)):  # the record has the first alone
        stage.reports(a, step=step, loss=loss)
        stage.step(a)
        stage.clock.sleep(10)
    difference = stage.api.diff(a, b)
    shown = {c["key"]: (c["a"], c["b"]) for c in (*difference["spec"], *difference["outcome"])}
    assert stage.job(a).attempts[0].progress.step == 10
    assert (shown["step"], shown["loss"]) == ((780, None), (0.516612, None))
    assert shown["run.env.LR"] == ("1", None)
    assert "outcome" not in shown, "neither has ended"


def test_outcomes_say_how_far_and_for_how_much() -> None:
    a = a_job()
    b = replace(
        a, state=State.FAILED, retries_used={"preemptions": 2}, finished_at=a.created_at + 60
    )
    changed = {c["key"]: (c["a"], c["b"]) for c in diff.outcomes(a, b, a.created_at + 100)}
    assert changed["state"] == (a.state, "failed")
    assert changed["spent.preemptions"] == (None, 2)
    assert changed["seconds"] == (100, 60)
    ended = replace(b, outcome=Outcome.FAILED)
    (outcome,) = (c for c in diff.outcomes(a, ended, a.created_at + 100) if c["key"] == "outcome")
    assert (outcome["a"], outcome["b"]) == ("not ended yet", "failed")


def test_files_differ_by_content_mode_and_presence() -> None:
    a = archive(
        ("same", b"1\n"),
        ("text", b"a\nb\n"),
        ("run.sh", b"x"),
        ("gone", b"g"),
        ("l", "a"),
        ("latin", b"caf\xe9"),
    )
    b = archive(
        ("same", b"1\n"),
        ("text", b"a\nc\n"),
        ("run.sh", b"x"),
        ("l", "b"),
        ("bin", b"\0"),
        ("latin", b"tea\n"),
        programs=("run.sh",),
    )
    changes, cut = diff.files([a], [b])
    assert not cut
    assert [(f["path"], f["change"]) for f in changes] == [
        ("bin", "added"),
        ("gone", "removed"),
        ("l", "changed"),
        ("latin", "changed"),
        ("run.sh", "mode"),
        ("text", "changed"),
    ]
    shown = {f["path"]: f["diff"] for f in changes}
    assert (shown["bin"], shown["latin"]) == ("", ""), "one of them is not text"
    assert shown["text"] == "--- a/text\n+++ b/text\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert "+link to b" in shown["l"]


def test_a_later_archive_lies_over_an_earlier_one() -> None:
    below, above = archive(("a", b"1\n")), archive(("a", b"2\n"))
    assert diff.files([below, above], [above]) == ([], False)
    changes, _ = diff.files([below, above], [above, below])
    assert [f["path"] for f in changes] == ["a"]
    assert "-2\n+1" in changes[0]["diff"]


def test_text_that_is_too_long_is_left_out_and_marked() -> None:
    long = b"".join(b"%d\n" % n for n in range(30_000))
    changes, cut = diff.files([archive()], [archive(("a", long), ("b", b"1\n"), ("c", long))])
    assert cut
    assert [bool(f["diff"]) for f in changes] == [True, True, False]
    huge = bytes(diff.FILE_LIMIT + 1)
    assert diff.files([archive()], [archive(("huge", huge))])[0] == [
        FileChangeView(path="huge", change="added", diff="")
    ]


def test_archives_that_unpack_to_much_are_not_compared() -> None:
    assert len(diff.files([], [archive(("a", b"1" * 6), ("b", b"1" * 4))], room=10)[0]) == 2
    with pytest.raises(BadBundle, match="too large to compare"):
        diff.files([], [archive(("a", b"1" * 6)), archive(("b", b"1" * 5))], room=10)


def test_a_small_archive_that_unpacks_to_much_takes_little_memory() -> None:
    large = packed([(f"f{n}", bytes(4 << 20)) for n in range(20)])
    assert len(large) < 100_000
    tracemalloc.start()
    try:
        changes, _ = diff.files([archive()], [opened(large)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(changes) == 20
    assert peak < 8 << 20, f"{peak >> 20} MiB were held at once"


@pytest.mark.parametrize(
    "bad",
    [b"", b"no archive", packed([("a", random.Random(1).randbytes(9999))])[:-200]],
    ids=["empty", "text", "cut"],
)
def test_a_file_that_is_no_archive_is_reported(bad: bytes) -> None:
    with pytest.raises(BadBundle, match="not a valid archive"):
        diff.files([opened(bad)], [archive()])


def module(number: int, changed: str) -> tuple[str, bytes]:
    lines = [f"line {n} of {number}\n" for n in range(100)]
    return f"module_{number:04}.py", "".join([*lines[:50], changed, *lines[50:]]).encode()


def test_an_archive_is_not_read_again_for_each_file_that_changed() -> None:
    reads = 0

    def counted(data: bytes) -> io.BytesIO:
        nonlocal reads
        reads += 1
        return io.BytesIO(data)

    old, new = (packed(module(n, changed) for n in range(300)) for changed in ("a\n", "b\n"))
    changes, cut = diff.files([partial(counted, old)], [partial(counted, new)])
    assert not cut
    assert all("-a\n+b\n" in file["diff"] for file in changes)
    assert len(changes) == 300
    assert reads == 4, "twice each: for the hashes, and for the texts"


def test_files_that_take_long_to_compare_are_shown_as_replaced() -> None:
    """Python's difflib takes minutes for some files of half a megabyte."""
    lines = [b"%d\n" % (n % 101) for n in range(100_000)]
    turned = b"".join(lines[::-1])
    changes, cut = diff.files([archive(("a", b"".join(lines)))], [archive(("a", turned))])
    assert (changes[0]["change"], changes[0]["diff"], cut) == ("changed", "", True)
    few = diff._Shown()  # pyright: ignore[reportPrivateUsage]
    few._lines_left = 0  # pyright: ignore[reportPrivateUsage]
    assert few.diff("x", ["1\n", "2"], ["1\n", "3\n"]) == (
        "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-1\n-2\n+1\n+3\n"
    )


def test_a_bundle_is_fetched_in_pieces(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    monkeypatch.setattr(diff, "PIECE", 1000)
    files = [(f"f{n}", random.Random(n).randbytes(700)) for n in range(20)]
    jobs = [a_job(bundles=(f"gs://b/{n}.tar.gz",)) for n in range(2)]
    stage.bucket.put(jobs[0].bundles[0], packed(files), timeout=1)
    stage.bucket.put(jobs[1].bundles[0], packed([*files[1:], ("new", b"1\n")]), timeout=1)
    view = diff.compare(*jobs, stage.bucket, 0.0)
    assert [(f["path"], f["change"]) for f in view["files"]] == [
        ("f0", "removed"),
        ("new", "added"),
    ]
    stage.bucket.put(jobs[1].bundles[0], b"rubbish", timeout=1)
    assert "not a valid archive" in diff.compare(*jobs, stage.bucket, 0.0)["files_unknown"]
